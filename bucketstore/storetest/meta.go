package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// CheckMeta wants that a check of a store finds nothing in its META, whose rows are for all tenants or of one of these schemas.
func CheckMeta(t testing.TB, store bucketstore.Store, schemas ...series.Schema) {
	t.Helper()
	err := store.Scan(context.Background(), bucketstore.ScanRequest{
		Table: bucketstore.Meta, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: series.FamilyMeta}},
	}, func(row bucketstore.Row) error {
		var errs []error
		for _, schema := range schemas {
			errs = append(errs, meta.CheckRow(schema, row))
		}
		if !slices.Contains(errs, nil) {
			t.Errorf("a check of META finds in row %q: %v", row.Key, errors.Join(errs...))
		}
		return nil
	})
	if err != nil {
		t.Error("check META:", err)
	}
}
