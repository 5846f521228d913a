package engine

import (
	"math"
	"testing"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
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
			Value:     series.AppendFloat(nil, float64(i)),
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
			Value:     series.AppendFloat(nil, float64(i)*1.5),
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
