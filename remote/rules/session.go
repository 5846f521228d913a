package rules

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-kit/log/level"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/ingest"
)

// A session is Prometheus' manager over the files, and what records beside it. It is started at most once, and stopped once.
type session struct {
	runner  *Runner
	ctx     context.Context
	end     context.CancelFunc
	manager *rules.Manager

	mu sync.Mutex
	// groups are by rules.GroupKey. They run if started.
	groups  map[string]*group
	started bool
	stopped bool
}

// newSession returns a session with the files as they are now. ctx has the tenant; the session outlives it.
func (r *Runner) newSession(ctx context.Context) (*session, error) {
	s := &session{runner: r, groups: make(map[string]*group)}
	s.ctx, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.manager = rules.NewManager(&rules.ManagerOptions{
		ExternalURL:            r.cfg.ExternalURL,
		QueryFunc:              s.query,
		NotifyFunc:             r.cfg.Notify,
		Context:                s.ctx,
		AppendableV2:           s,
		Queryable:              r.cfg.Queryable,
		Logger:                 r.cfg.Slog,
		OutageTolerance:        time.Hour,
		ForGracePeriod:         10 * time.Minute,
		ResendDelay:            time.Minute,
		DefaultRuleQueryOffset: func() time.Duration { return r.cfg.QueryOffset },
		RestoreNewRuleGroups:   true,
		Metrics:                r.cfg.Metrics,
		Parser:                 r.cfg.Parser,
	})
	if err := s.load(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// load reads the files. If something is wrong nothing changes.
func (s *session) load() error {
	r := s.runner
	files, err := r.files()
	if err != nil {
		return err
	}
	for _, file := range files { // the manager's error says nothing of what is wrong
		if _, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, r.cfg.Parser, r.cfg.Slog); len(errs) > 0 {
			return errors.Join(errs...)
		}
	}
	begins, err := readBegins(files, r.cfg.Now())
	if err != nil {
		return err
	}
	if err := s.manager.Update(r.cfg.Interval, files, labels.EmptyLabels(), r.cfg.ExternalURL.String(), s.iterate); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]*group)
	for _, g := range s.manager.RuleGroups() {
		key := rules.GroupKey(g.File(), g.Name())
		made := newGroup(r, g, begins)
		if before := s.groups[key]; before != nil {
			if before.equals(made) {
				next[key] = before
				continue
			}
			before.stop()
			made.inherit(before)
		}
		if next[key] = made; s.started {
			made.start(s.ctx)
		}
	}
	for key, before := range s.groups {
		if next[key] == nil {
			before.stop()
		}
	}
	s.groups = next
	late := make([]*lateSteps, 0, len(next))
	for _, g := range next {
		late = append(late, g.late)
	}
	r.late.Store(&late)
	return nil
}

// start begins to evaluate.
func (s *session) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
	for _, g := range s.groups {
		g.start(s.ctx)
	}
	go s.manager.Run()
}

// stop ends all that runs.
func (s *session) stop() {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return
	}
	s.stopped = true
	if !s.started { // the manager's groups wait for its start, and it for them
		go s.manager.Run()
	}
	all := s.groups
	s.mu.Unlock()
	s.end()
	s.manager.Stop()
	for _, g := range all {
		g.stop()
	}
}

// groupKey is the key of a context with the group that is evaluated.
type groupKey struct{}

// iterate evaluates a group of Prometheus' manager, once its recording rules have come as far, or half an interval has passed.
func (s *session) iterate(ctx context.Context, of *rules.Group, at time.Time) {
	s.mu.Lock()
	g := s.groups[rules.GroupKey(of.File(), of.Name())]
	s.mu.Unlock()
	if g == nil || ctx.Err() != nil {
		return
	}
	if of.HasAlertingRules() && !g.awaitRestore(ctx) {
		return
	}
	g.await(ctx, at.Add(-of.QueryOffset()).UnixMilli(), of.Interval()/2)
	rules.DefaultEvalIterationFunc(context.WithValue(ctx, groupKey{}, g), of, at)
}

// awaitRestore waits until the state of alerts can be read: the manager reads it once, after the first evaluation.
func (g *group) awaitRestore(ctx context.Context) bool {
	for !g.restorable {
		_, err := instant(ctx, g.runner.cfg, `count({__name__="ALERTS_FOR_STATE"})`, g.runner.cfg.Now())
		if err == nil {
			g.restorable = true
			break
		}
		level.Warn(g.runner.cfg.Logger).Log("msg", "the state of alerts cannot be read, trying again", "group", g.name, "err", err)
		if bucketstore.Sleep(ctx, retryInterval) != nil {
			return false
		}
	}
	return true
}

// instant evaluates an expression at a time.
func instant(ctx context.Context, cfg Config, expr string, at time.Time) (promql.Vector, error) {
	return rules.EngineQueryFunc(cfg.Engine, cfg.Queryable)(ctx, expr, at)
}

// query answers the manager's queries. Of recording rules it is what was recorded.
func (s *session) query(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
	rule := rules.FromOriginContext(ctx)
	g, _ := ctx.Value(groupKey{}).(*group)
	if rule.Kind != rules.KindRecording || g == nil {
		return instant(ctx, s.runner.cfg, expr, at)
	}
	return g.recorded(rule, at.UnixMilli())
}

// AppenderV2 implements storage.AppendableV2: what the manager stores of alerts.
func (s *session) AppenderV2(ctx context.Context) storage.AppenderV2 {
	return &alertAppender{ctx: ctx, session: s}
}

// isRecorded says whether a group records a metric.
func (s *session) isRecorded(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		if g.names[name] {
			return true
		}
	}
	return false
}

// An alertAppender stores ALERTS and ALERTS_FOR_STATE, and that the series of a rule have ended that is gone. What else the manager has of recording rules is
// stored already.
type alertAppender struct {
	ctx     context.Context
	session *session
	batch   []ingest.Series
}

// Append implements storage.AppenderV2.
func (a *alertAppender) Append(_ storage.SeriesRef, ls labels.Labels, _, t int64, v float64, _ *histogram.Histogram, _ *histogram.FloatHistogram, _ storage.AppendV2Options) (storage.SeriesRef, error) {
	if name := ls.Get(labels.MetricName); name == "ALERTS" || name == "ALERTS_FOR_STATE" || value.IsStaleNaN(v) && !a.session.isRecorded(name) {
		a.batch = append(a.batch, ingest.Series{Labels: ls, Samples: []ingest.Sample{{T: t, V: v}}})
	}
	return 0, nil
}

// Commit implements storage.AppenderTransaction.
func (a *alertAppender) Commit() error {
	if len(a.batch) == 0 {
		return nil
	}
	// The manager's last samples say that alerts have ended, also when the process ends.
	return appendAll(context.WithoutCancel(a.ctx), a.session.runner.cfg, a.batch)
}

// Rollback implements storage.AppenderTransaction.
func (a *alertAppender) Rollback() error {
	a.batch = nil
	return nil
}

// appendAll stores samples. What can never be stored is an error, too.
func appendAll(ctx context.Context, cfg Config, batch []ingest.Series) error {
	var rejected ingest.Rejected
	if _, err := cfg.Append(ctx, batch, &rejected); err != nil {
		return err
	}
	if err := rejected.Err(); err != nil {
		return &rejectedError{err}
	}
	return nil
}

// A rejectedError says that samples can never be stored.
type rejectedError struct{ error }

func (e *rejectedError) Error() string { return fmt.Sprintf("samples are not stored: %v", e.error) }
func (e *rejectedError) Unwrap() error { return e.error }
