package meta_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/promtable/promtable/bucketstore/meta"
)

// TestTenants: tenants are put, and changed only as they were read. Their bytes are part of the format.
func TestTenants(t *testing.T) {
	for backend, openRows := range backends {
		t.Run(backend, func(t *testing.T) {
			rows := openRows(t)
			s := open(t, rows, newSchema(t))
			before := metaRows(t, rows)
			put := func(of *meta.Tenant, want bool) {
				t.Helper()
				if got, err := s.PutTenant(t.Context(), of); err != nil || got != want {
					t.Fatalf("put %t, %v", got, err)
				}
			}
			a, b := meta.Tenant{Name: "a", Created: 1}, meta.Tenant{Name: "b.(!)", Created: 2}
			put(&a, true)
			put(&b, true)
			put(&meta.Tenant{Name: "a", Created: 3}, false)
			a.Dropping, a.Dropped, a.By, a.Removed = 4, 5, "ops", map[string]int64{"METRIC": 6}
			put(&a, true)
			want := append(slices.Clone(before), `tenant,a v@130000000000 {"created":1,"dropping":4,"dropped":5,"by":"ops","removed":{"METRIC":6}}`,
				`tenant,b.(!) v@130000000000 {"created":2}`)
			slices.Sort(want)
			if got := metaRows(t, rows); !slices.Equal(got, want) {
				t.Errorf("META is %q, want %q", got, want)
			}
			if all, err := s.Tenants(t.Context()); err != nil || !reflect.DeepEqual(all, []meta.Tenant{a, b}) || a.InUse() || !b.InUse() {
				t.Errorf("read %+v, %v", all, err)
			}
		})
	}
}
