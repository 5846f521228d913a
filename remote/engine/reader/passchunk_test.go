package reader

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
)

// histogramAt is one with so many observations, of which half lie in the second
// bucket.
func histogramAt(count uint64, hint histogram.CounterResetHint) *histogram.Histogram {
	half := int64(count / 2)
	return &histogram.Histogram{
		CounterResetHint: hint,
		Count:            count - count%2, Sum: float64(count),
		PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}}, PositiveBuckets: []int64{half, 0},
	}
}

// histogramCells are the chunks that a builder makes of values at these times.
func histogramCells(t testing.TB, stamp int64, times []int64, value func(i int) cell.Value) (cells []bucketstore.Cell) {
	t.Helper()
	var b chunk.Builder
	for i, at := range times {
		if err := b.Append(at, value(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range b.Chunks {
		value := chunk.Append(nil, chunk.Sealed{Encoding: byte(c.Chunk.Encoding()), Stamp: stamp, Data: c.Chunk.Bytes()})
		cells = append(cells, bucketstore.Cell{
			Family:    series.FamilyChunk,
			Qualifier: chunk.AppendQualifier(nil, uint32(c.MinTime), uint32(c.MaxTime), value),
			Value:     value,
		})
	}
	return cells
}

func every(step, start int64, n int) (times []int64) {
	for i := range int64(n) {
		times = append(times, start+i*step)
	}
	return times
}

// TestPassChunk: a stored chunk of histograms is in the answer as it is if it lies
// in the range and nothing among its samples, and is not a small one.
func TestPassChunk(t *testing.T) {
	counting := func(i int) cell.Value {
		return cell.Value{Histogram: histogramAt(uint64(10+2*i), histogram.UnknownCounterReset)}
	}
	floats := func(i int) cell.Value { return cell.Value{FloatHistogram: counting(i).Histogram.ToFloat(nil)} }
	started := func(i int) cell.Value {
		v := counting(i)
		v.Start = 5
		return v
	}
	raw := func(t int64, v cell.Value) bucketstore.Cell {
		return bucketstore.Cell{Family: series.FamilyLate, Qualifier: series.AppendQualifier(nil, uint32(t)), Value: cell.Append(nil, v)}
	}
	const first, n, last = 1000, 200, 1000 + 199*15_000
	whole := histogramCells(t, 1, every(15_000, first, n), counting)
	tests := []struct {
		name         string
		cells        []bucketstore.Cell
		start, limit int64
		// passed says that the first chunk of the answer is the first of cells, and
		// samples how many there are.
		passed  bool
		samples int
	}{
		{"whole", whole, first, last + 1, true, n},
		{"float counts", histogramCells(t, 1, every(15_000, first, n), floats), 0, series.Period, true, n},
		{"start timestamps", histogramCells(t, 1, every(15_000, first, n), started), 0, series.Period, true, n},
		{"cut in front", whole, first + 1, last + 1, false, n - 1},
		{"cut behind", whole, first, last, false, n - 1},
		{"small", histogramCells(t, 1, every(15_000, first, 20), counting), 0, series.Period, true, 20},
		{"a late sample in it", append(slices.Clone(whole), raw(first+1, counting(0))), 0, series.Period, false, n + 1},
		{"a late sample instead of its last", append(slices.Clone(whole), raw(last, counting(0))), 0, series.Period, false, n},
		{"late samples around it", append(slices.Clone(whole), raw(first-1, cell.Value{Float: 1}), raw(last+1, counting(0))), 0, series.Period, false, n + 2},
		{"another chunk over it", append(slices.Clone(whole), histogramCells(t, 2, every(15_000, last-15_000, 150), counting)...), 0, series.Period, false, n + 148},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b chunkBuilder
			var reader rowReader
			if err := reader.appendTo(&b, 0, tt.start, tt.limit, tt.cells); err != nil {
				t.Fatal(err)
			}
			stored, err := chunk.Parse(tt.cells[0].Qualifier, tt.cells[0].Value)
			if err != nil {
				t.Fatal(err)
			}
			got := b.Chunks[0]
			same := bytes.Equal(got.Chunk.Bytes(), stored.Data) && got.MinTime == int64(stored.First) && got.MaxTime == int64(stored.Last)
			if same != tt.passed || b.samples != tt.samples || b.bytes != b.Bytes() {
				t.Errorf("the chunk is the stored one: %t, want %t; %d samples, want %d; %d bytes, want %d", same, tt.passed, b.samples, tt.samples, b.bytes, b.Bytes())
			}
			before := bytes.Clone(got.Chunk.Bytes())
			value := bytes.Clone(tt.cells[0].Value)
			clear(tt.cells[0].Value) // it belongs to the store
			if !bytes.Equal(got.Chunk.Bytes(), before) {
				t.Error("the answer refers to the row")
			}
			copy(tt.cells[0].Value, value)
		})
	}
}

// TestPassChunkModel: rows of chunks and raw cells at random are the samples of a
// map, and no histogram says that its counter was not reset if it was, or if no sample
// tells.
func TestPassChunkModel(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var reader rowReader
	passed := 0
	for round := range 300 {
		want := make(map[int64]string)
		var cells, late []bucketstore.Cell
		start, limit := int64(0), series.Period
		if rng.IntN(2) == 0 {
			start = rng.Int64N(200)
			limit = start + rng.Int64N(2000)
		}
		value := func() cell.Value {
			v := cell.Value{Histogram: histogramAt(rng.Uint64N(1000), histogram.UnknownCounterReset)}
			if rng.IntN(100) == 0 {
				v.Histogram.CounterResetHint = histogram.CounterReset
			}
			return v
		}
		put := func(at int64, v cell.Value) {
			if start <= at && at < limit {
				want[at] = textOf(at, v)
			}
		}
		for stamp := range int64(1 + rng.IntN(3)) {
			times := every(1+rng.Int64N(2), rng.Int64N(1500), 1+rng.IntN(500))
			count := uint64(0)
			cells = append(cells, histogramCells(t, stamp, times, func(i int) cell.Value {
				count += rng.Uint64N(5) // most go on counting, so that chunks are long
				v := cell.Value{Histogram: histogramAt(count, histogram.UnknownCounterReset)}
				put(times[i], v)
				return v
			})...)
		}
		slices.SortFunc(cells, func(a, b bucketstore.Cell) int { return bytes.Compare(a.Qualifier, b.Qualifier) })
		times := make(map[int64]bool)
		for range rng.IntN(4) {
			times[rng.Int64N(2500)] = true
		}
		for _, at := range slices.Sorted(maps.Keys(times)) {
			v := value()
			put(at, v)
			late = append(late, bucketstore.Cell{Family: series.FamilyLate, Qualifier: series.AppendQualifier(nil, uint32(at)), Value: cell.Append(nil, v)})
		}
		var b chunkBuilder
		if err := reader.appendTo(&b, 0, start, limit, append(cells, late...)); err != nil {
			t.Fatal(err)
		}
		what := fmt.Sprintf("seed %d, round %d", seed, round)
		if got, want := checkChunks(t, what, &b), sortedTexts(want); !slices.Equal(got, want) || b.samples != len(want) {
			t.Fatalf("%s: %d samples, the builder says %d, want %d\n%v\nwant\n%v", what, len(got), b.samples, len(want), got, want)
		}
		for _, c := range b.Chunks {
			if slices.ContainsFunc(cells, func(cell bucketstore.Cell) bool { return bytes.HasSuffix(cell.Value, c.Chunk.Bytes()) }) {
				passed++
			}
		}
	}
	if passed < 50 {
		t.Errorf("seed %d: only %d chunks of the answers are stored ones", seed, passed)
	}
}

// checkChunks returns what the chunks hold, as text, and checks what they say of
// resets.
func checkChunks(t *testing.T, what string, b *chunkBuilder) (texts []string) {
	t.Helper()
	var before *histogram.Histogram
	for _, c := range b.Chunks {
		it, inChunk := c.Chunk.Iterator(nil), 0
		for ; it.Next() != chunkenc.ValNone; inChunk++ {
			at, h := it.AtHistogram(nil)
			texts = append(texts, textOf(at, cell.Value{Histogram: h}))
			if h.CounterResetHint == histogram.NotCounterReset && (before == nil || h.Copy().ToFloat(nil).DetectReset(before.ToFloat(nil)) || h.Count < before.Count) {
				t.Fatalf("%s: at %d: not reset after %v: %v", what, at, before, h)
			}
			if inChunk == 0 && at != c.MinTime {
				t.Fatalf("%s: a chunk from %d on begins at %d", what, c.MinTime, at)
			}
			before = h.Copy()
		}
		if err := it.Err(); err != nil || inChunk != c.Chunk.NumSamples() {
			t.Fatalf("%s: %v, %d samples of %d", what, err, inChunk, c.Chunk.NumSamples())
		}
	}
	return texts
}

// textOf is a sample without its counter reset hint.
func textOf(at int64, v cell.Value) string {
	v.Histogram = v.Histogram.Copy()
	v.Histogram.CounterResetHint = histogram.UnknownCounterReset
	return fmt.Sprintf("%d %x", at, cell.Append(nil, v))
}

func sortedTexts(byTime map[int64]string) (texts []string) {
	for _, at := range slices.SortedFunc(maps.Keys(byTime), cmp.Compare[int64]) {
		texts = append(texts, byTime[at])
	}
	return texts
}

// BenchmarkReadHistograms reads a row of two windows of histograms.
func BenchmarkReadHistograms(b *testing.B) {
	const n = 1000
	cells := histogramCells(b, 1, every(15_000, 0, n), func(i int) cell.Value {
		return cell.Value{Histogram: histogramAt(uint64(10+2*i), histogram.UnknownCounterReset)}
	})
	// A chunk lies in one window.
	cells = slices.DeleteFunc(cells, func(c bucketstore.Cell) bool { _, err := chunk.Parse(c.Qualifier, c.Value); return err != nil })
	var reader rowReader
	b.ReportAllocs()
	for b.Loop() {
		var builder chunkBuilder
		if err := reader.appendTo(&builder, 0, 0, series.Period, cells); err != nil || builder.samples < n/2 {
			b.Fatal(builder.samples, err)
		}
	}
}
