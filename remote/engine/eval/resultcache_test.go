//go:build !race

package eval_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/resultcache"
	"github.com/promtable/promtable/series/seriestest"
)

// cachedRanges is for how many ranges TestRandomCached sends each query.
const cachedRanges = 10

// TestRandomCached compares answers to random queries over random ranges, from a cache of results,
// with answers without it. Samples are written between them, in order and late.
func TestRandomCached(t *testing.T) {
	r := &random{seriestest.NewRand(t)}
	for _, buffered := range []bool{true, false} {
		w := openCachedWorld(t, r, buffered)
		for range max(100, storetest.Rounds(t, 150)) { // fewer may drop no block
			w.compareRanges(t)
		}
		w.checkMetrics(t)
	}
}

// A cachedWorld is an engine on an embedded store, and queries with and without a cache.
type cachedWorld struct {
	*random
	engine         *engine.Engine
	now            atomic.Int64
	reg            *prometheus.Registry
	cached, direct promql.QueryEngine
	answers        int
}

func openCachedWorld(t *testing.T, r *random, buffered bool) *cachedWorld {
	w := &cachedWorld{random: r, reg: prometheus.NewRegistry()}
	w.now.Store(dataStart + dataSpan)
	clock := func() time.Time { return time.UnixMilli(w.now.Load()) }
	rows, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{}), Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	cache := resultcache.New(4<<20, w.reg)
	cfg := engine.Config{Store: rows, Now: clock, MaxFuture: engine.Unbounded, Written: func(samples []bucketstore.Sample) { cache.Written("", samples) }}
	cfg.Appender = bucketstore.NewDirect(rows, cfg.Schema, clock, nil)
	if buffered {
		dir, err := buffer.OpenDir(t.TempDir(), clock())
		if err != nil {
			t.Fatal(err)
		}
		b, err := buffer.Open(t.Context(), dir, buffer.Config{Store: rows, Schema: cfg.Schema, Now: clock, PartSamples: 30, MaxOpenBytes: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Store, cfg.Appender = b, b
	}
	t.Cleanup(func() { closed(t, cfg.Store.Close()) }) // that of a buffer closes its store
	if w.engine, err = engine.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, w.engine.Close(context.Background())) })
	r.fillAll(t, appendable{e: w.engine})
	memory := eval.NewMemory(0, 0)
	w.direct = eval.New(options(), memory)
	w.cached = cache.Engine(resultcache.Config{Engine: eval.New(options(), memory), Options: options(), Memory: memory, Now: clock})
	return w
}

func closed(t *testing.T, err error) {
	if err != nil {
		t.Error(err)
	}
}

// compareRanges compares answers to one query over several ranges of one grid.
func (w *cachedWorld) compareRanges(t *testing.T) {
	qs := w.query()
	for len(qs) > 200 {
		qs = w.query()
	}
	step := time.Duration(1+w.IntN(120)) * time.Second
	for range cachedRanges {
		start := time.UnixMilli(dataStart + w.Int64N(dataSpan)).Truncate(step)
		end := start.Add(time.Duration(w.IntN(200))*step + time.Duration(w.IntN(1000))*time.Millisecond)
		w.now.Store(dataStart + 2*dataSpan)
		if w.IntN(4) == 0 { // also back
			w.now.Store(dataStart + w.Int64N(2*dataSpan))
		}
		want := w.answer(t, w.direct, qs, start, end, step)
		got := w.answer(t, w.cached, qs, start, end, step)
		w.answers++
		for i := 0; got != want; i++ {
			if i == 200 {
				t.Fatalf("%s from %d to %d, step %s, now %d:\n%s", qs, start.UnixMilli(), end.UnixMilli(), step, w.now.Load(), difference(got, want))
			}
			if w.answer(t, w.direct, qs, start, end, step) != want {
				break // it does not agree with itself: it adds in the order of a map
			}
		}
		if w.IntN(5) == 0 {
			w.write(t)
		}
	}
}

