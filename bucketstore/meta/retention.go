package meta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// ErrNoSchema says that a store has no identity yet: no adapter has used it.
var ErrNoSchema = errors.New("the store has no schema yet")

// noneMade is the age of a resolution of which no rollups are made.
const noneMade = -1

// Retention returns how long all adapters keep each resolution, as META/schema has it now: 0 is for ever, and -1 that none is made.
// It returns false if META does not say so. The error is ErrNoSchema before Init.
func (s *Store) Retention(ctx context.Context) (keep bucketstore.Retention, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, found, err := s.readRetention(ctx)
	return found.retention(), found.Retention != nil, err
}

// retention returns what a schema says of it.
func (s *storedSchema) retention() (keep bucketstore.Retention) {
	for r := range rollup.NumResolutions {
		keep[r] = noneMade
		if ms := s.Retention[r.String()]; ms >= 0 {
			keep[r] = time.Duration(ms) * time.Millisecond
		}
	}
	return keep
}

// SetRetention is for a store on Bigtable: the embedded one has one adapter, whose flags say it. It writes how long all adapters keep each resolution, in place of from. A nil from is that META does not say so. It returns
// false if META says something else.
func (s *Store) SetRetention(ctx context.Context, from *bucketstore.Retention, to bucketstore.Retention) (set bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	old, schema, err := s.readRetention(ctx)
	if err != nil || (schema.Retention == nil) != (from == nil) || from != nil && schema.retention() != *from {
		return false, err
	}
	if schema.Retention == nil {
		schema.Retention = make(map[string]int64)
	}
	for r := range rollup.NumResolutions {
		age := to[r]
		ms := age.Milliseconds()
		if age < 0 {
			ms = noneMade
		}
		schema.Retention[r.String()] = ms
	}
	value, err := json.Marshal(schema)
	if err != nil {
		return false, err
	}
	set, err = CompareAndSet(ctx, s.rows, series.MetaSchema, old, s.newCell(value))
	if err != nil {
		return false, fmt.Errorf("store the retention: %w", err)
	}
	return set, nil
}

// readRetention reads META/schema, of the schema that was opened.
func (s *Store) readRetention(ctx context.Context) (c Cell, found storedSchema, err error) {
	if c, err = ReadCell(ctx, s.rows, series.MetaSchema); err != nil {
		return c, found, fmt.Errorf("read the retention: %w", err)
	}
	if c.Value == nil {
		return c, found, ErrNoSchema
	}
	if found, err = parseSchema(c.Value); err == nil {
		err = compareSchemas(found, s.want)
	}
	return c, found, err
}
