package storetest

import (
	"fmt"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

func rangeChecks() []check {
	return []check{
		{"every single row", checkSingleRows},
		{"every pair of bounds", checkBounds},
		{"many ranges", checkManyRanges},
		{"awkward ranges", checkAwkwardRanges},
		{"limit", checkLimit},
		{"qualifier ranges", checkQualifierRanges},
		{"every pair of qualifier bounds", checkQualifierBounds},
		{"no row without a cell asked for", checkNoEmptyRow},
	}
}

// writeAwkward writes a row for each awkward key and returns the rows.
func writeAwkward(f fixture) []bucketstore.Row {
	var rows []bucketstore.Row
	var muts []bucketstore.Mutation
	for _, key := range awkwardKeys() {
		muts = append(muts, mutate(key, set("i", "i", 1, "x")))
		rows = append(rows, row(key, cell("i", "i", 1, "x")))
	}
	f.apply(bucketstore.Index, muts...)
	return rows
}

func indexRows(ranges ...series.RowRange) bucketstore.ScanRequest {
	req := everything(bucketstore.Index)
	req.Rows = ranges
	return req
}

func checkSingleRows(f fixture) {
	var all []series.RowRange
	rows := writeAwkward(f)
	for _, r := range rows {
		all = append(all, series.SingleRow(r.Key))
		f.wantScan(indexRows(series.SingleRow(r.Key)), r)
	}
	f.wantScan(indexRows(all...), rows...)
	f.wantScan(indexRows(series.SingleRow([]byte("a\x00\x02"))))
}

func checkBounds(f fixture) {
	rows := writeAwkward(f)
	bounds := append([]string{"", "a\x00\x02", "a\xff\x01"}, awkwardKeys()...)
	for _, start := range bounds {
		for _, limit := range bounds {
			r := between(start, limit)
			var want []bucketstore.Row
			for _, row := range rows {
				if r.Contains(row.Key) {
					want = append(want, row)
				}
			}
			f.wantScan(indexRows(r), want...)
		}
	}
}

func checkManyRanges(f fixture) {
	const rows = 600
	var muts []bucketstore.Mutation
	var ranges []series.RowRange
	var want []bucketstore.Row
	for i := range rows {
		key := fmt.Sprintf("row %04d", i)
		muts = append(muts, mutate(key, set("i", "i", 1, key)))
		switch i % 6 {
		case 0:
			ranges = append(ranges, series.SingleRow([]byte(key)))
			want = append(want, row(key, cell("i", "i", 1, key)))
		case 1: // Nothing is between this row and itself.
			ranges = append(ranges, between(key+"a", key+"b"))
		case 3:
			ranges = append(ranges, between(key, fmt.Sprintf("row %04d", i+2)))
			want = append(want, row(key, cell("i", "i", 1, key)))
		case 4:
			want = append(want, row(key, cell("i", "i", 1, key)))
		}
	}
	f.apply(bucketstore.Index, muts...)
	f.wantScan(indexRows(ranges...), want...)
}

func checkAwkwardRanges(f fixture) {
	f.apply(bucketstore.Index, mutate("a", set("i", "i", 1, "1")), mutate("b", set("i", "i", 1, "2")), mutate("c", set("i", "i", 1, "3")))
	a, b, c := row("a", cell("i", "i", 1, "1")), row("b", cell("i", "i", 1, "2")), row("c", cell("i", "i", 1, "3"))
	f.wantScan(indexRows())
	f.wantScan(indexRows(between("", "")), a, b, c)
	f.wantScan(indexRows(between("a", "a")))
	f.wantScan(indexRows(between("a", "b"), between("b", "c")), a, b)
	f.wantScan(indexRows(between("", "b"), between("b", "")), a, b, c)
	f.wantScan(indexRows(between("a", "a"), between("a\x00", "")), b, c)
	f.wantScan(indexRows(between("c\x00", "")))
	f.wantScan(indexRows(series.PrefixRange([]byte("b"))), b)
}

func checkLimit(f fixture) {
	rows := writeAwkward(f)
	for _, limit := range []int{1, 2, len(rows) - 1, len(rows), len(rows) + 1} {
		req := indexRows(series.RowRange{})
		req.Limit = limit
		f.wantScan(req, rows[:min(limit, len(rows))]...)
	}
	req := indexRows(series.SingleRow(rows[0].Key), between("nothing", "nothing else"), series.SingleRow(rows[len(rows)-1].Key))
	req.Limit = 2
	f.wantScan(req, rows[0], rows[len(rows)-1])
	req.Limit = 1
	f.wantScan(req, rows[0])
}

func checkQualifierRanges(f fixture) {
	f.apply(bucketstore.Metric,
		mutate("one", set("l", "a", 1, "1"), set("l", "b", 1, "2"), set("r0", "a", 1, "3"), set("r0", "b", 1, "4"), set("r1", "a", 1, "5")),
		mutate("two", set("l", "b", 1, "6"), set("r1", "a", 1, "7"), set("r1", "b", 1, "8"), set("r1", "c", 1, "9")))
	ask := func(families ...bucketstore.FamilyRange) bucketstore.ScanRequest {
		return bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: families}
	}
	f.wantScan(ask(columns("l", "", ""), columns("r1", "", "")),
		row("one", cell("l", "a", 1, "1"), cell("l", "b", 1, "2"), cell("r1", "a", 1, "5")),
		row("two", cell("l", "b", 1, "6"), cell("r1", "a", 1, "7"), cell("r1", "b", 1, "8"), cell("r1", "c", 1, "9")))
	f.wantScan(ask(columns("l", "b", ""), columns("r0", "", "b"), columns("r1", "b", "c")),
		row("one", cell("l", "b", 1, "2"), cell("r0", "a", 1, "3")),
		row("two", cell("l", "b", 1, "6"), cell("r1", "b", 1, "8")))
	f.wantScan(ask(columns("l", "a\x00", "b\x00"), columns("r3", "", "")),
		row("one", cell("l", "b", 1, "2")),
		row("two", cell("l", "b", 1, "6")))
	f.wantScan(ask(columns("r0", "", "")), row("one", cell("r0", "a", 1, "3"), cell("r0", "b", 1, "4")))
	f.wantScan(ask(columns("l", "b", "b"), columns("r0", "b", "a"), columns("r1", "c", "")), row("two", cell("r1", "c", 1, "9")))
}

