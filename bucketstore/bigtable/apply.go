package bigtable

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/bigtable"
	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/bucketstore"
)

// The client sends what it is given in one request, or in as many as have
// 100,000 operations each. It knows no bound on bytes.
const (
	batchRows = 5000
	batchSize = 2 << 20
	// parallelBatches is how many batches of one Apply are on their way at once.
	parallelBatches = 4
)

// A batch is the rows of one request: positions in the mutations of an Apply.
type batch struct {
	rows []int
	// errs are the errors of rows, or nil if there are none.
	errs []error
	// err is the error of the whole request: nobody knows which rows are stored.
	err error
}

// Apply implements bucketstore.Store. Rows that Bigtable would refuse for their
// size fail without being sent; all others are sent in batches. The client sends
// a batch again, or what failed of it, while it finds the errors transient
// (Aborted, Unavailable, DeadlineExceeded, broken streams, and what the server
// says to retry); the times of cells make that harmless. Errors that it does
// not retry, among them ResourceExhausted and Internal, are returned.
func (s *Store) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	t, err := s.table(table)
	if err != nil {
		return err
	}
	if err := t.checkFamilies(muts); err != nil {
		return err
	}
	batches, failed := cut(muts)
	var g errgroup.Group
	g.SetLimit(parallelBatches)
	for i := range batches {
		g.Go(func() error {
			s.send(ctx, table, muts, &batches[i])
			return nil
		})
	}
	g.Wait()
	if err := requestError(ctx, batches); err != nil {
		return fmt.Errorf("apply %d rows to %s: %w", len(muts), t.name, err)
	}
	return rowsError(batches, failed)
}

// cut divides muts into batches, leaving out rows that change nothing and rows
// that must not be sent, which it returns by position.
func cut(muts []bucketstore.Mutation) (batches []batch, failed map[int]error) {
	size := 0
	for i := range muts {
		n, err := checkMutation(&muts[i])
		if err != nil {
			if failed == nil {
				failed = make(map[int]error)
			}
			failed[i] = err
			continue
		}
		if !changes(muts[i].Ops) {
			continue
		}
		last := len(batches) - 1
		if last < 0 || len(batches[last].rows) == batchRows || size+n > batchSize {
			batches = append(batches, batch{rows: make([]int, 0, min(batchRows, len(muts)-i))})
			size, last = 0, last+1
		}
		batches[last].rows = append(batches[last].rows, i)
		size += n
	}
	return batches, failed
}

// send sends a batch and keeps its errors.
func (s *Store) send(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation, b *batch) {
	keys := make([]string, len(b.rows))
	rows := make([]*bigtable.Mutation, len(b.rows))
	for i, n := range b.rows {
		keys[i] = string(muts[n].Key)
		rows[i] = newMutation(muts[n].Ops)
	}
	b.errs, b.err = s.applyBulk(ctx, table, opMutate, keys, rows)
}

// applyBulk sends row mutations in one request and counts it.
func (s *Store) applyBulk(ctx context.Context, table bucketstore.Table, op string, keys []string, rows []*bigtable.Mutation) ([]error, error) {
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	errs, err := s.tables[table].rows.ApplyBulk(ctx, keys, rows)
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	if err != nil {
		failed = len(keys)
	}
	s.metrics.mutated(table, op, len(keys), failed)
	return errs, callError(ctx, err)
}

// requestError returns the error of the first request that failed as a whole, if
// all did or the context has ended.
func requestError(ctx context.Context, batches []batch) error {
	var first error
	broken := 0
	for i := range batches {
		if batches[i].err == nil {
			continue
		}
		broken++
		if first == nil {
			first = batches[i].err
		}
	}
	ended := ctx.Err()
	switch {
	case broken == 0 || ended == nil && broken < len(batches):
		return nil
	case ended != nil && !errors.Is(first, ended):
		return fmt.Errorf("%w (%w)", ended, first)
	}
	return first
}

// rowsError adds the rows of batches that failed to failed and returns the
// whole as an error.
func rowsError(batches []batch, failed map[int]error) error {
	for i := range batches {
		b := &batches[i]
		for j, n := range b.rows {
			err := b.err
			if b.errs != nil {
				err = b.errs[j]
			}
			if err == nil {
				continue
			}
			if failed == nil {
				failed = make(map[int]error)
			}
			failed[n] = err
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return &bucketstore.RowsError{Failed: failed}
}
