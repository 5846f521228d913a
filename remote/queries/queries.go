// Package queries knows the queries that run: it lists them, cancels one, and refuses those that a rule blocks.
//
//	queries.go    the queries that run
//	answer.go     how large their answers may be
//	rules.go      rules that block queries, and how a file has them
//	blockfile.go  the file of rules, read again when it changes
package queries

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/scope"
)

// The kinds of queries beside those of the log of slow queries.
const (
	// Series is a list of series, and Labels one of label names or values.
	Series = "series"
	Labels = "labels"
	// Exemplars are those of an expression.
	Exemplars = "exemplars"
)

// kinds are all of them.
var kinds = []string{request.QueryInstant, request.QueryRange, request.QueryRead, Series, Labels, Exemplars}

// ErrCancelled is the error of a query that an operator has cancelled. Its status is 422 and not 503, after which clients would
// send the query again. It wraps context.Canceled, by which Prometheus' API knows it as canceled.
var ErrCancelled = request.WithStatus(http.StatusUnprocessableEntity, "%w", cancelled{})

type cancelled struct{}

func (cancelled) Error() string { return "the query was cancelled by an operator" }
func (cancelled) Unwrap() error { return context.Canceled }

// Cause returns err, or ErrCancelled in place of it if an operator has cancelled the query of ctx.
func Cause(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrCancelled) {
		return ErrCancelled
	}
	return err
}

// A Query is what a client asks for.
type Query struct {
	Kind string
	// Exprs is an expression, or the selectors of a request that has several.
	Exprs []string
	// Start and End are the times that it asks for, or zero.
	Start, End time.Time
	// Step is 0 but for range queries.
	Step   time.Duration
	Client request.Client
}

// text is the query as it is listed.
func (q *Query) text() string { return request.AbbreviateQuery(strings.Join(q.Exprs, "; ")) }

// A Running is a query that runs, or waits for others, as it is listed.
type Running struct {
	// ID names it among all queries of this process, and of those before it.
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	Query string `json:"query"`
	// Start, End and Step are in milliseconds.
	Start *int64 `json:"start,omitempty"`
	End   *int64 `json:"end,omitempty"`
	Step  int64  `json:"step,omitempty"`

	// Tenant is empty in a store without tenants.
	Tenant       string `json:"tenant,omitempty"`
	Client       string `json:"client"`
	User         string `json:"user,omitempty"`
	ForwardedFor string `json:"forwardedFor,omitempty"`
	UserAgent    string `json:"userAgent,omitempty"`

	AgeSeconds float64 `json:"ageSeconds"`
	// HeldBytes is what it holds of the memory of queries.
	HeldBytes int64 `json:"heldBytes"`
	// Rows are those of METRIC that it has read.
	Rows int64 `json:"rows"`
	// Cancelled says that it is about to end.
	Cancelled bool `json:"cancelled"`
}

// running is a query that runs.
type running struct {
	Query
	// tenants are those that it asks, with | between them.
	tenants string
	of      []string
	id      uint64
	began   time.Time
	usage   *reader.Usage
	held    atomic.Int64
	ctx     context.Context
	cancel  context.CancelCauseFunc
}

// list returns the query as it is at a time.
func (r *running) list(now time.Time) Running {
	c := r.Client
	return Running{
		ID: formatID(r.id), Kind: r.Kind, Query: r.text(), Start: milliseconds(r.Start), End: milliseconds(r.End), Step: r.Step.Milliseconds(),
		Tenant: r.tenants, Client: c.Address, User: c.User, ForwardedFor: c.ForwardedFor, UserAgent: c.UserAgent,
		AgeSeconds: max(0, now.Sub(r.began).Seconds()), HeldBytes: r.held.Load(), Rows: r.usage.Counts().Rows, Cancelled: r.ctx.Err() != nil,
	}
}

func formatID(id uint64) string { return fmt.Sprintf("%016x", id) }

// milliseconds returns nil for the zero time.
func milliseconds(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}

// Config is what an Active is made of.
type Config struct {
	// Now is the clock.
	Now func() time.Time
	// Registerer may be nil.
	Registerer prometheus.Registerer
	// Blocked has the rules of queries that are blocked. It may be nil.
	Blocked *BlockFile
	// Limits, if set, are those of a tenant.
	Limits func(tenant string) Limits
}

// Limits bound the queries of a tenant. Each error names the limit.
type Limits interface {
	// BeginQuery says whether a query may run from one time to another, which may be zero, and counts it up to the call of end. The error has its status.
	BeginQuery(from, to time.Time) (end func(), err error)
	// BoundsAnswers says whether CheckAnswer may refuse anything.
	BoundsAnswers() bool
	// CheckAnswer says whether an answer that has so many bytes may have more.
	CheckAnswer(bytes, more int64) error
	// CheckFetched says whether a query that has read so many series may read more.
	CheckFetched(series, more int64) error
	// CheckHeld says whether a query that holds so many bytes may hold more.
	CheckHeld(bytes, more int64) error
}

// Active are the queries that run. A nil one knows none. It is safe for concurrent use.
type Active struct {
	cfg                Config
	blocked, cancelled *prometheus.CounterVec

	mu      sync.Mutex
	last    uint64 // the greatest ID
	running map[uint64]*running
}

