package deletion

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// TestRecordOfTenant: a record covers the series of its tenant alone, read by a process that has all tenants or one.
func TestRecordOfTenant(t *testing.T) {
	all, err := series.NewSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	all = all.WithTenants()
	one, err := all.ForTenant("a")
	if err != nil {
		t.Fatal(err)
	}
	key, err := one.AppendSeriesKey(nil, labels.FromStrings("__name__", "m"))
	if err != nil {
		t.Fatal(err)
	}
	for _, schema := range []series.Schema{all, one} {
		for tenant, want := range map[string]bool{"a": true, "b": false} {
			r, err := newRecord(meta.Deletion{ID: "1", Tenant: tenant, Limit: 100, Matchers: []meta.Matcher{{Name: "__name__", Type: "=", Value: "m"}}}, schema)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.covers(key, 0, 10); got != want {
				t.Errorf("a record of tenant %s covers a series of a: %t, for a schema of tenant %q", tenant, got, schema.Tenant())
			}
		}
	}
}
