package buffer_test

import (
	"fmt"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/seriestest"
)

// readRow adds the samples of a row to found.
func readRow(found map[int64]string, base int64, cells []bucketstore.Cell) error {
	var samples merge.Row
	samples.Reset(base, base, base+series.Period, merge.Options{})
	for _, c := range cells {
		if c.Family != series.FamilyChunk {
			if err := samples.AddRaw(c.Family, c.Qualifier, c.Value); err != nil {
				return err
			}
			continue
		}
		chunk, err := chunk.Parse(c.Qualifier, c.Value)
		if err != nil {
			return err
		}
		samples.AddChunk(chunk)
	}
	all, _, err := seriestest.ReadRow(&samples)
	for _, s := range all {
		if s.V.Histogram != nil {
			s.V.Histogram.CounterResetHint = 0 // depends on the chunk
		}
		if _, ok := found[s.T]; ok {
			return fmt.Errorf("two samples at %d", s.T)
		}
		found[s.T] = fmt.Sprintf("%x", cell.Append(nil, s.V))
	}
	return err
}
