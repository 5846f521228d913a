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
					last := want[len(want)-1]
					if err := s.NoteImported(t.Context(), "one", meta.Part{ID: last, Start: int64(len(want)), Limit: int64(len(want)) + 1}); err != nil {
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
			if got, want := metaRows(t, rows), append([]string{`import,one v@130000000000 {"parts":[{"id":"a","start":1,"limit":2},{"id":"b","start":2,"limit":3}]}`}, before...); !slices.Equal(got, want) {
				t.Errorf("META is %q, want %q", got, want)
			}
			for _, tt := range []struct {
				start, limit int64
				want         []string
			}{{0, 1, []string{"a", "b"}}, {3, 9, []string{"a", "b"}}, {2, 3, []string{"a"}}, {0, 9, nil}} {
				if err := s.ForgetImported(t.Context(), tt.start, tt.limit); err != nil {
					t.Fatal(err)
				}
				if got, err := s.Imported(t.Context(), "one"); err != nil || !slices.Equal(got, tt.want) {
					t.Errorf("[%d, %d) is deleted: got %q, %v, want %q", tt.start, tt.limit, got, err, tt.want)
				}
			}
			if err := errors.Join(s.NoteImported(t.Context(), "one", meta.Part{ID: "c"}), s.NoteImported(t.Context(), "one")); err != nil {
				t.Fatal(err)
			}
			if got := metaRows(t, rows); !slices.Equal(got, before) {
				t.Errorf("META is %q, want %q", got, before)
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
