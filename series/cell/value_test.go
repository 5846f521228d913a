package cell_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// someHistograms are of all kinds, with awkward numbers.
func someHistograms() []cell.Value {
	stale := math.Float64frombits(value.StaleNaN)
	return []cell.Value{
		{Histogram: &histogram.Histogram{}},
		{Start: 1300000000000, Histogram: &histogram.Histogram{
			CounterResetHint: histogram.CounterReset, Schema: -4, ZeroThreshold: 0.001, ZeroCount: 1, Count: 7, Sum: -1.5,
			PositiveSpans: []histogram.Span{{Offset: -3, Length: 2}, {Offset: 5, Length: 1}}, PositiveBuckets: []int64{1, 2, -3},
			NegativeSpans: []histogram.Span{{Offset: 0, Length: 1}}, NegativeBuckets: []int64{2},
		}},
		{Histogram: &histogram.Histogram{Schema: histogram.CustomBucketsSchema, Count: 3, Sum: stale,
			PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []int64{3}, CustomValues: []float64{math.Copysign(0, -1), 0.5}}},
		{Start: -1, Histogram: &histogram.Histogram{Schema: math.MinInt32, ZeroCount: math.MaxUint64, Count: math.MaxUint64, Sum: math.Inf(-1),
			PositiveSpans: []histogram.Span{{Offset: math.MinInt32, Length: math.MaxUint32}}, PositiveBuckets: []int64{math.MinInt64, math.MaxInt64}}},
		{FloatHistogram: &histogram.FloatHistogram{}},
		{Start: 5, FloatHistogram: &histogram.FloatHistogram{
			CounterResetHint: histogram.GaugeType, Schema: 8, ZeroThreshold: 1e-300, ZeroCount: 0.5, Count: -2.25, Sum: stale,
			PositiveSpans: []histogram.Span{{Offset: 1, Length: 1}}, PositiveBuckets: []float64{math.Copysign(0, -1)},
			NegativeSpans: []histogram.Span{{Offset: 2, Length: 2}}, NegativeBuckets: []float64{math.NaN(), math.Inf(1)},
			CustomValues: []float64{math.MaxFloat64},
		}},
	}
}

func TestValues(t *testing.T) {
	all := someHistograms()
	for _, v := range []float64{0, math.Copysign(0, -1), 1.5, math.Inf(-1), math.Float64frombits(value.StaleNaN), math.Float64frombits(0x7ff00000deadbeef)} {
		all = append(all, cell.Value{Float: v}, cell.Value{Float: v, Start: 7})
	}
	for _, v := range all {
		stored := cell.Append([]byte("x"), v)[1:]
		if isFloat := v.Histogram == nil && v.FloatHistogram == nil && v.Start == 0; isFloat != (len(stored) == 8) {
			t.Errorf("%+v takes %d bytes", v, len(stored))
		}
		if got, want := cell.IsHistogram(stored), v.Histogram != nil || v.FloatHistogram != nil; got != want {
			t.Errorf("%+v is a histogram: %t", v, got)
		}
		got, err := cell.Parse(stored)
		if err != nil || !bytes.Equal(cell.Append(nil, got), stored) || got.Start != v.Start {
			t.Errorf("%+v comes back as %+v, %v", v, got, err)
		}
		for n := range stored {
			if _, err := cell.Parse(stored[:n]); !errors.Is(err, series.ErrCorrupt) && n != 8 {
				t.Errorf("%d bytes of %+v: %v, want it to be corrupt", n, v, err)
			}
		}
		if _, err := cell.Parse(append(stored, 0)); !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("a byte behind %+v: %v, want it to be corrupt", v, err)
		}
	}
}

func TestParseValueCorrupt(t *testing.T) {
	for _, b := range [][]byte{nil, {}, {0}, {1}, {2}, {3}, {4, 0, 0}, bytes.Repeat([]byte{0xff}, 7), bytes.Repeat([]byte{2}, 9), bytes.Repeat([]byte{1}, 18)} {
		if v, err := cell.Parse(b); !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("% x: %+v, %v", b, v, err)
		}
	}
}

// FuzzParseValue: whatever is taken is written again as the same value.
func FuzzParseValue(f *testing.F) {
	for _, v := range someHistograms() {
		f.Add(cell.Append(nil, v))
	}
	f.Add(cell.Append(nil, cell.Value{Start: 1, Float: 2}))
	f.Add([]byte("8 bytes!"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := cell.Parse(b)
		if err != nil {
			if !errors.Is(err, series.ErrCorrupt) {
				t.Errorf("error %v", err)
			}
			return
		}
		stored := cell.Append(nil, v)
		again, err := cell.Parse(stored)
		if err != nil || !bytes.Equal(cell.Append(nil, again), stored) {
			t.Errorf("% x is %+v, % x is %+v, %v", b, v, stored, again, err)
		}
	})
}

