package bigtable

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/bigtable"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// Drop implements bucketstore.Store. A whole table and all rows with a prefix are one
// request to the admin API. It needs the right to change tables, and Bigtable limits such
// requests far below those for rows. Other ranges are read and deleted row by row.
func (s *Store) Drop(ctx context.Context, table bucketstore.Table, rows series.RowRange) error {
	t, err := s.table(table)
	if err != nil || rows.IsEmpty() {
		return err
	}
	if prefix, ok := rows.Prefix(); ok {
		err = s.dropPrefix(ctx, table, prefix)
	} else {
		err = s.dropRange(ctx, table, rows)
	}
	if err != nil {
		return fmt.Errorf("drop rows %s of %s: %w", rows, t.name, err)
	}
	return nil
}

// dropPrefix removes the rows with a prefix. The empty prefix removes all.
func (s *Store) dropPrefix(ctx context.Context, table bucketstore.Table, prefix []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.adminTimeout)
	defer cancel()
	var err error
	if name := s.tables[table].name; len(prefix) == 0 {
		err = s.admin.DropAllRows(ctx, name)
	} else {
		err = s.admin.DropRowRange(ctx, name, string(prefix))
	}
	s.metrics.addRequest(table, opDrop, err == nil)
	return callError(ctx, err)
}

// dropRange removes the rows of any range, a batch at a time.
func (s *Store) dropRange(ctx context.Context, table bucketstore.Table, rows series.RowRange) error {
	for !rows.IsEmpty() {
		keys, err := s.firstKeys(ctx, table, rows)
		if err != nil || len(keys) == 0 {
			return err
		}
		if err := s.deleteRows(ctx, table, keys); err != nil || len(keys) < batchRows {
			return err
		}
		rows.Start = append([]byte(keys[len(keys)-1]), 0)
	}
	return nil
}

// firstKeys returns the first keys of a range, a batch at most.
func (s *Store) firstKeys(ctx context.Context, table bucketstore.Table, rows series.RowRange) ([]string, error) {
	if key, ok := singleRow(rows); ok {
		return []string{string(key)}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	ctx = withCall(ctx, table, s.callTimeout)
	var keys []string
	size := 0
	err := s.tables[table].rows.ReadRows(ctx, bigtable.NewRange(string(rows.Start), string(rows.Limit)), func(row bigtable.Row) bool {
		keys, size = append(keys, row.Key()), size+len(row.Key())
		return true
	}, bigtable.LimitRows(batchRows), bigtable.RowFilter(bigtable.ChainFilters(bigtable.CellsPerRowLimitFilter(1), bigtable.StripValueFilter())))
	s.metrics.addRead(table, len(keys), size, err == nil)
	return keys, callError(ctx, err)
}

// deleteRows deletes rows by their keys, at most a batch.
func (s *Store) deleteRows(ctx context.Context, table bucketstore.Table, keys []string) error {
	a := s.newApplier(ctx, table)
	for i, key := range keys {
		mut := bigtable.NewMutation()
		mut.DeleteRow()
		a.addRow(i, key, mut, len(key)+rowOverhead)
	}
	var errs []error
	err := a.finish(func(_ int, err error) { errs = append(errs, err) })
	return errors.Join(err, errors.Join(errs...))
}
