package backfill_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtable/promtable/remote/engine/backfill"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
)

// timed is a value at a time.
type timed struct {
	t int64
	v cell.Value
}

// chunksOf encodes values as Prometheus does.
func chunksOf(t *testing.T, values []timed) (all []chunkenc.Chunk) {
	t.Helper()
	var b chunk.Builder
	for _, v := range values {
		if err := b.Append(v.t, v.v); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range b.Chunks {
		all = append(all, c.Chunk)
	}
	return all
}

// text writes what a chunk iterator stands at.
func text(it chunkenc.Iterator, kind chunkenc.ValueType) string {
	switch kind {
	case chunkenc.ValHistogram:
		t, h := it.AtHistogram(nil)
		return fmt.Sprintf("%d since %d %v gauge %t", t, it.AtST(), h, h.CounterResetHint == histogram.GaugeType)
	case chunkenc.ValFloatHistogram:
		t, h := it.AtFloatHistogram(nil)
		return fmt.Sprintf("%d since %d float %v gauge %t", t, it.AtST(), h, h.CounterResetHint == histogram.GaugeType)
	}
	t, v := it.At()
	return fmt.Sprintf("%d since %d %x", t, it.AtST(), math.Float64bits(v))
}

func texts(chunks []chunkenc.Chunk, start, limit int64) (all []string) {
	for _, c := range chunks {
		it := c.Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if t := it.AtT(); t >= start && t < limit {
				all = append(all, text(it, kind))
			}
		}
	}
	return all
}

// TestChunks: floats, histograms of all kinds, start timestamps and staleness markers of chunks come back, whatever windows they lie in.
// A part of the chunks written twice is there once.
func TestChunks(t *testing.T) {
	var values []timed
	add := func(n int, of func(i int) cell.Value) {
		for i := range n {
			values = append(values, timed{someTime + int64(len(values))*60_000, of(i)})
		}
	}
	add(200, func(i int) cell.Value { return cell.Value{Float: float64(i) / 3} })
	add(3, func(i int) cell.Value {
		return cell.Value{Float: []float64{math.Float64frombits(value.StaleNaN), math.Copysign(0, -1), math.Float64frombits(0x7ff8000000000123)}[i]}
	})
	add(200, func(i int) cell.Value { return cell.Value{Histogram: tsdbutil.GenerateTestHistogram(int64(i))} })
	add(100, func(i int) cell.Value { return cell.Value{Histogram: tsdbutil.GenerateTestHistogram(int64(i))} }) // after a reset
	add(1, func(int) cell.Value {
		return cell.Value{Histogram: &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}}
	})
	add(150, func(i int) cell.Value {
		return cell.Value{FloatHistogram: tsdbutil.GenerateTestFloatHistogram(int64(i))}
	})
	add(50, func(i int) cell.Value { return cell.Value{Histogram: tsdbutil.GenerateTestGaugeHistogram(int64(i))} })
	add(50, func(i int) cell.Value {
		return cell.Value{Histogram: tsdbutil.GenerateTestCustomBucketsHistogram(int64(i))}
	})
	add(250, func(i int) cell.Value { return cell.Value{Start: someTime + 5, Float: float64(i)} })
	add(50, func(i int) cell.Value {
		return cell.Value{Start: someTime + 7, Histogram: tsdbutil.GenerateTestHistogram(int64(i))}
	})
	chunks := chunksOf(t, values)
	start, limit := values[100].t, values[len(values)-20].t
	want := texts(chunks, start, limit)

	f := newFixture(t)
	w := f.writer(f.spy, 1<<10)
	const all = math.MaxInt64
	for _, r := range [][2]int64{{start, limit}, {start, values[500].t}} {
		s, err := w.Series(temp)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range chunks {
			if err := s.AppendChunk(t.Context(), c, r[0], r[1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, w)
	set, err := f.open().Select(t.Context(), reader.Query{Mint: 0, Maxt: all, Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "temp")}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for set.Next() {
		for it := set.At().Iterator(nil); it.Next(); {
			got = append(got, texts([]chunkenc.Chunk{it.At().Chunk}, 0, all)...)
		}
	}
	if err := set.Err(); err != nil || !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("sample %d is %s, want %s", i, got[i], want[i])
			}
		}
		t.Fatalf("%d samples, want %d: %v", len(got), len(want), err)
	}
	if c := w.Counts(); c.Samples != int64(len(want)+400) || c.Histograms == 0 || c.Bytes == 0 || c.Mutations == 0 || c.Series != 2 {
		t.Errorf("counts %+v of %d samples", c, len(want))
	}
}

// TestLeftOut: what is not kept, or can never be stored, is left out and counted.
func TestLeftOut(t *testing.T) {
	f := newFixture(t)
	cfg := f.config(f.spy, 0)
	cfg.Bounds = backfill.Bounds{From: someTime, Until: someTime + 1000}
	w := backfill.New(cfg)
	times := []int64{-7, -1, 0, someTime - 1, someTime, someTime + 1000, someTime + 1001, series.MaxTime, series.MaxTime + 1}
	values := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9}
	s, err := w.Series(temp)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Append(t.Context(), times, values), s.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if s, err = w.Series(up); err != nil {
		t.Fatal(err)
	}
	damaged := tsdbutil.GenerateTestHistogram(1)
	damaged.Count = 0
	for i, at := range times {
		v := cell.Value{Start: 1, Float: values[i]}
		if at == someTime {
			v = cell.Value{Histogram: damaged}
		}
		if err := s.AppendValue(t.Context(), at, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	flush(t, w)
	c := w.Counts()
	c.Bytes, c.Mutations = 0, 0
	if want := (backfill.Counts{Series: 2, Samples: 3, Old: 4, Future: 4, Invalid: 7}); c != want {
		t.Errorf("counts %+v, want %+v", c, want)
	}
	f.want("in bounds", f.open(), "temp", samples{someTime: 5, someTime + 1000: 6})
}

// TestDamagedChunk: what upstream's decoder would panic over is an error, and the Writer goes on.
func TestDamagedChunk(t *testing.T) {
	f := newFixture(t)
	w := f.writer(f.spy, 0)
	for _, encoding := range []chunkenc.Encoding{chunkenc.EncXOR, chunkenc.EncXOR2, chunkenc.EncHistogram, chunkenc.EncFloatHistogram, chunkenc.EncHistogramST} {
		for _, data := range []string{"", "\x00\x02", "\x00\x05\x00\xff\xff\xff\xff\xff\xff\xff"} {
			c, err := chunkenc.FromData(encoding, []byte(data))
			if err != nil {
				t.Fatal(err)
			}
			s, err := w.Series(temp)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.AppendChunk(t.Context(), c, 0, math.MaxInt64); !errors.Is(err, backfill.ErrSamples) {
				t.Errorf("%s of %x: %v", encoding, data, err)
			}
		}
	}
	add(t, w, up, samples{someTime: 1})
	flush(t, w)
	f.want("after damage", f.open(), "up", samples{someTime: 1})
}
