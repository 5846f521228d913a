package reader

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
	"github.com/promtable/promtable/series/seriestest"
)

// A row may hold more samples than a chunk can count, and what the builder says
// of sizes is true.
func TestAddRowCutsChunks(t *testing.T) {
	const samples = 70_000
	cells := make([]bucketstore.Cell, samples)
	for i := range cells {
		cells[i] = bucketstore.Cell{
			Family:    series.FamilyR0,
			Qualifier: series.AppendQualifier(nil, uint32(i)),
			Value:     cell.AppendFloat(nil, float64(i)),
		}
	}
	var b chunkBuilder
	var reader rowReader
	for base := range int64(2) {
		if err := reader.appendTo(&b, base*series.Period, 0, math.MaxInt64, cells); err != nil {
			t.Fatal(err)
		}
	}
	n, size := 0, 0
	for _, c := range b.Chunks {
		if c.Chunk.NumSamples() > 240 {
			t.Fatalf("a chunk of %d samples", c.Chunk.NumSamples())
		}
		n += c.Chunk.NumSamples()
		size += len(c.Chunk.Bytes())
	}
	if n != 2*samples || b.samples != n || b.bytes != size {
		t.Errorf("%d samples in %d bytes, the builder says %d in %d, want %d samples", n, size, b.samples, b.bytes, 2*samples)
	}
}

// BenchmarkAddRow decodes a row of an hour, which lies in two windows, with a
// few late cells.
func BenchmarkAddRow(b *testing.B) {
	const samples = 240
	families := make(map[string][]bucketstore.Cell)
	for i := range int64(samples) {
		t := i * 15_000
		family := series.RawFamily(series.Window, t+series.Window/2)
		if i%50 == 0 {
			family = series.FamilyLate
		}
		families[family] = append(families[family], bucketstore.Cell{
			Family:    family,
			Qualifier: series.AppendQualifier(nil, uint32(t)),
			Time:      t,
			Value:     cell.AppendFloat(nil, float64(i)*1.5),
		})
	}
	var cells []bucketstore.Cell
	for _, family := range []string{series.FamilyLate, series.FamilyR0, series.FamilyR1, series.FamilyR2, series.FamilyR3} {
		cells = append(cells, families[family]...)
	}
	b.ReportAllocs()
	var reader rowReader
	for b.Loop() {
		var builder chunkBuilder
		if err := reader.appendTo(&builder, 0, 0, math.MaxInt64, cells); err != nil {
			b.Fatal(err)
		}
		if builder.samples != samples {
			b.Fatalf("%d samples", builder.samples)
		}
	}
	b.ReportMetric(float64(b.N)*samples/b.Elapsed().Seconds(), "samples/s")
}

// TestAddDenseRow: dense chunks at regular times become chunks of their own, up to 600
// samples each, whatever stands between them, and the samples are those that are read
// decoded.
func TestAddDenseRow(t *testing.T) {
	const samples = 2880
	rng := rand.New(rand.NewPCG(1, 2))
	cells := denseCells(samples, func(last float64) float64 { return last + float64(rng.IntN(3)) })
	late := func(at int64) bucketstore.Cell {
		return bucketstore.Cell{Family: series.FamilyLate, Qualifier: series.AppendQualifier(nil, uint32(at)), Value: cell.AppendFloat(nil, -1)}
	}
	for _, tt := range []struct {
		name         string
		start, limit int64
		late         []bucketstore.Cell
		samples      int
		first        []int // how many samples the first chunks have
	}{
		{"whole", 0, math.MaxInt64, nil, samples, []int{559, 560, 559, 559, 559, 84}},
		{"cut in front", 8_000, math.MaxInt64, nil, samples - 1, []int{558, 560, 559, 559, 559, 84}},
		{"cut behind", 0, 600 * 15_000, nil, 600, []int{559, 41}},
		{"a late sample in the second window", 0, math.MaxInt64, []bucketstore.Cell{late(series.Window + 8_000)}, samples + 1, []int{559, 240, 240, 81, 559}},
		{"a late sample between two", 0, math.MaxInt64, []bucketstore.Cell{late(series.Window - 1)}, samples + 1, []int{559, 1, 560}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var reader rowReader
			read := func(decoded bool) (*chunkBuilder, []string) {
				b := new(chunkBuilder)
				if decoded {
					b.Decoded = new(chunk.Space)
				}
				if err := reader.appendTo(b, 0, tt.start, tt.limit, slices.Concat(cells, tt.late)); err != nil {
					t.Fatal(err)
				}
				if b.samples != tt.samples || b.bytes != b.Bytes() {
					t.Errorf("decoded %t: %d samples in %d bytes, want %d in %d", decoded, b.samples, b.bytes, tt.samples, b.Bytes())
				}
				return b, floatTexts(t, b)
			}
			_, want := read(true)
			b, got := read(false)
			if len(got) != tt.samples || !slices.Equal(got, want) {
				t.Errorf("%d samples, want %d, or others", len(got), len(want))
			}
			var counts []int
			for _, c := range b.Chunks[:min(len(tt.first), len(b.Chunks))] {
				counts = append(counts, c.Chunk.NumSamples())
			}
			if !slices.Equal(counts, tt.first) {
				t.Errorf("chunks of %d samples, want %d", counts, tt.first)
			}
		})
	}
}

