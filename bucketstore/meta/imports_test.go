package meta_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// TestImported: the units of an import are read as they were written, and the others of the store are left alone.
func TestImported(t *testing.T) {
	for backend, openRows := range backends {
		t.Run(backend, func(t *testing.T) {
			rows := openRows(t)
			s := open(t, rows, newSchema(t))
			before := metaRows(t, rows)
			for _, want := range [][]string{nil, {"a"}, {"a", "b"}} {
				if want != nil {
					if err := s.SetImported(t.Context(), "one", want); err != nil {
						t.Fatal(err)
					}
				}
				if got, err := s.Imported(t.Context(), "one"); err != nil || !slices.Equal(got, want) {
					t.Errorf("got %q, %v, want %q", got, err, want)
				}
			}
			if got, err := s.Imported(t.Context(), "other"); err != nil || len(got) > 0 {
				t.Errorf("got %q, %v", got, err)
			}
			// The stored bytes are part of the format.
			if got, want := metaRows(t, rows), append([]string{`import,one v@130000000000 {"units":["a","b"]}`}, before...); !slices.Equal(got, want) {
				t.Errorf("META is %q, want %q", got, want)
			}
			if err := meta.Overwrite(t.Context(), rows, "import,one", []byte("no JSON"), someTime); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Imported(t.Context(), "one"); !errors.Is(err, series.ErrCorrupt) {
				t.Error(err)
			}
		})
	}
}
