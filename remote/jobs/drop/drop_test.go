package drop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/remote/jobs/drop"
	"github.com/promtable/promtable/series"
)

// A fixture is a store with tenants.
type fixture struct {
	*testing.T
	store  bucketstore.Store
	schema series.Schema
	meta   *meta.Store
	now    time.Time
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, now: time.UnixMilli(1_700_000_000_000)}
	store, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{}), Now: func() time.Time { return f.now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	f.store = store
	f.schema = series.Schema{}.WithTenants()
	if f.meta, err = meta.Open(t.Context(), store, f.schema, func() time.Time { return f.now }); err == nil {
		err = f.meta.Init(t.Context())
	}
	for _, name := range []string{"a", "a.", "ab", "b"} {
		if err == nil {
			err = f.fill(name)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// fill makes a tenant with rows in all tables.
func (f *fixture) fill(name string) error {
	schema, err := f.schema.ForTenant(name)
	if err != nil {
		return err
	}
	if _, err := f.meta.PutTenant(f.Context(), &meta.Tenant{Name: name, Created: 1}); err != nil {
		return err
	}
	if _, err := f.meta.PutDeletion(f.Context(), &meta.Deletion{ID: "D" + name, Tenant: name, Start: 1, Limit: 2}); err != nil {
		return err
	}
	set := func(table bucketstore.Table, family string, key []byte) error {
		return f.store.Apply(f.Context(), table, []bucketstore.Mutation{{Key: key, Ops: []bucketstore.Op{{Kind: bucketstore.SetCell, Family: family, Qualifier: []byte("vvvv"), Time: f.now.UnixMilli(), Value: []byte("x")}}}})
	}
	for i := range 3 {
		key := fmt.Appendf(nil, "%s,up,n=%d", name, i)
		key2, err := schema.AppendMetaKey(nil, series.MetaMetadata, fmt.Sprint("m", i))
		for _, err := range []error{
			err, set(bucketstore.Metric, series.FamilyLate, schema.AppendRowKey(nil, key, 0)), set(bucketstore.Current, series.FamilyCurrent, key),
			set(bucketstore.Index, series.FamilyIndex, append(schema.AppendPostingPrefix(nil, "n", fmt.Sprint(i), 0), key...)),
			meta.Overwrite(f.Context(), f.store, string(key2), []byte("{}"), 1),
		} {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// rows returns the keys of all tables.
func (f *fixture) rows() (keys []string) {
	f.Helper()
	for _, spec := range bucketstore.Tables(bucketstore.Retention{}) {
		req := bucketstore.ScanRequest{Table: spec.Table, Rows: []series.RowRange{{}}}
		for _, family := range spec.Families {
			req.Families = append(req.Families, bucketstore.FamilyRange{Family: family.Name})
		}
		err := f.store.Scan(f.Context(), req, func(row bucketstore.Row) error {
			keys = append(keys, spec.Table.String()+" "+string(row.Key))
			return nil
		})
		if err != nil {
			f.Fatal(err)
		}
	}
	return keys
}

// TestDrop: all rows of a dropped tenant go when it has been hidden for long enough, and no other row, also of tenants with similar names.
// Its row in META says what went.
func TestDrop(t *testing.T) {
	f := newFixture(t)
	retired := ""
	r := drop.New(drop.Config{
		Meta: f.meta, Store: f.store, Schema: f.schema, Now: func() time.Time { return f.now }, Settle: time.Minute,
		Retire: func(_ context.Context, tenant string) error {
			retired += tenant
			return nil
		},
	})
	before := f.rows()
	if err := r.Once(t.Context()); err != nil || !slices.Equal(f.rows(), before) || retired != "" {
		t.Fatal("nothing is dropped:", err, f.rows(), retired)
	}
	if err := drop.Mark(t.Context(), f.meta, f.now, "none", "ops"); err == nil {
		t.Error("a tenant that is not there is dropped")
	}
	if err := drop.Mark(t.Context(), f.meta, f.now, "a", "ops"); err != nil {
		t.Fatal(err)
	}
	if err := r.Once(t.Context()); !errors.Is(err, drop.ErrWaiting) || !slices.Equal(f.rows(), before) {
		t.Fatal(err, f.rows())
	}
	dropped := f.now
	f.now = f.now.Add(time.Minute)
	if err := r.Once(t.Context()); err != nil || retired != "a" {
		t.Fatal(err, retired)
	}
	want := slices.DeleteFunc(slices.Clone(before), func(key string) bool {
		_, rest, _ := strings.Cut(key, " ")
		return rest == "delete,Da" || len(rest) > 1 && rest[:2] == "a,"
	})
	if got := f.rows(); !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	all, err := f.meta.Tenants(t.Context())
	if err != nil || all[0].Dropping != dropped.UnixMilli() || all[0].Dropped != f.now.UnixMilli() || all[0].By != "ops" ||
		fmt.Sprint(all[0].Removed) != "map[CURRENT:3 INDEX:3 META:3 METRIC:3]" {
		t.Errorf("%+v, %v", all[0], err)
	}
	if err := r.Once(t.Context()); err != nil || retired != "a" {
		t.Error("once more:", err, retired)
	}
}

// TestDropFails: a tenant whose rows cannot all be removed is not said to be.
func TestDropFails(t *testing.T) {
	for what, store := range map[string]func(bucketstore.Store) bucketstore.Store{
		"a store that removes nothing": func(s bucketstore.Store) bucketstore.Store { return lazy{s} },
		"a store that fails":           func(s bucketstore.Store) bucketstore.Store { return broken{s} },
	} {
		f := newFixture(t)
		r := drop.New(drop.Config{Meta: f.meta, Store: store(f.store), Schema: f.schema, Now: func() time.Time { return f.now }})
		if err := drop.Mark(t.Context(), f.meta, f.now, "b", "ops"); err != nil {
			t.Fatal(err)
		}
		if err := r.Once(t.Context()); err == nil {
			t.Errorf("%s: no error", what)
		}
		all, err := f.meta.Tenants(t.Context())
		if of := all[len(all)-1]; err != nil || of.Name != "b" || of.InUse() || of.Dropped != 0 {
			t.Errorf("%s: %+v, %v", what, of, err)
		}
	}
}

type lazy struct{ bucketstore.Store }

func (lazy) Drop(context.Context, bucketstore.Table, series.RowRange) error { return nil }

type broken struct{ bucketstore.Store }

func (broken) Drop(context.Context, bucketstore.Table, series.RowRange) error {
	return errors.New("broken")
}
