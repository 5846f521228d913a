package series_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

func TestCheckTenant(t *testing.T) {
	for _, name := range []string{"a", "Team-1", "0", "a.b", "...", "it's(*)!_", "Delete", strings.Repeat("x", series.MaxTenant)} {
		if err := series.CheckTenant(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{
		"", ".", "..", "a|b", "a/b", "../a", `a\b`, "a,b", "a=b", "a b", "a\n", "a\x00", "é", "ａ", "a\u202eb", "%61", "a:b",
		"schema", "delete", "log", "metadata", "member", strings.Repeat("x", series.MaxTenant+1),
	} {
		if err := series.CheckTenant(name); !errors.Is(err, series.ErrTenant) || len(err.Error()) > 512 {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestWithTenants: the schema of all tenants parses the keys of each of them, and makes none.
func TestWithTenants(t *testing.T) {
	all := newSchema(t, []string{"host"}, "").WithTenants()
	if !all.Tenancy() || all.Tenant() != "" || newSchema(t, nil, "").Tenancy() {
		t.Errorf("%+v", all)
	}
	ls := labels.FromStrings("__name__", "up", "host", "h", "job", "j")
	for _, tenant := range []string{"a", "a,b", `\`} {
		one, err := all.ForTenant(tenant)
		if err != nil {
			t.Fatal(err)
		}
		key, err := one.AppendSeriesKey(nil, ls)
		if err != nil {
			t.Fatal(err)
		}
		var b labels.ScratchBuilder
		if got, err := all.ParseSeriesKey(key, &b); err != nil || !labels.Equal(got, ls) {
			t.Errorf("%q is %s, %v", key, got, err)
		}
		posting := append(one.AppendPostingPrefix(nil, "job", "j", 0), key...)
		for what, key := range map[string][]byte{"series": key, "row": one.AppendRowKey(nil, key, 0), "posting": posting} {
			if got, err := series.TenantOf(key); err != nil || got != tenant || !one.TenantRange().Contains(key) {
				t.Errorf("the %s key %q is of tenant %q, %v", what, key, got, err)
			}
		}
		if _, got, err := all.ParsePosting(posting); err != nil || string(got) != string(key) {
			t.Errorf("posting of %q, %v", got, err)
		}
		meta, err := one.AppendMetaKey(nil, series.MetaHA, "cluster")
		if kind, name, parsed := all.ParseMetaKey(meta); err != nil || parsed != nil || kind != series.MetaHA || name != "cluster" {
			t.Errorf("%q is %q of %q, %v", meta, kind, name, parsed)
		}
	}
	if key, err := all.AppendSeriesKey(nil, ls); err == nil {
		t.Errorf("a key of no tenant: %q", key)
	}
	for _, key := range []string{"", "up", ",up"} {
		if tenant, err := series.TenantOf([]byte(key)); !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("%q is of %q, %v", key, tenant, err)
		}
	}
	if key := series.AppendMetaTenantKey(nil, "a,b"); string(key) != `tenant,a\,b` || !series.MetaTenantRange().Contains(key) {
		t.Errorf("%q", key)
	} else if name, err := series.ParseMetaTenantKey(key); name != "a,b" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
}
