package seriestest

import (
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/merge"
)

// ReadRow returns what is left in a row, sample by sample, and counts the runs of
// each shape.
func ReadRow(row *merge.Row) (samples []TimedValue, runs map[merge.Shape]int, err error) {
	runs = map[merge.Shape]int{}
	for {
		shape := row.Next()
		runs[shape]++
		switch shape {
		case merge.Floats:
			ts, vs := row.Floats()
			for i, v := range vs {
				samples = append(samples, At(ts[i], cell.Value{Float: v}))
			}
		case merge.Regular:
			first, step, vs := row.Regular()
			for i, v := range vs {
				samples = append(samples, At(first+int64(i)*step, cell.Value{Float: v}))
			}
		case merge.Chunk:
			samples = append(samples, chunkSamples(row.Chunk().Chunk)...)
		case merge.Value:
			t, v, err := row.Value()
			if err != nil {
				return nil, runs, err
			}
			samples = append(samples, At(t, v))
		default:
			return samples, runs, row.Err()
		}
	}
}

// chunkSamples returns the histograms of a chunk.
func chunkSamples(c chunkenc.Chunk) (samples []TimedValue) {
	it := c.Iterator(nil)
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		v := cell.Value{Start: it.AtST()}
		t := it.AtT()
		if kind == chunkenc.ValHistogram {
			_, v.Histogram = it.AtHistogram(nil)
		} else {
			_, v.FloatHistogram = it.AtFloatHistogram(nil)
		}
		samples = append(samples, At(t, v))
	}
	return samples
}
