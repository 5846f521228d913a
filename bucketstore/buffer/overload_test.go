package buffer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
)

// overloaded is a store that wants to be left alone for a time, a number of times.
type overloaded struct {
	bucketstore.Store
	after time.Duration
	// takesFirst says that it takes the first row of a request all the same.
	takesFirst bool
	times      atomic.Int64
	calls      atomic.Int64
}

func (s *overloaded) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	s.calls.Add(1)
	if s.times.Add(-1) < 0 {
		return s.Store.Apply(ctx, table, muts)
	}
	overload := &bucketstore.OverloadError{RetryAfter: s.after, Err: errors.New("overloaded")}
	if !s.takesFirst {
		return overload
	}
	failed := make(map[int]error)
	for i := 1; i < len(muts); i++ {
		failed[i] = overload
	}
	return errors.Join(&bucketstore.RowsError{Failed: failed}, s.Store.Apply(ctx, table, muts[:1]))
}

// TestOverloadedStore: a flush leaves an overloaded store alone for as long as it says.
func TestOverloadedStore(t *testing.T) {
	t.Run("takes nothing", func(t *testing.T) { testOverloadedStore(t, false) })
	t.Run("takes a row", func(t *testing.T) { testOverloadedStore(t, true) })
}

func testOverloadedStore(t *testing.T, takesFirst bool) {
	store := &overloaded{Store: new(storetest.Memory), after: time.Hour, takesFirst: takesFirst}
	synctest.Test(t, func(t *testing.T) {
		f := open(t, store, nil)
		f.append(t, f.sample(1, someTime, 1), f.sample(2, someTime, 1))
		store.times.Store(2)
		for wait := range int64(2) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour-time.Second)
			err := f.Flush(ctx)
			cancel()
			if calls := store.calls.Load(); calls != wait+1 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("within hour %d: %d requests, %v", wait+1, calls, err)
			}
			time.Sleep(time.Second) // of the bubble
			synctest.Wait()
		}
		if err := f.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if rows := f.FailingRows(); len(rows) > 0 {
			t.Errorf("%d rows are set aside", len(rows))
		}
		f.check(t, "after two hours")
	})
}
