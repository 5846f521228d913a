package series_test

import (
	"errors"
	"testing"

	"github.com/promtable/promtable/series"
)

func TestMetaKeys(t *testing.T) {
	for _, tenant := range []string{"", "a,b"} {
		schema := newSchema(t, nil, tenant)
		rows := schema.MetaRange(series.MetaMetadata)
		for _, name := range []string{"", "up", "a,b\\c\n\x00=d", "metadata", "ha"} {
			key, err := schema.AppendMetaKey([]byte("x"), series.MetaMetadata, name)
			if err != nil {
				t.Fatal(err)
			}
			key = key[1:]
			kind, got, err := schema.ParseMetaKey(key)
			if err != nil || kind != series.MetaMetadata || got != name || !rows.Contains(key) {
				t.Errorf("%q is %q of %q, %v", key, kind, got, err)
			}
			other, err := schema.AppendMetaKey(nil, series.MetaHA, name)
			if err != nil || rows.Contains(other) {
				t.Errorf("%q lies in %s, %v", other, rows, err)
			}
		}
		if _, err := schema.AppendMetaKey(nil, series.MetaHA, string(make([]byte, series.MaxSeriesKey))); !errors.Is(err, series.ErrKeyTooLong) {
			t.Errorf("a long name: %v", err)
		}
	}
	schema := newSchema(t, nil, "")
	if rows := schema.MetaRange(series.MetaHA); rows.Contains([]byte(series.MetaSchema)) {
		t.Errorf("%s", rows)
	}
	for _, key := range []string{"", "schema", "metadata", "metadata,a,b", `metadata,a\`} {
		if kind, name, err := schema.ParseMetaKey([]byte(key)); !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("%q is %q %q, %v", key, kind, name, err)
		}
	}
	for _, key := range []string{"metadata,a", "b,metadata,a", "aa,metadata,a", `a\,metadata,a`} {
		if kind, name, err := newSchema(t, nil, "a").ParseMetaKey([]byte(key)); !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("%q of another tenant is %q %q, %v", key, kind, name, err)
		}
	}
}

func TestMetaDeleteKeys(t *testing.T) {
	rows := series.MetaDeleteRange()
	for _, tt := range []struct {
		key, text string
		log       string
	}{
		{string(series.AppendMetaDeleteKey(nil, "ID")), "delete,ID", ""},
		{string(series.AppendMetaDeleteLogKey(nil, "ID", "LOG")), "delete,ID,LOG", "LOG"},
	} {
		if id, log := series.ParseMetaDeleteKey([]byte(tt.key)); tt.key != tt.text || id != "ID" || log != tt.log || !rows.Contains([]byte(tt.key)) {
			t.Errorf("%q has the IDs %q and %q, want %q", tt.key, id, log, tt.text)
		}
	}
	if rows.Contains([]byte(series.MetaDelete)) {
		t.Errorf("%s has the row of the lease", rows)
	}
}

func TestTenant(t *testing.T) {
	for _, tenant := range []string{"", "a", "a,b\\c\n"} {
		if got := newSchema(t, nil, tenant).Tenant(); got != tenant {
			t.Errorf("%q is %q", tenant, got)
		}
	}
}

// TestMetaRulesKeys: the keys of lists of retention rules are in their range, and that of the lease is not.
func TestMetaRulesKeys(t *testing.T) {
	key, rows := series.AppendMetaRulesKey(nil, "ID"), series.MetaRulesRange()
	if string(key) != "rules,ID" || series.ParseMetaRulesKey(key) != "ID" || !rows.Contains(key) || rows.Contains([]byte(series.MetaRules)) {
		t.Errorf("key %q, range %s", key, rows)
	}
}
