package storetest

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// RunExpiry checks that cells expire when they are older than the MaxAge of their family.
// It is for backends that use the clock given to open.
func RunExpiry(t *testing.T, open Open) {
	t.Helper()
	const retention = 90 * 24 * time.Hour
	type expiry struct {
		name  string
		kept  bucketstore.Retention
		after time.Duration
	}
	cases := []expiry{
		{"at once", bucketstore.Retention{}, 0},
		{"as old as CURRENT keeps", bucketstore.Retention{}, bucketstore.MaxCurrentAge},
		{"older than CURRENT keeps", bucketstore.Retention{}, bucketstore.MaxCurrentAge + time.Millisecond},
		{"years later without retention", bucketstore.Retention{}, 10 * 365 * 24 * time.Hour},
	}
	var kept bucketstore.Retention
	age := time.Duration(0)
	for r := range kept {
		age += retention
		kept[r] = age
	}
	for r := range rollup.NumResolutions {
		cases = append(cases, expiry{"as old as " + r.String(), kept, kept[r]}, expiry{"older than " + r.String(), kept, kept[r] + time.Millisecond})
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var clock atomic.Int64
			clock.Store(1e12)
			now := func() time.Time { return time.UnixMilli(clock.Load()) }
			f := newFixture(t, open(t, bucketstore.Tables(tc.kept), now))
			tables := map[string]bucketstore.Table{
				"d": bucketstore.Metric, "r0": bucketstore.Metric, "v": bucketstore.Current, "i": bucketstore.Index, "m": bucketstore.Meta,
			}
			for _, family := range rollup.Families() {
				tables[family] = bucketstore.Metric
			}
			for family, table := range tables {
				op := set(family, "q", clock.Load(), "x")
				if family == series.FamilyCount {
					op = add("q", clock.Load(), 1)
				}
				f.apply(table, mutate("row", op))
			}
			clock.Add(tc.after.Milliseconds())
			f.waitForFamilies(tables, livingFamilies(tc.kept, tc.after))
			f.checkAfterExpiry(clock.Load())
		})
	}
}

// livingFamilies are those whose cells of some age are there.
func livingFamilies(kept bucketstore.Retention, age time.Duration) []string {
	lives := func(keep time.Duration) bool { return keep == 0 || age <= keep }
	names := []string{"m"}
	for _, r := range rollup.Downsampled {
		if lives(kept[r]) {
			names = append(names, r.Family())
		}
	}
	if lives(kept[rollup.Raw]) {
		names = append(names, "d", "r0")
		if age <= bucketstore.MaxCurrentAge {
			names = append(names, "v")
		}
	}
	if lives(kept[rollup.Coarsest]) {
		names = append(names, "i")
	}
	return names
}

// waitForFamilies waits until exactly the families want hold a row. Those must never be without
// it.
func (f fixture) waitForFamilies(tables map[string]bucketstore.Table, want []string) {
	f.Helper()
	for family, table := range tables {
		wanted := slices.Contains(want, family)
		for {
			rows := len(f.scan(bucketstore.ScanRequest{Table: table, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: family}}}))
			if wanted && rows != 1 {
				f.Fatalf("family %s of %s holds %d rows, want 1", family, table, rows)
			}
			if wanted || rows == 0 {
				break
			}
			select {
			case <-f.ctx.Done():
				f.Fatalf("family %s of %s never lost its row", family, table)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// checkAfterExpiry: a column whose cell has expired is empty.
func (f fixture) checkAfterExpiry(now int64) {
	f.Helper()
	f.apply(bucketstore.Current, mutate("row", set("v", "q", now, "new")))
	f.wantTable(bucketstore.Current, row("row", cell("v", "q", now, "new")))
}
