package bigtable

import (
	"context"
	"fmt"

	"cloud.google.com/go/bigtable"

	"github.com/promtable/promtable/bucketstore"
)

// CheckAndApply implements bucketstore.Store. It is one request, which the client never
// retries. It fails, with a sentence about what to do, if the app profile routes to several
// clusters or does not allow single-row transactions.
func (s *Store) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (applied bool, err error) {
	t, err := s.table(table)
	if err != nil {
		return false, err
	}
	size, err := t.checkConditional(&cond, &mut)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	ctx = withCall(ctx, table, s.callTimeout)
	var matched bool
	if changes(mut.Ops) {
		matched, err = s.checkAndMutate(ctx, table, cond, mut, size)
	} else {
		// Bigtable refuses a request without a mutation.
		matched, err = s.holds(ctx, table, mut.Key, cellFilter(&cond))
	}
	if err != nil {
		return false, fmt.Errorf("check and apply to row %q of %s: %w", mut.Key, t.name, s.profileError(callError(ctx, err)))
	}
	return matched != cond.Absent, nil
}

// checkConditional estimates the bytes of the mutation, or returns an error if Bigtable
// would refuse the request.
func (t *table) checkConditional(cond *bucketstore.Condition, mut *bucketstore.Mutation) (size int, err error) {
	if err := t.checkFamily(cond.Family); err != nil {
		return 0, err
	}
	if err := t.checkOps([]bucketstore.Mutation{*mut}); err != nil {
		return 0, err
	}
	if size := 2 * (len(cond.Family) + len(cond.Qualifier) + len(cond.Value) + opOverhead); size > maxFilterSize {
		return 0, fmt.Errorf("row %.80q: condition of %d bytes, want at most %d", mut.Key, size, maxFilterSize)
	}
	return checkMutation(mut)
}

// checkAndMutate applies mut if the cell of cond is there, or, if cond is on absence, if it
// is not. It says whether the cell is there.
func (s *Store) checkAndMutate(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation, size int) (matched bool, err error) {
	var whenThere, whenNot *bigtable.Mutation
	if m := newMutation(mut.Ops); cond.Absent {
		whenNot = m
	} else {
		whenThere = m
	}
	conditional := bigtable.NewCondMutation(cellFilter(&cond), whenThere, whenNot)
	err = s.tables[table].rows.Apply(ctx, string(mut.Key), conditional, bigtable.GetCondMutationResult(&matched))
	failed := 0
	if err != nil {
		failed = 1
	}
	s.metrics.addMutations(table, opCheck, 1, failed, size)
	return matched, err
}

// holds says whether a row holds a cell that passes the filter.
func (s *Store) holds(ctx context.Context, table bucketstore.Table, key []byte, filter bigtable.Filter) (bool, error) {
	row, err := s.tables[table].rows.ReadRow(ctx, string(key), bigtable.RowFilter(filter))
	s.metrics.addRead(table, min(len(row), 1), rowSize(row), err == nil)
	return len(row) > 0, err
}
