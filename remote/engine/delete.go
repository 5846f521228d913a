package engine

import (
	"context"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// Delete deletes the samples in [mint, maxt], in milliseconds, of the series that match, with
// their exemplars. On success that is durable, and no read finds what was written before. After
// an error it may be so or not, and to repeat it is harmless. What is written meanwhile is
// deleted or not.
func (e *Engine) Delete(ctx context.Context, mint, maxt int64, matchers []*labels.Matcher) error {
	if err := e.cfg.Admit(); err != nil { // the record, and what is cut off for it, take space
		return err
	}
	// Matchers on the replica label stay: it is not stored, and without them a selector could
	// match more than was meant.
	if err := e.cfg.Deletions.Delete(ctx, matchers, max(mint, 0), min(maxt, series.MaxTime)+1); err != nil {
		return err
	}
	return e.FlushCurrent(ctx) // what is in CURRENT is filtered, what waits for it is not
}

// FlushCurrent writes the current samples that wait in memory to CURRENT.
func (e *Engine) FlushCurrent(ctx context.Context) error {
	if err := e.current.Flush(ctx); err != nil {
		return fmt.Errorf("write current samples: %w", err)
	}
	return nil
}

// SeriesBefore calls fn with the key of each series that matches and may have samples before limit, in
// milliseconds, and with the bases of its rows there, ascending. There is no limit on their number.
func (e *Engine) SeriesBefore(ctx context.Context, matchers []*labels.Matcher, limit int64, fn func(key []byte, bases []int64)) error {
	found, err := e.index.Select(ctx, index.Query{Matchers: matchers, Limit: min(limit, series.MaxTime+1)})
	if err != nil {
		return err
	}
	for _, s := range found.Series {
		fn([]byte(s.Key), s.Bases)
	}
	return nil
}