func checkQualifierBounds(f fixture) {
	var ops []bucketstore.Op
	for _, qual := range awkwardQualifiers() {
		ops = append(ops, set("r1", qual, 1, "x"))
	}
	// The neighbours in the next families and rows must never be seen.
	f.apply(bucketstore.Metric,
		mutate("row", append(ops, set("r0", "\xff\xff\xff\xff\xff", 1, "x"), set("r2", "", 1, "x"))...),
		mutate("row\x00", set("r2", "", 1, "x")))
	for _, start := range awkwardQualifiers() {
		for _, limit := range awkwardQualifiers() {
			qr := between(start, limit)
			var cells []bucketstore.Cell
			for _, qual := range awkwardQualifiers() {
				if qr.Contains([]byte(qual)) {
					cells = append(cells, cell("r1", qual, 1, "x"))
				}
			}
			req := bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{columns("r1", start, limit)}}
			if len(cells) == 0 {
				f.wantScan(req)
				continue
			}
			f.wantScan(req, row("row", cells...))
		}
	}
}

func checkNoEmptyRow(f fixture) {
	f.apply(bucketstore.Metric,
		mutate("a", set("r0", "b", 1, "1")),
		mutate("b", set("r1", "b", 1, "2")),
		mutate("c", set("r0", "c", 1, "3")),
		mutate("d", set("r0", "b", 1, "4")))
	req := bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{columns("r0", "b", "c")}}
	f.wantScan(req, row("a", cell("r0", "b", 1, "1")), row("d", cell("r0", "b", 1, "4")))
	req.Limit = 2 // Rows that are not delivered do not count.
	f.wantScan(req, row("a", cell("r0", "b", 1, "1")), row("d", cell("r0", "b", 1, "4")))
	req.Families[0] = columns("r0", "d", "")
	f.wantScan(req)
	req.Families = nil
	f.wantScan(req)
}
