package index

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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
	rowID
	entry *Entry
	// done is closed when another call that writes it has ended. It is nil if no other
	// call writes it.
	done <-chan struct{}
}

// Write sees to it that every entry is found in its index period. When it returns
// without an error all rows are durable. When the last eighth of the period has
// come far enough the series is noted down for the next one, too: see Prewrite.
// A series that was written before costs no row. Write waits for a series that another
// call is writing. It does not keep the entries. A *RefusedError has what Limits refuse,
// and the other entries are found.
func (x *Index) Write(ctx context.Context, entries []Entry) error {
	_, err := x.WriteCounted(ctx, entries)
	return err
}

// WriteCounted is Write, and returns how many rows it has written.
func (x *Index) WriteCounted(ctx context.Context, entries []Entry) (rows int, err error) {
	return x.write(ctx, x.writer.missing(entries))
}

func (x *Index) write(ctx context.Context, missing []need) (rows int, err error) {
	var refused []Refused
	for len(missing) > 0 {
		written, others, err := x.writeReserved(ctx, missing, &refused)
		rows += written
		if err != nil {
			return rows, err
		}
		if err := await(ctx, others); err != nil {
			return rows, err
		}
		// What the others wrote is remembered now; what failed is ours to write.
		missing = others
	}
	if len(refused) > 0 {
		return rows, &RefusedError{refused}
	}
	return rows, nil
}

// writeReserved writes the needs that no other call is writing, and returns how many rows
// that were, and the others. What is refused is added to refused.
func (x *Index) writeReserved(ctx context.Context, missing []need, refused *[]Refused) (rows int, others []need, err error) {
	w := &x.writer
	done := make(chan struct{})
	mine, others := w.reserve(missing, done)
	defer w.release(mine, done)
	rows, err = x.writeNeeds(ctx, mine, refused)
	return rows, others, err
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

// writeNeeds writes the rows of those needs whose commit mark is not in the table. What
// has become durable is remembered, also after an error. What Limits refuse is added to refused.
func (x *Index) writeNeeds(ctx context.Context, needs []need, refused *[]Refused) (rows int, err error) {
	slices.SortFunc(needs, compareNeeds)
	for some := range slices.Chunk(needs, lookupKeys) {
		absent, err := x.lookUp(ctx, some)
		if err != nil {
			return rows, err
		}
		absent, over, err := x.admit(ctx, some, absent)
		if err != nil {
			return rows, err
		}
		*refused = append(*refused, over...)
		for len(absent) > 0 {
			n := countBatch(absent)
			written, err := x.writeBatch(ctx, absent[:n])
			if err != nil {
				x.notWritten(absent)
				return rows, err
			}
			rows += written
			absent = absent[n:]
		}
	}
	return rows, nil
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
// them. It returns how many these are.
func (x *Index) writeBatch(ctx context.Context, needs []need) (rows int, err error) {
	b := x.batches.Get().(*batch)
	defer func() {
		b.reset()
		x.batches.Put(b)
	}()
	x.fillBatch(b, needs)
	if err := x.putRows(ctx, b.rows); err != nil {
		return 0, fmt.Errorf("write index rows: %w", err)
	}
	if err := x.putRows(ctx, b.marks); err != nil {
		return 0, fmt.Errorf("write index marks: %w", err)
	}
	x.memory.add(needs)
	x.tell(needs)
	x.writer.remember(needs, b.texts)
	return len(b.rows) + len(b.marks), nil
}

// tell calls Config.Indexed.
func (x *Index) tell(needs []need) {
	if x.indexed == nil {
		return
	}
	for _, n := range needs {
		x.indexed(n.period, n.entry.Key)
	}
}

// putRows writes rows, if there are any.
func (x *Index) putRows(ctx context.Context, rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	err := x.rows.PutRows(ctx, rows)
	if err != nil {
		x.memory.forget()
		return err
	}
	x.metrics.writtenRows.Add(float64(len(rows)))
	return nil
}

// lookupKeys is how many commit marks a request reads at most.
const lookupKeys = 2000

// lookUp finds out which needs have a commit mark in the table. It remembers those, and
// returns the others in the same order.
func (x *Index) lookUp(ctx context.Context, needs []need) (absent []need, err error) {
	defer func() {
		if err != nil {
			x.metrics.failed.Add(float64(len(needs)))
			err = fmt.Errorf("read index marks: %w", err)
		}
	}()
	if err := x.readMarks(ctx, needs); err != nil {
		return nil, err
	}
	unknown, absent := x.writer.divide(needs)
	if len(unknown) == 0 {
		return absent, nil
	}
	marks, err := x.marksOf(ctx, unknown)
	if err != nil {
		return nil, err
	}
	var found []need
	for _, n := range unknown {
		if _, ok := marks[n.rowID]; ok {
			found = append(found, n)
		} else {
			absent = append(absent, n)
		}
	}
	x.metrics.found.Add(float64(len(found)))
	x.metrics.absent.Add(float64(len(unknown) - len(found)))
	x.memory.addFound(found)
	x.tell(found)
	x.writer.remember(found, nil)
	return absent, nil
}

// marksOf returns which of needs have a commit mark in the table.
func (x *Index) marksOf(ctx context.Context, needs []need) (map[rowID]struct{}, error) {
	marks := make(map[rowID]struct{})
	if len(needs) == 0 {
		return marks, nil
	}
	ranges := make([]series.RowRange, len(needs))
	for i, n := range needs {
		name := n.entry.Labels.Get(labels.MetricName)
		mark := append(x.schema.AppendPostingPrefix(nil, labels.MetricName, name, n.period), n.entry.Key...)
		ranges[i] = series.SingleRow(mark)
	}
	sortRanges(ranges)
	err := x.rows.ScanRows(ctx, ranges, 0, func(key, _ []byte) error {
		period, seriesKey, err := x.schema.ParsePosting(key)
		marks[rowID{period, x.writer.hash.of(seriesKey)}] = struct{}{}
		return err
	})
	return marks, err
}

// readMarks remembers all marks of the periods of needs if no other process writes and
// many series of the period were looked up: a point read costs some ten times as much as
// the next row.
func (x *Index) readMarks(ctx context.Context, needs []need) error {
	w := &x.writer
	if !x.memory.exclusive || !w.reading.TryLock() { // calls that meet another one look up
		return nil
	}
	defer w.reading.Unlock()
	for _, period := range w.beginReading(needs) {
		err := x.eachMark(ctx, period, 0, func(seriesKey []byte) error {
			if !w.addMark(rowID{period, w.hash.of(seriesKey)}) {
				return errEnough
			}
			return nil
		})
		w.endReading(period, err)
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	return nil
}

// periodEnd is the cell time of the rows of n, in milliseconds: its period ends then.
func (n need) periodEnd() int64 { return n.period + series.IndexPeriod }
