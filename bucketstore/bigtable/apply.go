package bigtable

import (
	"context"
	"fmt"

	"github.com/promtable/promtable/bucketstore"
)

// Apply implements bucketstore.Store. Rows that Bigtable would refuse for their
// size fail without being sent; all others are sent in batches. A batch, or what
// failed of it, is sent again while the errors are transient (Aborted,
// Unavailable, DeadlineExceeded, broken streams, and what the server says to
// retry); the times of cells make that harmless. Other errors, among them
// ResourceExhausted and Internal, are returned.
func (s *Store) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	t, err := s.table(table)
	if err != nil {
		return err
	}
	if err := t.checkFamilies(muts); err != nil {
		return err
	}
	var rows rowErrors
	f := s.newFlight(ctx, table, t)
	for i := range muts {
		size, err := checkMutation(&muts[i])
		if err != nil {
			rows.add(i, err)
			continue
		}
		// Bigtable refuses a row without operations.
		if !changes(muts[i].Ops) {
			continue
		}
		b := f.batch(size, len(muts[i].Ops))
		*b.data = appendRow(*b.data, &muts[i])
		b.added(i, len(muts[i].Ops))
	}
	if err := f.finish(rows.add); err != nil {
		return fmt.Errorf("apply %d rows to %s: %w", len(muts), t.name, err)
	}
	return rows.err()
}

// rowErrors gathers the errors of rows.
type rowErrors map[int]error

// add adds the error of a row.
func (r *rowErrors) add(row int, err error) {
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
