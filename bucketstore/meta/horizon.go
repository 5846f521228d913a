package meta

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/promtable/promtable/series"
)

// rawHorizon is the name of the horizon of raw samples and their exemplars.
const rawHorizon = "raw"

// Horizon returns the time, in milliseconds, before which raw samples may have been deleted,
// and the others must not be shown. It is 0 if none were.
func (s *Store) Horizon(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, horizons, err := s.readHorizons(ctx)
	return horizons[rawHorizon], err
}

// RaiseHorizon raises the horizon to cut, in milliseconds, unless it is there or later, and
// returns what it is then. It never goes back. Samples before it may be deleted when
// RaiseHorizon has returned without an error: the horizon is durable.
func (s *Store) RaiseHorizon(ctx context.Context, cut int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for {
		old, horizons, err := s.readHorizons(ctx)
		if err != nil || cut <= horizons[rawHorizon] {
			return horizons[rawHorizon], err
		}
		horizons[rawHorizon] = cut
		value, err := json.Marshal(horizons)
		if err != nil {
			return 0, err
		}
		_, set, err := CompareAndSet(ctx, s.rows, series.MetaHorizon, old, value, s.now().UnixMilli())
		if err != nil {
			return 0, fmt.Errorf("store the horizon: %w", err)
		}
		if set {
			return cut, nil
		}
	}
}

// readHorizons returns the cell of META/horizon and the horizons in it, by name.
func (s *Store) readHorizons(ctx context.Context) (c Cell, horizons map[string]int64, err error) {
	horizons = make(map[string]int64)
	if c, err = ReadCell(ctx, s.rows, series.MetaHorizon); err != nil {
		return c, nil, fmt.Errorf("read the horizon: %w", err)
	}
	if c.Value == nil {
		return c, horizons, nil
	}
	if err := json.Unmarshal(c.Value, &horizons); err != nil {
		return c, nil, fmt.Errorf("%w: row %q of META: %v", series.ErrCorrupt, series.MetaHorizon, err)
	}
	return c, horizons, nil
}
