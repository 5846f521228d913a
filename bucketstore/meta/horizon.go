package meta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// Horizons are the times, in milliseconds, before which cells of each resolution may have been
// deleted, and the others must not be shown. Raw is for samples and their exemplars. 0 is none.
type Horizons [rollup.NumResolutions]int64

// Horizons returns the horizons.
func (s *Store) Horizons(ctx context.Context) (h Horizons, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, byName, err := s.readHorizons(ctx)
	for r := range rollup.NumResolutions {
		h[r] = byName[r.String()]
	}
	return h, err
}

// Deleted returns the times, in milliseconds, before which the store has deleted cells by ages that it had before, as far as is known:
// see NoteDeleted.
func (s *Store) Deleted(ctx context.Context) (h Horizons, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, byName, err := s.readHorizons(ctx)
	for r := range rollup.NumResolutions {
		h[r] = byName[deletedName(r)]
	}
	return h, err
}

// deletedName is the name of a time of Deleted in the row of the horizons.
func deletedName(r rollup.Resolution) string { return "deleted." + r.String() }

// NoteDeleted raises the horizons, and what Deleted returns, to times before which the store may delete cells by age, or retention rules
// have removed some: no horizon is taken back before them.
func (s *Store) NoteDeleted(ctx context.Context, to Horizons) (Horizons, error) {
	return s.changeHorizons(ctx, func(byName map[string]int64) (changed bool) {
		for r := range rollup.NumResolutions {
			for _, name := range []string{r.String(), deletedName(r)} {
				if to[r] > byName[name] {
					byName[name], changed = to[r], true
				}
			}
		}
		return changed
	})
}

// LowerHorizons takes the horizons back to to, where they are from. It returns what they are then. Where one has changed since it was read,
// the error is an ErrHorizons and nothing is changed.
func (s *Store) LowerHorizons(ctx context.Context, from, to Horizons) (Horizons, error) {
	isThere := true
	h, err := s.changeHorizons(ctx, func(byName map[string]int64) (changed bool) {
		for r := range rollup.NumResolutions {
			name := r.String()
			if isThere = isThere && byName[name] == from[r]; !isThere {
				return false
			}
			if to[r] < from[r] && to[r] >= byName[deletedName(r)] {
				byName[name], changed = to[r], true
			}
		}
		return changed
	})
	if err == nil && !isThere {
		err = ErrHorizons
	}
	return h, err
}

// ErrHorizons says that the horizons have changed since they were read.
var ErrHorizons = errors.New("the horizons have changed since they were read")

// RaiseHorizons raises each horizon to that in to, unless it is there or later, and returns what
// they are then. Cells before them may be deleted when RaiseHorizons has
// returned without an error: the horizons are durable.
func (s *Store) RaiseHorizons(ctx context.Context, to Horizons) (Horizons, error) {
	return s.changeHorizons(ctx, func(byName map[string]int64) (changed bool) {
		for r := range rollup.NumResolutions {
			if name := r.String(); to[r] > byName[name] {
				byName[name], changed = to[r], true
			}
		}
		return changed
	})
}

// changeHorizons calls change with the horizons, by name, and writes them if it returns true; again if another process was faster.
func (s *Store) changeHorizons(ctx context.Context, change func(byName map[string]int64) bool) (h Horizons, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for {
		old, byName, err := s.readHorizons(ctx)
		if err != nil {
			return Horizons{}, err
		}
		isChanged := change(byName)
		for r := range rollup.NumResolutions {
			h[r] = byName[r.String()]
		}
		if !isChanged {
			return h, nil
		}
		value, err := json.Marshal(byName)
		if err != nil {
			return Horizons{}, err
		}
		set, err := CompareAndSet(ctx, s.rows, series.MetaHorizon, old, s.newCell(value))
		if err != nil {
			return Horizons{}, fmt.Errorf("store the horizons: %w", err)
		}
		if set {
			return h, nil
		}
	}
}

// readHorizons returns the cell of META/horizon and the horizons in it, by name.
func (s *Store) readHorizons(ctx context.Context) (c Cell, horizons map[string]int64, err error) {
	if c, horizons, err = ReadJSON[map[string]int64](ctx, s.rows, series.MetaHorizon); err != nil {
		return c, nil, fmt.Errorf("read the horizons: %w", err)
	}
	if horizons == nil {
		horizons = make(map[string]int64)
	}
	return c, horizons, nil
}
