package bigtable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/bigtable"
	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/bucketstore"
)

// The bounds of a batch with more than one row. ApplyBulk itself does not bound bytes.
const (
	batchRows = 5000
	batchSize = 2 << 20
)

// parallelBatches is how many batches of one Apply are sent at the same time.
const parallelBatches = 4

// Apply implements bucketstore.Store. Rows that Bigtable would refuse for their size fail
// without being sent; all others are sent in batches.
//
// The client retries a batch, or its failed rows, after transient errors: Aborted,
// Unavailable, DeadlineExceeded and broken streams. Cell times make that harmless, and an Add
// may count again. Other errors, among them Internal, are returned, and so is ResourceExhausted, as a
// *bucketstore.OverloadError if the server says when to come back.
func (s *Store) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	t, err := s.table(table)
	if err != nil {
		return err
	}
	if err := t.checkOps(muts); err != nil {
		return err
	}
	var failed rowErrors
	a := s.newApplier(ctx, table)
	keys := keyStrings(muts)
	for i, key := range keys {
		size, err := checkMutation(&muts[i])
		if err != nil {
			failed.addRow(i, fmt.Errorf("%w: %w", bucketstore.ErrRefused, err))
			continue
		}
		if !changes(muts[i].Ops) { // Bigtable refuses a row without operations
			continue
		}
		a.addRow(i, key, newMutation(muts[i].Ops), size)
	}
	if err := a.finish(failed.addRow); err != nil {
		return fmt.Errorf("apply %d rows to %s: %w", len(muts), t.name, err)
	}
	return failed.err()
}

// keyStrings returns the row keys. They share one allocation.
func keyStrings(muts []bucketstore.Mutation) []string {
	size := 0
	for i := range muts {
		size += len(muts[i].Key)
	}
	var b strings.Builder
	b.Grow(size)
	for i := range muts {
		b.Write(muts[i].Key)
	}
	all, keys := b.String(), make([]string, len(muts))
	for i := range muts {
		n := len(muts[i].Key)
		keys[i], all = all[:n], all[n:]
	}
	return keys
}

// A batch is the rows of one call of ApplyBulk.
type batch struct {
	keys []string
	muts []*bigtable.Mutation
	// rows are the positions of the rows in the Apply.
	rows []int
	// size estimates the bytes of the request. It also bounds the operations, of which a
	// request may have 100,000: each counts for opOverhead bytes or more.
	size int

	// rowErrs are the errors of rows, nil where a row is stored; nil if all are.
	rowErrs []error
	// err is the error of the whole batch; any of its rows may be stored.
	err error
}

// hasRoom says whether a row of about this size fits.
func (b *batch) hasRoom(size int) bool {
	return len(b.rows) == 0 || len(b.rows) < batchRows && b.size+size <= batchSize
}

// unconfirmed returns how many rows may not be stored.
func (b *batch) unconfirmed() (n int) {
	if b.err != nil {
		return len(b.rows)
	}
	for _, err := range b.rowErrs {
		if err != nil {
			n++
		}
	}
	return n
}

// batchPool recycles the slices of batches.
var batchPool = sync.Pool{New: func() any { return new(batch) }}

// recycle returns b to the pool, without what it refers to.
func (b *batch) recycle() {
	clear(b.keys)
	clear(b.muts)
	*b = batch{keys: b.keys[:0], muts: b.muts[:0], rows: b.rows[:0]}
	batchPool.Put(b)
}

// An applier sends the batches of one Apply while it builds the next ones. It is not safe
// for concurrent use.
type applier struct {
	ctx     context.Context
	store   *Store
	table   bucketstore.Table
	sending errgroup.Group
	// open is the batch that is being built, or nil.
	open    *batch
	batches []*batch
}

func (s *Store) newApplier(ctx context.Context, table bucketstore.Table) *applier {
	a := &applier{ctx: ctx, store: s, table: table}
	a.sending.SetLimit(parallelBatches - 1) // finish sends the last one itself
	return a
}

// addRow adds the row at this position of the Apply. It may wait until a batch is sent.
func (a *applier) addRow(row int, key string, mut *bigtable.Mutation, size int) {
	if a.open != nil && !a.open.hasRoom(size) {
		full := a.open
		a.sending.Go(func() error {
			a.send(full)
			return nil
		})
		a.open = nil
	}
	if a.open == nil {
		a.open = batchPool.Get().(*batch)
		a.batches = append(a.batches, a.open)
	}
	b := a.open
	b.keys, b.muts, b.rows = append(b.keys, key), append(b.muts, mut), append(b.rows, row)
	b.size += size
}

// send sends a batch and counts it.
func (a *applier) send(b *batch) {
	ctx, cancel := withWallDeadline(a.ctx, a.store.callTimeout)
	defer cancel()
	ctx = withCall(ctx, a.table, a.store.callTimeout)
	var err error
	b.rowErrs, err = a.store.tables[a.table].rows.ApplyBulk(ctx, b.keys, b.muts)
	b.err = callError(ctx, err)
	a.store.metrics.addMutations(a.table, opMutate, len(b.rows), b.unconfirmed(), b.size)
}

// finish sends the last batch and waits for all answers. It passes rows that may not be
// stored to failed. If no row is confirmed it returns the error of the batches; if the
// context has ended, that of one batch. Any row may be stored then.
func (a *applier) finish(failed func(row int, err error)) error {
	if a.open != nil {
		a.send(a.open)
	}
	a.sending.Wait()
	err := a.batchError()
	for _, b := range a.batches {
		for i, row := range b.rows {
			switch {
			case err != nil:
			case b.err != nil:
				failed(row, b.err)
			case b.rowErrs != nil && b.rowErrs[i] != nil:
				failed(row, refusal(b.rowErrs[i]))
			}
		}
		b.recycle()
	}
	return err
}

// batchError returns the error of the first batch that failed as a whole, if all batches
// did or the context has ended.
func (a *applier) batchError() error {
	var first error
	broken := 0
	for _, b := range a.batches {
		if b.err == nil {
			continue
		}
		broken++
		if first == nil {
			first = b.err
		}
	}
	ended := a.ctx.Err()
	switch {
	case broken == 0 || ended == nil && broken < len(a.batches):
		return nil
	case ended != nil && !errors.Is(first, ended):
		return fmt.Errorf("%w (%w)", ended, first)
	}
	return first
}

// withWallDeadline ends ctx after timeout or at its own deadline, by the wall clock. The
// monotonic clock stands still while a machine is suspended. A deadline without its
// monotonic part passes meanwhile, and no request is sent after it.
func withWallDeadline(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	deadline := time.Now().Add(timeout)
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(deadline) {
		deadline = earlier
	}
	return context.WithDeadline(ctx, deadline.Round(0))
}

// rowErrors gathers the errors of rows.
type rowErrors map[int]error

// addRow adds the error of a row.
func (r *rowErrors) addRow(row int, err error) {
	if *r == nil {
		*r = make(rowErrors)
	}
	(*r)[row] = err
}

// err returns a *bucketstore.RowsError, or nil if there is no error.
func (r rowErrors) err() error {
	if len(r) == 0 {
		return nil
	}
	return &bucketstore.RowsError{Failed: r}
}
