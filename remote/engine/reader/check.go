package reader

import (
	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/merge"
)

// A Checker decodes rows of METRIC, for errors only. It is not safe for several goroutines.
type Checker struct{ row rowReader }

// Check decodes all samples of a row in the bucket at base. cells are raw cells and chunks.
func (c *Checker) Check(base int64, cells []bucketstore.Cell) error {
	if err := c.row.reset(base, 0, series.MaxTime+1, cells, merge.Options{}); err != nil {
		return err
	}
	for {
		switch c.row.samples.Next() {
		case merge.Value:
			if _, _, err := c.row.samples.Value(); err != nil {
				return err
			}
		case merge.None:
			return c.row.samples.Err()
		}
	}
}
