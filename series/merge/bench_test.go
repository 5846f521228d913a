package merge_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/seriestest"
)

// A benchRow is one row to read again and again.
type benchRow struct {
	name        string
	chunks      []chunk.Sealed
	quals, vals [][]byte
	samples     int
}

// benchRows are eight chunks of 500 samples at 15 s, dense or XOR, without and
// with 5 % raw cells among them.
func benchRows(t testing.TB) (rows []benchRow) {
	for _, encoding := range []byte{chunk.EncodingDense, byte(chunkenc.EncXOR)} {
		row := benchRow{name: fmt.Sprintf("encoding %d", encoding), samples: 4000}
		for w := range int64(8) {
			var samples []seriestest.TimedValue
			for i := range int64(500) {
				samples = append(samples, seriestest.At(rowBase+w*series.Window+i*15000, cell.Value{Float: float64(w*5000 + i*i%37*8)}))
			}
			row.chunks = append(row.chunks, seriestest.Sealed(t, encoding, rowBase, 1, samples))
		}
		mixed := row
		mixed.name += ", 5 % raw"
		for w := range int64(8) {
			for i := range int64(25) {
				mixed.quals = append(mixed.quals, series.AppendQualifier(nil, uint32(w*series.Window+i*20*15000+7)))
				mixed.vals = append(mixed.vals, cell.AppendFloat(nil, 5))
			}
		}
		mixed.samples += len(mixed.quals)
		rows = append(rows, row, mixed)
	}
	return rows
}

// begin begins to read the row.
func (row benchRow) begin(t testing.TB, rs *merge.Row) {
	rs.Reset(rowBase, 0, math.MaxInt64, merge.Options{})
	for _, c := range row.chunks {
		rs.AddChunk(c)
	}
	for i, qual := range row.quals {
		if err := rs.AddRaw(series.FamilyLate, qual, row.vals[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// read reads the row in runs of floats.
func (row benchRow) read(t testing.TB, rs *merge.Row) {
	row.begin(t, rs)
	n := 0
	for rs.Next() == merge.Floats {
		ts, _ := rs.Floats()
		n += len(ts)
	}
	if n != row.samples || rs.Err() != nil {
		t.Fatalf("%s: %d samples, %v", row.name, n, rs.Err())
	}
}

func BenchmarkRow(b *testing.B) {
	for _, row := range benchRows(b) {
		b.Run(row.name, func(b *testing.B) {
			var rs merge.Row
			b.ReportAllocs()
			for b.Loop() {
				row.read(b, &rs)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(row.samples), "ns/sample")
		})
	}
}
