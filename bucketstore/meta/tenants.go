package meta

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/promtable/promtable/series"
)

// A Tenant is one of a store with tenants. Times are in milliseconds since 1970, by the clock of the process that wrote them.
type Tenant struct {
	Name string `json:"-"`
	// Created is when it was made.
	Created int64 `json:"created"`
	// Dropping is since when it is hidden, and takes nothing. 0 is that it is in use.
	Dropping int64 `json:"dropping,omitempty"`
	// Dropped is when the last of its rows had been removed, 0 if that has not happened. By is who asked for it.
	Dropped int64  `json:"dropped,omitempty"`
	By      string `json:"by,omitempty"`
	// Removed is how many rows were removed from each table, of those that were seen when the removal began.
	Removed map[string]int64 `json:"removed,omitempty"`

	cell Cell
}

// Of returns s for the rows that each tenant has, of the tenant of a schema.
func (s *Store) Of(schema series.Schema) *Store {
	of := *s
	of.schema = schema
	return &of
}

// InUse says that it may be written and read.
func (t *Tenant) InUse() bool { return t.Dropping == 0 }

// Tenants returns the tenants in META, and those that were dropped, in order of their escaped names.
func (s *Store) Tenants(ctx context.Context) (all []Tenant, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = ScanCells(ctx, s.rows, series.MetaTenantRange(), func(key []byte, c Cell) (err error) {
		t := Tenant{cell: c}
		if t.Name, err = series.ParseMetaTenantKey(key); err == nil {
			err = ParseJSON(key, c.Value, &t)
		}
		all = append(all, t)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the tenants: %w", err)
	}
	return all, nil
}

// PutTenant writes a tenant in place of what was read of it; a new one was not read. It returns false if the row has
// changed since. After an error it may be written or not. On success t is as if it was read.
func (s *Store) PutTenant(ctx context.Context, t *Tenant) (put bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	value, err := json.Marshal(t)
	if err != nil {
		return false, err
	}
	next := s.newCell(value)
	put, err = CompareAndSet(ctx, s.rows, string(series.AppendMetaTenantKey(nil, t.Name)), t.cell, next)
	if err != nil {
		return false, fmt.Errorf("store the tenant %s: %w", t.Name, err)
	}
	if put {
		t.cell = next
	}
	return put, nil
}
