package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

const (
	second = int64(1000)
	minute = 60 * second
	// begin is the time of the first sample, in 2024.
	begin = 400*series.Period + series.IndexPeriod
)

// errOutage is what the store answers when the test wants it to.
var errOutage = errors.New("the store is away")

// faulty is a store that fails at random. What fails may have happened.
type faulty struct {
	bucketstore.Store
	random *rand.Rand
	part   float64
}

func (s *faulty) fails() bool { return s.part > 0 && s.random.Float64() < s.part }

// CheckAndApply implements bucketstore.Store.
func (s *faulty) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, m bucketstore.Mutation) (ok bool, err error) {
	if s.fails() {
		return false, errOutage
	}
	ok, err = s.Store.CheckAndApply(ctx, table, cond, m)
	if s.fails() {
		return false, errOutage
	}
	return ok, err
}

// A world is an engine with samples, and what evaluates rules over it.
type world struct {
	*testing.T
	engine *engine.Engine
	store  *faulty
	now    atomic.Int64
	cfg    Config
	// runner is told of what is written.
	runner *Runner
	// late are samples of fill that have not come yet, and arrivals when they do.
	late     []ingest.Series
	arrivals []int64
}

func newWorld(t *testing.T, files ...string) *world { return openWorld(t, false, files) }

// openWorld is newWorld, with the clock of the machine if isReal.
func openWorld(t *testing.T, isReal bool, files []string) *world {
	t.Helper()
	w := &world{T: t, store: &faulty{random: rand.New(rand.NewPCG(1, 2))}}
	w.now.Store(begin)
	now := func() time.Time {
		if isReal {
			return time.Now()
		}
		return time.UnixMilli(w.now.Load())
	}
	rows, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{}), Now: now, CacheBytes: 4 << 20, MemTableBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w.store.Store = rows
	if w.engine, err = engine.New(engine.Config{Store: rows, Appender: bucketstore.NewDirect(rows, series.Schema{}, now, nil), Now: now, MaxFuture: engine.Unbounded, Written: w.written}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.engine.Close(context.Background()), rows.Close()); err != nil {
			t.Error(err)
		}
	})
	p := parser.NewParser(promqltest.TestParserOpts)
	e := eval.New(promql.EngineOpts{
		MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: p,
		NoStepSubqueryIntervalFn: func(int64) int64 { return minute }, EnableAtModifier: true, EnableNegativeOffset: true,
	}, eval.NewMemory(0, 0))
	t.Cleanup(func() { _ = e.Close() })
	w.cfg = Config{
		Files: files, Interval: time.Minute, Engine: e, Queryable: w.engine, Parser: p, Append: w.append, Store: w.store, Holder: "test",
		ExternalURL: &url.URL{Scheme: "http", Host: "localhost"}, Metrics: rules.NewGroupMetrics(nil), Now: now, Logger: log.NewNopLogger(),
		StoreFailed: func(err error) bool { return errors.Is(err, errOutage) },
	}
	return w
}

// append stores samples, and may fail before, or after some are stored.
func (w *world) append(ctx context.Context, batch []ingest.Series, rejected *ingest.Rejected) (stored ingest.Stored, err error) {
	if w.store.fails() {
		batch = batch[:w.store.random.IntN(len(batch)+1)]
		err = errOutage
	}
	stored, appendErr := w.engine.Append(ctx, batch, rejected)
	return stored, errors.Join(err, appendErr)
}

func (w *world) written(samples []bucketstore.Sample) {
	if w.runner != nil {
		w.runner.Written(samples)
	}
}

