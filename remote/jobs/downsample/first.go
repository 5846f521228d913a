package downsample

import (
	"context"

	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// firstDay returns the first day of which there may be samples, all of which are there if those before horizon may have been
// deleted. It is after MaxTime if there are none.
func (d *Days) firstDay(ctx context.Context, horizon int64) (int64, error) {
	tenants, err := d.cfg.Tenants(ctx)
	if err != nil {
		return 0, err
	}
	first := int64(series.MaxTime) + rollup.Day
	for _, schema := range tenants {
		period, ok, err := jobs.NextPeriod(ctx, d.cfg.Store, schema, 0, series.MaxTime+1)
		if err != nil {
			return 0, err
		}
		if ok {
			first = min(first, period)
		}
	}
	day := max(0, rollup.DayOf(first))
	if day < horizon {
		day = rollup.DayOf(horizon) + rollup.Day
	}
	return day, nil
}

// Unreleased returns the dates of the days before cut, in milliseconds, whose samples may be there and whose rollups are not
// final.
func (d *Days) Unreleased(ctx context.Context, cut int64) (dates []string, err error) {
	day, err := d.firstDay(ctx, d.Released())
	if err != nil {
		return nil, err
	}
	for day = max(day, d.Released()); day+rollup.Day <= cut; day += rollup.Day {
		dates = append(dates, dayText(day))
	}
	return dates, nil
}
