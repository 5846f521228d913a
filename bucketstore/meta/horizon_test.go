package meta_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// TestHorizon: the horizon is a row of META, goes up only, and leaves those of later versions
// alone.
func TestHorizon(t *testing.T) {
	for backend, openRows := range backends {
		t.Run(backend, func(t *testing.T) {
			rows := openRows(t)
			s := open(t, rows, newSchema(t))
			before := metaRows(t, rows)
			if got, err := s.Horizon(t.Context()); err != nil || got != 0 {
				t.Fatalf("of a new store: %d, %v", got, err)
			}
			for _, step := range []struct{ raise, want int64 }{{0, 0}, {500, 500}, {400, 500}, {500, 500}, {1_300_000_000_000, 1_300_000_000_000}} {
				if got, err := s.RaiseHorizon(t.Context(), step.raise); err != nil || got != step.want {
					t.Fatalf("raised to %d: %d, %v, want %d", step.raise, got, err, step.want)
				}
				if got, err := s.Horizon(t.Context()); err != nil || got != step.want {
					t.Fatalf("after %d: %d, %v, want %d", step.raise, got, err, step.want)
				}
			}
			// The stored bytes are part of the format.
			want := append([]string{fmt.Sprintf(`horizon v@%d {"raw":1300000000000}`, someTime)}, before...)
			if got := metaRows(t, rows); !slices.Equal(got, want) {
				t.Errorf("META is %q, want %q", got, want)
			}
		})
	}
}

func setHorizon(t *testing.T, rows bucketstore.Store, value string) {
	t.Helper()
	if err := meta.Overwrite(t.Context(), rows, series.MetaHorizon, []byte(value), someTime); err != nil {
		t.Fatal(err)
	}
}

// TestHorizonOfLaterVersions: other resolutions keep their horizons; what is no horizon is an
// error, and stays.
func TestHorizonOfLaterVersions(t *testing.T) {
	rows := openPebble(t)
	s := open(t, rows, newSchema(t))
	setHorizon(t, rows, `{"5m":7,"raw":8}`)
	if got, err := s.RaiseHorizon(t.Context(), 9); err != nil || got != 9 {
		t.Fatal(got, err)
	}
	if got, want := metaRows(t, rows)[0], fmt.Sprintf(`horizon v@%d {"5m":7,"raw":9}`, someTime); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, bad := range []string{"", "9", `{"raw":"x"}`} {
		setHorizon(t, rows, bad)
		_, err := s.Horizon(t.Context())
		_, raised := s.RaiseHorizon(t.Context(), 10)
		if !errors.Is(err, series.ErrCorrupt) || !errors.Is(raised, series.ErrCorrupt) {
			t.Errorf("%q: %v, %v", bad, err, raised)
		}
	}
}

// TestHorizonOfMany: of several adapters that raise it, the highest wins.
func TestHorizonOfMany(t *testing.T) {
	rows := openPebble(t)
	var raising sync.WaitGroup
	for n := range int64(8) {
		s := open(t, rows, newSchema(t))
		raising.Go(func() {
			for i := range int64(20) {
				cut := i*8 + n
				if got, err := s.RaiseHorizon(t.Context(), cut); err != nil || got < cut {
					t.Errorf("raised to %d: %d, %v", cut, got, err)
				}
			}
		})
	}
	raising.Wait()
	if got, err := open(t, rows, newSchema(t)).Horizon(t.Context()); err != nil || got != 19*8+7 {
		t.Error(got, err)
	}
}
