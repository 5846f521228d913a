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
			if got, err := s.Horizons(t.Context()); err != nil || got != (meta.Horizons{}) {
				t.Fatalf("of a new store: %d, %v", got, err)
			}
			for _, step := range []struct {
				raise, want meta.Horizons
				// stored is the row. Its bytes are part of the format.
				stored string
			}{
				{meta.Horizons{0, 0, 0}, meta.Horizons{0, 0, 0}, ""},
				{meta.Horizons{500, 0, 0}, meta.Horizons{500, 0, 0}, `{"raw":500}`},
				{meta.Horizons{400, 0, 0}, meta.Horizons{500, 0, 0}, `{"raw":500}`},
				{meta.Horizons{500, 0, 7}, meta.Horizons{500, 0, 7}, `{"1h":7,"raw":500}`},
				{meta.Horizons{1_300_000_000_000, 9, 6}, meta.Horizons{1_300_000_000_000, 9, 7}, `{"1h":7,"5m":9,"raw":1300000000000}`},
			} {
				if got, err := s.RaiseHorizons(t.Context(), step.raise); err != nil || got != step.want {
					t.Fatalf("raised to %d: %d, %v, want %d", step.raise, got, err, step.want)
				}
				if got, err := s.Horizons(t.Context()); err != nil || got != step.want {
					t.Fatalf("after %d: %d, %v, want %d", step.raise, got, err, step.want)
				}
				want := before
				if step.stored != "" {
					want = append([]string{fmt.Sprintf("horizon v@%d %s", someTime, step.stored)}, before...)
				}
				if got := metaRows(t, rows); !slices.Equal(got, want) {
					t.Errorf("META is %q, want %q", got, want)
				}
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
	setHorizon(t, rows, `{"1d":7,"raw":8}`)
	if got, err := s.RaiseHorizons(t.Context(), meta.Horizons{9}); err != nil || got != (meta.Horizons{9}) {
		t.Fatal(got, err)
	}
	if got, want := metaRows(t, rows)[0], fmt.Sprintf(`horizon v@%d {"1d":7,"raw":9}`, someTime); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, bad := range []string{"", "9", `{"raw":"x"}`} {
		setHorizon(t, rows, bad)
		_, err := s.Horizons(t.Context())
		_, raised := s.RaiseHorizons(t.Context(), meta.Horizons{10})
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
				if got, err := s.RaiseHorizons(t.Context(), meta.Horizons{cut, 1000 - cut}); err != nil || got[0] < cut || got[1] < 1000-cut {
					t.Errorf("raised to %d: %d, %v", cut, got, err)
				}
			}
		})
	}
	raising.Wait()
	if got, err := open(t, rows, newSchema(t)).Horizons(t.Context()); err != nil || got != (meta.Horizons{19*8 + 7, 1000}) {
		t.Error(got, err)
	}
}

// TestLowerHorizons: a horizon is taken back to where nothing was deleted, and only if it is what it was when it was read.
func TestLowerHorizons(t *testing.T) {
	rows := openPebble(t)
	s := open(t, rows, newSchema(t))
	want := func(horizons, deleted meta.Horizons) {
		t.Helper()
		if got, err := s.Horizons(t.Context()); err != nil || got != horizons {
			t.Errorf("the horizons are %v, %v, want %v", got, err, horizons)
		}
		if got, err := s.Deleted(t.Context()); err != nil || got != deleted {
			t.Errorf("deleted before %v, %v, want %v", got, err, deleted)
		}
	}
	if _, err := s.RaiseHorizons(t.Context(), meta.Horizons{500, 400, 300}); err != nil {
		t.Fatal(err)
	}
	want(meta.Horizons{500, 400, 300}, meta.Horizons{})
	if _, err := s.NoteDeleted(t.Context(), meta.Horizons{100, 0, 350}); err != nil {
		t.Fatal(err)
	}
	want(meta.Horizons{500, 400, 350}, meta.Horizons{100, 0, 350})
	if got, want := metaRows(t, rows)[0], fmt.Sprintf(`horizon v@%d {"1h":350,"5m":400,"deleted.1h":350,"deleted.raw":100,"raw":500}`, someTime); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := s.NoteDeleted(t.Context(), meta.Horizons{50, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.LowerHorizons(t.Context(), meta.Horizons{499, 400, 350}, meta.Horizons{}); !errors.Is(err, meta.ErrHorizons) {
		t.Errorf("horizons that have changed: %v", err)
	}
	want(meta.Horizons{500, 400, 350}, meta.Horizons{100, 0, 350})
	got, err := s.LowerHorizons(t.Context(), meta.Horizons{500, 400, 350}, meta.Horizons{99, 0, 350})
	if err != nil || got != (meta.Horizons{500, 0, 350}) {
		t.Errorf("before what was deleted: %v, %v", got, err)
	}
	if got, err = s.LowerHorizons(t.Context(), got, meta.Horizons{100, 7, 350}); err != nil || got != (meta.Horizons{100, 0, 350}) {
		t.Errorf("to what was deleted: %v, %v", got, err)
	}
	want(meta.Horizons{100, 0, 350}, meta.Horizons{100, 0, 350})
}
