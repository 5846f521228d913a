package engine_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

func TestLabels(t *testing.T) {
	f := openFixture(t)
	f.append(t,
		one(labels.FromStrings("__name__", "up", "job", "a", "instance", "1"), someTime),
		one(labels.FromStrings("__name__", "up", "job", "b", "instance", "2"), someTime),
		one(labels.FromStrings("__name__", "other", "job", "c", "zone", ",="), someTime),
		one(labels.FromStrings("__name__", "old", "job", "d", "age", "old"), someTime-2*series.Period),
	)
	re := func(name, value string) *labels.Matcher {
		return labels.MustNewMatcher(labels.MatchRegexp, name, value)
	}
	tests := []struct {
		name       string
		mint, maxt int64
		// label is the label whose values are asked for, empty for names.
		label    string
		limit    int
		matchers []*labels.Matcher
		want     string
	}{
		{name: "names", mint: someTime, maxt: someTime, want: "__name__ instance job zone"},
		{name: "names of ever", mint: math.MinInt64, maxt: math.MaxInt64, want: "__name__ age instance job zone"},
		{name: "names of a past period", mint: 0, maxt: someTime - series.Period, want: "__name__ age job"},
		{name: "names, limited", mint: someTime, maxt: someTime, limit: 2, want: "__name__ instance"},
		{name: "names, limit not met", mint: someTime, maxt: someTime, limit: 4, want: "__name__ instance job zone"},
		{name: "names of some", mint: someTime, maxt: someTime, matchers: []*labels.Matcher{match("__name__", "up")}, want: "__name__ instance job"},
		{name: "names of some, limited", mint: someTime, maxt: someTime, limit: 1, matchers: []*labels.Matcher{match("__name__", "up")}, want: "__name__"},
		{name: "names of none", mint: someTime, maxt: someTime, matchers: []*labels.Matcher{match("__name__", "down")}},
		{name: "names of no time", mint: someTime, maxt: someTime - 1},
		{name: "values", mint: someTime, maxt: someTime, label: "job", want: "a b c"},
		{name: "values of ever", mint: 0, maxt: series.MaxTime, label: "job", want: "a b c d"},
		{name: "values, limited", mint: someTime, maxt: someTime, label: "job", limit: 2, want: "a b"},
		{name: "values of the name", mint: someTime, maxt: someTime, label: "__name__", want: "other up"},
		{name: "values, escaped in keys", mint: someTime, maxt: someTime, label: "zone", want: ",="},
		{name: "values of no label", mint: someTime, maxt: someTime, label: "absent"},
		{name: "values of some", mint: someTime, maxt: someTime, label: "job", matchers: []*labels.Matcher{re("instance", "[23]|")}, want: "b c"},
		{name: "values of some, limited", mint: someTime, maxt: someTime, label: "job", limit: 1, matchers: []*labels.Matcher{re("job", ".+")}, want: "a"},
		{name: "values that only others have", mint: someTime, maxt: someTime, label: "zone", matchers: []*labels.Matcher{match("__name__", "up")}},
		{name: "values of no time", mint: someTime, maxt: someTime - 1, label: "job"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.store.reset()
			q, err := f.Querier(tt.mint, tt.maxt)
			if err != nil {
				t.Fatal(err)
			}
			hints := &storage.LabelHints{Limit: tt.limit}
			var got []string
			if tt.label == "" {
				got, _, err = q.LabelNames(t.Context(), hints, tt.matchers...)
			} else {
				got, _, err = q.LabelValues(t.Context(), tt.label, hints, tt.matchers...)
			}
			if err != nil || strings.Join(got, " ") != tt.want {
				t.Errorf("found %q, error %v, want %s", got, err, tt.want)
			}
			if n := len(f.store.scans(bucketstore.Metric)); n != 0 {
				t.Errorf("%d scans of METRIC", n)
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestQuerierHints(t *testing.T) {
	f := openFixture(t)
	want := one(labels.FromStrings("__name__", "up"), someTime, someTime+1)
	f.append(t, want)
	q, err := f.Querier(someTime, someTime+1)
	if err != nil {
		t.Fatal(err)
	}
	// What is read are the times of the hints: those of the querier are of a whole query.
	first := &storage.SelectHints{Start: someTime, End: someTime}
	wantSeries(t, "times", collectSamples(t, q.Select(t.Context(), true, first)), one(want.Labels, someTime))
	hints := &storage.SelectHints{Start: someTime, End: someTime + 1, Func: "rate", Range: 1, Limit: 1}
	wantSeries(t, "rate", collectSamples(t, q.Select(t.Context(), true, hints)), want)
	hints.Func = "series"
	wantSeries(t, "series", collectSamples(t, q.Select(t.Context(), true, hints)), ingest.Series{Labels: want.Labels})
	chunked, err := f.ChunkQuerier(someTime, someTime+1)
	if err != nil {
		t.Fatal(err)
	}
	wantSeries(t, "series, chunked", collectChunks(t, chunked.Select(t.Context(), true, hints), everything()), ingest.Series{Labels: want.Labels})
}

func TestQuerierErrors(t *testing.T) {
	f := openFixture(t, func(c *engine.Config) { c.Limits.MaxSeries = 1 })
	f.append(t, many(2, someTime)...)
	q, err := f.Querier(0, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	chunked, err := f.ChunkQuerier(0, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	set, chunkSet := q.Select(t.Context(), true, nil), chunked.Select(t.Context(), true, nil)
	if set.Next() || chunkSet.Next() {
		t.Error("a series in spite of the limit")
	}
	for _, err := range []error{set.Err(), chunkSet.Err()} {
		if !errors.Is(err, reader.ErrLimit) {
			t.Errorf("error %v, want ErrLimit", err)
		}
	}
}

// The limit on series is one on samples: what asks for labels alone has none but its own.
func TestQuerierLabelsBeyondLimit(t *testing.T) {
	f := openFixture(t, func(c *engine.Config) { c.Limits.MaxSeries = 1 })
	f.append(t, many(3, someTime)...)
	q, err := f.Querier(0, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	for limit, want := range []int{3, 1, 2, 3, 3} {
		hints := &storage.LabelHints{Limit: limit}
		names, _, err := q.LabelNames(t.Context(), hints, match("__name__", "up"))
		if err != nil || len(names) != min(want, 2) {
			t.Errorf("limit %d: names %q, %v", limit, names, err)
		}
		values, _, err := q.LabelValues(t.Context(), "n", hints, match("__name__", "up"))
		if err != nil || len(values) != want {
			t.Errorf("limit %d: values %q, %v", limit, values, err)
		}
		set := q.Select(t.Context(), true, &storage.SelectHints{End: math.MaxInt64, Func: "series", Limit: limit}, match("__name__", "up"))
		if found := collectSamples(t, set); len(found) != want {
			t.Errorf("limit %d: %d series", limit, len(found))
		}
	}
}

func TestAppender(t *testing.T) {
	other := labels.FromStrings("__name__", "other")
	add := func(t *testing.T, a storage.AppenderV2, ls labels.Labels, at int64, v float64) {
		t.Helper()
		if _, err := a.Append(0, ls, 0, at, v, nil, nil, storage.AOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("commit", func(t *testing.T) {
		f := openFixture(t)
		a := f.AppenderV2(t.Context())
		add(t, a, up, someTime, 1)
		add(t, a, up, someTime+1, 2)
		add(t, a, other, someTime, 3)
		add(t, a, up, someTime+1, 4)
		wantSeries(t, "before", f.collect(t, everything()))
		if err := a.Commit(); err != nil {
			t.Fatal(err)
		}
		wantSeries(t, "after", f.collect(t, everything()), sample(other, someTime, 3),
			ingest.Series{Labels: up, Samples: []ingest.Sample{{T: someTime, V: 1}, {T: someTime + 1, V: 4}}})
	})
	t.Run("rollback", func(t *testing.T) {
		f := openFixture(t)
		a := f.AppenderV2(t.Context())
		add(t, a, up, someTime, 1)
		if err := errors.Join(a.Rollback(), a.Commit()); err != nil {
			t.Fatal(err)
		}
		wantSeries(t, "nothing", f.collect(t, everything()))
	})
	t.Run("histograms", func(t *testing.T) {
		f := openFixture(t)
		a := f.AppenderV2(t.Context())
		h := &histogram.Histogram{Count: 3, Sum: 4, PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []int64{3}}
		_, err := a.Append(0, up, 7, someTime, 0, h, nil, storage.AOptions{
			Metadata:  metadata.Metadata{Type: "gauge", Help: "is it"},
			Exemplars: []exemplar.Exemplar{{Labels: labels.FromStrings("trace", "x"), Value: 2, Ts: someTime}},
		})
		_, floatErr := a.Append(0, up, 0, someTime+1, 0, nil, h.ToFloat(nil), storage.AOptions{})
		h.Count = 5 // the caller's again
		if err := errors.Join(err, floatErr, a.Commit()); err != nil {
			t.Fatal(err)
		}
		q, err := f.Querier(someTime, someTime+1)
		if err != nil {
			t.Fatal(err)
		}
		set := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchEqual, "__name__", "up"))
		if !set.Next() {
			t.Fatalf("no series: %v", set.Err())
		}
		it := set.At().Iterator(nil)
		if kind := it.Next(); kind != chunkenc.ValHistogram || it.AtST() != 7 {
			t.Errorf("a %s with start %d", kind, it.AtST())
		} else if at, got := it.AtHistogram(nil); at != someTime || got.Count != 3 || got.Sum != 4 {
			t.Errorf("%d: %s", at, got)
		}
		if kind := it.Next(); kind != chunkenc.ValFloatHistogram || it.AtST() != 0 {
			t.Errorf("a %s with start %d", kind, it.AtST())
		}
		found, err := f.Metadata(t.Context(), "up", 0)
		if want := (ingest.Metadata{Family: "up", Metadata: metadata.Metadata{Type: "gauge", Help: "is it"}}); err != nil || len(found) != 1 || found[0] != want {
			t.Errorf("metadata %v, %v", found, err)
		}
	})
	t.Run("rejected", func(t *testing.T) {
		f := openFixture(t)
		a := f.AppenderV2(t.Context())
		add(t, a, raw("job", "nameless"), someTime, 1)
		add(t, a, up, someTime, 1)
		var rejected *ingest.Rejected
		if err := a.Commit(); !errors.As(err, &rejected) || !strings.Contains(err.Error(), "nameless") {
			t.Errorf("Commit: %v", err)
		}
		wantSeries(t, "the rest", f.collect(t, everything()), sample(up, someTime, 1))
	})
	t.Run("store failure", func(t *testing.T) {
		f := openFixture(t)
		f.store.onApply = func(bucketstore.Table, []bucketstore.Mutation) error { return errStore }
		a := f.AppenderV2(t.Context())
		add(t, a, up, someTime, 1)
		if err := a.Commit(); !errors.Is(err, errStore) {
			t.Errorf("Commit: %v", err)
		}
		f.store.onApply = nil
	})
}

// promStorage is an engine as Prometheus' acceptance tests want it.
type promStorage struct{ *fixture }

func (promStorage) StartTime() (int64, error)                   { return 0, nil }
func (s promStorage) Appender(context.Context) storage.Appender { panic("not used") }
func (s promStorage) Close() error                              { return nil }

func TestPromQL(t *testing.T) {
	scripts := map[string]string{
		"counter over a base": `
load 20d
  requests_total{job="a"} 0+100x10
  requests_total{job="b"} 0+50x10

eval instant at 200d sum(requests_total)
  {} 1500

eval instant at 200d increase(requests_total{job="a"}[100d])
  {job="a"} 500

eval range from 0 to 200d step 100d requests_total{job=~"b|c"}
  requests_total{job="b"} 0 250 500
`,
		"staleness": `
load 10s
  up{n="1"} 1 _ stale 1 NaN -0 Inf

eval instant at 10s up
  up{n="1"} 1

eval instant at 20s up

eval instant at 40s up
  up{n="1"} NaN

eval instant at 60s up{n!="2"}
  up{n="1"} Inf

eval instant at 60s count_over_time(up[1m])
  {n="1"} 4
`,
	}
	eng := promql.NewEngine(promql.EngineOpts{MaxSamples: 10000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true})
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			promqltest.RunTestWithStorage(t, script, eng, func(t testing.TB) storage.Storage { return promStorage{openFixture(t)} })
		})
	}
}

// What is selected can be asked again: an iterator is not the set's only one.
func TestSeriesStayValid(t *testing.T) {
	f := openFixture(t)
	batch := many(150, regular(300, someTime)...)
	f.append(t, batch...)
	set, err := f.Select(t.Context(), everything())
	if err != nil {
		t.Fatal(err)
	}
	var kept []storage.ChunkSeries
	for set.Next() {
		kept = append(kept, set.At())
	}
	for range 2 {
		var found []ingest.Series
		for _, s := range kept {
			got := ingest.Series{Labels: s.Labels()}
			for it := s.Iterator(nil); it.Next(); {
				got.Samples = slices.Concat(got.Samples, decode(t, it.At().Chunk))
			}
			found = append(found, got)
		}
		wantSeries(t, "kept", found, batch...)
	}
}
