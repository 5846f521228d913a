package buffer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/series"
)

// A failingRow is a row of the retry queue.
type failingRow struct {
	bucketstore.FailingRow
	ops  []bucketstore.Op
	file *rowFile
	// pause is the time between two tries; next is when the next one is due.
	pause time.Duration
	next  time.Time
}

func (r *failingRow) size() (bytes int) {
	bytes = len(r.Key)
	for i := range r.ops {
		bytes += len(r.ops[i].Qualifier) + len(r.ops[i].Value)
	}
	return bytes
}

// A retryQueue holds the rows that fail. Each one also stands in a row file, so that the
// log need not keep their samples, and readers find them here. It is safe for concurrent
// use.
type retryQueue struct {
	dir     dirState
	metrics *metrics

	mu    sync.Mutex
	rows  []*failingRow
	bytes int
	// nextFile is the number of the next row file.
	nextFile uint64
}

const (
	// maxRetryBytes bounds the retry queue. Beyond, all writes to the store wait for
	// the failing rows.
	maxRetryBytes = 64 << 20
	// minRetryPause and maxRetryPause bound the pause between two tries of a row.
	minRetryPause = time.Second
	maxRetryPause = 5 * time.Minute
)

// load reads the row files of the directory.
func (q *retryQueue) load(now time.Time) error {
	for _, head := range q.dir.rowFiles {
		rows, err := readRowFile(q.dir, head.segment)
		if err != nil {
			return err
		}
		file := &rowFile{number: head.segment}
		for i := range rows {
			rows[i].Since = now
			q.add(&rows[i], file)
		}
		q.nextFile = head.segment + 1
	}
	q.count()
	return nil
}

// add adds a row that stands in file, with mu held or before others use q.
func (q *retryQueue) add(row *failingRow, file *rowFile) {
	row.file, row.pause, row.next = file, minRetryPause, time.Now().Add(minRetryPause)
	file.rows++
	q.rows = append(q.rows, row)
	q.bytes += row.size()
}

// put adds rows, and makes them durable first. It fails if q is full.
func (q *retryQueue) put(rows []*failingRow) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := q.bytes
	for _, row := range rows {
		size += row.size()
	}
	if size > maxRetryBytes {
		return errRetryFull
	}
	file := &rowFile{number: q.nextFile}
	if err := writeRowFile(q.dir, file.number, rows); err != nil {
		return err
	}
	q.nextFile++
	for _, row := range rows {
		q.add(row, file)
	}
	q.count()
	return nil
}

var errRetryFull = errors.New("too many rows fail to be set aside")

// tried notes what an Apply of these rows has returned. Stored rows are removed, and the files in
// which no others stand.
func (q *retryQueue) tried(rows []*failingRow, err error) error {
	failed := bucketstore.FailedRows(err, len(rows))
	q.mu.Lock()
	defer q.mu.Unlock()
	stored := make(map[*failingRow]bool)
	var files []string
	for i, row := range rows {
		rowErr := err
		if failed != nil {
			rowErr = failed[i]
		}
		if rowErr != nil {
			row.Err, row.Refused = rowErr, len(rows) == 1 && errors.Is(rowErr, bucketstore.ErrRefused)
			row.pause = min(2*row.pause, maxRetryPause)
			row.next = time.Now().Add(row.pause)
			continue
		}
		stored[row] = true
		q.bytes -= row.size()
		if row.file.rows--; row.file.rows == 0 {
			files = append(files, rowFileName(row.file.number))
		}
	}
	q.rows = slices.DeleteFunc(q.rows, func(r *failingRow) bool { return stored[r] })
	q.count()
	if len(files) == 0 {
		return nil
	}
	return durable.Remove(q.dir, files...)
}

// count updates the metric, with mu held.
func (q *retryQueue) count() {
	refused := 0
	for _, row := range q.rows {
		if row.Refused {
			refused++
		}
	}
	q.metrics.failingRows.WithLabelValues(rowRefused).Set(float64(refused))
	q.metrics.failingRows.WithLabelValues(rowRetried).Set(float64(len(q.rows) - refused))
}

// due returns the rows to try again at now, those of one table side by side.
func (q *retryQueue) due(now time.Time) (due []*failingRow) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, row := range q.rows {
		if !row.Refused && !row.next.After(now) {
			due = append(due, row)
		}
	}
	slices.SortStableFunc(due, func(a, b *failingRow) int { return int(a.Table) - int(b.Table) })
	return due
}

