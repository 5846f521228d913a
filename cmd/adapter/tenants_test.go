package main

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// TestFailingOfTenant: a tenant is shown its own rows that the store does not take, and no others.
func TestFailingOfTenant(t *testing.T) {
	schema, err := series.NewSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	var rows []bucketstore.FailingRow
	for _, tenant := range []string{"a", "ab", "b"} {
		of, err := schema.ForTenant(tenant)
		if err != nil {
			t.Fatal(err)
		}
		key, err := of.AppendSeriesKey(nil, labels.FromStrings("__name__", "up"))
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, bucketstore.FailingRow{Key: key})
	}
	if own := failingOfTenant(rows, "a"); len(own) != 1 || string(own[0].Key) != string(rows[0].Key) {
		t.Errorf("a is shown %v", own)
	}
	if own := failingOfTenant(rows, "c"); len(own) != 0 {
		t.Errorf("c is shown %v", own)
	}
}
