package merge_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/seriestest"
)

// FuzzChunkData: data of each encoding, right or not, are samples between first
// and last or an ErrCorrupt. The chunk is read twice, once from its middle on.
func FuzzChunkData(f *testing.F) {
	for _, encoding := range seriestest.AllEncodings {
		for _, n := range []int{1, 2, 3, 20} {
			var samples []seriestest.TimedValue
			for i := range n {
				samples = append(samples, seriestest.At(int64(i*i*10), seriestest.ValueFor(encoding, i, math.Sqrt(float64(i)))))
			}
			f.Add(encoding, uint32(0), uint32(samples[n-1].T), seriestest.ChunkData(f, encoding, samples))
		}
		f.Add(encoding, uint32(0), uint32(0), []byte{})
		f.Add(encoding, uint32(0), uint32(9), bytes.Repeat([]byte{0xff}, 40))
		f.Add(encoding, uint32(0), uint32(9), make([]byte, 40))
	}
	f.Fuzz(func(t *testing.T, encoding byte, first, last uint32, data []byte) {
		var rs merge.Row
		for i, start := range []int64{0, (int64(first) + int64(last)) / 2} {
			rs.Reset(0, start, math.MaxInt64, merge.Options{Regular: i > 0})
			rs.AddChunk(chunk.Sealed{Encoding: encoding, First: first, Last: last, Data: data})
			samples, _, err := seriestest.ReadRow(&rs)
			before := start - 1
			for _, s := range samples {
				if s.T <= before || s.T < int64(first) || s.T > int64(last) {
					t.Fatalf("sample at %d after %d", s.T, before)
				}
				before = s.T
			}
			if err != nil && !errors.Is(err, series.ErrCorrupt) {
				t.Fatal(err)
			}
		}
	})
}