// FailingRows returns the rows that the store did not take, while it took others. They are
// durable, and readers see them.
func (b *Buffer) FailingRows() (rows []bucketstore.FailingRow) {
	b.retries.mu.Lock()
	defer b.retries.mu.Unlock()
	for _, row := range b.retries.rows {
		rows = append(rows, row.FailingRow)
	}
	return rows
}

// oldest returns the time of the first sample in rows of METRIC, in milliseconds, or MaxInt64.
func (q *retryQueue) oldest(schema series.Schema) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	oldest := int64(math.MaxInt64)
	for _, row := range q.rows {
		if row.Table != bucketstore.Metric {
			continue
		}
		_, base, err := schema.ParseRowKey(nil, row.Key)
		if err != nil {
			return 0 // any time
		}
		for _, op := range row.ops {
			oldest = min(oldest, base+int64(binary.BigEndian.Uint32(op.Qualifier)))
		}
	}
	return oldest
}

// addTo adds the chunks of METRIC that wait in these ranges to rows. Both are ascending.
func (q *retryQueue) addTo(rows []openRow, ranges []series.RowRange) []openRow {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, row := range q.rows {
		if row.Table != bucketstore.Metric || !contains(ranges, row.Key) {
			continue
		}
		i, ok := slices.BinarySearchFunc(rows, row.Key, func(r openRow, key []byte) int { return bytes.Compare(r.key, key) })
		if !ok {
			rows = slices.Insert(rows, i, openRow{key: row.Key})
		}
		for _, op := range row.ops {
			rows[i].cells = append(rows[i].cells, bucketstore.Cell{Family: op.Family, Qualifier: op.Qualifier, Time: op.Time, Value: op.Value})
		}
	}
	return rows
}

// storeRows writes rows to the store. If it takes some and not others, the others are set
// aside: they are durable, and the error is nil. Rows that an overloaded store did not take
// are not set aside, and all are written again.
func (b *Buffer) storeRows(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if err := b.mayStore(ctx); err != nil {
		return err
	}
	err := b.Store.Apply(ctx, table, muts)
	if failed := bucketstore.FailedRows(err, len(muts)); failed != nil && bucketstore.RetryAfter(err) == 0 {
		return b.setAside(table, muts, failed, err)
	}
	return err
}

// setAside moves rows that failed, by their position in muts, to the retry queue. It
// returns cause if that is not possible.
func (b *Buffer) setAside(table bucketstore.Table, muts []bucketstore.Mutation, failed map[int]error, cause error) error {
	now := b.cfg.Now()
	var rows []*failingRow
	for i, err := range failed {
		rows = append(rows, &failingRow{FailingRow: bucketstore.FailingRow{Table: table, Key: muts[i].Key, Since: now, Err: err}, ops: muts[i].Ops})
	}
	if err := b.retries.put(rows); err != nil {
		return errors.Join(cause, err)
	}
	b.metrics.sealFailures.Inc()
	level.Warn(b.cfg.Logger).Log("msg", "rows not stored; they are set aside and tried again", "table", table, "rows", len(rows), "first", rows[0].Key, "err", cause)
	return nil
}

// retryRows tries rows once. One that the store refuses may have spoilt the request for
// others: each such row is tried alone, and only then given up.
func (b *Buffer) retryRows(ctx context.Context, rows []*failingRow) {
	isRefused := func(r *failingRow) bool { return errors.Is(r.Err, bucketstore.ErrRefused) }
	for len(rows) > 0 && ctx.Err() == nil {
		n, size := 1, rows[0].size()
		for !isRefused(rows[0]) && n < len(rows) && !isRefused(rows[n]) && rows[n].Table == rows[0].Table && size < maxSealBytes {
			size += rows[n].size()
			n++
		}
		b.retryBatch(ctx, rows[:n])
		rows = rows[n:]
	}
}

// retryBatch tries rows of one table.
func (b *Buffer) retryBatch(ctx context.Context, rows []*failingRow) {
	muts := make([]bucketstore.Mutation, len(rows))
	for i, row := range rows {
		muts[i] = bucketstore.Mutation{Key: row.Key, Ops: row.ops}
	}
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	err := b.mayStore(ctx)
	if err == nil {
		err = b.Store.Apply(ctx, rows[0].Table, muts)
	}
	if err := b.retries.tried(rows, err); err != nil {
		level.Warn(b.cfg.Logger).Log("msg", "a file of stored rows is not removed", "err", err)
	}
}