// floatTexts returns what the chunks of b hold, and checks that they say when they
// begin and end.
func floatTexts(t *testing.T, b *chunkBuilder) (all []string) {
	t.Helper()
	for i, c := range b.Chunks {
		it, first, last := c.Chunk.Iterator(nil), int64(-1), int64(0)
		for it.Next() != chunkenc.ValNone {
			at, v := it.At()
			all = append(all, fmt.Sprintf("%d %x", at, math.Float64bits(v)))
			if last = at; first < 0 {
				first = at
			}
		}
		if it.Err() != nil || first != c.MinTime || last != c.MaxTime {
			t.Fatalf("chunk %d: %v, from %d to %d, and says from %d to %d", i, it.Err(), first, last, c.MinTime, c.MaxTime)
		}
	}
	return all
}

// BenchmarkAddDenseRow reads a row of half a day of a series, as sealing leaves it:
// a dense chunk for each of five windows and more; and one of a window that is open:
// parts of 80 samples, and what came last as it came.
func BenchmarkAddDenseRow(b *testing.B) {
	const samples = 2880
	rng := rand.New(rand.NewPCG(1, 2))
	for _, bench := range []struct {
		name string
		next func(last float64) float64
	}{
		{"constant", func(float64) float64 { return 1 }},
		{"slow-counter", func(last float64) float64 { return last + float64(rng.IntN(10)/8) }},
		{"seconds-counter", func(last float64) float64 { return math.Round((last+rng.Float64()*0.4)*100) / 100 }},
		{"bytes-counter", func(last float64) float64 { return last + float64(rng.IntN(1e6)) }},
		{"full-gauge", func(float64) float64 { return 40 + 20*rng.Float64() }},
	} {
		b.Run(bench.name, func(b *testing.B) { benchmarkAppendTo(b, samples, denseCells(samples, bench.next)) })
		b.Run(bench.name+"/open", func(b *testing.B) { benchmarkAppendTo(b, 350, openCells(350, bench.next)) })
	}
}

func benchmarkAppendTo(b *testing.B, samples int, cells []bucketstore.Cell) {
	b.ReportAllocs()
	var reader rowReader
	size := 0
	for b.Loop() {
		var builder chunkBuilder
		if err := reader.appendTo(&builder, 0, 0, math.MaxInt64, cells); err != nil {
			b.Fatal(err)
		}
		if size = builder.bytes; builder.samples != samples {
			b.Fatalf("%d samples", builder.samples)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*samples), "ns/sample")
	b.ReportMetric(float64(size)/float64(samples), "B/sample")
}

// denseCells are so many samples of a series, one in 15 s, as a chunk for each
// window.
func denseCells(samples int, next func(last float64) float64) []bucketstore.Cell {
	cells, ts, vs := cutCells(samples, next, func(_ int, t int64) bool { return t/series.Window != (t+15_000)/series.Window })
	return append(cells, chunkCell(chunk.EncodingDense, ts, dense.Append(nil, ts, vs)))
}

// openCells are up to 559 samples of a series, one in 15 s, as an open chunk has them.
func openCells(samples int, next func(last float64) float64) []bucketstore.Cell {
	cells, ts, vs := cutCells(samples, next, func(n int, _ int64) bool { return n == 80 })
	return append(cells, chunkCell(chunk.EncodingOpen, ts, seriestest.AppendOpen(nil, ts, vs)))
}

// cutCells are so many samples as dense chunks, each up to where isEnd says so of how
// many it has and of the time of its last one, and the samples behind the last chunk.
func cutCells(samples int, next func(last float64) float64, isEnd func(n int, last int64) bool) (cells []bucketstore.Cell, ts []int64, vs []float64) {
	last := 0.0
	for i := range int64(samples) {
		if n := len(ts); n > 0 && isEnd(n, ts[n-1]) {
			cells = append(cells, chunkCell(chunk.EncodingDense, ts, dense.Append(nil, ts, vs)))
			ts, vs = ts[:0], vs[:0]
		}
		last = next(last)
		ts, vs = append(ts, 7_000+i*15_000), append(vs, last)
	}
	return cells, ts, vs
}

// chunkCell is the cell of a chunk in the bucket at 0.
func chunkCell(encoding byte, ts []int64, data []byte) bucketstore.Cell {
	value := chunk.Append(nil, chunk.Sealed{Encoding: encoding, Data: data})
	return bucketstore.Cell{
		Family:    series.FamilyChunk,
		Qualifier: chunk.AppendQualifier(nil, uint32(ts[0]), uint32(ts[len(ts)-1]), value),
		Value:     value,
	}
}
