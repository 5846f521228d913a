package meta_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
)

// someTime is in 1974, in milliseconds.
const someTime = int64(130_000_000_000)

func now() time.Time { return time.UnixMilli(someTime) }

// backends are the kinds of stores.
var backends = map[string]func(t testing.TB) bucketstore.Store{
	"embedded": openPebble,
	"bigtable": func(t testing.TB) bucketstore.Store { return bigtabletest.Open(t) },
}

func openPebble(t testing.TB) bucketstore.Store {
	t.Helper()
	store, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{}), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func newSchema(t testing.TB, resource ...string) series.Schema {
	t.Helper()
	schema, err := series.NewSchema(resource)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// open opens META and gives the store an identity.
func open(t testing.TB, rows bucketstore.Store, schema series.Schema) *meta.Store {
	t.Helper()
	s, err := meta.Open(t.Context(), rows, schema, now)
	if err == nil {
		err = s.Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// metaRows returns the rows of META as text.
func metaRows(t testing.TB, rows bucketstore.Store) (found []string) {
	t.Helper()
	err := rows.Scan(t.Context(), bucketstore.ScanRequest{
		Table:    bucketstore.Meta,
		Rows:     []series.RowRange{{}},
		Families: []bucketstore.FamilyRange{{Family: "m"}},
	}, func(r bucketstore.Row) error {
		for _, c := range r.Cells {
			found = append(found, fmt.Sprintf("%s %s@%d %s", r.Key, c.Qualifier, c.Time, c.Value))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func putSchema(t testing.TB, rows bucketstore.Store, text string) {
	t.Helper()
	err := rows.Apply(t.Context(), bucketstore.Meta, []bucketstore.Mutation{{Key: []byte("schema"), Ops: []bucketstore.Op{
		{Kind: bucketstore.SetCell, Family: "m", Qualifier: []byte("v"), Value: []byte(text)},
	}}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSchema: a store is opened with the schema that it was written with.
func TestSchema(t *testing.T) {
	for _, tt := range []struct {
		name            string
		first, second   []string
		tenant          string
		wantMessagePart string // of the refusal
	}{
		{name: "the same", first: []string{"host", "pod"}, second: []string{"pod", "host"}},
		{name: "none", first: nil, second: []string{}},
		{name: "one more", first: []string{"host"}, second: []string{"host", "pod"}, wantMessagePart: "start with --schema.resource-label=host"},
		{name: "one less", first: []string{"host", "pod"}, second: []string{"host"}, wantMessagePart: "start with --schema.resource-label=host --schema.resource-label=pod"},
		{name: "none any more", first: []string{"host"}, wantMessagePart: "--schema.resource-label=host"},
		{name: "the first", second: []string{"host"}, wantMessagePart: "no --schema.resource-label"},
		{name: "tenants", tenant: "t", wantMessagePart: "tenancy"},
	} {
		for backend, openRows := range backends {
			t.Run(backend+"/"+tt.name, func(t *testing.T) {
				rows := openRows(t)
				first := open(t, rows, newSchema(t, tt.first...))
				before := metaRows(t, rows)
				schema := newSchema(t, tt.second...)
				if tt.tenant != "" {
					var err error
					if schema, err = schema.ForTenant(tt.tenant); err != nil {
						t.Fatal(err)
					}
				}
				second, err := meta.Open(t.Context(), rows, schema, now)
				switch refused := tt.wantMessagePart != ""; {
				case refused && (!errors.Is(err, meta.ErrSchema) || !strings.Contains(err.Error(), tt.wantMessagePart)):
					t.Errorf("%v, want a refusal that says %q", err, tt.wantMessagePart)
				case !refused && (err != nil || second.Identity() != first.Identity() || second.SchemaDigest() != first.SchemaDigest()):
					t.Errorf("the second time it is %+v, %v", second, err)
				}
				if after := metaRows(t, rows); !slices.Equal(before, after) {
					t.Errorf("META was %q, is %q", before, after)
				}
			})
		}
	}
}

// TestGolden: the stored bytes are part of the format.
func TestGolden(t *testing.T) {
	for _, tt := range []struct {
		resource     []string
		want, digest string
	}{
		{nil, `{"format":1,"resource_labels":[],"tenancy":false,"identity":"ID"}`, "07bca448e9f327c7ef6f294e53fc2629"},
		{[]string{"pod", "host"}, `{"format":1,"resource_labels":["host","pod"],"tenancy":false,"identity":"ID"}`, "a58e0297846de47bac2f4cdeb34cdcab"},
	} {
		rows := openPebble(t)
		s := open(t, rows, newSchema(t, tt.resource...))
		if id := s.Identity(); !regexp.MustCompile(`^[A-Z2-7]{26}$`).MatchString(id) {
			t.Errorf("identity %q", id)
		}
		if got := s.SchemaDigest(); got != tt.digest {
			t.Errorf("digest %s, want %s", got, tt.digest)
		}
		if err := s.PutLog(t.Context(), meta.Log{ID: "L", Host: "h", Path: "/p", Seen: 7, Bytes: 9}); err != nil {
			t.Fatal(err)
		}
		want := []string{
			`log,L v@130000000000 {"host":"h","path":"/p","seen":7,"bytes":9}`,
			`schema v@130000000000 ` + strings.Replace(tt.want, "ID", s.Identity(), 1),
		}
		if got := metaRows(t, rows); !slices.Equal(got, want) {
			t.Errorf("META is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestNoIdentity: a schema without an identity is refused, and stays as it is.
func TestNoIdentity(t *testing.T) {
	rows := openPebble(t)
	putSchema(t, rows, `{"format":1,"resource_labels":["host"],"tenancy":false}`)
	before := metaRows(t, rows)
	if _, err := meta.Open(t.Context(), rows, newSchema(t, "host"), now); !errors.Is(err, meta.ErrSchema) || !strings.Contains(err.Error(), "it has no identity") {
		t.Errorf("%v", err)
	}
	if after := metaRows(t, rows); !slices.Equal(before, after) {
		t.Errorf("META was %q, is %q", before, after)
	}
}

// TestOneIdentity: processes that start together on a new store use one identity.
func TestOneIdentity(t *testing.T) {
	for backend, openRows := range backends {
		t.Run(backend, func(t *testing.T) {
			rows := openRows(t)
			var stores [4]*meta.Store
			var running sync.WaitGroup
			for i := range stores {
				running.Go(func() {
					var err error
					if stores[i], err = meta.Open(t.Context(), rows, series.Schema{}, now); err == nil {
						err = stores[i].Init(t.Context())
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			running.Wait()
			for _, s := range stores {
				if s.Identity() == "" || s.Identity() != stores[0].Identity() {
					t.Errorf("identity %q, and %q", s.Identity(), stores[0].Identity())
				}
			}
		})
	}
}

// TestOtherFormat: another format is refused by its number.
func TestOtherFormat(t *testing.T) {
	for _, stored := range []string{`{"format":2,"resource_labels":[],"tenancy":false}`, `{}`, `{"format":2,"resource_labels":{"new":"shape"}}`, `no JSON`} {
		t.Run(stored, func(t *testing.T) {
			rows := openPebble(t)
			putSchema(t, rows, stored)
			_, err := meta.Open(t.Context(), rows, series.Schema{}, now)
			if !errors.Is(err, meta.ErrSchema) || !strings.Contains(err.Error(), "format") {
				t.Errorf("Open: %v, want ErrSchema", err)
			}
		})
	}
}

// TestLogs: logs are put, listed, overwritten and removed, each by its ID.
func TestLogs(t *testing.T) {
	for backend, openRows := range backends {
		t.Run(backend, func(t *testing.T) {
			rows := openRows(t)
			s := open(t, rows, series.Schema{})
			a, b := meta.Log{ID: "A", Host: "h", Path: "/a", Seen: 1}, meta.Log{ID: "B", Host: "h", Path: "/b", Seen: 2, Bytes: 3}
			for _, l := range []meta.Log{b, a, {ID: "B", Host: "x", Seen: 9}, b} {
				if err := s.PutLog(t.Context(), l); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := s.Logs(t.Context()); err != nil || !slices.Equal(got, []meta.Log{a, b}) {
				t.Errorf("%v, %v", got, err)
			}
			for range 2 {
				if err := s.RemoveLog(t.Context(), "A"); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := s.Logs(t.Context()); err != nil || !slices.Equal(got, []meta.Log{b}) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// TestHotCell: a cell that is written again and again keeps one version, even if the clock
// of a writer goes back. Compared with an old value nothing changes.
func TestHotCell(t *testing.T) {
	for backend, openRows := range backends {
		t.Run(backend, func(t *testing.T) {
			rows := storetest.NewVersions(openRows(t))
			var last, older meta.Cell
			for i := range int64(20) {
				at := someTime + i*1000
				if i%5 == 4 {
					at -= 3_600_000
				}
				next := meta.Cell{Value: fmt.Appendf(nil, "value %d", i), Time: at}
				set, err := meta.CompareAndSet(t.Context(), rows, "hot", last, next)
				if err != nil || !set {
					t.Fatalf("write %d: set %v, %v", i, set, err)
				}
				older, last = last, next
			}
			if n := rows.Most(bucketstore.Meta); n != 1 {
				t.Errorf("%d versions", n)
			}
			if set, err := meta.CompareAndSet(t.Context(), rows, "hot", older, meta.Cell{Value: []byte("lost"), Time: someTime}); err != nil || set {
				t.Errorf("compared with an old value: set %v, %v", set, err)
			}
			if got := metaRows(t, rows); !slices.Equal(got, []string{fmt.Sprintf("hot v@%d value 19", last.Time)}) {
				t.Errorf("META is %q", got)
			}
			if deleted, err := meta.CompareAndDelete(t.Context(), rows, "hot", older); err != nil || deleted {
				t.Errorf("compared with an old value: deleted %v, %v", deleted, err)
			}
			if deleted, err := meta.CompareAndDelete(t.Context(), rows, "hot", last); err != nil || !deleted || metaRows(t, rows) != nil {
				t.Errorf("deleted %v, %v", deleted, err)
			}
		})
	}
}

// deleteSchema deletes META/schema, as damage of the store may.
func deleteSchema(t testing.TB, rows bucketstore.Store) {
	t.Helper()
	if err := meta.Overwrite(t.Context(), rows, series.MetaSchema, nil, someTime); err != nil {
		t.Fatal(err)
	}
}

// putSample writes a cell of METRIC.
func putSample(t testing.TB, rows bucketstore.Store) {
	t.Helper()
	err := rows.Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{{Key: []byte("row"), Ops: []bucketstore.Op{
		{Kind: bucketstore.SetCell, Family: series.FamilyChunk, Qualifier: []byte("q"), Value: []byte("v")},
	}}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLostSchema: a store that has rows and no schema is refused, and nothing is written. A
// store without rows gets a schema.
func TestLostSchema(t *testing.T) {
	for backend, openRows := range backends {
		t.Run(backend, func(t *testing.T) {
			rows := openRows(t)
			putSample(t, rows)
			for range 2 {
				s, err := meta.Open(t.Context(), rows, newSchema(t, "host"), now)
				if !errors.Is(err, meta.ErrLostSchema) || !strings.Contains(err.Error(), "METRIC has rows: ") || s.CanRestore() {
					t.Errorf("%v, can restore: %t", err, s.CanRestore())
				}
			}
			if got := metaRows(t, rows); got != nil {
				t.Errorf("META is %q", got)
			}
		})
	}
}

// TestRestoreSchema: the embedded store keeps a copy of its schema, from which it is restored.
func TestRestoreSchema(t *testing.T) {
	for name, damage := range map[string]func(t testing.TB, rows bucketstore.Store){
		"without rows": deleteSchema,
		"with rows":    func(t testing.TB, rows bucketstore.Store) { putSample(t, rows); deleteSchema(t, rows) },
	} {
		t.Run(name, func(t *testing.T) {
			rows := openPebble(t)
			schema := newSchema(t, "host")
			identity, before := open(t, rows, schema).Identity(), metaRows(t, rows)
			damage(t, rows)
			s, err := meta.Open(t.Context(), rows, schema, now)
			if !errors.Is(err, meta.ErrLostSchema) || !strings.Contains(err.Error(), "adapter check --repair=index") || !s.CanRestore() {
				t.Fatalf("%v, can restore: %t", err, s.CanRestore())
			}
			if err := s.RestoreSchema(t.Context()); err != nil {
				t.Fatal(err)
			}
			if after := metaRows(t, rows); !slices.Equal(before, after) {
				t.Errorf("META was %q, is %q", before, after)
			}
			if got := open(t, rows, schema).Identity(); got != identity {
				t.Errorf("identity %s, was %s", got, identity)
			}
			if _, err := meta.Open(t.Context(), rows, newSchema(t), now); !errors.Is(err, meta.ErrSchema) {
				t.Errorf("another schema: %v", err)
			}
		})
	}
}

// TestSchemaCopyOfAnotherStore: a directory with files of two stores is refused.
func TestSchemaCopyOfAnotherStore(t *testing.T) {
	rows := openPebble(t)
	open(t, rows, newSchema(t))
	deleteSchema(t, rows)
	putSchema(t, rows, `{"format":1,"resource_labels":[],"tenancy":false,"identity":"OTHER"}`)
	if _, err := meta.Open(t.Context(), rows, newSchema(t), now); !errors.Is(err, meta.ErrSchema) || !strings.Contains(err.Error(), "files of two stores") {
		t.Errorf("%v", err)
	}
}
