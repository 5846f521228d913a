package meta

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// Horizons are the times, in milliseconds, before which cells of each resolution may have been
// deleted, and the others must not be shown. Raw is for samples and their exemplars. 0 is none.
type Horizons [bucketstore.NumResolutions]int64

// Horizons returns the horizons.
func (s *Store) Horizons(ctx context.Context) (h Horizons, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, byName, err := s.readHorizons(ctx)
	for r := range h {
		h[r] = byName[bucketstore.Resolution(r).String()]
	}
	return h, err
}

// RaiseHorizons raises each horizon to that in to, unless it is there or later, and returns what
// they are then. They never go back. Cells before them may be deleted when RaiseHorizons has
// returned without an error: the horizons are durable.
func (s *Store) RaiseHorizons(ctx context.Context, to Horizons) (Horizons, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for {
		old, byName, err := s.readHorizons(ctx)
		if err != nil {
			return Horizons{}, err
		}
		raised, h := false, Horizons{}
		for r := range h {
			name := bucketstore.Resolution(r).String()
			if to[r] > byName[name] {
				byName[name], raised = to[r], true
			}
			h[r] = byName[name]
		}
		if !raised {
			return h, nil
		}
		value, err := json.Marshal(byName)
		if err != nil {
			return Horizons{}, err
		}
		_, set, err := CompareAndSet(ctx, s.rows, series.MetaHorizon, old, value, s.now().UnixMilli())
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
	horizons = make(map[string]int64)
	if c, err = ReadCell(ctx, s.rows, series.MetaHorizon); err != nil {
		return c, nil, fmt.Errorf("read the horizons: %w", err)
	}
	if c.Value == nil {
		return c, horizons, nil
	}
	if err := json.Unmarshal(c.Value, &horizons); err != nil {
		return c, nil, fmt.Errorf("%w: row %q of META: %v", series.ErrCorrupt, series.MetaHorizon, err)
	}
	return c, horizons, nil
}
