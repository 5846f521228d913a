package series_test

import (
	"errors"
	"testing"

	"github.com/promtable/promtable/series"
)

func TestMetaKeys(t *testing.T) {
	for _, tenancy := range []bool{false, true} {
		schema, tenant := newSchema(t, nil, tenancy), ""
		if tenancy {
			tenant = "a,b"
		}
		rows, err := schema.MetaRange(tenant, series.MetaMetadata)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"", "up", "a,b\\c\n\x00=d", "metadata", "ha"} {
			key, err := schema.AppendMetaKey([]byte("x"), tenant, series.MetaMetadata, name)
			if err != nil {
				t.Fatal(err)
			}
			key = key[1:]
			gotTenant, kind, got, err := schema.ParseMetaKey(key)
			if err != nil || gotTenant != tenant || kind != series.MetaMetadata || got != name || !rows.Contains(key) {
				t.Errorf("%q is %q of tenant %q: %q, %v", key, kind, gotTenant, got, err)
			}
			other, err := schema.AppendMetaKey(nil, tenant, series.MetaHA, name)
			if err != nil || rows.Contains(other) {
				t.Errorf("%q lies in %s, %v", other, rows, err)
			}
		}
		if _, err := schema.AppendMetaKey(nil, tenant, series.MetaHA, string(make([]byte, series.MaxSeriesKey))); !errors.Is(err, series.ErrKeyTooLong) {
			t.Errorf("a long name: %v", err)
		}
	}
	schema := newSchema(t, nil, false)
	if rows, err := schema.MetaRange("", series.MetaHA); err != nil || rows.Contains([]byte(series.MetaSchema)) {
		t.Errorf("%s, %v", rows, err)
	}
	for _, key := range []string{"", "schema", "metadata", "metadata,a,b", `metadata,a\`} {
		if _, kind, name, err := schema.ParseMetaKey([]byte(key)); !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("%q is %q %q, %v", key, kind, name, err)
		}
	}
	if _, err := schema.AppendMetaKey(nil, "tenant", series.MetaHA, "x"); err == nil {
		t.Error("a tenant without tenancy")
	}
}
