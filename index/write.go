package index

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

// An Entry asks that a series be found at a time.
type Entry struct {
	// Key is the series key.
	Key []byte
	// Labels are those that Key was made of.
	Labels labels.Labels
	// T is in milliseconds, in [0, series.MaxTime].
	T int64
}

// need is a series in an index period that a call of Write needs to be there.
type need struct {
	id     id
	entry  *Entry
	period int64
	// done is closed when another call that writes it has ended. It is nil if no other
	// call writes it.
	done <-chan struct{}
}

// Write sees to it that every entry is found in its index period. When it returns
// without an error all rows are durable. When the last eighth of the period has
// come far enough the series is noted down for the next one, too: see WriteAhead.
// A series that was written before costs no row. Write waits for a series that another
// call is writing. It does not keep the entries.
func (x *Index) Write(ctx context.Context, entries []Entry) error {
	return x.write(ctx, x.writer.missing(entries))
}

func (x *Index) write(ctx context.Context, missing []need) error {
	for len(missing) > 0 {
		others, err := x.writeReserved(ctx, missing)
		if err != nil {
			return err
		}
		if err := await(ctx, others); err != nil {
			return err
		}
		// What the others wrote is remembered now; what failed is ours to write.
		missing = others
	}
	return nil
}

// writeReserved writes the needs that no other call is writing, and returns the
// others.
func (x *Index) writeReserved(ctx context.Context, missing []need) (others []need, err error) {
	w := &x.writer
	done := make(chan struct{})
	mine, others := w.reserve(missing, done)
	defer w.release(mine, done)
	return others, x.writeNeeds(ctx, mine)
}

// await waits until all calls that write needs have ended, with or without an error.
func await(ctx context.Context, needs []need) error {
	for _, n := range needs {
		select {
		case <-n.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for index rows: %w", context.Cause(ctx))
		}
	}
	return nil
}

// batchBytes is how many bytes of keys are written at once. Every label of a
// series repeats its key, so that rows can be far larger than what they are
// made of.
const batchBytes = 4 << 20

// writeNeeds writes the rows of those needs that are not in the table, a batch
// at a time.
func (x *Index) writeNeeds(ctx context.Context, needs []need) error {
	needs, err := x.dropWritten(ctx, needs)
	slices.SortFunc(needs, compareNeeds)
	for err == nil && len(needs) > 0 {
		n := countBatch(needs)
		err = x.writeBatch(ctx, needs[:n])
		needs = needs[n:]
	}
	return err
}

// compareNeeds orders by period, then by series key.
func compareNeeds(a, b need) int {
	return cmp.Or(cmp.Compare(a.period, b.period), bytes.Compare(a.entry.Key, b.entry.Key))
}

// countBatch returns how many of needs make a batch, at least one.
func countBatch(needs []need) int {
	size := 0
	for i, n := range needs {
		if size += n.entry.Labels.Len() * len(n.entry.Key); size > batchBytes && i > 0 {
			return i
		}
	}
	return len(needs)
}

// writeBatch writes all rows of needs, and the marks when they are durable or with
// them.
func (x *Index) writeBatch(ctx context.Context, needs []need) error {
	b := x.batches.Get().(*batch)
	defer func() {
		b.reset()
		x.batches.Put(b)
	}()
	x.fillBatch(b, needs)
	if len(b.rows) > 0 {
		if err := x.rows.PutRows(ctx, b.rows); err != nil {
			return fmt.Errorf("write index rows: %w", err)
		}
	}
	if len(b.marks) > 0 {
		if err := x.rows.PutRows(ctx, b.marks); err != nil {
			return fmt.Errorf("write index marks: %w", err)
		}
	}
	x.writer.remember(needs, b.texts)
	return nil
}

// dropWritten leaves out the needs whose commit mark is in the table.
func (x *Index) dropWritten(ctx context.Context, needs []need) ([]need, error) {
	if err := x.refill(ctx, needs); err != nil {
		return nil, err
	}
	w := &x.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(needs), func(n need) bool { return w.written.has(n.id) }), nil
}

const (
	// refillRows bounds the commit marks that are read at once: a second of work.
	// Whatever is not read is written again, which is harmless.
	refillRows = 500_000
	// refillShare is which part of the time that a call has left it may spend
	// on reading marks.
	refillShare = 3
)

// refill reads the commit marks of the metric names of needs, once for each
// name and period, as far as time and refillRows allow. A call that comes while
// another one reads waits for it: the other may read its names.
func (x *Index) refill(ctx context.Context, needs []need) error {
	if ranges, _ := x.unread(needs); len(ranges) == 0 {
		return nil
	}
	w := &x.writer
	select {
	case w.refilling <- struct{}{}:
		defer func() { <-w.refilling }()
	case <-ctx.Done():
		return fmt.Errorf("wait for index marks: %w", context.Cause(ctx))
	}
	ranges, names := x.unread(needs)
	if len(ranges) == 0 {
		return nil
	}
	reading, cancel := withShare(ctx)
	defer cancel()
	err := x.rows.ScanRows(reading, ranges, min(refillRows, x.writer.written.max), x.rememberMark)
	if outOfTime := reading.Err() != nil && ctx.Err() == nil; err != nil && !outOfTime {
		return fmt.Errorf("read index marks: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		w.marksRead.add(name)
	}
	return nil
}

// withShare returns a context for a part of the time that ctx has left.
func withShare(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/refillShare)
}

// unread returns the ranges of commit marks of the metric names of needs that
// were not read yet, ascending, and the ids of those names and periods.
func (x *Index) unread(needs []need) (ranges []series.RowRange, names []id) {
	w := &x.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[id]bool)
	for _, n := range needs {
		prefix := x.schema.AppendPostingPrefix(nil, labels.MetricName, n.entry.Labels.Get(labels.MetricName), n.period)
		i := w.hash.of(prefix)
		if seen[i] || w.marksRead.has(i) {
			continue
		}
		seen[i] = true
		names = append(names, i)
		ranges = append(ranges, series.PrefixRange(prefix))
	}
	sortRanges(ranges)
	return ranges, names
}

// rememberMark adds the series of one commit mark to those written.
func (x *Index) rememberMark(key, _ []byte) error {
	period, seriesKey, err := x.schema.ParsePosting(key)
	if err != nil {
		return err
	}
	w := &x.writer
	i := w.hash.inPeriod(w.hash.of(seriesKey), period)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written.add(i)
	return nil
}

// periodEnd is the cell time of the rows of n, in milliseconds: its period ends then.
func (n need) periodEnd() int64 { return n.period + series.IndexPeriod }
