package buffer_test

import (
	"fmt"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// readRow adds the samples of a row to found.
func readRow(found map[int64]string, base int64, cells []bucketstore.Cell) error {
	var samples series.RowSamples
	samples.Reset(base, base, base+series.Period)
	for _, c := range cells {
		if c.Family != series.FamilyChunk {
			if err := samples.AddRaw(c.Family, c.Qualifier, c.Value); err != nil {
				return err
			}
			continue
		}
		chunk, err := series.ParseChunk(c.Qualifier, c.Value)
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
		found[samples.T()] = fmt.Sprintf("%x", series.AppendValue(nil, v))
	}
	return samples.Err()
}
