package storetest

import (
	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

func dropChecks() []check {
	return []check{
		{"drop a prefix", checkDropPrefix},
		{"drop a range", checkDropRange},
		{"drop a table", checkDropTable},
		{"drop single rows", checkDropSingle},
	}
}

func (f fixture) drop(table bucketstore.Table, r series.RowRange) {
	f.Helper()
	if err := f.store.Drop(f.ctx, table, r); err != nil {
		f.Fatalf("Drop of %s: %v", r, err)
	}
}

// wantDropped writes the awkward rows, drops r, and checks what is left.
func (f fixture) wantDropped(r series.RowRange) {
	f.Helper()
	var left []bucketstore.Row
	for _, row := range writeAwkward(f) {
		if !r.Contains(row.Key) {
			left = append(left, row)
		}
	}
	f.drop(bucketstore.Index, r)
	f.wantTable(bucketstore.Index, left...)
	f.drop(bucketstore.Index, r)
	f.wantTable(bucketstore.Index, left...)
}

func checkDropPrefix(f fixture) {
	for _, prefix := range []string{"a", "a\x00", "a\xff", "\xff", "\xff\xff\xff", "\x00", "nothing"} {
		f.wantDropped(series.PrefixRange([]byte(prefix)))
	}
}

func checkDropRange(f fixture) {
	f.wantDropped(between("a\x00\x00", "a\xff"))
	f.wantDropped(between("a\x00\x02", "a\x00\x03"))
	f.wantDropped(between("", "a"))
	f.wantDropped(between("aa\x00", ""))
	f.wantDropped(between("b", "b"))
}

func checkDropTable(f fixture) {
	f.wantDropped(between("", ""))
	f.apply(bucketstore.Index, mutate("a", set("i", "i", 0, "after")))
	f.wantTable(bucketstore.Index, row("a", cell("i", "i", 0, "after")))
}

// checkDropSingle also checks that a drop hides no later write.
func checkDropSingle(f fixture) {
	f.apply(bucketstore.Metric,
		mutate("a", set("r0", "q", 9, "1")),
		mutate("b", set("l", "q", 9, "2"), set("r3", "q", 9, "3")),
		mutate("b\x00", set("r0", "q", 9, "4")))
	f.drop(bucketstore.Metric, series.SingleRow([]byte("b")))
	f.wantTable(bucketstore.Metric, row("a", cell("r0", "q", 9, "1")), row("b\x00", cell("r0", "q", 9, "4")))
	f.apply(bucketstore.Metric, mutate("b", set("r3", "q", 1, "new")))
	f.wantTable(bucketstore.Metric, row("a", cell("r0", "q", 9, "1")), row("b", cell("r3", "q", 1, "new")), row("b\x00", cell("r0", "q", 9, "4")))
}
