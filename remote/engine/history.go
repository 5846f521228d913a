package engine

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine/backfill"
)

// Days are the days of which samples are taken.
type Days interface {
	// Closed returns the end of the last day of which none is taken any more, in milliseconds. 0 is none.
	Closed(ctx context.Context) (int64, error)
	// WriteOpen calls write, which stores samples after closed, and fails if days after it were closed meanwhile.
	WriteOpen(ctx context.Context, closed int64, write func() error) error
}

// HistoryBounds returns the times of samples that History takes now.
func (e *Engine) HistoryBounds(ctx context.Context) (b backfill.Bounds, err error) {
	b, _, err = e.historyBounds(ctx)
	return b, err
}

func (e *Engine) historyBounds(ctx context.Context) (b backfill.Bounds, closed int64, err error) {
	live := e.cfg.timeBound(e.cfg.Now())
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
	return backfill.New(backfill.Config{
		Store: bucketstore.Patient(e.rows), Index: e.index, Schema: e.cfg.Schema, Bounds: bounds,
		Around: func(ctx context.Context, write func() error) error {
			if err := e.cfg.Admit(); err != nil {
				return err
			}
			defer e.cfg.Deletions.Begin()()
			if e.cfg.Changed != nil {
				defer e.cfg.Changed()
			}
			if e.cfg.Days == nil {
				return write()
			}
			return e.cfg.Days.WriteOpen(ctx, closed, write)
		},
	}), nil
}

// CheckLabels returns what is wrong with the labels of a series for any protocol, or nil.
func CheckLabels(ls labels.Labels) error {
	_, err := checkLabels(ls)
	return err
}
