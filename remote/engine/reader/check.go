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
	switch c.Family {
	case series.FamilyCount:
		_, err = bucketstore.ParseSum(c.Value)
	case series.Family5m, series.Family1h:
		err = checkRollup(base, c)
	default:
		return false, nil
	}
	if err != nil {
		err = fmt.Errorf("family %s: %w", c.Family, err)
	}
	return true, err
}

func checkRollup(base int64, c bucketstore.Cell) error {
	if _, err := series.ParseQualifier(c.Qualifier); err != nil {
		return err
	}
	resolution := rollup.FiveMinutes
	if c.Family == series.Family1h {
		resolution = rollup.Hour
	}
	var points rollup.Points
	points.Reset(rollup.Markers | rollup.Sums | rollup.Counts)
	day := rollup.DayOfCell(base, c.Qualifier)
	if err := points.AppendCell(resolution, day, c.Value, day, day+rollup.Day); !errors.Is(err, rollup.ErrSamples) {
		return err
	}
	return nil
}
