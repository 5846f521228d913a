package deletion

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// removeRollups removes the buckets of rollups of which a record deletes a part, of days that are closed. Those of other days are
// made again, as the removal of their samples counts.
//
// A rollup that is written gets a greater time than one that a maker may still write, which has that of a count up to now.
func (x *Executor) removeRollups(ctx context.Context, rec *record, targets []target) error {
	if x.cfg.Timeline == nil {
		return nil
	}
	forAll, err := x.cfg.Timeline.Closed(ctx)
	if err != nil {
		return err
	}
	rules, err := x.cfg.Timeline.KeyRules(ctx)
	if err != nil {
		return err
	}
	families := append(bucketstore.RollupFamilies(), bucketstore.FamilyRange{Family: series.FamilyCount})
	records := []*record{rec}
	for _, t := range targets {
		closed := max(forAll, rules.KeyClosed(t.key))
		if closed <= rec.Start {
			continue
		}
		var muts []bucketstore.Mutation
		for _, base := range t.bases {
			if !rec.overlaps(base-rollup.Day, min(base+series.Period, closed)) {
				continue
			}
			row := series.SingleRow(x.records.cfg.Schema.AppendRowKey(nil, t.key, base))
			reading, cancel := context.WithTimeout(ctx, jobs.ReadTimeout)
			err := x.cfg.Store.Scan(reading, bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{row}, Families: families}, func(found bucketstore.Row) error {
				ops, err := x.rollupOps(base, closed, found.Cells, records)
				if len(ops) > 0 {
					muts = append(muts, bucketstore.Mutation{Key: bytes.Clone(found.Key), Ops: ops})
				}
				return err
			})
			cancel()
			if err != nil {
				return fmt.Errorf("read rollups of a deletion: %w", err)
			}
		}
		if err := x.apply(ctx, bucketstore.Metric, muts); err != nil {
			return fmt.Errorf("remove deleted buckets: %w", err)
		}
	}
	return nil
}

// Widened says in a sentence what a deletion of [start, limit), in milliseconds, removes beside these times, because only rollups are kept there. It is
// empty if that is nothing.
func (x *Executor) Widened(ctx context.Context, start, limit int64) (text string, err error) {
	if x.cfg.Timeline == nil {
		return "", nil
	}
	closed, err := x.cfg.Timeline.Closed(ctx)
	start, last := max(start, 1), min(limit-1, closed) // the time 0 is in no day
	if err != nil || closed <= 0 || start > last {
		return "", err
	}
	from, to := rollup.Finest.Start(start), rollup.Finest.Start(last)+rollup.Finest.Span()
	if from+1 >= start && to == last {
		return "", nil
	}
	utc := func(t int64) string { return time.UnixMilli(t).UTC().Format("2006-01-02T15:04:05.999Z07:00") }
	return fmt.Sprintf("up to %s samples are only kept as rollups, of which whole buckets of 5 minutes are deleted: those from %s to %s. Hours of which a part is deleted are answered from what is left of 5 minutes",
		utc(closed), utc(from), utc(to)), nil
}

// rollupOps returns what removes buckets of the rollups of a row, of days that end up to closed.
func (x *Executor) rollupOps(base, closed int64, cells []bucketstore.Cell, records []*record) (ops []bucketstore.Op, err error) {
	for i := range cells {
		c := &cells[i]
		end := rollup.DayOfCell(base, c.Qualifier) + rollup.Day
		if c.Family == series.FamilyCount || end > closed {
			continue
		}
		deleted, left, err := x.filter.cell(base, c, records)
		if err != nil {
			return nil, err
		}
		if !deleted || bytes.Equal(left[0].Value, c.Value) {
			continue
		}
		next := max(c.Time, end+count(cells, c.Qualifier)) + 1
		ops = append(ops, bucketstore.Op{
			Kind: bucketstore.SetCell, Family: c.Family, Qualifier: bytes.Clone(c.Qualifier), Time: next, Value: bytes.Clone(left[0].Value),
		})
	}
	return ops, nil
}

// count returns the count of the day with this qualifier.
func count(cells []bucketstore.Cell, qualifier []byte) int64 {
	for _, c := range cells {
		if c.Family == series.FamilyCount && bytes.Equal(c.Qualifier, qualifier) {
			if n, err := bucketstore.ParseSum(c.Value); err == nil {
				return n
			}
		}
	}
	return 0
}
