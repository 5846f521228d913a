package downsample

import (
	"context"

	"github.com/promtable/promtable/series/rollup"
)

// makeAgain looks once more at the last day that an earlier version has made, and not this one: rollups without buckets are made
// again that have some now. It is one day a call, so that days that are due need not wait.
func (m *Maker) makeAgain(ctx context.Context) error {
	again := m.days.get().Again
	if again == 0 {
		return nil
	}
	day, next := again-rollup.Day, int64(0)
	first, err := m.days.firstDay(ctx, m.tenants, max(m.cfg.Horizon(), m.days.Released()))
	if err != nil {
		return err
	}
	if day >= first {
		if err := m.walkDay(ctx, day); err != nil {
			return err
		}
		next = day
	}
	return m.save(ctx, m.days.writing, func(s *state) {
		if s.Again == again {
			s.Again = next
		}
	})
}
