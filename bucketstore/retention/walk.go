package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

const (
	// walkInterval is how often Run looks for work.
	walkInterval = time.Minute
	// defaultRowsPerSecond is that of package deletion.
	defaultRowsPerSecond = 2000
	// batchOps is after how many operations they are sent. A row has no more in one mutation.
	batchOps = 10_000
	// readTimeout and writeTimeout bound one request.
	readTimeout  = 2 * time.Minute
	writeTimeout = time.Minute
)

// WalkerConfig says what a Walker works on. Rules, Store and Horizon are required.
type WalkerConfig struct {
	Rules *Rules
	// Store holds the rows. It counts no writes: rollups stay as they are.
	Store bucketstore.Store
	// Horizon is that of a Retention.
	Horizon func(of bucketstore.Resolution) int64
	// Newest, if set, returns the time from which on nothing may be deleted, in milliseconds.
	Newest func() (int64, error)
	// Made returns the end of the last day up to which all rollups were made once, and Make makes those of a day again that differ, of
	// series. If Make is nil, samples that wait for rollups wait for another process.
	Made func() int64
	Make func(ctx context.Context, day int64, keys [][]byte) error
	// Flush, if set, stores all samples that the buffer of this process holds, or fails.
	Flush func(ctx context.Context) error
	// Waits, if set, says why nothing may be cut now, or nil: our clock is in doubt, or another process may have samples that are not in Store.
	Waits func(ctx context.Context) error
	// Holder names the process, for operators.
	Holder string
	// RowsPerSecond bounds how many rows are read. 0 is 2000.
	RowsPerSecond float64
	// Registerer takes the metrics adapter_retention_rule_*. It may be nil.
	Registerer prometheus.Registerer
}

// A Walker removes from the store what rules cut, series by series. For each list of rules in META, and each rule in it,
//
//   - it raises closed to the end of the last day that is to go: no writer takes samples up to there any more,
//   - makes the rollups of these days that differ from their samples, once every writer obeys that,
//   - raises the cuts: no reader shows what is before, and no maker makes it again,
//   - and deletes it, once every reader obeys that, and so every request that began before has ended.
//
// One process at a time works, by a lease, see meta.Lease. Its position is in META, so that another goes on from there. To repeat a part
// changes nothing. One goroutine may use it.
type Walker struct {
	cfg   WalkerConfig
	rules *Rules
	lease *meta.Lease
	state walkState
	// over is since when the store has been seen to have overtaken lists of earlier rules, by their ID.
	over map[string]time.Time
	// sleep is replaced by tests.
	sleep func(ctx context.Context, d time.Duration) error

	rows, cells, failures prometheus.Counter
}

// A walkState is the row META/rules, as JSON.
type walkState struct {
	meta.Holding
	// Works are the walks that have begun, by their names, which begin with the ID of their list.
	Works map[string]*position `json:"works,omitempty"`
}

// A position is how far a walk over INDEX has come.
type position struct {
	// End is the time up to which it works, in milliseconds.
	End int64 `json:"end"`
	// Period is the index period.
	Period int64 `json:"period,omitempty"`
	// Names is where the page of metric names begins that is walked, Posting the last posting of these names of which the work is
	// done. They are nil at the start.
	Names   []byte `json:"names,omitempty"`
	Posting []byte `json:"posting,omitempty"`
}

// NewWalker returns a Walker, which does nothing before Run or Advance.
func NewWalker(cfg WalkerConfig) *Walker {
	if cfg.RowsPerSecond <= 0 {
		cfg.RowsPerSecond = defaultRowsPerSecond
	}
	f := promauto.With(cfg.Registerer)
	w := &Walker{cfg: cfg, rules: cfg.Rules, over: make(map[string]time.Time), sleep: bucketstore.Sleep,
		rows: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_retention_rule_rows_total",
			Help: "Rows of METRIC from which cells were removed that --retention.rules cut.",
		}),
		cells: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_retention_rule_cells_total",
			Help: "Cells that were removed because --retention.rules cut them: chunks, raw samples, exemplars and rollups.",
		}),
		failures: f.NewCounter(prometheus.CounterOpts{
			Name: "adapter_retention_rule_failures_total",
			Help: "Attempts to learn what --retention.rules have cut, or to remove it, that failed and are repeated.",
		}),
	}
	w.lease = meta.NewLease(cfg.Store, series.MetaRules, w.rules.cfg.Now, cfg.Holder, &w.state, &w.state.Holding)
	return w
}

// Run calls Advance every minute until ctx ends, and logs errors.
func (w *Walker) Run(ctx context.Context) {
	var ended sync.WaitGroup
	defer ended.Wait()
	ended.Go(func() { w.poll(ctx) })
	for ctx.Err() == nil {
		if err := w.Advance(ctx); err != nil && ctx.Err() == nil {
			w.failures.Inc()
			level.Warn(w.rules.cfg.Logger).Log("msg", "what retention rules cut is not removed yet, trying again", "err", err)
		}
		if w.sleep(ctx, walkInterval) != nil {
			return
		}
	}
}

