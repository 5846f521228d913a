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

// A Memory is a store in memory that never expires a cell, for tests that open many stores.
// It takes any family. The zero Memory is empty. Close keeps the content.
type Memory struct {
	mu   sync.Mutex
	rows [bucketstore.NumTables]model
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
		m.rows[table] = make(model)
	}
	mut.Ops = slices.Clone(mut.Ops)
	for i := range mut.Ops {
		op := &mut.Ops[i]
		op.Qualifier, op.Value = bytes.Clone(op.Qualifier), bytes.Clone(op.Value)
	}
	m.rows[table].apply(mut)
}

// CheckAndApply implements bucketstore.Store.
func (m *Memory) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	holds := m.rows[table].holds(mut.Key, cond)
	if holds {
		m.apply(table, mut)
	}
	return holds, ctx.Err()
}

// Scan implements bucketstore.Store.
func (m *Memory) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	m.mu.Lock()
	rows := m.rows[req.Table].scan(req)
	m.mu.Unlock()
	for _, row := range rows {
		if err := fn(row); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Clone returns a store with the same content.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	other := new(Memory)
	for table, rows := range m.rows {
		other.rows[table] = maps.Clone(rows)
	}
	return other
}

// Drop implements bucketstore.Store.
func (m *Memory) Drop(ctx context.Context, table bucketstore.Table, rows series.RowRange) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[table].dropIf(func(c column) bool { return rows.Contains([]byte(c.key)) })
	return ctx.Err()
}

// Close implements bucketstore.Store.
func (m *Memory) Close() error { return nil }

// Traits implements bucketstore.Store.
func (m *Memory) Traits() bucketstore.Traits { return bucketstore.Traits{} }
