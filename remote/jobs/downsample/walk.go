package downsample

import (
	"bytes"
	"context"
	"fmt"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// walkDay makes the rollups of a day of all rows whose count differs from theirs, unless the horizon has passed its start.
func (m *Maker) walkDay(ctx context.Context, day int64) error {
	m.metrics.days.Inc()
	tenants, err := m.days.cfg.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, schema := range tenants {
		first := series.PeriodOf(max(day, 0))
		for period := first; period <= series.PeriodOf(day+rollup.Day); period += series.IndexPeriod {
			base, _ := series.Split(period)
			walk := jobs.Walk{
				Store: m.days.cfg.Store, Schema: schema, At: &jobs.Position{Period: period}, Keep: m.renew, Pace: m.pace,
				Do: func(ctx context.Context, postings []jobs.Posting) (int, error) {
					return m.makeBase(ctx, schema, day, base, jobs.RowsOf(schema, base, postings))
				},
			}
			if err := walk.Run(ctx); err != nil {
				return fmt.Errorf("rollups of %s: %w", dayText(day), err)
			}
		}
	}
	return nil
}

// MakeSeries makes the rollups of a day of these series whose count differs from theirs. All of the day were made once. It needs no
// lease: of two makers that make the same rollup, the newest wins.
func (m *Maker) MakeSeries(ctx context.Context, day int64, postings []jobs.Posting) error {
	m.working.Lock()
	defer m.working.Unlock()
	first, _ := series.Split(max(day, 0))
	for base := first; base <= day+rollup.Day; base += series.Period {
		if _, err := m.makeBase(ctx, m.days.cfg.Schema, day, base, jobs.RowsOf(m.days.cfg.Schema, base, postings)); err != nil {
			return err
		}
	}
	return nil
}

// makeBase makes the rollups of a day of rows in a base, and returns how many rows that are.
func (m *Maker) makeBase(ctx context.Context, schema series.Schema, day, base int64, rows []series.RowRange) (n int, err error) {
	if err := m.makeRanges(ctx, schema, day, base, rows); err != nil {
		return 0, err
	}
	m.metrics.rows.Add(float64(len(rows)))
	return len(rows), nil
}

// makeRanges makes the rollups of a day of rows of a base.
func (m *Maker) makeRanges(ctx context.Context, schema series.Schema, day, base int64, rows []series.RowRange) error {
	var muts []bucketstore.Mutation
	reading, cancel := context.WithTimeout(ctx, jobs.ReadTimeout)
	defer cancel()
	err := m.days.cfg.Store.Scan(reading, bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: rows, Families: m.row.families(day, base)},
		func(row bucketstore.Row) error {
			ops, err := m.row.make(day, base, row.Cells)
			if err != nil {
				m.addBad(row.Key, day, err)
				return nil
			}
			if len(ops) > 0 {
				muts = append(muts, bucketstore.Mutation{Key: bytes.Clone(row.Key), Ops: ops})
			}
			return nil
		})
	if err != nil || len(muts) == 0 {
		return err
	}
	if wasWhole, err := m.wasWhole(ctx, day); err != nil || !wasWhole {
		return err
	}
	if muts, err = m.withoutCut(ctx, schema, day, muts); err != nil || len(muts) == 0 {
		return err
	}
	writing, cancel := context.WithTimeout(ctx, jobs.WriteTimeout)
	defer cancel()
	if err := m.days.cfg.Store.Apply(writing, bucketstore.Metric, muts); err != nil {
		return err
	}
	for _, mut := range muts {
		for _, op := range mut.Ops {
			m.metrics.cells.WithLabelValues(op.Family).Inc()
			m.metrics.bytes.WithLabelValues(op.Family).Add(float64(len(op.Value)))
		}
	}
	return nil
}

// wasWhole says whether all samples of a day were there until now: what was read of it is right. The maker may have been suspended
// for days, while another one has released the day.
func (m *Maker) wasWhole(ctx context.Context, day int64) (bool, error) {
	end, now := day+rollup.Day, m.days.cfg.Now()
	s, isFresh := m.days.at(now)
	if !isFresh || s.Closed >= end && m.days.cfg.Store.Traits().Shared { // else another maker that closes it waits for longer
		if err := m.days.refresh(ctx); err != nil {
			return false, err
		}
		s = m.days.get()
	}
	return s.Released < end && m.deleted() <= day, nil
}

// withoutCut returns the mutations of rows of which all samples of a day were there until now.
func (m *Maker) withoutCut(ctx context.Context, schema series.Schema, day int64, muts []bucketstore.Mutation) (whole []bucketstore.Mutation, err error) {
	rules, err := m.cfg.Timeline.KeyRules(ctx)
	if err != nil || rules.Latest() == 0 {
		return muts, err
	}
	for _, mut := range muts {
		key, _, err := schema.ParseRowKey(nil, mut.Key)
		if err != nil {
			return nil, err
		}
		if rules.KeyCut(key) <= day {
			whole = append(whole, mut)
		}
	}
	return whole, nil
}

// addBad counts a row that has no rollups of a day because its samples cannot be read, and sometimes logs it.
func (m *Maker) addBad(key []byte, day int64, err error) {
	m.metrics.failures.Inc()
	if now := m.days.cfg.Now(); now.Sub(m.badLogged) >= logInterval {
		m.badLogged = now
		level.Warn(m.days.cfg.Logger).Log("msg", "a row has no rollups: its samples cannot be read", "key", string(key), "day", dayText(day), "err", err)
	}
}