// poll learns of the cuts of other processes, also while Advance works.
func (w *Walker) poll(ctx context.Context) {
	for w.rules.cfg.Shared && w.sleep(ctx, walkInterval) == nil {
		if err := w.rules.Poll(ctx); err != nil && ctx.Err() == nil {
			w.failures.Inc()
			level.Warn(w.rules.cfg.Logger).Log("msg", "what retention rules have cut is not read, trying again", "err", err)
		}
	}
}

// Advance does what may be done now.
func (w *Walker) Advance(ctx context.Context) error {
	if err := w.rules.Poll(ctx); err != nil {
		return err
	}
	if err := w.dropOver(ctx); err != nil {
		return err
	}
	targets, err := w.targets(ctx)
	if err != nil || !w.hasWork(targets) {
		return err
	}
	w.state = walkState{}
	if err := w.lease.Read(ctx); err != nil {
		return err
	}
	// One process has the embedded store: a holder of the lease is gone.
	if w.rules.cfg.Shared && w.lease.IsHeld() {
		return nil
	}
	if err := w.lease.Renew(ctx); err != nil {
		return err
	}
	err = w.work(ctx, targets)
	if released := w.lease.Release(context.WithoutCancel(ctx)); err == nil {
		err = released
	}
	return err
}

// dropOver removes lists of earlier rules that the store has overtaken, once every other process knows the horizons.
func (w *Walker) dropOver(ctx context.Context) error {
	for _, l := range w.rules.known.Load().lists {
		isOver, cuts := !l.isOurs, meta.Horizons{}
		for _, rule := range l.Rules {
			isOver = isOver && rule.Closed <= w.cfg.Horizon(bucketstore.Raw)
			for of, cut := range rule.Cuts {
				isOver = isOver && cut <= w.cfg.Horizon(bucketstore.Resolution(of))
				cuts[of] = max(cuts[of], cut)
			}
		}
		if !isOver {
			delete(w.over, l.ID)
			continue
		}
		now := w.rules.cfg.Now()
		since, ok := w.over[l.ID]
		if !ok {
			since, w.over[l.ID] = now, now
		}
		if now.Sub(since) >= settle {
			if w.rules.cfg.Shared { // what they cut stays hidden, also if a horizon is taken back
				if _, err := w.rules.cfg.Meta.NoteDeleted(ctx, cuts); err != nil {
					return err
				}
			}
			if err := w.rules.cfg.Meta.RemoveRuleList(ctx, &l.RuleList); err != nil {
				return err
			}
			delete(w.over, l.ID)
		}
	}
	return nil
}

