package bucketstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// Retrying returns store for work in the background: its Apply is repeated while the store is overloaded. A CheckAndApply is
// not repeated, because it may have happened.
func Retrying(store Store) Store { return retrying{store} }

type retrying struct{ Store }

func (r retrying) Apply(ctx context.Context, table Table, muts []Mutation) error {
	return RetryOverloaded(ctx, func() error { return r.Store.Apply(ctx, table, muts) })
}

// RetryOverloaded calls write, which is work in the background. Where the store is overloaded it
// waits for as long as the store says and calls it again, unless ctx would end before.
func RetryOverloaded(ctx context.Context, write func() error) error {
	for {
		err := write()
		wait := RetryAfter(err)
		if wait == 0 {
			return err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		case <-timer.C:
		}
	}
}

// RetryAfter returns how long an overloaded store wants to be left alone, the longest of what
// is said of the rows of a *RowsError. It is 0 if there is no *OverloadError.
func RetryAfter(err error) (wait time.Duration) {
	var rows *RowsError
	if errors.As(err, &rows) {
		for _, err := range rows.Failed {
			wait = max(wait, RetryAfter(err))
		}
		return wait
	}
	var overload *OverloadError
	if errors.As(err, &overload) {
		return overload.RetryAfter
	}
	return 0
}

// ApplyInOrder applies the mutations of work in the background with RetryOverloaded. Those of one row follow each other, and are applied one after the
// other. An attempt takes timeout at most, by the wall clock: it passes while the machine is suspended.
func ApplyInOrder(ctx context.Context, store Store, table Table, muts []Mutation, timeout time.Duration) error {
	for len(muts) > 0 {
		n := 1
		for n < len(muts) && !bytes.Equal(muts[n].Key, muts[n-1].Key) {
			n++
		}
		err := RetryOverloaded(ctx, func() error {
			ctx, cancel := context.WithDeadline(ctx, time.Now().Add(timeout).Round(0))
			defer cancel()
			return store.Apply(ctx, table, muts[:n])
		})
		if err != nil {
			return err
		}
		muts = muts[n:]
	}
	return nil
}

// Elapsed returns the time between two times, by the clock that has gone further: the monotonic one stands still while the machine is
// suspended, and the clock of the wall may be set back.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Sleep waits, and returns early with the error of ctx when that ends.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
