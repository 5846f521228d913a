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
	rs.Reset(rowBase, 0, math.MaxInt64)
	for _, c := range row.chunks {
		rs.AddChunk(c)
	}
	for i, qual := range row.quals {
		if err := rs.AddRaw(series.FamilyLate, qual, row.vals[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// read reads the row sample by sample.
func (row benchRow) read(t testing.TB, rs *merge.Row) {
	row.begin(t, rs)
	n, sum, last := 0, 0.0, int64(0)
	for rs.Next() {
		if rs.IsFloat() {
			sum += rs.Float()
		}
		last = rs.T()
		n++
	}
	if n != row.samples || rs.Err() != nil || sum == 0 || last == 0 {
		t.Fatalf("%s: %d samples, %v", row.name, n, rs.Err())
	}
}

// readRuns reads the row with as many samples at once as can be.
func (row benchRow) readRuns(t testing.TB, rs *merge.Row) {
	row.begin(t, rs)
	n := 0
	for rs.Next() {
		ts, _ := rs.Floats()
		n += max(1, len(ts))
	}
	if n != row.samples || rs.Err() != nil {
		t.Fatalf("%s: %d samples, %v", row.name, n, rs.Err())
	}
}

func BenchmarkRowSamples(b *testing.B) {
	for _, row := range benchRows(b) {
		for how, read := range map[string]func(testing.TB, *merge.Row){"one by one": row.read, "in runs": row.readRuns} {
			b.Run(row.name+"/"+how, func(b *testing.B) {
				var rs merge.Row
				b.ReportAllocs()
				for b.Loop() {
					read(b, &rs)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(row.samples), "ns/sample")
			})
		}
	}
}
