package bucketstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// Isolate returns store for live writes, with an Apply that finds the rows that the store can
// never take. Such a row may spoil its request for others, so refused rows are applied again
// in ever smaller requests. In an error of this Apply, ErrRefused marks exactly the rows that
// were refused alone, by a store that takes others: of the same Apply, or of one to the same
// table in the last seconds by the clock now.
// A store that Isolate has returned is returned as it is.
func Isolate(store Store, now func() time.Time) Store {
	if s, ok := store.(*isolating); ok {
		return s
	}
	return &isolating{Store: store, now: now}
}

type isolating struct {
	Store
	now func() time.Time
	// stored has the time, in ns, at which the store has last taken a row of each table.
	stored [NumTables]atomic.Int64
}

const (
	// recent is how long a store counts as one that takes rows, after it has taken one.
	recent = 10 * time.Second
	// maxRefusals is how many requests are sent after a refusal, if none of them stores
	// anything: a store that refuses all rows is not asked for each of them.
	maxRefusals = 64
)

func (s *isolating) Apply(ctx context.Context, table Table, muts []Mutation) error {
	err := s.Store.Apply(ctx, table, muts)
	failed := FailedRows(err, len(muts))
	if err != nil && failed == nil {
		return err
	}
	taken := s.retryRefused(ctx, table, muts, failed)
	if taken {
		s.stored[table].Store(s.now().UnixNano())
	}
	if len(failed) == 0 {
		return nil
	}
	if !taken && s.now().UnixNano()-s.stored[table].Load() > int64(recent) {
		notRefused(failed)
	}
	return &RowsError{Failed: failed}
}

// notRefused makes errors of rows that were refused, maybe not for what they are, such that a
// sender repeats them.
func notRefused(failed map[int]error) {
	for i, err := range failed {
		if errors.Is(err, ErrRefused) {
			failed[i] = fmt.Errorf("%v; it takes no other row of the table now", err)
		}
	}
}

// retryRefused applies the refused rows among failed again, in halves, and removes from failed
// what is stored after that. It says whether the store has taken any row of muts.
func (s *isolating) retryRefused(ctx context.Context, table Table, muts []Mutation, failed map[int]error) (taken bool) {
	taken = len(failed) < len(muts)
	halves := halve(refusedOf(failed))
	for requests := 0; len(halves) > 0; requests++ {
		rows := halves[0]
		halves = halves[1:]
		switch {
		case len(rows) == 0 || len(rows) == 1 && len(muts) == 1:
			continue
		case requests >= maxRefusals && !taken:
			return false
		}
		again := make([]Mutation, len(rows))
		for n, i := range rows {
			again[n] = muts[i]
		}
		err := s.Store.Apply(ctx, table, again)
		still := FailedRows(err, len(again))
		var refused []int
		for n, i := range rows {
			switch rowErr := still[n]; {
			case rowErr != nil && errors.Is(rowErr, ErrRefused):
				refused = append(refused, i)
				failed[i] = rowErr
			case rowErr != nil:
				failed[i] = rowErr
			case err != nil && still == nil:
				failed[i] = err
			default:
				taken = true
				delete(failed, i)
			}
		}
		if len(rows) > 1 {
			halves = append(halves, halve(refused)...)
		}
	}
	return taken
}

// halve divides rows that were refused together.
func halve(rows []int) [][]int {
	middle := (len(rows) + 1) / 2
	return [][]int{rows[:middle], rows[middle:]}
}

// refusedOf returns the positions of refused rows, ascending.
func refusedOf(failed map[int]error) (refused []int) {
	for i, err := range failed {
		if errors.Is(err, ErrRefused) {
			refused = append(refused, i)
		}
	}
	slices.Sort(refused)
	return refused
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

// Traits implements Store. Rows that were refused leave the others of their Apply.
func (s *isolating) Traits() Traits {
	t := s.Store.Traits()
	t.AtomicApply = false
	return t
}
