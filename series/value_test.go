package series_test

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
)

// someHistograms are of all kinds, with awkward numbers.
func someHistograms() []series.Value {
	stale := math.Float64frombits(value.StaleNaN)
	return []series.Value{
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
		all = append(all, series.Value{Float: v}, series.Value{Float: v, Start: 7})
	}
	for _, v := range all {
		stored := series.AppendValue([]byte("x"), v)[1:]
		if isFloat := v.Histogram == nil && v.FloatHistogram == nil && v.Start == 0; isFloat != (len(stored) == 8) {
			t.Errorf("%+v takes %d bytes", v, len(stored))
		}
		if got, want := series.IsHistogram(stored), v.Histogram != nil || v.FloatHistogram != nil; got != want {
			t.Errorf("%+v is a histogram: %t", v, got)
		}
		got, err := series.ParseValue(stored)
		if err != nil || !bytes.Equal(series.AppendValue(nil, got), stored) || got.Start != v.Start {
			t.Errorf("%+v comes back as %+v, %v", v, got, err)
		}
		for n := range stored {
			if _, err := series.ParseValue(stored[:n]); !errors.Is(err, series.ErrCorrupt) && n != 8 {
				t.Errorf("%d bytes of %+v: %v, want it to be corrupt", n, v, err)
			}
		}
		if _, err := series.ParseValue(append(stored, 0)); !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("a byte behind %+v: %v, want it to be corrupt", v, err)
		}
	}
}

func TestParseValueCorrupt(t *testing.T) {
	for _, b := range [][]byte{nil, {}, {0}, {1}, {2}, {3}, {4, 0, 0}, bytes.Repeat([]byte{0xff}, 7), bytes.Repeat([]byte{2}, 9), bytes.Repeat([]byte{1}, 18)} {
		if v, err := series.ParseValue(b); !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("% x: %+v, %v", b, v, err)
		}
	}
}

// FuzzParseValue: whatever is taken is written again as the same value.
func FuzzParseValue(f *testing.F) {
	for _, v := range someHistograms() {
		f.Add(series.AppendValue(nil, v))
	}
	f.Add(series.AppendValue(nil, series.Value{Start: 1, Float: 2}))
	f.Add([]byte("8 bytes!"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := series.ParseValue(b)
		if err != nil {
			if !errors.Is(err, series.ErrCorrupt) {
				t.Errorf("error %v", err)
			}
			return
		}
		stored := series.AppendValue(nil, v)
		again, err := series.ParseValue(stored)
		if err != nil || !bytes.Equal(series.AppendValue(nil, again), stored) {
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
		cell := series.AppendExemplar([]byte("x"), x)[1:]
		_, delta := series.Split(x.Ts)
		qual := series.AppendExemplarQualifier(nil, delta, cell)
		if len(qual) != series.ExemplarQualifierSize {
			t.Errorf("qualifier % x", qual)
		}
		got, err := series.ParseExemplar(base, qual, cell, &b)
		if err != nil || !got.Equals(x) || !got.HasTs || math.Float64bits(got.Value) != math.Float64bits(x.Value) {
			t.Errorf("%+v comes back as %+v, %v", x, got, err)
		}
		damaged := bytes.Clone(cell)
		damaged[len(damaged)-1] ^= 1
		for _, bad := range [][2][]byte{{qual[:7], cell}, {qual, damaged}, {qual, cell[:7]}, {qual, nil}, {nil, cell}} {
			if x, err := series.ParseExemplar(base, bad[0], bad[1], &b); !errors.Is(err, series.ErrCorrupt) {
				t.Errorf("% x, % x: %+v, %v", bad[0], bad[1], x, err)
			}
		}
	}
	// The checksum is right, the labels are not.
	for _, tail := range []string{"\x05abc", "\x01a", "\x01a\x05b", "\xff"} {
		cell := append(series.AppendFloat(nil, 1), tail...)
		if x, err := series.ParseExemplar(base, series.AppendExemplarQualifier(nil, 1, cell), cell, &b); !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("%q: %+v, %v", tail, x, err)
		}
	}
}

func TestMetaKeys(t *testing.T) {
	for _, tenancy := range []bool{false, true} {
		schema, tenant := newSchema(t, nil, tenancy), ""
		if tenancy {
			tenant = "a,b"
		}
		rows, err := schema.MetaRange(tenant, series.MetaMetadata)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"", "up", "a,b\\c\n\x00=d", "metadata", "ha"} {
			key, err := schema.AppendMetaKey([]byte("x"), tenant, series.MetaMetadata, name)
			if err != nil {
				t.Fatal(err)
			}
			key = key[1:]
			gotTenant, kind, got, err := schema.ParseMetaKey(key)
			if err != nil || gotTenant != tenant || kind != series.MetaMetadata || got != name || !rows.Contains(key) {
				t.Errorf("%q is %q of tenant %q: %q, %v", key, kind, gotTenant, got, err)
			}
			other, err := schema.AppendMetaKey(nil, tenant, series.MetaHA, name)
			if err != nil || rows.Contains(other) {
				t.Errorf("%q lies in %s, %v", other, rows, err)
			}
		}
		if _, err := schema.AppendMetaKey(nil, tenant, series.MetaHA, string(make([]byte, series.MaxSeriesKey))); !errors.Is(err, series.ErrKeyTooLong) {
			t.Errorf("a long name: %v", err)
		}
	}
	schema := newSchema(t, nil, false)
	if rows, err := schema.MetaRange("", series.MetaHA); err != nil || rows.Contains([]byte(series.MetaSchema)) {
		t.Errorf("%s, %v", rows, err)
	}
	for _, key := range []string{"", "schema", "metadata", "metadata,a,b", `metadata,a\`} {
		if _, kind, name, err := schema.ParseMetaKey([]byte(key)); !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("%q is %q %q, %v", key, kind, name, err)
		}
	}
	if _, err := schema.AppendMetaKey(nil, "tenant", series.MetaHA, "x"); err == nil {
		t.Error("a tenant without tenancy")
	}
}
