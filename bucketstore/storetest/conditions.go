package storetest

import "github.com/promtable/promtable/bucketstore"

func conditionChecks() []check {
	return []check{
		{"conditions", checkConditions},
		{"a condition sees the latest cell", checkConditionLatest},
		{"a conditional mutation is in order", checkConditionalOrder},
	}
}

// wantApplied applies mut under a condition and checks the answer.
func (f fixture) wantApplied(want bool, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) {
	f.Helper()
	applied, err := f.store.CheckAndApply(f.ctx, table, cond, mut)
	if err != nil {
		f.Fatalf("CheckAndApply(%q, %+v): %v", mut.Key, cond, err)
	}
	if applied != want {
		f.Fatalf("CheckAndApply(%q, %+v) = %v, want %v", mut.Key, cond, applied, want)
	}
}

func absent(family, qual string) bucketstore.Condition {
	return bucketstore.Condition{Family: family, Qualifier: []byte(qual), Absent: true}
}

func equals(family, qual, value string) bucketstore.Condition {
	return bucketstore.Condition{Family: family, Qualifier: []byte(qual), Value: []byte(value)}
}

func checkConditions(f fixture) {
	// Each row holds r0:q = held, if held is not nil, and cells beside it.
	text := func(s string) *string { return &s }
	for _, tc := range []struct {
		name string
		held *string
		cond bucketstore.Condition
		want bool
	}{
		{"absent, absent", nil, absent("r0", "q"), true},
		{"held, absent", text("x"), absent("r0", "q"), false},
		{"held empty, absent", text(""), absent("r0", "q"), false},
		{"held, another family absent", text("x"), absent("r1", "q"), true},
		{"held, another qualifier absent", text("x"), absent("r0", ""), true},
		{"equal", text("x"), equals("r0", "q", "x"), true},
		{"equal, awkward", text(".*\x00\xff\n+"), equals("r0", "q", ".*\x00\xff\n+"), true},
		{"different", text("x"), equals("r0", "q", "y"), false},
		{"longer", text("x"), equals("r0", "q", "xx"), false},
		{"shorter", text("xx"), equals("r0", "q", "x"), false},
		{"pattern", text("x"), equals("r0", "q", "."), false},
		{"absent, equal", nil, equals("r0", "q", "x"), false},
		{"absent, equal to empty", nil, equals("r0", "q", ""), false},
		{"empty, equal to empty", text(""), equals("r0", "q", ""), true},
		{"held, equal to empty", text("x"), equals("r0", "q", ""), false},
		{"empty, equal", text(""), equals("r0", "q", "x"), false},
		{"equal in another family", text("x"), equals("r1", "q", "x"), false},
		{"equal in another qualifier", text("x"), equals("r0", "q\x00", "x"), false},
	} {
		cells := []bucketstore.Cell{cell("l", "q", 1, "x"), cell("r0", "p", 1, "x")}
		f.apply(bucketstore.Metric, mutate(tc.name, set("l", "q", 1, "x"), set("r0", "p", 1, "x")))
		if tc.held != nil {
			f.apply(bucketstore.Metric, mutate(tc.name, set("r0", "q", 1, *tc.held)))
			cells = append(cells, cell("r0", "q", 1, *tc.held))
		}
		f.wantApplied(tc.want, bucketstore.Metric, tc.cond, mutate(tc.name, set("r3", "", 7, "done")))
		if tc.want {
			cells = append(cells, cell("r3", "", 7, "done"))
		}
		f.wantRow(tc.name, cells...)
	}
	f.wantApplied(true, bucketstore.Metric, absent("r0", "q"), mutate("no such row", set("r0", "q", 1, "x")))
	f.wantRow("no such row", cell("r0", "q", 1, "x"))
	f.wantApplied(false, bucketstore.Metric, equals("r0", "q", "x"), mutate("no other row", set("r0", "q", 1, "x")))
	f.wantRow("no other row")
}

// checkConditionLatest: versions that a newer one hides do not count.
func checkConditionLatest(f fixture) {
	f.apply(bucketstore.Meta, mutate("seal", set("m", "v", 5, "mine")))
	f.apply(bucketstore.Meta, mutate("seal", set("m", "v", 4, "older")))
	f.wantApplied(false, bucketstore.Meta, equals("m", "v", "older"), mutate("seal", set("m", "v", 9, "x")))
	f.wantApplied(true, bucketstore.Meta, equals("m", "v", "mine"), mutate("seal", set("m", "v", 6, "yours")))
	f.wantApplied(false, bucketstore.Meta, equals("m", "v", "mine"), mutate("seal", set("m", "v", 9, "x")))
	f.wantApplied(true, bucketstore.Meta, equals("m", "v", "yours"), mutate("seal", set("m", "v", 3, "hidden")))
	f.wantTable(bucketstore.Meta, row("seal", cell("m", "v", 6, "yours")))
	f.apply(bucketstore.Meta, mutate("seal", deleteColumn("m", "v")))
	f.wantApplied(false, bucketstore.Meta, equals("m", "v", "yours"), mutate("seal", set("m", "v", 9, "x")))
	f.wantApplied(true, bucketstore.Meta, absent("m", "v"), mutate("seal", set("m", "v", 1, "again")))
	f.wantTable(bucketstore.Meta, row("seal", cell("m", "v", 1, "again")))
}

func checkConditionalOrder(f fixture) {
	f.apply(bucketstore.Metric, mutate("row", set("l", "a", 9, "1"), set("r0", "a", 2, "2"), set("r0", "b", 5, "3")))
	f.wantApplied(true, bucketstore.Metric, equals("r0", "a", "2"), mutate("row",
		deleteFamily("l"), set("l", "a", 1, "x"), deleteColumn("r0", "a"), deleteBefore("r0", "b", 6), set("r0", "c", 1, "y"), deleteBefore("r0", "c", 1)))
	f.wantTable(bucketstore.Metric, row("row", cell("l", "a", 1, "x"), cell("r0", "c", 1, "y")))
}
