package storetest

import (
	"fmt"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

func sumChecks() []check {
	return []check{
		{"sums", checkSums},
		{"the time of a sum", checkSumTimes},
		{"what is deleted is not in a sum", checkDeletedSums},
		{"conditions and sums", checkConditionalSums},
		{"operations on families of another kind", checkKinds},
		{"a batch of sums beside cells", checkManySums},
	}
}

// addTime is the time of most sums.
const addTime = 86_400_000

func add(qual string, t, n int64) bucketstore.Op {
	return bucketstore.Op{Kind: bucketstore.Add, Family: series.FamilyCount, Qualifier: []byte(qual), Time: t, Value: bucketstore.AppendSum(nil, n)}
}

func sum(qual string, t, n int64) bucketstore.Cell {
	return cell(series.FamilyCount, qual, t, string(bucketstore.AppendSum(nil, n)))
}

func checkSums(f fixture) {
	f.apply(bucketstore.Metric, mutate("row", add("a", addTime, 1)))
	f.wantRow("row", sum("a", addTime, 1))
	f.apply(bucketstore.Metric, mutate("row", add("a", addTime, 41), add("b", addTime, -7)), mutate("other", add("a", addTime, 5)))
	f.wantRow("row", sum("a", addTime, 42), sum("b", addTime, -7))
	f.apply(bucketstore.Metric, mutate("row", add("a", addTime, 1), add("a", addTime, 2), add("b", addTime, 7), add("a", addTime, 3)))
	f.wantRow("row", sum("a", addTime, 48), sum("b", addTime, 0))
	f.apply(bucketstore.Metric, mutate("row", add("a", addTime, -50), add("", addTime, 0), add("c", addTime, 1<<62)))
	f.apply(bucketstore.Metric, mutate("row", add("c", addTime, 1<<62-1)))
	f.wantRow("row", sum("", addTime, 0), sum("a", addTime, -2), sum("b", addTime, 0), sum("c", addTime, 1<<63-1))
	f.wantRow("other", sum("a", addTime, 5))
	f.wantScan(bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: everything(bucketstore.Metric).Rows, Families: []bucketstore.FamilyRange{columns(series.FamilyCount, "b", "c")}},
		row("row", sum("b", addTime, 0)))
}

// checkSumTimes: of sums of one column and several times the one with the greatest time counts.
func checkSumTimes(f fixture) {
	f.apply(bucketstore.Metric, mutate("row", add("a", 5, 1)))
	f.apply(bucketstore.Metric, mutate("row", add("a", 5, 2), add("a", 4, 100)))
	f.wantRow("row", sum("a", 5, 3))
	f.apply(bucketstore.Metric, mutate("row", add("a", 6, 10)))
	f.wantRow("row", sum("a", 6, 10))
	f.apply(bucketstore.Metric, mutate("row", add("a", 5, 1), add("a", 6, 1)))
	f.wantRow("row", sum("a", 6, 11))
}

func checkDeletedSums(f fixture) {
	for _, tc := range []struct {
		name string
		ops  []bucketstore.Op
		want []bucketstore.Cell
	}{
		{"column", []bucketstore.Op{deleteColumn(series.FamilyCount, "a")}, []bucketstore.Cell{sum("b", addTime, 8)}},
		{"column, add", []bucketstore.Op{deleteColumn(series.FamilyCount, "a"), add("a", addTime, 1)}, []bucketstore.Cell{sum("a", addTime, 1), sum("b", addTime, 8)}},
		{"add, column, add", []bucketstore.Op{add("a", addTime, 1), deleteColumn(series.FamilyCount, "a"), add("a", addTime, 2)}, []bucketstore.Cell{sum("a", addTime, 2), sum("b", addTime, 8)}},
		{"before its time", []bucketstore.Op{deleteBefore(series.FamilyCount, "a", addTime), add("a", addTime, 1)}, []bucketstore.Cell{sum("a", addTime, 8), sum("b", addTime, 8)}},
		{"before a later time", []bucketstore.Op{add("a", addTime, 1), deleteBefore(series.FamilyCount, "a", addTime+1)}, []bucketstore.Cell{sum("b", addTime, 8)}},
		{"family", []bucketstore.Op{deleteFamily(series.FamilyCount)}, nil},
		{"add, family, add", []bucketstore.Op{add("c", addTime, 1), deleteFamily(series.FamilyCount), add("a", addTime, 3)}, []bucketstore.Cell{sum("a", addTime, 3)}},
		{"another family", []bucketstore.Op{deleteFamily("r0"), add("a", addTime, 3)}, []bucketstore.Cell{sum("a", addTime, 10), sum("b", addTime, 8)}},
	} {
		f.apply(bucketstore.Metric, mutate(tc.name, add("a", addTime, 3), add("b", addTime, 8)))
		f.apply(bucketstore.Metric, mutate(tc.name, add("a", addTime, 4)))
		f.apply(bucketstore.Metric, mutate(tc.name, tc.ops...))
		f.wantRow(tc.name, tc.want...)
		// What was deleted does not come back, and its time is forgotten.
		f.apply(bucketstore.Metric, mutate(tc.name, deleteFamily(series.FamilyCount)))
		f.apply(bucketstore.Metric, mutate(tc.name, add("a", 1, 1)))
		f.wantRow(tc.name, sum("a", 1, 1))
	}
}

