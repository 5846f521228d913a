package engine

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine/backfill"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/rollup"
)

// Days are the days of which samples are taken.
type Days interface {
	// Closed returns the end of the last day of which none is taken any more, in milliseconds. 0 is none.
	Closed(ctx context.Context) (int64, error)
	// Released returns the end of the last day whose rollups are final, in milliseconds. 0 is none.
	Released() int64
	// WriteOpen calls write, which stores samples after closed, and fails if days after it were closed meanwhile.
	WriteOpen(ctx context.Context, closed int64, write func() error) error
}

// Rolled returns the end of the last day whose rollups are final, in milliseconds. Of samples up to there only rollups are taken. 0 is none.
func (e *Engine) Rolled(ctx context.Context) (int64, error) {
	if e.cfg.Days == nil || !e.view(ctx).HasRollups {
		return 0, nil
	}
	if _, err := e.cfg.Days.Closed(ctx); err != nil { // which reads what is released
		return 0, err
	}
	return e.cfg.Days.Released(), nil
}

// CurrentAge is how old samples of history are at most that CURRENT has.
const CurrentAge = 24 * time.Hour

// noteCurrent gives samples that are stored to CURRENT.
func (e *Engine) noteCurrent(samples []bucketstore.Sample) {
	e.current.Add(samples, make([]*current.Handle, len(samples)))
}

// HistoryRollups returns what writes rollups of samples up to Rolled, which are not kept themselves.
func (e *Engine) HistoryRollups(ctx context.Context) (*backfill.Writer, error) {
	until, err := e.Rolled(ctx)
	if err != nil {
		return nil, err
	}
	cfg := backfill.Config{Rollups: &backfill.Rollups{From: e.view(ctx).Shown}, Bounds: backfill.Bounds{Until: max(until, 1)}}
	const bucket = int64(rollup.Day) // the longest one, in which the samples are found
	cfg.Written = func(mint, maxt int64) { e.cfg.WrittenBetween(mint-bucket, maxt+bucket) }
	return e.newHistory(ctx, cfg, func(_ context.Context, write func() error) error { return write() })
}

// historyBounds returns the times of samples that History takes now, and the end of the last day that is closed.
func (e *Engine) historyBounds(ctx context.Context) (b backfill.Bounds, closed int64, err error) {
	live := e.cfg.timeBound(e.cfg.Timeline(e.cfg.Now()))
	if e.cfg.Days != nil {
		if closed, err = e.cfg.Days.Closed(ctx); err != nil {
			return b, 0, err
		}
	}
	b = backfill.Bounds{From: live.cut, Until: live.t}
	if closed > 0 {
		b.From = max(b.From, closed+1)
	}
	return b, closed, nil
}

// History returns what writes samples of earlier times beside what senders write, whose samples win. It takes those times that a
// sender may write now. Each batch is refused, as a write is, while there is no room, and if a day of its samples may have been closed
// since History was called: then a new Writer leaves these out.
func (e *Engine) History(ctx context.Context) (*backfill.Writer, error) {
	bounds, closed, err := e.historyBounds(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := e.cfg.Timeline(e.cfg.Now()).Rules(ctx, e.cfg.Schema.Tenant(), func() int64 { return bounds.From })
	if err != nil {
		return nil, err
	}
	// Series that are alive have a sample of the last day, which CURRENT has then. What ended before costs no mutations there.
	cfg := backfill.Config{Bounds: bounds, Written: e.cfg.WrittenBetween, Current: e.noteCurrent, CurrentFrom: e.cfg.Now().Add(-CurrentAge).UnixMilli(), From: func(ls labels.Labels) int64 {
		before, _ := rules.Refused(ls)
		return before
	}}
	return e.newHistory(ctx, cfg, func(ctx context.Context, write func() error) error {
		if e.cfg.Days == nil {
			return write()
		}
		return e.cfg.Days.WriteOpen(ctx, closed, write)
	})
}

// newHistory returns what writes history as around lets it.
func (e *Engine) newHistory(ctx context.Context, cfg backfill.Config, around func(ctx context.Context, write func() error) error) (w *backfill.Writer, err error) {
	if cfg.Pending, err = e.cfg.Deletions.Pending(ctx); err != nil {
		return nil, err
	}
	cfg.Store, cfg.Index, cfg.Schema = bucketstore.Retrying(e.rows), e.index, e.cfg.Schema
	cfg.Around = func(ctx context.Context, write func() error) error {
		if err := e.cfg.Admit(); err != nil {
			return err
		}
		defer e.cfg.Deletions.Begin()()
		return around(ctx, write)
	}
	return backfill.New(cfg), nil
}

// Shown returns the times before which samples, and rollups of a resolution, are not shown, of any series, in milliseconds. It is timeline.Never of a resolution that is not kept.
func (e *Engine) Shown(ctx context.Context) [rollup.NumResolutions]int64 { return e.view(ctx).Shown }

// Stored is that of reader.Reader.
func (e *Engine) Stored(ctx context.Context, q reader.StoredQuery, fn func(reader.Stored) error) error {
	return e.reader.Stored(ctx, q, fn)
}

// StoredCurrent calls fn with the current sample of each series that the selectors of q match, if it is in the range of q. They are in no order.
func (e *Engine) StoredCurrent(ctx context.Context, q reader.StoredQuery, fn func(reader.Stored) error) error {
	_, err := e.Inventory(ctx, q.Selectors, math.MaxInt, func(s current.Sample) error {
		if s.T < q.Start || s.T >= q.Limit {
			return nil
		}
		c := bucketstore.Cell{Family: series.FamilyCurrent, Time: s.T, Value: cell.Append(nil, cell.Value{Float: s.V, Histogram: s.H, FloatHistogram: s.FH})}
		return fn(reader.Stored{Labels: s.Labels, Cells: []reader.StoredCell{{Cell: c}}})
	})
	return err
}

// CheckLabels returns what is wrong with the labels of a series for any protocol, or nil.
func CheckLabels(ls labels.Labels) error {
	_, err := checkLabels(ls)
	return err
}
