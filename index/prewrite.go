package index

import (
	"bytes"
	"context"
	"errors"

	"github.com/cespare/xxhash/v2"

	"github.com/promtable/promtable/series"
)

// maxPrewrites is how many series wait to be prewritten. Further ones are written at
// once.
const maxPrewrites = 20_000

// An prewriteQueue holds series that are due in the next index period. They come one
// by one, hours before they are needed, so they wait until many can be written
// together. A lost queue does no harm: the first sample in a period writes what is
// missing. The lock of the writer is held around its methods.
type prewriteQueue struct {
	waiting []need
	// queued are those that wait or are being written.
	queued map[rowID]struct{}
}

// enqueue adds a copy of n, unless it is there. It returns false if the queue is full.
func (q *prewriteQueue) enqueue(n need) bool {
	if _, ok := q.queued[n.rowID]; ok {
		return true
	}
	if len(q.queued) >= maxPrewrites {
		return false
	}
	n.entry = &Entry{Key: bytes.Clone(n.entry.Key), Labels: n.entry.Labels.Copy(), T: n.entry.T}
	q.queued[n.rowID] = struct{}{}
	q.waiting = append(q.waiting, n)
	return true
}

// Prewrite writes the series that calls of Write have queued for the period after
// theirs, but for those that Limits refuse. The caller repeats it at an interval. After an
// error the rest stays queued for the next call.
func (x *Index) Prewrite(ctx context.Context) error {
	for {
		needs := x.writer.takePrewrite()
		if len(needs) == 0 {
			return nil
		}
		_, err := x.write(ctx, needs)
		if refused := (*RefusedError)(nil); errors.As(err, &refused) {
			err = nil
		}
		x.writer.finishPrewrite(needs, err)
		if err != nil {
			return err
		}
	}
}

// takePrewrite takes what waits.
func (w *writer) takePrewrite() (needs []need) {
	w.mu.Lock()
	defer w.mu.Unlock()
	needs, w.prewrites.waiting = w.prewrites.waiting, nil
	return needs
}

// finishPrewrite says that what was taken is written, or not: then it waits again.
func (w *writer) finishPrewrite(needs []need, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.prewrites.waiting = append(w.prewrites.waiting, needs...)
		return
	}
	for _, n := range needs {
		delete(w.prewrites.queued, n.rowID)
	}
}

// PrewriteFrom returns from where in an index period on, in milliseconds, a sample
// needs its series in the next period, too: somewhere in the last eighth of the
// period. The point depends on the key of the series, so that the turn of a period
// brings no burst. There always is a next period: series.MaxTime lies in the first
// half of the last one.
func PrewriteFrom(seriesKey []byte) int64 {
	const eighth = series.IndexPeriod / 8
	return series.IndexPeriod - eighth + int64(xxhash.Sum64(seriesKey)%uint64(eighth))
}

// prewrites says whether e is due in the period after its own, too.
func prewrites(e *Entry) bool {
	const eighth = series.IndexPeriod / 8
	at := e.T - series.PeriodOf(e.T)
	return at >= series.IndexPeriod-eighth && at >= PrewriteFrom(e.Key)
}
