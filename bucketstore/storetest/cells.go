package storetest

import (
	"time"

	"github.com/promtable/promtable/bucketstore"
)

// currentTime is the time of a cell that CURRENT keeps, in milliseconds.
func currentTime() int64 { return time.Now().UnixMilli() }

func cellChecks() []check {
	return []check{
		{"greatest time wins", checkGreatestTime},
		{"equal times", checkEqualTimes},
		{"repetition", checkRepetition},
		{"empty values and extreme times", checkExtremes},
		{"no reference is kept", checkNoReference},
	}
}

func checkGreatestTime(f fixture) {
	f.apply(bucketstore.Metric, mutate("row", set("l", "q", 5, "five")))
	f.apply(bucketstore.Metric, mutate("row", set("l", "q", 4, "late")))
	f.wantTable(bucketstore.Metric, row("row", cell("l", "q", 5, "five")))
	f.apply(bucketstore.Metric, mutate("row", set("l", "q", 6, "six")))
	f.wantTable(bucketstore.Metric, row("row", cell("l", "q", 6, "six")))
	f.apply(bucketstore.Metric, mutate("row", set("l", "q", 0, "oldest")))
	f.apply(bucketstore.Metric, mutate("row", set("l", "q", 256, "more bytes")))
	f.apply(bucketstore.Metric, mutate("row", set("l", "q", 255, "late")))
	f.wantTable(bucketstore.Metric, row("row", cell("l", "q", 256, "more bytes")))
	f.apply(bucketstore.Metric, mutate("row", set("l", "q", 9, "a"), set("l", "p", 9, "b"), set("l", "p", 8, "c"), set("l", "p", 10, "d")))
	f.wantTable(bucketstore.Metric, row("row", cell("l", "p", 10, "d"), cell("l", "q", 256, "more bytes")))
	f.apply(bucketstore.Current, mutate("row", set("v", "v", currentTime(), "new")))
	f.apply(bucketstore.Current, mutate("row", set("v", "v", currentTime()-int64(time.Minute/time.Millisecond), "old")))
	if rows := f.scan(everything(bucketstore.Current)); len(rows) != 1 || string(rows[0].Cells[0].Value) != "new" {
		f.Fatalf("CURRENT holds\n%s\nwant the newer cell", format(rows))
	}
}

func checkEqualTimes(f fixture) {
	f.apply(bucketstore.Metric, mutate("row", set("r0", "q", 5, "z")))
	f.apply(bucketstore.Metric, mutate("row", set("r0", "q", 5, "a")))
	f.wantTable(bucketstore.Metric, row("row", cell("r0", "q", 5, "a")))
	f.apply(bucketstore.Metric, mutate("row", set("r0", "q", 5, "longer")))
	f.wantTable(bucketstore.Metric, row("row", cell("r0", "q", 5, "longer")))
	f.apply(bucketstore.Metric, mutate("row", set("r0", "q", 5, "1"), set("r0", "q", 5, "2"), set("r0", "q", 5, "3")))
	f.wantTable(bucketstore.Metric, row("row", cell("r0", "q", 5, "3")))
	f.apply(bucketstore.Metric, mutate("row", set("r0", "q", 5, "")))
	f.wantTable(bucketstore.Metric, row("row", cell("r0", "q", 5, "")))
}

func checkRepetition(f fixture) {
	muts := []bucketstore.Mutation{
		mutate("a", set("r0", "q", 1, "1"), set("l", "q", 2, "2"), deleteColumn("l", "p")),
		mutate("b", deleteFamily("r0"), set("r0", "q", 1, "3"), deleteBefore("r0", "q", 1)),
	}
	f.apply(bucketstore.Metric, mutate("a", set("l", "p", 1, "gone")), mutate("b", set("r0", "p", 1, "gone")))
	for range 3 {
		f.apply(bucketstore.Metric, muts...)
		f.wantTable(bucketstore.Metric,
			row("a", cell("l", "q", 2, "2"), cell("r0", "q", 1, "1")),
			row("b", cell("r0", "q", 1, "3")))
	}
}

func checkExtremes(f fixture) {
	const last = 9999999999999 // series.MaxTime
	f.apply(bucketstore.Metric, mutate("row", set("r0", "a", 0, ""), set("r0", "b", last, ""), set("r0", "c", 0, "\x00"), set("r0", "d", last, "\xff")))
	want := row("row", cell("r0", "a", 0, ""), cell("r0", "b", last, ""), cell("r0", "c", 0, "\x00"), cell("r0", "d", last, "\xff"))
	f.wantTable(bucketstore.Metric, want)
	f.apply(bucketstore.Metric)
	f.wantTable(bucketstore.Metric, want)
}

// checkNoReference overwrites what it gave to Apply and what it got from Scan.
func checkNoReference(f fixture) {
	m := mutate("row", set("r0", "qual", 1, "value"))
	f.apply(bucketstore.Metric, m)
	overwrite := func() {
		for _, b := range [][]byte{m.Key, m.Ops[0].Qualifier, m.Ops[0].Value} {
			for i := range b {
				b[i] = '!'
			}
		}
	}
	overwrite()
	f.wantTable(bucketstore.Metric, row("row", cell("r0", "qual", 1, "value")))
	m = mutate("row", set("r0", "qual", 2, "other"))
	cond := bucketstore.Condition{Family: "r0", Qualifier: []byte("qual"), Value: []byte("value")}
	f.wantApplied(true, bucketstore.Metric, cond, m)
	overwrite()
	f.wantTable(bucketstore.Metric, row("row", cell("r0", "qual", 2, "other")))
	req := everything(bucketstore.Metric)
	req.Rows[0] = between("row", "rox")
	f.wantScan(req, row("row", cell("r0", "qual", 2, "other")))
}
