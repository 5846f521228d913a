package remotetest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/wire/wiretest"
)

// SomeHistogram has integer counts, all kinds of fields and awkward numbers.
func SomeHistogram() *histogram.Histogram {
	return &histogram.Histogram{
		CounterResetHint: histogram.GaugeType, Schema: -2, ZeroThreshold: 1e-128, ZeroCount: math.MaxUint64, Count: 1 << 63,
		Sum:           math.Float64frombits(value.StaleNaN),
		PositiveSpans: []histogram.Span{{Offset: -5, Length: 2}, {Offset: 0, Length: 1}}, PositiveBuckets: []int64{math.MaxInt64, math.MinInt64, -1},
		NegativeSpans: []histogram.Span{{Offset: math.MaxInt32, Length: math.MaxUint32}}, NegativeBuckets: []int64{1},
		CustomValues: []float64{math.Inf(-1), 0.5},
	}
}

// SomeFloatHistogram has float counts, likewise.
func SomeFloatHistogram() *histogram.FloatHistogram {
	return &histogram.FloatHistogram{
		CounterResetHint: histogram.CounterReset, Schema: -53, ZeroThreshold: math.Inf(1), ZeroCount: math.NaN(), Count: -1.5, Sum: 7,
		PositiveSpans: []histogram.Span{{Offset: 3, Length: 2}}, PositiveBuckets: []float64{math.Inf(1), math.SmallestNonzeroFloat64},
		NegativeSpans: []histogram.Span{{Offset: math.MinInt32, Length: 1}}, NegativeBuckets: []float64{math.MaxFloat64},
		CustomValues: []float64{1, 2},
	}
}

func sameSamples(a, b []ingest.Sample) bool {
	return slices.EqualFunc(a, b, func(x, y ingest.Sample) bool {
		return x.T == y.T && math.Float64bits(x.V) == math.Float64bits(y.V)
	})
}

// AwkwardFloats are values whose bits are easily lost.
func AwkwardFloats() []float64 {
	return []float64{
		0, math.Copysign(0, -1), 1.5, math.Inf(1), math.Inf(-1), math.SmallestNonzeroFloat64, math.MaxFloat64,
		math.Float64frombits(0x7ff8000000000001), // a NaN
		math.Float64frombits(0x7ff0000000000002), // the staleness marker
		math.Float64frombits(0xfff8000000abcdef), // a NaN with a payload
	}
}

func WantSeries(t testing.TB, got, want []ingest.Series) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d series, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		if !labels.Equal(got[i].Labels, want[i].Labels) || !sameSamples(got[i].Samples, want[i].Samples) {
			t.Errorf("series %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// Stock is some series, sorted, with awkward values and labels.
func Stock() []ingest.Series {
	var awkward, many []ingest.Sample
	for i, v := range AwkwardFloats() {
		awkward = append(awkward, ingest.Sample{T: 1000 + int64(i), V: v})
	}
	for i := range 1000 {
		many = append(many, ingest.Sample{T: int64(i) * 15_000, V: float64(i)})
	}
	return []ingest.Series{
		{Labels: wiretest.LabelSet("Zone", "b", "__name__", "up"), Samples: awkward},
		{Labels: wiretest.LabelSet("__name__", "down", "a.b c", "\x00\n,=#é"), Samples: []ingest.Sample{{T: 1000, V: 1}}},
		{Labels: wiretest.LabelSet("__name__", "up", "job", "a"), Samples: many},
		{Labels: wiretest.LabelSet("__name__", "up", "job", "b", "long", strings.Repeat("x", 300)), Samples: []ingest.Sample{{T: 999, V: 1}, {T: 2000, V: 2}}},
	}
}

// BigSeries is n series of about size bytes of chunks each.
func BigSeries(n, samples int) (all []storage.ChunkSeries) {
	data := make([]ingest.Sample, samples)
	for i := range data {
		data[i] = ingest.Sample{T: int64(i) * 977, V: math.Sqrt(float64(i))}
	}
	for i := range n {
		all = append(all, ChunkSeries(wiretest.LabelSet("__name__", "big", "i", fmt.Sprintf("%06d", i)), data))
	}
	return all
}
