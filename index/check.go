package index

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

// Check calls report with each row of the entries that the table does not hold as Write would
// have written it, and returns how many of the entries have their commit mark. With repair
// it has written them by then. Rows are valid during the call. Of entries of one series in one
// period the caller gives one.
func (x *Index) Check(ctx context.Context, entries []Entry, repair bool, report func(Row)) (marked int, err error) {
	needs := make([]need, len(entries))
	for i := range entries {
		needs[i] = need{rowID: rowID{period: series.PeriodOf(entries[i].T)}, entry: &entries[i]}
	}
	slices.SortFunc(needs, compareNeeds)
	marked = len(needs)
	for len(needs) > 0 {
		n := countBatch(needs)
		unmarked, err := x.checkBatch(ctx, needs[:n], repair, report)
		if err != nil {
			return 0, err
		}
		marked -= unmarked
		needs = needs[n:]
	}
	return marked, nil
}

// checkBatch is Check of some needs. It returns how many have no commit mark.
func (x *Index) checkBatch(ctx context.Context, needs []need, repair bool, report func(Row)) (unmarked int, err error) {
	b := newBatch()
	x.fillBatch(b, needs)
	rows, err := x.absent(ctx, b.rows)
	if err != nil {
		return 0, err
	}
	marks, err := x.absent(ctx, b.marks)
	if err != nil {
		return 0, err
	}
	if repair {
		if err := x.putRows(ctx, rows); err != nil {
			return 0, fmt.Errorf("write index rows: %w", err)
		}
		if err := x.putRows(ctx, marks); err != nil {
			return 0, fmt.Errorf("write index marks: %w", err)
		}
	}
	marksRange := x.schema.PostingRange(labels.MetricName)
	for _, row := range slices.Concat(rows, marks) {
		if marksRange.Contains(row.Key) {
			unmarked++
		}
		delete(b.texts, rowID{row.Time - series.IndexPeriod, x.writer.hash.of(row.Key)})
		report(row)
	}
	x.writer.remember(nil, b.texts) // which the next batch need not read
	return unmarked, nil
}

// absent returns those of rows that the table does not hold with their values.
func (x *Index) absent(ctx context.Context, rows []Row) (absent []Row, err error) {
	for some := range slices.Chunk(rows, lookupKeys) {
		ranges := make([]series.RowRange, len(some))
		for i := range some {
			ranges[i] = series.SingleRow(some[i].Key)
		}
		err := x.rows.ScanRows(ctx, ranges, 0, func(key, value []byte) error {
			for len(some) > 0 && bytes.Compare(some[0].Key, key) < 0 {
				absent, some = append(absent, some[0]), some[1:]
			}
			if len(some) > 0 && bytes.Equal(some[0].Value, value) {
				some = some[1:]
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read index rows: %w", err)
		}
		absent = append(absent, some...)
	}
	return absent, nil
}
