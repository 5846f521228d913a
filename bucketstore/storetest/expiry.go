package storetest

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// RunExpiry checks that cells expire when they are older than the MaxAge of their family.
// It is for backends that use the clock given to open.
func RunExpiry(t *testing.T, open Open) {
	t.Helper()
	const retention = 90 * 24 * time.Hour
	kept := bucketstore.Retention{bucketstore.Raw: retention, bucketstore.FiveMinutes: 2 * retention, bucketstore.OneHour: 3 * retention}
	for _, tc := range []struct {
		name  string
		kept  bucketstore.Retention
		after time.Duration
		want  []string
	}{
		{"at once", bucketstore.Retention{}, 0, []string{"1h", "5m", "d", "i", "m", "r0", "v"}},
		{"as old as CURRENT keeps", bucketstore.Retention{}, bucketstore.MaxCurrentAge, []string{"1h", "5m", "d", "i", "m", "r0", "v"}},
		{"older than CURRENT keeps", bucketstore.Retention{}, bucketstore.MaxCurrentAge + time.Millisecond, []string{"1h", "5m", "d", "i", "m", "r0"}},
		{"years later without retention", bucketstore.Retention{}, 10 * 365 * 24 * time.Hour, []string{"1h", "5m", "d", "i", "m", "r0"}},
		{"as old as retention", kept, retention, []string{"1h", "5m", "d", "i", "m", "r0"}},
		{"older than retention", kept, retention + time.Millisecond, []string{"1h", "5m", "i", "m"}},
		{"older than the next resolution", kept, 2*retention + time.Millisecond, []string{"1h", "i", "m"}},
		{"as old as the last resolution", kept, 3 * retention, []string{"1h", "i", "m"}},
		{"older than the last resolution", kept, 3*retention + time.Millisecond, []string{"m"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var clock atomic.Int64
			clock.Store(1e12)
			now := func() time.Time { return time.UnixMilli(clock.Load()) }
			f := newFixture(t, open(t, bucketstore.Tables(tc.kept), now))
			tables := map[string]bucketstore.Table{
				"1h": bucketstore.Metric, "5m": bucketstore.Metric, "d": bucketstore.Metric, "r0": bucketstore.Metric,
				"v": bucketstore.Current, "i": bucketstore.Index, "m": bucketstore.Meta,
			}
			for family, table := range tables {
				op := set(family, "q", clock.Load(), "x")
				if family == series.FamilyCount {
					op = add("q", clock.Load(), 1)
				}
				f.apply(table, mutate("row", op))
			}
			clock.Add(tc.after.Milliseconds())
			f.waitForFamilies(tables, tc.want)
			f.checkAfterExpiry(clock.Load())
		})
	}
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
