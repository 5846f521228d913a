package buffer_test

import (
	"fmt"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
)

// readRow adds the samples of a row to found.
func readRow(found map[int64]string, base int64, cells []bucketstore.Cell) error {
	var samples merge.Row
	samples.Reset(base, base, base+series.Period)
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
	for samples.Next() {
		v, err := samples.Value()
		if err != nil {
			return err
		}
		if v.Histogram != nil {
			v.Histogram.CounterResetHint = 0 // depends on the chunk
		}
		if _, ok := found[samples.T()]; ok {
			return fmt.Errorf("two samples at %d", samples.T())
		}
		found[samples.T()] = fmt.Sprintf("%x", cell.Append(nil, v))
	}
	return samples.Err()
}
