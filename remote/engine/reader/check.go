package reader

import (
	"errors"
	"fmt"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/rollup"
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

// CheckRollup checks a cell of the row of a base if it is a rollup or a count.
func CheckRollup(base int64, c bucketstore.Cell) (is bool, err error) {
	r := rollup.ResolutionOf(c.Family)
	switch {
	case c.Family == series.FamilyCount:
		_, err = bucketstore.ParseSum(c.Value)
	case r == rollup.Raw:
		return false, nil
	default:
		err = checkRollup(base, r, c)
	}
	if err != nil {
		err = fmt.Errorf("family %s: %w", c.Family, err)
	}
	return true, err
}

func checkRollup(base int64, r rollup.Resolution, c bucketstore.Cell) error {
	if _, err := series.ParseQualifier(c.Qualifier); err != nil {
		return err
	}
	var points rollup.Points
	points.Reset(rollup.Markers|rollup.Sums|rollup.Counts, rollup.Windows{})
	day := rollup.DayOfCell(base, c.Qualifier)
	if err := points.AppendCell(r, day, c.Value, day, day+rollup.Day); !errors.Is(err, rollup.ErrSamples) {
		return err
	}
	return nil
}
