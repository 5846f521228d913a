package engine_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// TestHistogramBefore: a range that begins in the middle of a series tells of
// the first histogram what it would tell if it began earlier.
func TestHistogramBefore(t *testing.T) {
	const minute = 60_000
	newHistogram := func(t int64, count uint64, change func(*histogram.Histogram)) ingest.Histogram {
		h := &histogram.Histogram{Count: count, Sum: 1, PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []int64{int64(count)}}
		if change != nil {
			change(h)
		}
		return ingest.Histogram{T: t, H: h}
	}
	hint := func(hint histogram.CounterResetHint) func(*histogram.Histogram) {
		return func(h *histogram.Histogram) { h.CounterResetHint = hint }
	}
	toFloat := func(h ingest.Histogram) ingest.Histogram { return ingest.Histogram{T: h.T, FH: h.H.ToFloat(nil)} }
	tests := []struct {
		name  string
		at    int64 // of the first histogram in the range
		prior []ingest.Histogram
		float bool // the prior one is a float sample
		first ingest.Histogram
		want  histogram.CounterResetHint
		scans int
	}{
		{"counting on", someTime, []ingest.Histogram{newHistogram(someTime-minute, 3, nil)}, false, newHistogram(someTime, 4, nil), histogram.NotCounterReset, 2},
		{"float counts", someTime, []ingest.Histogram{toFloat(newHistogram(someTime-minute, 3, nil))}, false, toFloat(newHistogram(someTime, 4, nil)), histogram.NotCounterReset, 2},
		{"two before", someTime, []ingest.Histogram{newHistogram(someTime-2*minute, 9, nil), newHistogram(someTime-minute, 3, nil)}, false, newHistogram(someTime, 4, nil), histogram.NotCounterReset, 2},
		{"reset", someTime, []ingest.Histogram{newHistogram(someTime-minute, 3, nil)}, false, newHistogram(someTime, 2, nil), histogram.UnknownCounterReset, 2},
		{"nothing before", someTime, nil, false, newHistogram(someTime, 4, nil), histogram.UnknownCounterReset, 2},
		{"long before", someTime, []ingest.Histogram{newHistogram(someTime-5*minute-1, 3, nil)}, false, newHistogram(someTime, 4, nil), histogram.UnknownCounterReset, 2},
		{"just within", someTime, []ingest.Histogram{newHistogram(someTime-5*minute, 3, nil)}, false, newHistogram(someTime, 4, nil), histogram.NotCounterReset, 2},
		{"a float before", someTime, nil, true, newHistogram(someTime, 4, nil), histogram.UnknownCounterReset, 2},
		{"other counts before", someTime, []ingest.Histogram{toFloat(newHistogram(someTime-minute, 3, nil))}, false, newHistogram(someTime, 4, nil), histogram.UnknownCounterReset, 2},
		{"stale before", someTime, []ingest.Histogram{newHistogram(someTime-minute, 0, func(h *histogram.Histogram) { *h = histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)} })}, false, newHistogram(someTime, 4, nil), histogram.UnknownCounterReset, 2},
		{"gauges", someTime, []ingest.Histogram{newHistogram(someTime-minute, 3, hint(histogram.GaugeType))}, false, newHistogram(someTime, 4, hint(histogram.GaugeType)), histogram.GaugeType, 1},
		{"the sender says reset", someTime, []ingest.Histogram{newHistogram(someTime-minute, 3, nil)}, false, newHistogram(someTime, 4, hint(histogram.CounterReset)), histogram.UnknownCounterReset, 1},
		{"over a base boundary", 31 * series.Period, []ingest.Histogram{newHistogram(31*series.Period-1, 3, nil)}, false, newHistogram(31*series.Period, 4, nil), histogram.NotCounterReset, 2},
		{"at the beginning of time", 0, nil, false, newHistogram(0, 4, nil), histogram.UnknownCounterReset, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := openFixture(t)
			s := ingest.Series{Labels: up, Histograms: append(tt.prior, tt.first)}
			if tt.float {
				s.Samples = []ingest.Sample{{T: tt.at - minute, V: 1}}
			}
			// A second one shows that nothing is lost behind the first.
			next := newHistogram(tt.at+minute, 5, hint(hintOf(tt.first)))
			if tt.first.FH != nil {
				next = toFloat(next)
			}
			s.Histograms = append(s.Histograms, next)
			f.append(t, s)
			f.store.reset()
			querier, err := f.Querier(tt.at, tt.at+minute)
			if err != nil {
				t.Fatal(err)
			}
			set := querier.Select(t.Context(), true, nil, match("__name__", "up"))
			got := readHints(t, set)
			second := histogram.NotCounterReset
			if tt.want == histogram.GaugeType {
				second = histogram.GaugeType
			}
			if want := fmt.Sprintf("[%d %v][%d %v]", tt.at, tt.want, tt.at+minute, second); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if n := len(f.store.scans(bucketstore.Metric)); n != tt.scans {
				t.Errorf("%d scans, want %d", n, tt.scans)
			}
		})
	}
}

// hintOf returns what the sender says of resets; after a reset there is none.
func hintOf(h ingest.Histogram) histogram.CounterResetHint {
	if h.H != nil && h.H.CounterResetHint == histogram.GaugeType {
		return histogram.GaugeType
	}
	return histogram.UnknownCounterReset
}

// readHints reads the only series of set twice, the second time with the
// iterator of the first.
func readHints(t *testing.T, set storage.SeriesSet) (text string) {
	t.Helper()
	var it chunkenc.Iterator
	for set.Next() {
		for range 2 {
			text, it = "", set.At().Iterator(it)
			for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
				at, h := it.AtFloatHistogram(nil)
				text += fmt.Sprintf("[%d %v]", at, h.CounterResetHint)
			}
			if err := it.Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	return text
}