// fill writes what rules read: counters that come and go, and native histograms, for some hours. A part of them comes late, by up to mostLate.
func (w *world) fill(hours int, part float64) {
	w.Helper()
	r, isLate := rand.New(rand.NewPCG(3, 4)), rand.New(rand.NewPCG(5, 6))
	var batch []ingest.Series
	for i := range 12 {
		s := ingest.Series{Labels: labels.FromStrings("__name__", "x_total", "instance", fmt.Sprint(i), "job", fmt.Sprint(i%3))}
		y := ingest.Series{Labels: labels.FromStrings("__name__", "y", "instance", fmt.Sprint(i), "job", fmt.Sprint(i%3))}
		h := ingest.Series{Labels: labels.FromStrings("__name__", "h", "job", fmt.Sprint(i))}
		v, isThere := 0.0, true
		for t := begin; t < begin+int64(hours)*60*minute; t += 15 * second {
			if r.IntN(60) == 0 {
				isThere = !isThere
			}
			if !isThere {
				continue
			}
			v += float64(r.IntN(100))
			s.Samples = append(s.Samples, ingest.Sample{T: t + int64(i), V: v})
			if i < 4 {
				y.Samples = append(y.Samples, ingest.Sample{T: t + int64(i), V: float64(r.IntN(9))})
			}
			if i == 0 {
				h.Histograms = append(h.Histograms, ingest.Histogram{T: t, FH: &histogram.FloatHistogram{Count: v + 1, Sum: v, ZeroCount: v + 1}})
			}
		}
		batch = append(batch, s, y, h)
	}
	for i := range batch {
		s := &batch[i]
		s.Samples = slices.DeleteFunc(s.Samples, func(p ingest.Sample) bool {
			if isLate.Float64() >= part {
				return false
			}
			w.late = append(w.late, ingest.Series{Labels: s.Labels, Samples: []ingest.Sample{p}})
			w.arrivals = append(w.arrivals, p.T+isLate.Int64N(mostLate))
			return true
		})
	}
	w.write(slices.DeleteFunc(batch, func(s ingest.Series) bool { return s.Size() == 0 }))
}

// mostLate is how late samples come, in milliseconds.
const mostLate = 30 * minute

func (w *world) write(batch []ingest.Series) {
	w.Helper()
	var rejected ingest.Rejected
	if _, err := w.engine.Append(w.Context(), batch, &rejected); err != nil || rejected.Err() != nil {
		w.Fatal(err, rejected.Err())
	}
}

// arrive writes the late samples that have come by now.
func (w *world) arrive() {
	w.Helper()
	var batch, others []ingest.Series
	var arrivals []int64
	for i, s := range w.late {
		if at := w.arrivals[i]; at <= w.now.Load() {
			batch = append(batch, s)
		} else {
			others, arrivals = append(others, s), append(arrivals, at)
		}
	}
	w.late, w.arrivals = others, arrivals
	w.write(batch)
}

// samples returns all samples of a metric as text.
func (w *world) samples(name string) string {
	w.Helper()
	q, err := w.engine.Querier(0, math.MaxInt64)
	if err != nil {
		w.Fatal(err)
	}
	defer q.Close()
	set := q.Select(w.Context(), true, nil, labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, name))
	var b strings.Builder
	for set.Next() {
		fmt.Fprintf(&b, "%s\n", set.At().Labels())
		it := set.At().Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if kind == chunkenc.ValFloat {
				t, v := it.At()
				fmt.Fprintf(&b, "%d %x\n", t, math.Float64bits(v))
				continue
			}
			t, h := it.AtFloatHistogram(nil)
			fmt.Fprintf(&b, "%d %s\n", t, h)
		}
		if it.Err() != nil {
			w.Fatal(it.Err())
		}
	}
	if set.Err() != nil {
		w.Fatal(set.Err())
	}
	return b.String()
}

// groups returns the groups of the files, as a process finds them that starts.
func (w *world) groups() (all []*group) {
	w.Helper()
	r, err := New(w.Context(), w.cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(r.current.stop)
	w.runner = r
	for _, g := range r.current.groups {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *group) int { return strings.Compare(a.key, b.key) })
	return all
}

// catchUp records what is due, corrects what came late, and says whether all is done.
func (w *world) catchUp(g *group) bool {
	for due := g.timeOf(time.UnixMilli(w.now.Load())); g.first() <= due; {
		if err := g.advance(w.Context(), due); err != nil {
			return false
		}
	}
	return g.correctLate(w.Context()) == nil
}

// upstream evaluates the groups at each of their times up to now as Prometheus does that never stops.
func (w *world) upstream() {
	w.Helper()
	m := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(w.cfg.Engine, w.engine), AppendableV2: everything{w}, Context: w.Context(), Queryable: w.engine, Parser: w.cfg.Parser, Metrics: w.cfg.Metrics,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, DefaultRuleQueryOffset: func() time.Duration { return 0 },
	})
	groups, errs := m.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, w.cfg.Files...)
	if errs != nil {
		w.Fatal(errs)
	}
	for _, g := range groups {
		first := g.EvalTimestamp(begin * int64(time.Millisecond)).Add(g.Interval())
		for at := first; at.UnixMilli() <= w.now.Load(); at = at.Add(g.Interval()) {
			g.Eval(w.Context(), at)
		}
	}
}

