package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

func errorChecks() []check {
	return []check{
		{"unknown table or family", checkUnknown},
		{"an error of fn ends the scan", checkCallbackError},
		{"a context that has ended", checkEndedContext},
		{"a context that ends during a scan", checkContextDuringScan},
	}
}

func (f fixture) wantErrTable(what string, err error) {
	f.Helper()
	if !errors.Is(err, bucketstore.ErrTable) {
		f.Fatalf("%s: error %v, want ErrTable", what, err)
	}
}

func checkUnknown(f fixture) {
	scan := func(table bucketstore.Table, family string) error {
		return f.store.Scan(f.ctx, bucketstore.ScanRequest{
			Table: table, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: family}},
		}, func(bucketstore.Row) error { return nil })
	}
	check := func(table bucketstore.Table, condFamily, family string) error {
		_, err := f.store.CheckAndApply(f.ctx, table, absent(condFamily, "q"), mutate("row", set(family, "q", 1, "x")))
		return err
	}
	for _, table := range []bucketstore.Table{bucketstore.NumTables, 200} {
		f.wantErrTable("Apply to a table", f.store.Apply(f.ctx, table, []bucketstore.Mutation{mutate("row", set("r0", "q", 1, "x"))}))
		f.wantErrTable("CheckAndApply to a table", check(table, "r0", "r0"))
		f.wantErrTable("Scan of a table", scan(table, "r0"))
		f.wantErrTable("Drop in a table", f.store.Drop(f.ctx, table, series.RowRange{}))
	}
	// "r" and "r00" begin like families that exist; "i" belongs to INDEX.
	for _, family := range []string{"", "r", "r00", "i", "\x00"} {
		for _, op := range []bucketstore.Op{set(family, "q", 1, "x"), deleteColumn(family, "q"), deleteBefore(family, "q", 1), deleteFamily(family)} {
			f.wantErrTable(fmt.Sprintf("Apply kind %d to family %q", op.Kind, family), f.store.Apply(f.ctx, bucketstore.Metric, []bucketstore.Mutation{mutate("row", op)}))
		}
		f.wantErrTable("CheckAndApply on a family", check(bucketstore.Metric, family, "r0"))
		f.wantErrTable("CheckAndApply to a family", check(bucketstore.Metric, "r0", family))
		f.wantErrTable("Scan of a family", scan(bucketstore.Metric, family))
	}
	f.wantTable(bucketstore.Metric)
}

func checkCallbackError(f fixture) {
	writeAwkward(f)
	stop := errors.New("stop")
	seen := 0
	err := f.store.Scan(f.ctx, everything(bucketstore.Index), func(bucketstore.Row) error {
		if seen++; seen == 3 {
			return stop
		}
		return nil
	})
	if err != stop || seen != 3 {
		f.Fatalf("Scan called fn %d times and returned %v, want 3 and the error of fn itself", seen, err)
	}
	f.apply(bucketstore.Index, mutate("a", set("i", "i", 2, "after")))
}

func checkEndedContext(f fixture) {
	f.apply(bucketstore.Metric, mutate("row", set("r0", "q", 1, "x")))
	ended, cancel := context.WithCancel(f.ctx)
	cancel()
	want := func(what string, err error) {
		f.Helper()
		if !errors.Is(err, context.Canceled) {
			f.Errorf("%s: error %v, want context.Canceled", what, err)
		}
	}
	mut := mutate("row", set("r0", "q", 1, "x"))
	want("Apply", f.store.Apply(ended, bucketstore.Metric, []bucketstore.Mutation{mut}))
	_, err := f.store.CheckAndApply(ended, bucketstore.Metric, equals("r0", "q", "x"), mut)
	want("CheckAndApply", err)
	want("Scan", f.store.Scan(ended, everything(bucketstore.Metric), func(bucketstore.Row) error { return nil }))
	want("Drop", f.store.Drop(ended, bucketstore.Index, series.RowRange{}))
	f.wantTable(bucketstore.Metric, row("row", cell("r0", "q", 1, "x")))
}

// checkContextDuringScan: a backend may deliver what it has read ahead, but it
// does not go through all rows.
func checkContextDuringScan(f fixture) {
	const rows = 5000
	f.apply(bucketstore.Index, manyRows(rows)...)
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	seen := 0
	err := f.store.Scan(ctx, everything(bucketstore.Index), func(bucketstore.Row) error {
		seen++
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || seen == rows {
		f.Fatalf("Scan delivered %d of %d rows after its context had ended and returned %v", seen, rows, err)
	}
}

// manyRows returns mutations of INDEX, in order of keys.
func manyRows(n int) []bucketstore.Mutation {
	muts := make([]bucketstore.Mutation, n)
	for i := range muts {
		key := fmt.Sprintf("row %06d", i)
		muts[i] = mutate(key, set("i", "i", 1, key))
	}
	return muts
}
