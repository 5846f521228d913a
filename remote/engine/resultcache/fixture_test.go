package resultcache_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/resultcache"
	"github.com/promtable/promtable/series/chunk"
)

// A store has series in memory. It is safe for concurrent use.
type store struct {
	mu     sync.Mutex
	series []*floats
	// onQuery, if set, is called when a query begins to read, after it has read.
	onQuery func()
}

// floats is a series.
type floats struct {
	labels labels.Labels
	points []promql.FPoint // sorted by time
}

// write stores a sample and replaces one of the same time.
func (s *store) write(ls labels.Labels, t int64, v float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := slices.BinarySearchFunc(s.series, ls, func(f *floats, ls labels.Labels) int { return labels.Compare(f.labels, ls) })
	if !found {
		s.series = slices.Insert(s.series, i, &floats{labels: ls})
	}
	f := s.series[i]
	at, found := slices.BinarySearchFunc(f.points, t, func(p promql.FPoint, t int64) int { return cmp.Compare(p.T, t) })
	if found {
		f.points[at].F = v
	} else {
		f.points = slices.Insert(f.points, at, promql.FPoint{T: t, F: v})
	}
}

// Querier implements storage.Queryable.
func (s *store) Querier(mint, maxt int64) (storage.Querier, error) {
	return querier{store: s, mint: mint, maxt: maxt}, nil
}

type querier struct {
	storage.LabelQuerier
	store      *store
	mint, maxt int64
}

// Close implements storage.LabelQuerier.
func (querier) Close() error { return nil }

// Select implements storage.Querier.
func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	set := &list{}
	q.store.mu.Lock()
	for _, f := range q.store.series {
		if slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(f.labels.Get(m.Name)) }) {
			continue
		}
		var ts []int64
		var vs []float64
		for _, p := range f.points {
			if p.T >= q.mint && p.T <= q.maxt {
				ts, vs = append(ts, p.T), append(vs, p.F)
			}
		}
		if len(ts) > 0 {
			var b chunk.Builder
			b.Decoded = new(chunk.Space)
			b.AppendFloats(nil, ts, vs)
			set.series = append(set.series, &storage.SeriesEntry{Lset: f.labels, SampleIteratorFn: func(it chunkenc.Iterator) chunkenc.Iterator { return b.Chunks[0].Chunk.Iterator(it) }})
		}
	}
	q.store.mu.Unlock()
	if q.store.onQuery != nil {
		q.store.onQuery()
	}
	return set
}

// list is a storage.SeriesSet.
type list struct {
	series []storage.Series
	next   int
}

func (l *list) Next() bool                      { l.next++; return l.next <= len(l.series) }
func (l *list) At() storage.Series              { return l.series[l.next-1] }
func (*list) Err() error                        { return nil }
func (*list) Warnings() annotations.Annotations { return nil }

// A fixture is a cache in front of an engine that notes what it evaluates.
type fixture struct {
	*store
	t      testing.TB
	now    time.Time
	cache  *resultcache.Cache
	engine *resultcache.Engine
	direct *noting
	reg    *prometheus.Registry
	opts   promql.EngineOpts
}

// second and minute are in milliseconds.
const (
	second = 1000
	minute = 60 * second
)

// newFixture returns a cache of so many bytes, over an hour of two series with a sample every 10 s. It
// is a day later.
func newFixture(t testing.TB, bytes int64, change ...func(*resultcache.Config)) *fixture {
	f := &fixture{store: &store{}, t: t, now: time.UnixMilli(24 * 60 * minute), reg: prometheus.NewRegistry()}
	for i := range 360 {
		for _, job := range []string{"a", "b"} {
			f.store.write(labels.FromStrings("__name__", "x_total", "job", job), int64(i)*10*second, float64(i*i))
		}
	}
	f.opts = promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		EnablePerStepStats: true, Parser: parser.NewParser(promqltest.TestParserOpts), NoStepSubqueryIntervalFn: func(int64) int64 { return minute },
	}
	memory := eval.NewMemory(0, 0)
	f.cache = resultcache.New(bytes, f.reg)
	cfg := resultcache.Config{Options: f.opts, Memory: memory, Now: func() time.Time { return f.now }}
	for _, fn := range change {
		fn(&cfg)
	}
	f.direct = &noting{QueryEngine: eval.New(cfg.Options, memory)}
	cfg.Engine = f.direct
	f.engine = f.cache.Engine(cfg)
	return f
}