// NewActive returns an Active without queries.
func NewActive(cfg Config) *Active {
	m := metricset.New(cfg.Registerer)
	return &Active{
		cfg: cfg, last: uint64(cfg.Now().UnixNano()), running: make(map[uint64]*running),
		blocked:   m.Counters("adapter_blocked_queries_total", "Queries that a rule of --query.block-file has blocked, by kind.", "kind", kinds...),
		cancelled: m.Counters("adapter_cancelled_queries_total", "Queries that an operator has cancelled, by kind.", "kind", kinds...),
	}
}

// Begin begins a query, which runs with the context that is returned, up to the call of end. The error is one that says
// which rule blocks it, or which limit.
func (a *Active) Begin(ctx context.Context, q Query) (_ context.Context, end func(), err error) {
	if a == nil {
		return ctx, func() {}, nil
	}
	if rule := a.cfg.Blocked.blocks(q.Exprs); rule != nil {
		a.blocked.WithLabelValues(q.Kind).Inc()
		return ctx, nil, rule.err()
	}
	r := &running{Query: q, tenants: scope.Of(ctx), of: tenantsOf(ctx), began: a.cfg.Now(), usage: reader.UsageOf(ctx)}
	if r.usage == nil {
		r.usage = &reader.Usage{}
		ctx = reader.WithUsage(ctx, r.usage)
	}
	ends, err := a.admit(r)
	if err != nil {
		return ctx, nil, err
	}
	var held func(int64, int64) error
	if a.cfg.Limits != nil {
		var answer func(int64, int64) error
		r.usage.MaxSeries, held, answer = a.bounds(r.of)
		if slices.ContainsFunc(r.of, func(tenant string) bool { return a.cfg.Limits(tenant).BoundsAnswers() }) {
			ctx = withAnswer(ctx, answer)
		}
	}
	r.ctx, r.cancel = context.WithCancelCause(eval.WithHeld(ctx, &r.held, held))
	a.add(r)
	return r.ctx, func() {
		a.remove(r)
		ends()
	}, nil
}

// admit counts a query for each of its tenants, up to the call of end.
func (a *Active) admit(r *running) (end func(), err error) {
	if a.cfg.Limits == nil {
		return func() {}, nil
	}
	var ends []func()
	end = func() {
		for _, fn := range ends {
			fn()
		}
	}
	for _, tenant := range r.of {
		fn, err := a.cfg.Limits(tenant).BeginQuery(r.Start, r.End)
		if err != nil {
			end()
			return nil, err
		}
		ends = append(ends, fn)
	}
	return end, nil
}

func (a *Active) add(r *running) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	r.id = a.last
	a.running[r.id] = r
}

// bounds returns what a query of tenants may read, hold and answer: what each of them allows.
func (a *Active) bounds(tenants []string) (series, held, answer func(int64, int64) error) {
	each := func(check func(Limits) error) error {
		for _, tenant := range tenants {
			if err := check(a.cfg.Limits(tenant)); err != nil {
				return fmt.Errorf("%w: %w", reader.ErrLimit, err)
			}
		}
		return nil
	}
	return func(series, more int64) error {
			return each(func(l Limits) error { return l.CheckFetched(series, more) })
		}, func(bytes, more int64) error {
			return each(func(l Limits) error { return l.CheckHeld(bytes, more) })
		}, func(bytes, more int64) error {
			return each(func(l Limits) error { return l.CheckAnswer(bytes, more) })
		}
}

func (a *Active) remove(r *running) {
	a.mu.Lock()
	delete(a.running, r.id)
	a.mu.Unlock()
	r.cancel(nil)
}

// tenantsOf returns the tenants of a context, or the empty one of a store without tenants.
func tenantsOf(ctx context.Context) []string {
	if tenants := scope.Tenants(ctx); len(tenants) > 0 {
		return tenants
	}
	return []string{""}
}

// List returns the queries of the tenants of a context that run, the oldest first.
func (a *Active) List(ctx context.Context) []Running {
	tenants := scope.Of(ctx)
	a.mu.Lock()
	all := make([]*running, 0, len(a.running))
	for _, r := range a.running {
		if r.tenants == tenants {
			all = append(all, r)
		}
	}
	a.mu.Unlock()
	slices.SortFunc(all, func(x, y *running) int { return cmp.Compare(x.id, y.id) })
	list, now := make([]Running, len(all)), a.cfg.Now()
	for i, r := range all {
		list[i] = r.list(now)
	}
	return list
}

// Cancel cancels a query of the tenants of a context by its ID, and returns it. It ends soon after. ok is false if no such query runs.
func (a *Active) Cancel(ctx context.Context, id string) (q Running, ok bool) {
	number, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		return Running{}, false
	}
	a.mu.Lock()
	r := a.running[number]
	a.mu.Unlock()
	if r == nil || r.tenants != scope.Of(ctx) {
		return Running{}, false
	}
	if r.ctx.Err() == nil {
		a.cancelled.WithLabelValues(r.Kind).Inc()
		r.cancel(ErrCancelled)
	}
	return r.list(a.cfg.Now()), true
}

// Blocked returns the file of rules, or nil.
func (a *Active) Blocked() *BlockFile { return a.cfg.Blocked }
