package storetest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// A Memory is a store in memory that never expires a cell, for tests that open many stores. A scan sees each row as it is when it comes to
// it. It takes any family. The zero Memory is empty. Close keeps the content.
type Memory struct {
	mu sync.Mutex
	// rows has the columns of each row, by its key.
	rows [bucketstore.NumTables]map[string]model
}

// Apply implements bucketstore.Store.
func (m *Memory) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mut := range muts {
		m.apply(table, mut)
	}
	return ctx.Err()
}

// apply applies a mutation with mu held.
func (m *Memory) apply(table bucketstore.Table, mut bucketstore.Mutation) {
	if m.rows[table] == nil {
		m.rows[table] = make(map[string]model)
	}
	mut.Ops = slices.Clone(mut.Ops)
	for i := range mut.Ops {
		op := &mut.Ops[i]
		op.Qualifier, op.Value = bytes.Clone(op.Qualifier), bytes.Clone(op.Value)
	}
	row := m.rows[table][string(mut.Key)]
	if row == nil {
		row = make(model)
		m.rows[table][string(mut.Key)] = row
	}
	if row.apply(mut); len(row) == 0 {
		delete(m.rows[table], string(mut.Key))
	}
}

// CheckAndApply implements bucketstore.Store.
func (m *Memory) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	holds := m.rows[table][string(mut.Key)].holds(mut.Key, cond)
	if holds {
		m.apply(table, mut)
	}
	return holds, ctx.Err()
}

// Scan implements bucketstore.Store.
func (m *Memory) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	found := 0
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
		if found++; found == req.Limit {
			break
		}
	}
	return ctx.Err()
}

// keys returns those of the rows in ranges, ascending.
func (m *Memory) keys(table bucketstore.Table, ranges []series.RowRange) (keys []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var wide []series.RowRange
	for _, r := range ranges {
		if n := len(r.Start); len(r.Limit) != n+1 || r.Limit[n] != 0 || !bytes.Equal(r.Limit[:n], r.Start) {
			wide = append(wide, r)
		} else if _, ok := m.rows[table][string(r.Start)]; ok { // a single row
			keys = append(keys, string(r.Start))
		}
	}
	if len(wide) > 0 {
		for key := range m.rows[table] {
			if slices.ContainsFunc(wide, func(r series.RowRange) bool { return r.Contains([]byte(key)) }) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// row returns the cells of some families of a row.
func (m *Memory) row(table bucketstore.Table, key string, families []bucketstore.FamilyRange) bucketstore.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	row := bucketstore.Row{Key: []byte(key)}
	for _, f := range families {
		first, asked := len(row.Cells), series.RowRange{Start: f.Start, Limit: f.Limit}
		for at, c := range m.rows[table][key] {
			if at.family == f.Family && asked.Contains(c.Qualifier) {
				row.Cells = append(row.Cells, c)
			}
		}
		slices.SortFunc(row.Cells[first:], func(a, b bucketstore.Cell) int { return bytes.Compare(a.Qualifier, b.Qualifier) })
	}
	return row
}

// Clone returns a store with the same content.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	other := new(Memory)
	for table, rows := range m.rows {
		other.rows[table] = make(map[string]model, len(rows))
		for key, row := range rows {
			other.rows[table][key] = maps.Clone(row)
		}
	}
	return other
}

// Drop implements bucketstore.Store.
func (m *Memory) Drop(ctx context.Context, table bucketstore.Table, rows series.RowRange) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.rows[table], func(key string, _ model) bool { return rows.Contains([]byte(key)) })
	return ctx.Err()
}

// Close implements bucketstore.Store.
func (m *Memory) Close() error { return nil }

// Traits implements bucketstore.Store.
func (m *Memory) Traits() bucketstore.Traits { return bucketstore.Traits{} }
