package storetest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
)

// RunExpiry checks that cells expire when they are older than the MaxAge of their family.
// It is for backends that use the clock given to open.
func RunExpiry(t *testing.T, open Open) {
	t.Helper()
	const retention = 90 * 24 * time.Hour
	for _, tc := range []struct {
		name      string
		retention time.Duration
		after     time.Duration
		want      []string
	}{
		{"at once", 0, 0, []string{"CURRENT", "INDEX", "META", "METRIC"}},
		{"as old as CURRENT keeps", 0, bucketstore.MaxCurrentAge, []string{"CURRENT", "INDEX", "META", "METRIC"}},
		{"older than CURRENT keeps", 0, bucketstore.MaxCurrentAge + time.Millisecond, []string{"INDEX", "META", "METRIC"}},
		{"years later without retention", 0, 10 * 365 * 24 * time.Hour, []string{"INDEX", "META", "METRIC"}},
		{"as old as retention", retention, retention, []string{"INDEX", "META", "METRIC"}},
		{"older than retention", retention, retention + time.Millisecond, []string{"META"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var clock atomic.Int64
			clock.Store(1e12)
			now := func() time.Time { return time.UnixMilli(clock.Load()) }
			f := newFixture(t, open(t, bucketstore.Tables(tc.retention), now))
			families := map[bucketstore.Table]string{bucketstore.Metric: "r0", bucketstore.Current: "v", bucketstore.Index: "i", bucketstore.Meta: "m"}
			for table, family := range families {
				f.apply(table, mutate("row", set(family, "q", clock.Load(), "x")))
			}
			clock.Add(tc.after.Milliseconds())
			f.waitForTables(families, tc.want)
			f.checkAfterExpiry(clock.Load())
		})
	}
}

// waitForTables waits until exactly the tables want hold a row. Those must never be without
// it.
func (f fixture) waitForTables(families map[bucketstore.Table]string, want []string) {
	f.Helper()
	wanted := make(map[string]bool)
	for _, name := range want {
		wanted[name] = true
	}
	for table := range families {
		for {
			rows := len(f.scan(everything(table)))
			if wanted[table.String()] && rows != 1 {
				f.Fatalf("%s holds %d rows, want 1", table, rows)
			}
			if wanted[table.String()] || rows == 0 {
				break
			}
			select {
			case <-f.ctx.Done():
				f.Fatalf("%s never lost its row", table)
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