// write stores a sample and tells the cache, as an engine does.
func (f *fixture) write(ls labels.Labels, t int64, v float64) {
	f.store.write(ls, t, v)
	f.cache.Written("", []bucketstore.Sample{{T: t}})
}

// noting is an engine that notes the ranges of queries that it executes.
type noting struct {
	promql.QueryEngine
	mu       sync.Mutex
	executed []string
}

// NewRangeQuery implements promql.QueryEngine.
func (e *noting) NewRangeQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, qs string, start, end time.Time, interval time.Duration) (promql.Query, error) {
	made, err := e.QueryEngine.NewRangeQuery(ctx, q, opts, qs, start, end, interval)
	return notingQuery{made, e, fmt.Sprintf("%d-%d", start.Unix(), end.Unix())}, err
}

type notingQuery struct {
	promql.Query
	engine *noting
	of     string
}

// Exec implements promql.Query.
func (q notingQuery) Exec(ctx context.Context) *promql.Result {
	q.engine.mu.Lock()
	q.engine.executed = append(q.engine.executed, q.of)
	q.engine.mu.Unlock()
	return q.Query.Exec(ctx)
}

// query sends a query with times in seconds, wants the answer of an evaluation, and returns what was
// evaluated for it.
func (f *fixture) query(qs string, start, end, step int64) (evaluated string) {
	f.t.Helper()
	want := f.answer(f.t.Context(), f.direct, qs, start, end, step)
	f.direct.executed = nil
	if got := f.answer(f.t.Context(), f.engine, qs, start, end, step); got != want {
		f.t.Errorf("%s:\n got %s\nwant %s", qs, got, want)
	}
	return strings.Join(f.direct.executed, " ")
}

// limited is query with a limit. Of the answer it compares as many series, and how many there are.
func (f *fixture) limited(qs string, limit int, start, end, step int64) (evaluated string) {
	f.t.Helper()
	answer := func(e promql.QueryEngine) (string, int) {
		l := &eval.Limit{Series: limit}
		lines := strings.SplitAfter(f.answer(eval.WithLimit(f.t.Context(), l), e, qs, start, end, step), "\n")
		return strings.Join(lines[:min(1+limit, len(lines))], ""), l.Found // the first line is of errors
	}
	want, all := answer(f.direct)
	f.direct.executed = nil
	if got, found := answer(f.engine); got != want || found != all {
		f.t.Errorf("%s, limit %d:\n got %s of %d\nwant %s of %d", qs, limit, got, found, want, all)
	}
	return strings.Join(f.direct.executed, " ")
}

// answer returns an answer as text, floats as their bits.
func (f *fixture) answer(ctx context.Context, e promql.QueryEngine, qs string, start, end, step int64) string {
	f.t.Helper()
	q, err := e.NewRangeQuery(ctx, f.store, promql.NewPrometheusQueryOpts(false, 0, nil), qs, time.Unix(start, 0), time.Unix(end, 0), time.Duration(step)*time.Second)
	if err != nil {
		f.t.Fatal(err)
	}
	defer q.Close()
	res := q.Exec(ctx)
	var b strings.Builder
	fmt.Fprintln(&b, res.Err, res.Warnings.AsErrors())
	if res.Err == nil {
		for _, s := range res.Value.(promql.Matrix) {
			fmt.Fprintf(&b, "%s:", s.Metric)
			for _, p := range s.Floats {
				fmt.Fprintf(&b, " %d=%x", p.T/second, math.Float64bits(p.F))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// metric returns the value of a metric, of all its labels or of those with one value.
func (f *fixture) metric(name string, value ...string) (sum float64) {
	f.t.Helper()
	families, err := f.reg.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return !slices.Contains(value, l.GetValue()) }) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
