package downsample_test

import (
	"context"
	"maps"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
)

// rows is a store in memory with a storetest.Memory for each row, so that a scan of few rows is fast. One goroutine uses
// it at a time.
type rows struct {
	tables [bucketstore.NumTables]map[string]*storetest.Memory
}

var _ bucketstore.Store = (*rows)(nil)

// row returns the store of a row.
func (s *rows) row(table bucketstore.Table, key []byte) *storetest.Memory {
	if s.tables[table] == nil {
		s.tables[table] = make(map[string]*storetest.Memory)
	}
	row := s.tables[table][string(key)]
	if row == nil {
		row = new(storetest.Memory)
		s.tables[table][string(key)] = row
	}
	return row
}

func (s *rows) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	for _, m := range muts {
		if err := s.row(table, m.Key).Apply(ctx, table, []bucketstore.Mutation{m}); err != nil {
			return err
		}
	}
	return nil
}

func (s *rows) Traits() bucketstore.Traits { return bucketstore.Traits{} }

func (s *rows) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, m bucketstore.Mutation) (bool, error) {
	return s.row(table, m.Key).CheckAndApply(ctx, table, cond, m)
}

// Scan sees each row when it comes to it.
func (s *rows) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	found := 0
	for _, key := range slices.Sorted(maps.Keys(s.tables[req.Table])) {
		if !slices.ContainsFunc(req.Rows, func(r series.RowRange) bool { return r.Contains([]byte(key)) }) {
			continue
		}
		one := req
		one.Rows = []series.RowRange{series.SingleRow([]byte(key))}
		err := s.tables[req.Table][key].Scan(ctx, one, func(row bucketstore.Row) error {
			found++
			return fn(row)
		})
		if err != nil || found == req.Limit && found > 0 {
			return err
		}
	}
	return ctx.Err()
}

func (s *rows) Drop(context.Context, bucketstore.Table, series.RowRange) error { panic("not used") }

func (s *rows) Close() error { return nil }
