package downsample_test

import (
	"errors"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/series/rollup"
)

// TestWriteOpen: a write of history learns of days that were closed since it began, by this process or by another one.
func TestWriteOpen(t *testing.T) {
	eachBackend(t, func(t *testing.T, store bucketstore.Store) {
		f := newFixture(t, store, false)
		f.write("a", day0+rollup.Day/2)
		writer := f.other()
		writes := 0
		write := func() error { writes++; return nil }
		before, err := writer.days.Closed(t.Context())
		if err != nil || before != 0 {
			t.Fatalf("%d, %v", before, err)
		}
		if err := writer.days.WriteOpen(t.Context(), before, write); err != nil || writes != 1 {
			t.Fatalf("%d writes, %v", writes, err)
		}
		closing := func() error {
			f.once()
			if _, err := f.maker.Release(t.Context(), day0+rollup.Day+1); err != nil {
				t.Fatal(err)
			}
			f.advance(10 * time.Minute) // the write takes so long
			return nil
		}
		if err := writer.days.WriteOpen(t.Context(), before, closing); !errors.Is(err, downsample.ErrClosed) {
			t.Errorf("closed meanwhile: %v", err)
		}
		if err := writer.days.WriteOpen(t.Context(), before, write); !errors.Is(err, downsample.ErrClosed) || writes != 1 {
			t.Errorf("closed before: %d writes, %v", writes, err)
		}
		now, err := writer.days.Closed(t.Context())
		if err != nil || now != day0+rollup.Day {
			t.Fatalf("%d, %v", now, err)
		}
		if err := writer.days.WriteOpen(t.Context(), now, write); err != nil || writes != 2 {
			t.Errorf("%d writes, %v", writes, err)
		}
	})
}