func TestExemplars(t *testing.T) {
	var b labels.ScratchBuilder
	const base = 30 * series.Period
	for _, x := range []exemplar.Exemplar{
		{Ts: base, HasTs: true},
		{Ts: base + series.Period - 1, HasTs: true, Value: math.Copysign(0, -1), Labels: labels.FromStrings("a", "", "trace,id", "\x00ä")},
	} {
		stored := cell.AppendExemplar([]byte("x"), x)[1:]
		_, delta := series.Split(x.Ts)
		qual := cell.AppendExemplarQualifier(nil, delta, stored)
		if len(qual) != cell.ExemplarQualifierSize {
			t.Errorf("qualifier % x", qual)
		}
		got, err := cell.ParseExemplar(base, qual, stored, &b)
		if err != nil || !got.Equals(x) || !got.HasTs || math.Float64bits(got.Value) != math.Float64bits(x.Value) {
			t.Errorf("%+v comes back as %+v, %v", x, got, err)
		}
		damaged := bytes.Clone(stored)
		damaged[len(damaged)-1] ^= 1
		for _, bad := range [][2][]byte{{qual[:7], stored}, {qual, damaged}, {qual, stored[:7]}, {qual, nil}, {nil, stored}} {
			if x, err := cell.ParseExemplar(base, bad[0], bad[1], &b); !errors.Is(err, series.ErrCorrupt) {
				t.Errorf("% x, % x: %+v, %v", bad[0], bad[1], x, err)
			}
		}
	}
	// The checksum is right, the labels are not.
	for _, tail := range []string{"\x05abc", "\x01a", "\x01a\x05b", "\xff"} {
		stored := append(cell.AppendFloat(nil, 1), tail...)
		if x, err := cell.ParseExemplar(base, cell.AppendExemplarQualifier(nil, 1, stored), stored, &b); !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("%q: %+v, %v", tail, x, err)
		}
	}
}

func TestFloatBits(t *testing.T) {
	for name, bits := range map[string]uint64{
		"zero":               0,
		"minus zero":         1 << 63,
		"one":                math.Float64bits(1),
		"+Inf":               math.Float64bits(math.Inf(1)),
		"-Inf":               math.Float64bits(math.Inf(-1)),
		"smallest":           1,
		"largest":            math.Float64bits(math.MaxFloat64),
		"normal NaN":         value.NormalNaN,
		"staleness marker":   value.StaleNaN,
		"NaN with a payload": 0x7ffdeadbeef00001,
		"signaling NaN":      0x7ff00000deadbeef,
		"negative NaN":       0xfff8000000000000,
	} {
		t.Run(name, func(t *testing.T) {
			stored := cell.AppendFloat([]byte("dst"), math.Float64frombits(bits))
			got, err := cell.ParseFloat(stored[3:])
			if err != nil || string(stored[:3]) != "dst" || len(stored) != 3+8 || math.Float64bits(got) != bits {
				t.Errorf("%x = %016x, %v, want %016x", stored, math.Float64bits(got), err, bits)
			}
		})
	}
}

func TestParseFloatCorrupt(t *testing.T) {
	for _, size := range []int{0, 1, 7, 9, 16, 1 << 20} {
		_, err := cell.ParseFloat(make([]byte, size))
		if !errors.Is(err, series.ErrCorrupt) || len(err.Error()) > 1024 {
			t.Errorf("%d bytes: %.200v, want a short ErrCorrupt", size, err)
		}
	}
}

func FuzzParseFloat(f *testing.F) {
	f.Add([]byte{})
	for _, bits := range []uint64{0, 1 << 63, 0x7ff0000000000002, 0x7ff8000000000001, math.Float64bits(42)} {
		f.Add(cell.AppendFloat(nil, math.Float64frombits(bits)))
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		v, err := cell.ParseFloat(stored)
		if (err == nil) != (len(stored) == 8) {
			t.Fatalf("ParseFloat(%x): %v", stored, err)
		}
		if got := cell.AppendFloat(nil, v); err == nil && !bytes.Equal(got, stored) {
			t.Fatalf("%x parses to %v, which is %x", stored, v, got)
		}
	})
}
