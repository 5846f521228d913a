package seal_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// memory is a simple store in memory.
type memory struct {
	mu     sync.Mutex
	tables [bucketstore.NumTables]map[string]map[column]bucketstore.Cell
}

type column struct{ family, qualifier string }

func newMemory() *memory {
	m := new(memory)
	for i := range m.tables {
		m.tables[i] = make(map[string]map[column]bucketstore.Cell)
	}
	return m
}

func (m *memory) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	for _, mut := range muts {
		if err := ctx.Err(); err != nil {
			return err
		}
		m.apply(table, mut)
	}
	return nil
}

func (m *memory) apply(table bucketstore.Table, mut bucketstore.Mutation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row := m.tables[table][string(mut.Key)]
	if row == nil {
		row = make(map[column]bucketstore.Cell)
		m.tables[table][string(mut.Key)] = row
	}
	for _, op := range mut.Ops {
		at := column{op.Family, string(op.Qualifier)}
		held, ok := row[at]
		switch op.Kind {
		case bucketstore.SetCell:
			if !ok || held.Time <= op.Time {
				row[at] = bucketstore.Cell{Family: op.Family, Qualifier: bytes.Clone(op.Qualifier), Time: op.Time, Value: bytes.Clone(op.Value)}
			}
		case bucketstore.DeleteColumn:
			delete(row, at)
		case bucketstore.DeleteColumnBefore:
			if ok && held.Time < op.Time {
				delete(row, at)
			}
		case bucketstore.DeleteFamily:
			maps.DeleteFunc(row, func(c column, _ bucketstore.Cell) bool { return c.family == op.Family })
		}
	}
}

func (m *memory) Traits() bucketstore.Traits { return bucketstore.Traits{Shared: true} }

func (m *memory) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	m.mu.Lock()
	held, ok := m.tables[table][string(mut.Key)][column{cond.Family, string(cond.Qualifier)}]
	m.mu.Unlock()
	if ok == cond.Absent || ok && !bytes.Equal(held.Value, cond.Value) {
		return false, nil
	}
	m.apply(table, mut)
	return true, nil
}

func (m *memory) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	rows := 0
	for _, key := range m.keys(req.Table, req.Rows) {
		if err := ctx.Err(); err != nil {
			return err
		}
		row := m.row(req.Table, key, req.Families)
		if len(row.Cells) == 0 {
			continue
		}
		if err := fn(row); err != nil {
			return err
		}
		if rows++; rows == req.Limit {
			return nil
		}
	}
	return nil
}

func (m *memory) keys(table bucketstore.Table, ranges []series.RowRange) (keys []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.tables[table] {
		if slices.ContainsFunc(ranges, func(r series.RowRange) bool { return r.Contains([]byte(key)) }) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (m *memory) row(table bucketstore.Table, key string, families []bucketstore.FamilyRange) bucketstore.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	row := bucketstore.Row{Key: []byte(key)}
	for _, f := range families {
		first := len(row.Cells)
		asked := series.RowRange{Start: f.Start, Limit: f.Limit}
		for _, c := range m.tables[table][key] {
			if c.Family == f.Family && asked.Contains(c.Qualifier) {
				row.Cells = append(row.Cells, c)
			}
		}
		slices.SortFunc(row.Cells[first:], func(a, b bucketstore.Cell) int { return bytes.Compare(a.Qualifier, b.Qualifier) })
	}
	return row
}

func (m *memory) Drop(context.Context, bucketstore.Table, series.RowRange) error { panic("not used") }

func (m *memory) Close() error { return nil }