// everything stores all that rules have.
type everything struct{ *world }

// AppenderV2 implements storage.AppendableV2.
func (w everything) AppenderV2(context.Context) storage.AppenderV2 { return &storing{world: w.world} }

type storing struct {
	*world
	alertAppender
	batch []ingest.Series
}

// Append implements storage.AppenderV2.
func (a *storing) Append(_ storage.SeriesRef, ls labels.Labels, _, t int64, v float64, _ *histogram.Histogram, fh *histogram.FloatHistogram, _ storage.AppendV2Options) (storage.SeriesRef, error) {
	s := ingest.Series{Labels: ls}
	if fh != nil {
		s.Histograms = []ingest.Histogram{{T: t, FH: fh}}
	} else {
		s.Samples = []ingest.Sample{{T: t, V: v}}
	}
	a.batch = append(a.batch, s)
	return 0, nil
}

// Commit implements storage.AppenderTransaction.
func (a *storing) Commit() error {
	var rejected ingest.Rejected
	_, err := a.engine.Append(a.Context(), a.batch, &rejected)
	return errors.Join(err, rejected.Err())
}

// Rollback implements storage.AppenderTransaction.
func (*storing) Rollback() error { return nil }

// ruleFile has chains, a rule that reads itself, one that fails at some steps, a limit, an offset, and histograms.
const ruleFile = `
groups:
- name: chain
  interval: 30s
  labels: {team: a}
  rules:
  - {record: "job:x:rate5m", expr: "sum by (job) (rate(x_total[5m]))"}
  - {record: "all:x:rate5m", expr: "sum by (job) (rate(x_total[5m]))", labels: {team: b}}
  - {record: "same", expr: "sum by (job) (rate(x_total[5m]))", labels: {job: none}}
  - {record: "job:x:high", expr: "x_total > 3000 < 5000"}
  - {record: "job:x:higher", expr: "job:x:high * 2"}
  - {record: "h:rate", expr: "rate(h[2m])"}
  - {record: "one", expr: "1"}
- name: itself
  query_offset: 45s
  rules:
  - {record: "steps", expr: "(steps or vector(0)) + 1"}
  - {record: "before", expr: "after offset 1m or count(x_total)"}
  - {record: "after", expr: "before + 1"}
- name: fails
  limit: 5
  rules:
  - {record: "joined", expr: "x_total * on (job) group_left () y"}
  - {record: "renamed", expr: "label_replace(y, \"instance\", \"\", \"\", \"\")"}
  - {record: "limited", expr: "x_total > 1000"}
`

var recorded = []string{"job:x:rate5m", "all:x:rate5m", "job:x:high", "job:x:higher", "h:rate", "one", "same", "steps", "before", "after", "joined", "renamed", "limited"}

// TestEndBeforeCorrection: a sample that comes late, by less than Config.Reevaluate, counts also if nothing is evaluated for longer than that, and the
// process that has evaluated all steps since ends before it evaluates older ones anew.
func TestEndBeforeCorrection(t *testing.T) {
	w := newWorld(t, writeRules(t, "groups: [{name: g, interval: 1m, rules: [{record: r, expr: x}]}]\n"))
	w.cfg.Reevaluate = time.Hour
	write := func(at int64, v float64) {
		t.Helper()
		w.write([]ingest.Series{{Labels: labels.FromStrings("__name__", "x"), Samples: []ingest.Sample{{T: at, V: v}}}})
	}
	process := func() *group {
		t.Helper()
		g := w.groups()[0]
		if err := g.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		return g
	}
	finish := func(g *group) {
		t.Helper()
		for range 3 {
			if w.now.Add(10 * minute); !w.catchUp(g) {
				t.Fatal("not all is recorded")
			}
		}
	}
	g := process()
	write(begin+minute, 1)
	finish(g)
	late := w.now.Load() - 20*minute
	write(late, 5)
	w.now.Add(2 * 60 * minute)
	g = process()
	for due := g.timeOf(time.UnixMilli(w.now.Load())); g.first() <= due; {
		if err := g.advance(t.Context(), due); err != nil {
			t.Fatal(err)
		}
	}
	finish(process())
	if got := w.samples("r"); strings.Count(got, " 3ff0000000000000\n") != 5 || strings.Count(got, " 4014000000000000\n") != 5 {
		t.Errorf("there are not five steps of each of two samples:\n%s", got)
	}
}

