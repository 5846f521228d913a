package downsample

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

const (
	// metaTimeout bounds a request to META.
	metaTimeout = 30 * time.Second
	// refreshInterval is how often META/rollup is read where others may change it.
	refreshInterval = 2 * time.Minute
	// maxStateAge is how old a reading of it may be that a write relies on.
	maxStateAge = 10 * time.Minute
	// maxAttempt is how long a write may take that relies on it.
	maxAttempt = 5 * time.Minute
	// settleTime is how long a maker waits after it has seen that begun or closed was raised: longer than both.
	settleTime = 20 * time.Minute
	// maxSkew is how far the clocks of two processes differ at most, unless one is in doubt.
	maxSkew = 10 * time.Minute
)

// A state is the row META/rollup, as JSON. Times are ends of days, in milliseconds.
type state struct {
	// Writes counts the writes of the row.
	Writes int64 `json:"writes"`
	// Begun is the last day of which there may be rollups.
	Begun int64 `json:"begun"`
	// Made is the last day up to which all were made once.
	Made int64 `json:"made"`
	// Closed is the last day of which no sample is taken any more, Released the last one whose
	// rollups are final.
	Closed   int64 `json:"closed,omitempty"`
	Released int64 `json:"released,omitempty"`
	// Kinds is rollup.Kinds of the maker. Days that a maker with less has made are looked at once more, from Again back: that is
	// the end of the last of them, or 0 if there are none.
	Kinds int   `json:"kinds,omitempty"`
	Again int64 `json:"again,omitempty"`
	// Holder names the maker, for operators, and Token identifies it. Its lease ends at Expires, by its clock.
	Holder  string `json:"holder,omitempty"`
	Token   string `json:"token,omitempty"`
	Expires int64  `json:"expires,omitempty"`
}

func readState(ctx context.Context, store bucketstore.Store) (c meta.Cell, s state, err error) {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	if c, err = meta.ReadCell(ctx, store, series.MetaRollup); err != nil {
		return c, s, fmt.Errorf("read META/%s: %w", series.MetaRollup, err)
	}
	if c.Value == nil {
		return c, state{Kinds: rollup.Kinds}, nil
	}
	if err := json.Unmarshal(c.Value, &s); err != nil {
		return c, s, fmt.Errorf("%w: row %q of META: %v", series.ErrCorrupt, series.MetaRollup, err)
	}
	if s.Kinds < rollup.Kinds {
		s.Kinds, s.Again = rollup.Kinds, s.Made
	}
	return c, s, nil
}