// targets returns up to which times our rules may cut now: whole days of UTC. Closed is that of samples that wait for rollups.
func (w *Walker) targets(ctx context.Context) (targets []meta.RuleCuts, err error) {
	cfg := &w.rules.cfg
	if len(cfg.FileRules) == 0 {
		return nil, nil
	}
	if w.cfg.Waits != nil && w.cfg.Waits(ctx) != nil {
		return nil, nil
	}
	newest := int64(math.MaxInt64)
	if w.cfg.Newest != nil {
		if newest, err = w.cfg.Newest(); err != nil {
			return nil, err
		}
	}
	now := cfg.Now()
	for i := range cfg.FileRules {
		var t meta.RuleCuts
		for of := range bucketstore.NumResolutions {
			if age, ok := cfg.FileRules[i].Walked(of, cfg.Longest); ok {
				t.Cuts[of] = midnight(min(cutAt(now, age), newest))
			}
		}
		if cfg.Rollups {
			if w.cfg.Make != nil {
				t.Closed = min(t.Cuts[bucketstore.Raw], midnight(w.cfg.Made()))
			}
			t.Cuts[bucketstore.Raw] = 0
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// raised returns what a rule has cut with all that target asks for. A resolution is not cut further than the finer one. All cuts are
// ends of days: the horizon may move each time it is asked, and a cut that moved as often would never settle.
func (w *Walker) raised(rule, target meta.RuleCuts) meta.RuleCuts {
	for of := range rule.Cuts {
		to := target.Cuts[of]
		if of > 0 {
			to = min(to, midnight(max(rule.Cuts[of-1], w.cfg.Horizon(bucketstore.Resolution(of-1)))))
		}
		rule.Cuts[of] = max(rule.Cuts[of], to)
	}
	return rule
}

// closed returns up to when a rule is closed with what target asks for. It closes no more before the last rollups of what it has closed are
// made: that may take days, and a walk to another end would begin anew.
func (w *Walker) closed(rule, target meta.RuleCuts) int64 {
	if rule.Closed > rule.Cuts[bucketstore.Raw] {
		return rule.Closed
	}
	return max(rule.Closed, target.Closed)
}

// hasWork says whether anything can be done.
func (w *Walker) hasWork(targets []meta.RuleCuts) bool {
	for _, l := range w.rules.known.Load().lists {
		for i, rule := range l.Rules {
			if l.isOurs && targets != nil {
				if w.closed(rule, targets[i]) > rule.Closed || w.raised(rule, targets[i]).Cuts != rule.Cuts || w.cfg.Make != nil && w.isClosing(l, i) {
					return true
				}
			}
			if w.isSettled(l, i) && rule.Gone != rule.Cuts {
				return true
			}
		}
	}
	return false
}

// isSettled says whether every request relies on the cuts of a rule.
func (w *Walker) isSettled(l *ruleList, i int) bool {
	return w.rules.cfg.Now().Sub(l.seen[i]) >= settle
}

// isClosing says whether the rollups of a rule may be made for the last time.
func (w *Walker) isClosing(l *ruleList, i int) bool {
	return w.isSettled(l, i) && l.Rules[i].Closed > l.Rules[i].Cuts[bucketstore.Raw]
}

// work does what may be done now, under the lease. What fails for one rule stops no other.
func (w *Walker) work(ctx context.Context, targets []meta.RuleCuts) error {
	lists := w.rules.known.Load().lists
	maps.DeleteFunc(w.state.Works, func(name string, _ *position) bool {
		return !slices.ContainsFunc(lists, func(l *ruleList) bool { return strings.HasPrefix(name, l.ID) })
	})
	var errs []error
	for _, l := range lists {
		if l.isOurs && targets != nil {
			err := w.cut(ctx, l, targets)
			if isOver(ctx, err) {
				return err
			}
			errs = append(errs, err)
		}
	}
	for _, l := range w.rules.known.Load().lists {
		next := l.RuleList
		next.Rules = slices.Clone(l.Rules)
		for i := range next.Rules {
			if !w.isSettled(l, i) {
				continue
			}
			for of := range bucketstore.NumResolutions {
				from, to := next.Rules[i].Gone[of], next.Rules[i].Cuts[of]
				if from >= to {
					continue
				}
				err := w.delete(ctx, l, i, of, from, to)
				if err == nil {
					next.Rules[i].Gone[of] = to
					err = w.rules.put(ctx, &next)
				} else {
					err = fmt.Errorf("remove %s of a retention rule: %w", of, err)
				}
				if isOver(ctx, err) || errors.Is(err, errChanged) {
					return errors.Join(append(errs, err)...)
				}
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// isOver says whether an error means that this process may not go on.
func isOver(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, meta.ErrLost)
}

// cut raises what our rules have closed and cut.
func (w *Walker) cut(ctx context.Context, l *ruleList, targets []meta.RuleCuts) error {
	next := l.RuleList
	next.Rules = slices.Clone(l.Rules)
	var errs []error
	isFlushed := w.cfg.Flush == nil
	for i := range next.Rules {
		rule := l.Rules[i]
		if w.cfg.Make != nil && w.isClosing(l, i) {
			if !isFlushed {
				if err := w.cfg.Flush(ctx); err != nil {
					return fmt.Errorf("store samples of days that are closed: %w", err)
				}
				isFlushed = true
			}
			if err := w.finish(ctx, l, i, rule.Cuts[bucketstore.Raw], rule.Closed); err != nil {
				err = fmt.Errorf("make the rollups of samples that a retention rule cuts: %w", err)
				if isOver(ctx, err) {
					return err
				}
				errs = append(errs, err)
				continue
			}
			rule.Cuts[bucketstore.Raw] = rule.Closed
		}
		rule = w.raised(rule, targets[i])
		rule.Closed = w.closed(rule, targets[i])
		if rule.Closed == l.Rules[i].Closed && rule.Cuts == l.Rules[i].Cuts {
			continue
		}
		next.Rules[i] = rule
		if err := w.rules.put(ctx, &next); err != nil {
			return errors.Join(append(errs, err)...)
		}
		level.Info(w.rules.cfg.Logger).Log("msg", "a retention rule cuts", "rule", i+1, "closed", timeText(rule.Closed),
			"raw", timeText(rule.Cuts[bucketstore.Raw]), "5m", timeText(rule.Cuts[bucketstore.FiveMinutes]), "1h", timeText(rule.Cuts[bucketstore.OneHour]))
	}
	return errors.Join(errs...)
}

// timeText writes a time for operators, or nothing for 0.
func timeText(t int64) string {
	if t == 0 {
		return ""
	}
	return time.UnixMilli(t).UTC().Format(time.RFC3339)
}
