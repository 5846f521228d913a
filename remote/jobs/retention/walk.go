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

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

const (
	// walkInterval is how often Run looks for work.
	walkInterval = time.Minute
	// defaultRowsPerSecond is that of package deletion.
	defaultRowsPerSecond = 2000
	// batchOps is after how many operations they are sent. A row has no more in one mutation.
	batchOps = 10_000
)

// A Timeline is that of package timeline.
type Timeline interface {
	// Horizon returns the time before which cells of a resolution may have been deleted, in milliseconds.
	Horizon(of rollup.Resolution) int64
	// Made returns the end of the last day up to which all rollups were made once, in milliseconds.
	Made() int64
}

// WalkerConfig says what a Walker works on. Rules, Store and Timeline are required.
type WalkerConfig struct {
	Rules *Rules
	// Store holds the rows. It counts no writes: rollups stay as they are.
	Store bucketstore.Store
	// Timeline has the bounds of all series.
	Timeline Timeline
	// Newest, if set, returns the time from which on nothing may be deleted, in milliseconds.
	Newest func() (int64, error)
	// Make makes the rollups of a day again that differ from their samples, of series. If it is nil, samples that wait for rollups wait for another process.
	Make func(ctx context.Context, day int64, series []jobs.Posting) error
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
// One process at a time works, by a lease, see jobs.Lease. Its position is in META, so that another goes on from there. To repeat a part
// changes nothing. One goroutine may use it.
type Walker struct {
	cfg   WalkerConfig
	rules *Rules
	lease *jobs.Lease[walkState]
	pace  *jobs.Pace
	// finished is since when the store has been seen to have overtaken lists of earlier rules, by their ID.
	finished map[string]time.Time
	// sleep is replaced by tests.
	sleep jobs.Sleep

	rows, cells, failures prometheus.Counter
}

// A walkState is the row META/rules, as JSON.
type walkState struct {
	meta.Holding
	// Works are the walks that have started, by their names, which begin with the ID of their list.
	Works map[string]*position `json:"works,omitempty"`
}

// A position is how far a walk has come that works up to End, in milliseconds.
type position struct {
	End int64 `json:"end"`
	jobs.Position
}

// NewWalker returns a Walker, which does nothing before Run or Advance.
func NewWalker(cfg WalkerConfig) *Walker {
	if cfg.RowsPerSecond <= 0 {
		cfg.RowsPerSecond = defaultRowsPerSecond
	}
	f := metricset.New(cfg.Registerer)
	w := &Walker{cfg: cfg, rules: cfg.Rules, finished: make(map[string]time.Time), sleep: bucketstore.Sleep,
		rows: f.Counter("adapter_retention_rule_rows_total", "Rows of METRIC from which cells were removed that --retention.rules cut."),
		cells: f.Counter("adapter_retention_rule_cells_total",
			"Cells that were removed because --retention.rules cut them: chunks, raw samples, exemplars and rollups."),
		failures: f.Counter("adapter_retention_rule_failures_total",
			"Attempts to learn what --retention.rules have cut, or to remove it, that failed and are repeated."),
	}
	w.lease = jobs.NewLease(cfg.Store, series.MetaRules, w.rules.cfg.Now, cfg.Holder, func(s *walkState) *meta.Holding { return &s.Holding })
	w.pace = jobs.NewPace(cfg.RowsPerSecond, w.rules.cfg.Now, func(ctx context.Context, d time.Duration) error { return w.sleep(ctx, d) })
	return w
}

// Run calls Advance every minute until ctx ends, and logs errors.
func (w *Walker) Run(ctx context.Context) {
	var ended sync.WaitGroup
	defer ended.Wait()
	loop := func(msg string, work func(context.Context) error) {
		jobs.Loop{Interval: walkInterval, Sleep: w.sleep, Work: work, Failed: func(err error) {
			w.failures.Inc()
			level.Warn(w.rules.cfg.Logger).Log("msg", msg, "err", err)
		}}.Run(ctx)
	}
	if w.rules.cfg.Meta.Traits().Shared { // also while Advance works
		ended.Go(func() { loop("what retention rules have cut is not read, trying again", w.rules.Poll) })
	}
	loop("what retention rules cut is not removed yet, trying again", w.Advance)
}

// Advance does what may be done now.
func (w *Walker) Advance(ctx context.Context) error {
	if err := w.rules.Poll(ctx); err != nil {
		return err
	}
	if err := w.dropFinished(ctx); err != nil {
		return err
	}
	targets, err := w.targets(ctx)
	if err != nil || !w.hasWork(targets) {
		return err
	}
	err = w.lease.Run(ctx, nil, func(ctx context.Context) error { return w.work(ctx, targets) })
	if errors.Is(err, jobs.ErrHeld) {
		return nil
	}
	return err
}

// dropFinished removes lists of earlier rules that the store has overtaken, once every other process knows the horizons.
func (w *Walker) dropFinished(ctx context.Context) error {
	for _, l := range w.rules.known.Load().lists {
		isFinished, cuts := !l.isOurs, meta.Horizons{}
		for _, rule := range l.Rules {
			isFinished = isFinished && rule.Closed <= w.cfg.Timeline.Horizon(rollup.Raw)
			for of, cut := range rule.Cuts {
				isFinished = isFinished && cut <= w.cfg.Timeline.Horizon(rollup.Resolution(of))
				cuts[of] = max(cuts[of], cut)
			}
		}
		if !isFinished {
			delete(w.finished, l.ID)
			continue
		}
		now := w.rules.cfg.Now()
		since, ok := w.finished[l.ID]
		if !ok {
			since, w.finished[l.ID] = now, now
		}
		if now.Sub(since) >= propagation {
			if w.rules.cfg.Meta.Traits().Shared { // what they cut stays hidden, also if a horizon is taken back
				if _, err := w.rules.cfg.Meta.NoteDeleted(ctx, cuts); err != nil {
					return err
				}
			}
			if err := w.rules.cfg.Meta.RemoveRuleList(ctx, &l.RuleList); err != nil {
				return err
			}
			delete(w.finished, l.ID)
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
		for of := range rollup.NumResolutions {
			if age, ok := cfg.FileRules[i].Walked(of, cfg.Longest); ok {
				t.Cuts[of] = midnight(min(timeline.CutAt(now, age), newest))
			}
		}
		if cfg.Rollups {
			if w.cfg.Make != nil {
				t.Closed = min(t.Cuts[rollup.Raw], midnight(w.cfg.Timeline.Made()))
			}
			t.Cuts[rollup.Raw] = 0
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// raised returns what a rule has cut with all that target asks for. A resolution is not cut further than the finer one. All cuts are
// ends of days: the horizon may move each time it is asked, and a cut that moved as often would never be known to all.
func (w *Walker) raised(rule, target meta.RuleCuts) meta.RuleCuts {
	for of := range rollup.NumResolutions {
		to := target.Cuts[of]
		if of != rollup.Raw {
			to = min(to, midnight(max(rule.Cuts[of.Finer()], w.cfg.Timeline.Horizon(of.Finer()))))
		}
		rule.Cuts[of] = max(rule.Cuts[of], to)
	}
	return rule
}

// closed returns up to when a rule is closed with what target asks for. It closes no more before the last rollups of what it has closed are
// made: that may take days, and a walk to another end would begin anew.
func (w *Walker) closed(rule, target meta.RuleCuts) int64 {
	if rule.Closed > rule.Cuts[rollup.Raw] {
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
			if w.hasPropagated(l, i) && rule.Removed != rule.Cuts {
				return true
			}
		}
	}
	return false
}

// hasPropagated says whether every request relies on the cuts of a rule.
func (w *Walker) hasPropagated(l *ruleList, i int) bool {
	return w.rules.cfg.Now().Sub(l.seen[i]) >= propagation
}

// isClosing says whether the rollups of a rule may be made for the last time.
func (w *Walker) isClosing(l *ruleList, i int) bool {
	return w.hasPropagated(l, i) && l.Rules[i].Closed > l.Rules[i].Cuts[rollup.Raw]
}

// work does what may be done now, under the lease. What fails for one rule stops no other.
func (w *Walker) work(ctx context.Context, targets []meta.RuleCuts) error {
	lists := w.rules.known.Load().lists
	maps.DeleteFunc(w.lease.State.Works, func(name string, _ *position) bool {
		return !slices.ContainsFunc(lists, func(l *ruleList) bool { return strings.HasPrefix(name, l.ID) })
	})
	var errs []error
	for _, l := range lists {
		if l.isOurs && targets != nil {
			err := w.cut(ctx, l, targets)
			if isPermanent(ctx, err) {
				return err
			}
			errs = append(errs, err)
		}
	}
	for _, l := range w.rules.known.Load().lists {
		next := l.RuleList
		next.Rules = slices.Clone(l.Rules)
		for i := range next.Rules {
			if !w.hasPropagated(l, i) {
				continue
			}
			for of := range rollup.NumResolutions {
				from, to := next.Rules[i].Removed[of], next.Rules[i].Cuts[of]
				if from >= to {
					continue
				}
				err := w.delete(ctx, l, i, removal{of, from, to})
				if err == nil {
					next.Rules[i].Removed[of] = to
					err = w.rules.put(ctx, &next)
				} else {
					err = fmt.Errorf("remove %s of a retention rule: %w", of, err)
				}
				if isPermanent(ctx, err) || errors.Is(err, errChanged) {
					return errors.Join(append(errs, err)...)
				}
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// isPermanent says whether an error means that this process may not go on.
func isPermanent(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, jobs.ErrLost)
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
			if err := w.finish(ctx, l, i, rule.Cuts[rollup.Raw], rule.Closed); err != nil {
				err = fmt.Errorf("make the rollups of samples that a retention rule cuts: %w", err)
				if isPermanent(ctx, err) {
					return err
				}
				errs = append(errs, err)
				continue
			}
			rule.Cuts[rollup.Raw] = rule.Closed
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
		line := []any{"msg", "a retention rule cuts", "rule", i + 1, "closed", timeText(rule.Closed)}
		for of := range rollup.NumResolutions {
			line = append(line, of.String(), timeText(rule.Cuts[of]))
		}
		level.Info(w.rules.cfg.Logger).Log(line...)
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