// TestTaken: a process whose group another one has recorded meanwhile goes on from there, and evaluates anew what that one left.
func TestTaken(t *testing.T) {
	w := newWorld(t, writeRules(t, "groups: [{name: g, interval: 1m, rules: [{record: r, expr: x}]}]\n"))
	w.cfg.Reevaluate = time.Hour
	var both [2]*group
	for i := range both {
		if both[i] = w.groups()[0]; both[i].begin(t.Context()) != nil {
			t.Fatal("the group does not begin")
		}
	}
	w.now.Add(30 * minute)
	if !w.catchUp(both[1]) {
		t.Fatal("not all is recorded")
	}
	w.write([]ingest.Series{{Labels: labels.FromStrings("__name__", "x"), Samples: []ingest.Sample{{T: begin + 10*minute, V: 5}}}}) // both[1] alone hears of it
	if err := both[0].advance(t.Context(), both[0].first()); !errors.Is(err, errTaken) {
		t.Errorf("a step that is recorded is recorded again: %v", err)
	}
	if w.now.Add(minute); !w.catchUp(both[0]) {
		t.Error("not all is recorded")
	}
	if got := w.samples("r"); strings.Count(got, " 4014000000000000\n") != 5 {
		t.Errorf("there are not five steps of the sample:\n%s", got)
	}
}

func writeRules(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRun: rules are recorded as time passes, those of a file that changes, too, and all ends with the context. The manager knows what each has.
func TestRun(t *testing.T) {
	const text = "groups:\n- name: g\n  interval: 100ms\n  rules:\n  - {record: r, expr: vector(1)}\n  - {alert: A, expr: vector(1)}\n"
	file := writeRules(t, text)
	w := openWorld(t, true, []string{file})
	notified := make(chan struct{}, 1)
	w.cfg.Notify = func(_ context.Context, _ string, alerts ...*rules.Alert) {
		select {
		case notified <- struct{}{}:
		default:
		}
	}
	r, err := New(t.Context(), w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	<-notified
	for w.samples("r") == "" { // alerts are sent before it is stored
		time.Sleep(10 * time.Millisecond)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(text, "record: r,", "record: s,", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	for w.samples("s") == "" && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	var names []string
	for _, rule := range r.RuleGroups()[0].Rules() {
		names = append(names, rule.Name())
	}
	if !slices.Equal(names, []string{"s", "A"}) || len(r.AlertingRules()) != 1 {
		t.Errorf("the rules are %q", names)
	}
	stale := fmt.Sprintf("%x\n", value.StaleNaN)
	for name, want := range map[string]string{"ALERTS": `alertstate="firing"`, "r": stale} {
		for began := time.Now(); !strings.Contains(w.samples(name), want); time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("%s has no %q: %s", name, want, w.samples(name))
			}
		}
	}
	stop()
	running.Wait()
	if strings.Contains(w.samples("s"), stale) {
		t.Error("a rule that goes on has ended")
	}
}

// ends leaves out markers of staleness of what has ended: corrections leave them where there is nothing in the end.
func ends(samples string) string {
	stale, before := fmt.Sprintf(" %x", value.StaleNaN), ""
	lines := strings.SplitAfter(samples, "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool {
		isStale := strings.HasSuffix(strings.TrimSpace(line), stale)
		isAgain := isStale && (strings.HasPrefix(before, "{") || strings.HasSuffix(strings.TrimSpace(before), stale))
		before = line
		return isAgain
	})
	return strings.Join(lines, "")
}

// difference returns the first lines that differ.
func difference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d of %d, %d:\n got %s\nwant %s", i, len(g), len(w), strings.Join(g[max(0, i-2):min(i+3, len(g))], " | "), strings.Join(w[max(0, i-2):min(i+3, len(w))], " | "))
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}
