package bucketstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
)

// Isolate returns store for live writes, with an Apply that finds the rows that the store can
// never take. Such a row may spoil its request for others, so refused rows are applied again
// in ever smaller requests. In an error of this Apply, ErrRefused marks exactly the rows that
// were refused alone, by a store that has taken others.
// A store that Isolate has returned is returned as it is.
func Isolate(store Store) Store {
	if s, ok := store.(*isolating); ok {
		return s
	}
	return &isolating{Store: store}
}

type isolating struct {
	Store
	// hasStored says that the store has taken a row: a refusal is not about all requests of
	// this process.
	hasStored atomic.Bool
}

// Apply implements Store.
func (s *isolating) Apply(ctx context.Context, table Table, muts []Mutation) error {
	err := s.Store.Apply(ctx, table, muts)
	failed := s.retryRefused(ctx, table, muts, err)
	if err != nil && failed == nil {
		return err
	}
	if len(failed) < len(muts) && !s.hasStored.Load() {
		s.hasStored.Store(true)
	}
	if len(failed) == 0 {
		return nil
	}
	for i, err := range failed {
		if errors.Is(err, ErrRefused) && !s.hasStored.Load() {
			failed[i] = fmt.Errorf("%v; it has taken no other row yet", err)
		}
	}
	return &RowsError{Failed: failed}
}

// retryRefused applies the rows again, in halves, that an Apply of muts has refused with err.
// It returns the errors of the rows that are not stored after that, by position; nil if err
// is nil, or says nothing of rows.
func (s *isolating) retryRefused(ctx context.Context, table Table, muts []Mutation, err error) map[int]error {
	failed := FailedRows(err, len(muts))
	var refused []int
	for i, err := range failed {
		if errors.Is(err, ErrRefused) {
			refused = append(refused, i)
		}
	}
	if len(muts) == 1 || len(refused) == 0 {
		return failed
	}
	slices.Sort(refused)
	for half := range slices.Chunk(refused, (len(refused)+1)/2) {
		again := make([]Mutation, len(half))
		for n, i := range half {
			again[n] = muts[i]
		}
		err := s.Store.Apply(ctx, table, again)
		stillFailed := s.retryRefused(ctx, table, again, err)
		for n, i := range half {
			if delete(failed, i); err != nil && stillFailed == nil {
				failed[i] = err
			} else if err := stillFailed[n]; err != nil {
				failed[i] = err
			}
		}
	}
	return failed
}

// FailedRows returns the errors of the rows that an Apply of n rows did not store, by position.
// It is nil if err says nothing of rows. A refused request stores none of them.
func FailedRows(err error, n int) map[int]error {
	var rows *RowsError
	switch {
	case errors.As(err, &rows):
		return maps.Clone(rows.Failed)
	case !errors.Is(err, ErrRefused):
		return nil
	}
	failed := make(map[int]error, n)
	for i := range n {
		failed[i] = err
	}
	return failed
}
