//go:build !race

package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/promtable/promtable/bucketstore"
)

// More series than one write of a flush takes.
func TestCurrentManyRows(t *testing.T) {
	f := openFixture(t)
	batch := many(25_000, someTime)
	f.append(t, batch...)
	applied := 0
	f.store.onApply = func(table bucketstore.Table, muts []bucketstore.Mutation) error {
		if table == bucketstore.Current {
			if applied++; applied == 3 {
				return errStore
			}
		}
		return nil
	}
	if err := f.Close(context.Background()); !errors.Is(err, errStore) {
		t.Errorf("Close: %v", err)
	}
	if n := f.counter(t, "adapter_current_pending_series"); n != 5000 {
		t.Errorf("%v series pending, want those of the third write", n)
	}
	wantSeries(t, "current", f.current(t, 0), batch...)
	f.open(t)
}
