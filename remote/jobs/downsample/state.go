package downsample

import (
	"context"
	"fmt"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
)

const (
	// refreshInterval is how often META/rollup is read where others may change it.
	refreshInterval = 2 * time.Minute
	// maxStateAge is how old a reading of it may be that a write relies on.
	maxStateAge = 10 * time.Minute
	// maxAttempt is how long a write may take that relies on it.
	maxAttempt = 5 * time.Minute
	// propagationTime is how long a maker waits after it has seen that begun or closed was raised: longer than both.
	propagationTime = 20 * time.Minute
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
	// Holder names the maker, for operators, and Token identifies it. Its lease ends at Expires, by its clock.
	Holder  string `json:"holder,omitempty"`
	Token   string `json:"token,omitempty"`
	Expires int64  `json:"expires,omitempty"`
}

func readState(ctx context.Context, store bucketstore.Store) (c meta.Cell, s state, err error) {
	ctx, cancel := context.WithTimeout(ctx, jobs.MetaTimeout)
	defer cancel()
	if c, s, err = meta.ReadJSON[state](ctx, store, series.MetaRollup); err != nil {
		err = fmt.Errorf("read META/%s: %w", series.MetaRollup, err)
	}
	return c, s, err
}
