package meta_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// TestDeletions: deletions are put, changed only as they were read, and removed with what logs
// say of them.
func TestDeletions(t *testing.T) {
	for backend, openRows := range backends {
		t.Run(backend, func(t *testing.T) {
			rows := openRows(t)
			s := open(t, rows, newSchema(t))
			before := metaRows(t, rows)
			put := func(d *meta.Deletion, want bool) {
				t.Helper()
				if got, err := s.PutDeletion(t.Context(), d); err != nil || got != want {
					t.Fatalf("put %t, %v", got, err)
				}
			}
			read := func(n int) []meta.Deletion {
				t.Helper()
				all, err := s.Deletions(t.Context())
				if err != nil || len(all) != n {
					t.Fatalf("%v, %v", all, err)
				}
				return all
			}
			d := meta.Deletion{ID: "A", Matchers: []meta.Matcher{{Name: "job", Type: "=~", Value: "a|b"}}, Start: 1, Limit: 5, At: 7, Stamp: 9, Log: "BY"}
			put(&d, true)
			put(&meta.Deletion{ID: "A"}, false)
			other := meta.Deletion{ID: "B", Tenant: "t", Start: 2, Limit: 3, At: 4, Stamp: 5, Done: 6}
			put(&other, true)
			for _, passed := range []bool{false, true} {
				if err := s.NoteDeletion(t.Context(), &d, "LOG", passed); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.NoteDeletion(t.Context(), &d, "OTHER", false); err != nil {
				t.Fatal(err)
			}
			// The stored bytes are part of the format.
			want := append([]string{
				`delete,A v@130000000000 {"matchers":[{"name":"job","type":"=~","value":"a|b"}],"start":1,"limit":5,"at":7,"stamp":9,"log":"BY"}`,
				`delete,A,LOG v@130000000000 {"stamp":9,"passed":true}`,
				`delete,A,OTHER v@130000000000 {"stamp":9}`,
				`delete,B v@130000000000 {"tenant":"t","matchers":null,"start":2,"limit":3,"at":4,"stamp":5,"done":6}`,
			}, before...)
			if got := metaRows(t, rows); !slices.Equal(got, want) {
				t.Errorf("META is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			first := read(2)
			if got := first[0]; !reflect.DeepEqual(got.Logs, map[string]meta.LogState{"LOG": {Stamp: 9, Passed: true}, "OTHER": {Stamp: 9}}) || !slices.Equal(got.Matchers, d.Matchers) || got.Limit != 5 || first[1].Tenant != "t" || first[1].Done != 6 {
				t.Errorf("read %+v", first)
			}
			second := read(2)
			second[0].Stamp = 10
			put(&second[0], true)
			put(&first[0], false)
			if err := s.RemoveDeletion(t.Context(), &first[0]); err != nil {
				t.Fatal(err)
			}
			if got := read(2); got[0].Stamp != 10 { // the row has changed since
				t.Errorf("%+v", got)
			}
			for _, d := range read(2) {
				if err := s.RemoveDeletion(t.Context(), &d); err != nil {
					t.Fatal(err)
				}
			}
			if got := metaRows(t, rows); !slices.Equal(got, before) {
				t.Errorf("META is %q, was %q", got, before)
			}
			// What a log says of a deletion that is gone is no deletion.
			if err := s.NoteDeletion(t.Context(), &d, "LATE", true); err != nil {
				t.Fatal(err)
			}
			read(0)
		})
	}
}

func TestCorruptDeletions(t *testing.T) {
	for _, row := range []struct{ key, value string }{{"delete,A", "no JSON"}, {"delete,A", `{"start":"x"}`}} {
		rows := openPebble(t)
		s := open(t, rows, newSchema(t))
		if err := meta.Overwrite(t.Context(), rows, row.key, []byte(row.value), someTime); err != nil {
			t.Fatal(err)
		}
		if all, err := s.Deletions(t.Context()); !errors.Is(err, series.ErrCorrupt) || !strings.Contains(err.Error(), row.key) {
			t.Errorf("%s: %v, %v", row.value, all, err)
		}
	}
}
