package storetest

import (
	"slices"
	"strings"

	"github.com/promtable/promtable/bucketstore"
)

// awkwardKeys returns keys in order of bytes: with the lowest and the highest
// byte, prefixes of each other, and the longest that a backend must take.
func awkwardKeys() []string {
	keys := []string{
		"\x00", "\x00\x00", "\x00\x01", "\x00\xff", "\x01", "\x01\x00",
		"a", "a\x00", "a\x00\x00", "a\x00\x01", "a\x00\xff", "a\x00a", "a\x01", "a\xfe", "a\xff", "a\xff\x00", "a\xff\xff",
		"a,", "a,b", "a\\", "aa", "ab", "b",
		"\xfe\xff", "\xff", "\xff\x00", "\xff\x01", "\xff\xff", "\xff\xff\xff",
		strings.Repeat("k", 4096), strings.Repeat("\x00", 4096), strings.Repeat("\xff", 4096),
	}
	slices.Sort(keys)
	return keys
}

// awkwardQualifiers is the same for qualifiers, which may be empty.
func awkwardQualifiers() []string {
	quals := append(awkwardKeys(), "", "\x00\x00\x00\x01", "\xff\xff\xff\xfe", "\xff\xff\xff\xff")
	slices.Sort(quals)
	return slices.Compact(quals)
}

// backwards calls do with the elements in descending order.
func backwards(sorted []string, do func(string)) {
	for _, s := range slices.Backward(sorted) {
		do(s)
	}
}

func orderChecks() []check {
	return []check{
		{"keys in order of bytes", checkKeyOrder},
		{"qualifiers in order of bytes", checkQualifierOrder},
		{"families in order of names", checkFamilyOrder},
		{"tables are separate", checkTables},
		{"rows are separate", checkRows},
	}
}

func checkKeyOrder(f fixture) {
	var want []bucketstore.Row
	for _, key := range awkwardKeys() {
		want = append(want, row(key, cell("i", "i", 1, key)))
	}
	backwards(awkwardKeys(), func(key string) {
		f.apply(bucketstore.Index, mutate(key, set("i", "i", 1, key)))
	})
	f.wantTable(bucketstore.Index, want...)
}

func checkQualifierOrder(f fixture) {
	var ops []bucketstore.Op
	var cells []bucketstore.Cell
	backwards(awkwardQualifiers(), func(qual string) { ops = append(ops, set("r1", qual, 1, qual)) })
	for _, qual := range awkwardQualifiers() {
		cells = append(cells, cell("r1", qual, 1, qual))
	}
	f.apply(bucketstore.Metric, mutate("row", ops...))
	f.wantTable(bucketstore.Metric, row("row", cells...))
}

func checkFamilyOrder(f fixture) {
	f.apply(bucketstore.Metric,
		mutate("row", set("r3", "a", 1, "5"), set("r0", "b", 2, "3"), set("l", "c", 3, "1"), set("r2", "", 4, "4"), set("l", "d", 5, "2")),
		mutate("roy", set("r2", "\x00", 1, "2"), set("r0", "\xff", 2, "1")))
	f.wantTable(bucketstore.Metric,
		row("row", cell("l", "c", 3, "1"), cell("l", "d", 5, "2"), cell("r0", "b", 2, "3"), cell("r2", "", 4, "4"), cell("r3", "a", 1, "5")),
		row("roy", cell("r0", "\xff", 2, "1"), cell("r2", "\x00", 1, "2")))
}

func checkTables(f fixture) {
	now := currentTime()
	f.apply(bucketstore.Metric, mutate("row", set("r0", "v", 1, "metric")))
	f.apply(bucketstore.Current, mutate("row", set("v", "v", now, "current")))
	f.apply(bucketstore.Index, mutate("row", set("i", "v", 3, "index")))
	f.apply(bucketstore.Meta, mutate("row", set("m", "v", 4, "meta")))
	f.wantTable(bucketstore.Metric, row("row", cell("r0", "v", 1, "metric")))
	f.wantTable(bucketstore.Current, row("row", cell("v", "v", now, "current")))
	f.wantTable(bucketstore.Index, row("row", cell("i", "v", 3, "index")))
	f.wantTable(bucketstore.Meta, row("row", cell("m", "v", 4, "meta")))
	if err := f.store.Drop(f.ctx, bucketstore.Index, between("", "")); err != nil {
		f.Fatal(err)
	}
	f.wantTable(bucketstore.Index)
	f.wantTable(bucketstore.Metric, row("row", cell("r0", "v", 1, "metric")))
	f.wantTable(bucketstore.Current, row("row", cell("v", "v", now, "current")))
	f.wantTable(bucketstore.Meta, row("row", cell("m", "v", 4, "meta")))
}

// checkRows writes and deletes in rows whose names would collide with each other's cells in
// a backend that joins the parts without separators.
func checkRows(f fixture) {
	f.apply(bucketstore.Metric,
		mutate("a", set("r0", "r1", 1, "1")),
		mutate("ar0", set("r1", "", 1, "2")),
		mutate("a\x00", set("r0", "", 1, "3")),
		mutate("a\x00r0", set("r0", "\x00", 1, "4")),
		mutate("a\x00\x01r0", set("r0", "", 1, "5")))
	f.apply(bucketstore.Metric, mutate("a", deleteFamily("r0")))
	f.wantTable(bucketstore.Metric,
		row("a\x00", cell("r0", "", 1, "3")),
		row("a\x00\x01r0", cell("r0", "", 1, "5")),
		row("a\x00r0", cell("r0", "\x00", 1, "4")),
		row("ar0", cell("r1", "", 1, "2")))
	f.apply(bucketstore.Metric, mutate("a\x00", deleteColumn("r0", "")))
	f.wantTable(bucketstore.Metric,
		row("a\x00\x01r0", cell("r0", "", 1, "5")),
		row("a\x00r0", cell("r0", "\x00", 1, "4")),
		row("ar0", cell("r1", "", 1, "2")))
}
