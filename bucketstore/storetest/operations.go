package storetest

import "github.com/promtable/promtable/bucketstore"

func operationChecks() []check {
	return []check{
		{"operations", checkOperations},
		{"a deleted column forgets its time", checkForgottenTime},
		{"delete in rows that do not exist", checkDeleteNothing},
	}
}

// checkOperations applies each operation to a row with the same cells.
func checkOperations(f fixture) {
	before := []bucketstore.Op{set("l", "a", 5, "1"), set("l", "b", 6, "2"), set("r0", "a", 7, "3")}
	la, lb, ra := cell("l", "a", 5, "1"), cell("l", "b", 6, "2"), cell("r0", "a", 7, "3")
	for _, tc := range []struct {
		name string
		ops  []bucketstore.Op
		want []bucketstore.Cell
	}{
		{"delete column", []bucketstore.Op{deleteColumn("l", "a")}, []bucketstore.Cell{lb, ra}},
		{"delete column of another family", []bucketstore.Op{deleteColumn("r0", "b")}, []bucketstore.Cell{la, lb, ra}},
		{"delete family", []bucketstore.Op{deleteFamily("l")}, []bucketstore.Cell{ra}},
		{"delete all families", []bucketstore.Op{deleteFamily("l"), deleteFamily("r0")}, nil},
		{"delete before an earlier time", []bucketstore.Op{deleteBefore("l", "a", 4)}, []bucketstore.Cell{la, lb, ra}},
		{"delete before its very time", []bucketstore.Op{deleteBefore("l", "a", 5)}, []bucketstore.Cell{la, lb, ra}},
		{"delete before a later time", []bucketstore.Op{deleteBefore("l", "a", 6)}, []bucketstore.Cell{lb, ra}},
		{"delete before time 0", []bucketstore.Op{deleteBefore("l", "a", 0)}, []bucketstore.Cell{la, lb, ra}},
		{"set, delete family, set", []bucketstore.Op{set("l", "a", 9, "x"), set("l", "c", 9, "x"), deleteFamily("l"), set("l", "a", 1, "y")},
			[]bucketstore.Cell{cell("l", "a", 1, "y"), ra}},
		{"delete family, set, delete family", []bucketstore.Op{deleteFamily("l"), set("l", "a", 9, "x"), deleteFamily("l")}, []bucketstore.Cell{ra}},
		{"set, delete column, set", []bucketstore.Op{set("l", "a", 9, "x"), deleteColumn("l", "a"), set("l", "a", 2, "y")},
			[]bucketstore.Cell{cell("l", "a", 2, "y"), lb, ra}},
		{"set, delete column", []bucketstore.Op{set("l", "c", 9, "x"), deleteColumn("l", "c")}, []bucketstore.Cell{la, lb, ra}},
		{"set, delete before the old time", []bucketstore.Op{set("l", "a", 9, "x"), deleteBefore("l", "a", 8)},
			[]bucketstore.Cell{cell("l", "a", 9, "x"), lb, ra}},
		{"set, delete before the new time", []bucketstore.Op{set("l", "a", 9, "x"), deleteBefore("l", "a", 10)}, []bucketstore.Cell{lb, ra}},
		{"delete before, set older", []bucketstore.Op{deleteBefore("l", "a", 6), set("l", "a", 3, "x")},
			[]bucketstore.Cell{cell("l", "a", 3, "x"), lb, ra}},
		{"set older, delete before", []bucketstore.Op{set("l", "a", 3, "x"), deleteBefore("l", "a", 4)}, []bucketstore.Cell{la, lb, ra}},
		{"delete family, delete before, set", []bucketstore.Op{deleteFamily("l"), deleteBefore("l", "b", 9), set("l", "b", 1, "x")},
			[]bucketstore.Cell{cell("l", "b", 1, "x"), ra}},
		{"set several times", []bucketstore.Op{set("l", "a", 6, "x"), set("l", "a", 8, "y"), set("l", "a", 7, "z")},
			[]bucketstore.Cell{cell("l", "a", 8, "y"), lb, ra}},
	} {
		f.apply(bucketstore.Metric, mutate(tc.name, before...), mutate(tc.name+" (beside)", before...))
		f.apply(bucketstore.Metric, mutate(tc.name, tc.ops...))
		f.wantRow(tc.name, tc.want...)
		f.wantRow(tc.name+" (beside)", la, lb, ra)
	}
}

// wantRow checks that a row of METRIC holds these cells, or does not exist if
// there are none.
func (f fixture) wantRow(key string, want ...bucketstore.Cell) {
	f.Helper()
	req := everything(bucketstore.Metric)
	req.Rows[0] = between(key, key+"\x00")
	if len(want) == 0 {
		f.wantScan(req)
		return
	}
	f.wantScan(req, row(key, want...))
}

// checkForgottenTime: a cell that was deleted does not hide a later write of an
// earlier time.
func checkForgottenTime(f fixture) {
	for _, tc := range []struct {
		name string
		op   bucketstore.Op
	}{
		{"column", deleteColumn("r0", "q")},
		{"family", deleteFamily("r0")},
		{"before", deleteBefore("r0", "q", 10)},
	} {
		f.apply(bucketstore.Metric, mutate(tc.name, set("r0", "q", 9, "new")))
		f.apply(bucketstore.Metric, mutate(tc.name, set("r0", "q", 8, "hidden")))
		f.apply(bucketstore.Metric, mutate(tc.name, tc.op))
		f.wantRow(tc.name)
		f.apply(bucketstore.Metric, mutate(tc.name, set("r0", "q", 1, "old")))
		f.wantRow(tc.name, cell("r0", "q", 1, "old"))
	}
}

func checkDeleteNothing(f fixture) {
	f.apply(bucketstore.Metric,
		mutate("a", deleteColumn("r0", "q")),
		mutate("b", deleteFamily("r0")),
		mutate("c", deleteBefore("r0", "q", 5)))
	f.wantTable(bucketstore.Metric)
}