// answer returns an answer as text, without what a cache may answer otherwise: hints of resets, which
// no client sees, and that they conflict.
func (w *cachedWorld) answer(t *testing.T, e promql.QueryEngine, qs string, start, end time.Time, step time.Duration) string {
	q, err := e.NewRangeQuery(t.Context(), w.engine, nil, qs, start, end, step)
	if err != nil {
		return err.Error()
	}
	defer q.Close()
	res := q.Exec(t.Context())
	if res.Err != nil {
		return res.Err.Error()
	}
	for _, s := range res.Value.(promql.Matrix) {
		for i, p := range s.Histograms {
			s.Histograms[i].H = p.H.Copy()
			s.Histograms[i].H.CounterResetHint = histogram.UnknownCounterReset
		}
	}
	warnings, infos := res.Warnings.AsStrings(qs, 0, 0)
	notes := slices.DeleteFunc(append(warnings, infos...), func(note string) bool { return strings.Contains(note, "conflicting counter resets") })
	slices.Sort(notes)
	return text(res.Value, false) + stringOf(notes)
}

func difference(got, want string) string {
	gots, wants := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(gots), len(wants)) {
		if gots[i] != wants[i] {
			return "got line " + strconv.Itoa(i) + ": " + gots[i] + "\nwant: " + wants[i]
		}
	}
	return "got " + got + "\nwant " + want
}

// write writes some samples of one time or more, mostly late.
func (w *cachedWorld) write(t *testing.T) {
	app := appendable{e: w.engine}.Appender(t.Context())
	for range 1 + w.IntN(3) {
		name := w.of("a_total", "b_total", "gauge", "sparse", "native", "mixed")
		ls := labels.FromStrings("__name__", name, "job", strconv.Itoa(w.IntN(2)), "instance", strconv.Itoa(w.IntN(4)))
		at := int64(dataStart) + w.Int64N(dataSpan)
		if name == "native" {
			w.appendHistogram(t, app, ls, at, w.IntN(50))
		} else {
			w.append(t, app, ls, at, w.NormFloat64())
		}
	}
	closed(t, app.Commit())
}

// checkMetrics wants steps from the cache, others that are not, and blocks dropped by writes.
func (w *cachedWorld) checkMetrics(t *testing.T) {
	hits := w.metric(t, "adapter_results_cache_steps_total", "hit")
	misses := w.metric(t, "adapter_results_cache_steps_total", "miss")
	dropped := w.metric(t, "adapter_results_cache_dropped_blocks_total", "written")
	t.Logf("%d answers: %g steps cached, %g not, %g blocks dropped by writes", w.answers, hits, misses, dropped)
	if hits == 0 || misses == 0 || dropped == 0 {
		t.Error("nothing to compare")
	}
}

func (w *cachedWorld) metric(t *testing.T, name, label string) float64 {
	families, err := w.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == label }) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// appendable is an engine as a store that fill can append to.
type appendable struct {
	storage.Storage
	e *engine.Engine
}

// Appender implements storage.Appendable.
func (a appendable) Appender(ctx context.Context) storage.Appender {
	return &appender{to: a.e.AppenderV2(ctx)}
}

type appender struct {
	storage.Appender
	to storage.AppenderV2
}

// Append implements storage.Appender.
func (a *appender) Append(_ storage.SeriesRef, ls labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	return a.to.Append(0, ls, 0, t, v, nil, nil, storage.AppendV2Options{})
}

// AppendHistogram implements storage.Appender.
func (a *appender) AppendHistogram(_ storage.SeriesRef, ls labels.Labels, t int64, h *histogram.Histogram, fh *histogram.FloatHistogram) (storage.SeriesRef, error) {
	return a.to.Append(0, ls, 0, t, 0, h, fh, storage.AppendV2Options{})
}

// Commit implements storage.Appender.
func (a *appender) Commit() error { return a.to.Commit() }
