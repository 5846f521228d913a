// Package rules evaluates the rules of Prometheus' rule files: alerting rules as Prometheus does, by its manager, and recording rules without
// gaps.
//
//	rules.go     the lease, and what runs under it
//	session.go   Prometheus' manager over the files as they are now
//	group.go     the recording rules of a group: which steps are due, and storing them
//	record.go    one rule over a range of steps
//	compare.go   how what is stored differs from what a rule has now, and correcting it
//	late.go      which steps are evaluated anew because samples came late
//	backfill.go  a group recorded at earlier times by hand
//	before.go    what a rule must not see that reads itself
//	load.go      what a file says that Prometheus does not know: from when on a new rule is evaluated
//	state.go     how far a group is, in META
//	metrics.go   metrics
//
// A recording rule is evaluated by range queries on the grid that Prometheus evaluates its group on: a group has offset and interval, and META says
// up to which step each of its rules is done. What is missing is evaluated in order, whatever the reason: a restart, an outage, a slow store, a new
// rule that begins in the past. Each evaluation of a step stores the same samples, with markers of staleness where a series ends, so it does not matter if
// one is repeated, by this process or another one.
//
// Prometheus' manager evaluates alerting rules, and knows the state of all rules: for a recording rule it gets what was recorded.
package rules

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
)

// retryInterval is how long after a failure, or while another process evaluates, it is tried again.
const retryInterval = 5 * time.Second

// leaseTime is how long nothing is evaluated after a process has died that did.
const leaseTime = time.Minute

// Config says what a Runner evaluates, and with what. All but Notify, Logger and Registerer is required.
type Config struct {
	// Files are patterns of the rule files.
	Files []string
	// Interval is that of groups that have none.
	Interval time.Duration
	// QueryOffset is how much earlier than its time a group is evaluated that does not say it.
	QueryOffset time.Duration
	// Reevaluate is for how long late samples change what is recorded. 0 is not at all.
	Reevaluate time.Duration
	// Lookback is that of Engine.
	Lookback time.Duration
	// Engine and Queryable answer queries, of the tenant of a context. A query that lacks something fails.
	Engine    promql.QueryEngine
	Queryable storage.Queryable
	Parser    parser.Parser
	// StoreFailed says whether an error of a query is the store's, which may end, and not the expression's.
	StoreFailed func(error) bool
	// Append stores samples of the tenant of a context.
	Append func(ctx context.Context, batch []ingest.Series, rejected *ingest.Rejected) (ingest.Stored, error)
	// Store has META, with keys of Schema.
	Store  bucketstore.Store
	Schema series.Schema
	// Holder names the process, for operators.
	Holder string
	// Notify is called with alerts. It may be nil.
	Notify      rules.NotifyFunc
	ExternalURL *url.URL
	// Metrics are those of Prometheus' groups.
	Metrics *rules.Metrics
	Now     func() time.Time
	Logger  log.Logger
	// Slog is Logger for Prometheus' code.
	Slog       *slog.Logger
	Registerer prometheus.Registerer
}

// A Runner evaluates the rules of one tenant, or of a store without tenants. It is safe for concurrent use.
type Runner struct {
	cfg     Config
	metrics *metrics
	reloads chan chan error
	// evaluated is a time after which no written sample is late for a group.
	evaluated atomic.Int64
	// late are those of all groups.
	late atomic.Pointer[[]*lateSteps]

	mu sync.Mutex
	// current is what the files said last.
	current *session
}

// New returns a Runner. The error names the file that is wrong. ctx has the tenant.
func New(ctx context.Context, cfg Config) (*Runner, error) {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.Slog == nil {
		cfg.Slog = slog.New(slog.DiscardHandler)
	}
	if cfg.Notify == nil {
		cfg.Notify = func(context.Context, string, ...*rules.Alert) {}
	}
	r := &Runner{cfg: cfg, metrics: newMetrics(cfg.Registerer), reloads: make(chan chan error)}
	s, err := r.newSession(ctx)
	if err != nil {
		return nil, err
	}
	r.current = s
	return r, nil
}

// RuleGroups and AlertingRules implement the retriever of Prometheus' API.
func (r *Runner) RuleGroups() []*rules.Group { return r.session().manager.RuleGroups() }

// AlertingRules returns all alerting rules.
func (r *Runner) AlertingRules() []*rules.AlertingRule { return r.session().manager.AlertingRules() }

func (r *Runner) session() *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// files returns the files that the patterns name now, each once.
func (r *Runner) files() (all []string, err error) {
	for _, pattern := range r.cfg.Files {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Reload reads the files again. If one is wrong, the rules stay as they were, and the error names it.
func (r *Runner) Reload(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case r.reloads <- answer:
	case <-ctx.Done():
		return ctx.Err()
	}
	return <-answer
}

// Run evaluates the rules until ctx ends, whenever no other process does. ctx is that of New.
func (r *Runner) Run(ctx context.Context) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.current.stop()
	}()
	for {
		lease := jobs.NewLease(r.cfg.Store, r.leaseKey(), r.cfg.Now, r.cfg.Holder, func(h *meta.Holding) *meta.Holding { return h }).For(leaseTime)
		err := lease.Run(ctx, nil, func(ctx context.Context) error { return r.work(ctx, lease) })
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !errors.Is(err, jobs.ErrHeld):
			level.Warn(r.cfg.Logger).Log("msg", "rules are not evaluated, trying again", "err", err)
		}
		r.serveReloads(ctx, retryInterval)
	}
}

// serveReloads answers Reload for some time.
func (r *Runner) serveReloads(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case answer := <-r.reloads:
			answer <- r.session().load()
		}
	}
}

// work evaluates while the lease is held.
func (r *Runner) work(ctx context.Context, lease *jobs.Lease[meta.Holding]) error {
	level.Info(r.cfg.Logger).Log("msg", "evaluating rules", "groups", len(r.RuleGroups()))
	r.metrics.evaluates.Set(1)
	defer r.metrics.evaluates.Set(0)
	s := r.session()
	s.start()
	for {
		r.serveReloads(ctx, retryInterval)
		err := ctx.Err()
		if err == nil {
			err = lease.Keep(ctx)
		}
		if err == nil {
			continue
		}
		s.stop()
		if ctx.Err() != nil {
			return nil
		}
		next, loadErr := r.newSession(ctx)
		if loadErr != nil { // a file is wrong by now: what it said before is not evaluated any more
			return errors.Join(err, loadErr)
		}
		r.mu.Lock()
		r.current = next
		r.mu.Unlock()
		return err
	}
}

// leaseKey is the key of the row that says which process evaluates.
func (r *Runner) leaseKey() string { return r.stateKey("") }