func checkConditionalSums(f fixture) {
	f.apply(bucketstore.Metric, mutate("row", set("r0", "q", 1, "x")))
	f.wantApplied(true, bucketstore.Metric, equals("r0", "q", "x"), mutate("row", add("a", addTime, 2), set("r0", "q", 2, "y"), add("a", addTime, 3)))
	f.wantApplied(false, bucketstore.Metric, equals("r0", "q", "x"), mutate("row", add("a", addTime, 100)))
	f.wantApplied(false, bucketstore.Metric, absent(series.FamilyCount, "a"), mutate("row", add("a", addTime, 100)))
	f.wantApplied(true, bucketstore.Metric, absent(series.FamilyCount, "b"), mutate("row", add("b", addTime, 1)))
	f.wantApplied(true, bucketstore.Metric, equals(series.FamilyCount, "a", string(bucketstore.AppendSum(nil, 5))), mutate("row", add("a", addTime, -6)))
	f.wantApplied(false, bucketstore.Metric, equals(series.FamilyCount, "a", string(bucketstore.AppendSum(nil, 5))), mutate("row", add("a", addTime, 100)))
	f.wantRow("row", sum("a", addTime, -1), sum("b", addTime, 1), cell("r0", "q", 2, "y"))
}

// checkKinds: what is wrong for a family is an error, and changes nothing.
func checkKinds(f fixture) {
	f.apply(bucketstore.Metric, mutate("row", add("a", addTime, 1)))
	sumOn := func(family string) bucketstore.Op {
		op := add("a", addTime, 1)
		op.Family = family
		return op
	}
	short := add("a", addTime, 1)
	short.Value = short.Value[1:]
	for name, op := range map[string]bucketstore.Op{
		"SetCell on a sum family": set(series.FamilyCount, "a", addTime, "12345678"),
		"Add on a raw family":     sumOn("r0"),
		"Add on a rollup":         sumOn(rollup.FiveMinutes.Family()),
		"Add of 7 bytes":          short,
	} {
		mut := mutate("row", set("r0", "q", 1, "x"), op)
		if err := f.store.Apply(f.ctx, bucketstore.Metric, []bucketstore.Mutation{mut}); err == nil {
			f.Errorf("%s: Apply returns no error", name)
		}
		if _, err := f.store.CheckAndApply(f.ctx, bucketstore.Metric, absent("r0", "q"), mut); err == nil {
			f.Errorf("%s: CheckAndApply returns no error", name)
		}
	}
	f.wantRow("row", sum("a", addTime, 1))
}

// checkManySums: a batch that is large enough for a backend to treat it in another way.
func checkManySums(f fixture) {
	const rows, columns, times = 100, 30, 3
	value := make([]byte, 2048)
	for range times {
		var muts []bucketstore.Mutation
		for i := range rows {
			mut := mutate(fmt.Sprintf("row %03d", i))
			for c := range columns {
				qual := fmt.Sprintf("%02d", c)
				mut.Ops = append(mut.Ops, set("c", qual, 1, string(value)), add(qual, addTime, int64(i)), add(qual, addTime, 1))
			}
			muts = append(muts, mut)
		}
		f.apply(bucketstore.Metric, muts...)
	}
	req := everything(bucketstore.Metric)
	i := 0
	err := f.store.Scan(f.ctx, req, func(r bucketstore.Row) error {
		if len(r.Cells) != 2*columns {
			return fmt.Errorf("row %q has %d cells", r.Key, len(r.Cells))
		}
		for _, c := range r.Cells[columns:] {
			if n, err := bucketstore.ParseSum(c.Value); err != nil || n != times*int64(i+1) {
				return fmt.Errorf("row %q: sum %d, %v, want %d", r.Key, n, err, times*(i+1))
			}
		}
		i++
		return nil
	})
	if err != nil || i != rows {
		f.Fatalf("%d rows: %v", i, err)
	}
}

// checkConcurrentSums adds to the same sums, while others delete and read beside them.
func checkConcurrentSums(f fixture) {
	const adders, each, quals = 8, 50, 3
	f.together(adders+1, func(i int) error {
		for n := range each {
			mut := mutate("row", set("r0", fmt.Sprint(i), int64(n), "x"))
			if i == adders {
				mut = mutate("row", deleteFamily("l"), deleteBefore("r1", "a", 5))
			} else {
				for q := range quals {
					mut.Ops = append(mut.Ops, add(fmt.Sprint(q), addTime, int64(i*q)-1))
				}
			}
			if err := f.store.Apply(f.ctx, bucketstore.Metric, []bucketstore.Mutation{mut}); err != nil {
				return err
			}
		}
		return nil
	})
	var want []bucketstore.Cell
	for q := range int64(quals) {
		want = append(want, sum(fmt.Sprint(q), addTime, each*(q*adders*(adders-1)/2-adders)))
	}
	for i := range adders {
		want = append(want, cell("r0", fmt.Sprint(i), each-1, "x"))
	}
	f.wantRow("row", want...)
}
