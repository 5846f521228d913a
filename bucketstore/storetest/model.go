package storetest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

func modelChecks() []check {
	return []check{{"random operations", checkModel}}
}

// A model is what a table should hold: the contract in its simplest form.
type model map[column]bucketstore.Cell

type column struct{ key, family, qual string }

// apply applies one mutation.
func (m model) apply(mut bucketstore.Mutation) {
	for _, op := range mut.Ops {
		at := column{string(mut.Key), op.Family, string(op.Qualifier)}
		held, ok := m[at]
		switch op.Kind {
		case bucketstore.SetCell:
			if !ok || op.Time >= held.Time {
				m[at] = bucketstore.Cell{Family: op.Family, Qualifier: op.Qualifier, Time: op.Time, Value: op.Value}
			}
		case bucketstore.Add:
			if !ok || op.Time >= held.Time {
				value := op.Value
				if ok && op.Time == held.Time {
					value = bucketstore.AppendSum(nil, sumOf(held.Value)+sumOf(value))
				}
				m[at] = bucketstore.Cell{Family: op.Family, Qualifier: op.Qualifier, Time: op.Time, Value: value}
			}
		case bucketstore.DeleteColumn:
			delete(m, at)
		case bucketstore.DeleteColumnBefore:
			if ok && held.Time < op.Time {
				delete(m, at)
			}
		case bucketstore.DeleteFamily:
			m.dropIf(func(c column) bool { return c.key == at.key && c.family == at.family })
		}
	}
}

// sumOf returns the number in the value of a sum family.
func sumOf(value []byte) int64 {
	n, err := bucketstore.ParseSum(value)
	if err != nil {
		panic(err) // CheckOp has refused it
	}
	return n
}

func (m model) dropIf(drop func(column) bool) {
	for c := range m {
		if drop(c) {
			delete(m, c)
		}
	}
}

// holds says whether cond holds in the row key.
func (m model) holds(key []byte, cond bucketstore.Condition) bool {
	held, ok := m[column{string(key), cond.Family, string(cond.Qualifier)}]
	if cond.Absent {
		return !ok
	}
	return ok && bytes.Equal(held.Value, cond.Value)
}

// scan returns what req should find.
func (m model) scan(req bucketstore.ScanRequest) []bucketstore.Row {
	byKey := make(map[string][]bucketstore.Cell)
	for at, c := range m {
		inRow := func(r series.RowRange) bool { return r.Contains([]byte(at.key)) }
		inFamily := func(fr bucketstore.FamilyRange) bool {
			return fr.Family == at.family && series.RowRange{Start: fr.Start, Limit: fr.Limit}.Contains(c.Qualifier)
		}
		if slices.ContainsFunc(req.Rows, inRow) && slices.ContainsFunc(req.Families, inFamily) {
			byKey[at.key] = append(byKey[at.key], c)
		}
	}
	var rows []bucketstore.Row
	for key, cells := range byKey {
		slices.SortFunc(cells, func(a, b bucketstore.Cell) int {
			if c := strings.Compare(a.Family, b.Family); c != 0 {
				return c
			}
			return bytes.Compare(a.Qualifier, b.Qualifier)
		})
		rows = append(rows, row(key, cells...))
	}
	slices.SortFunc(rows, func(a, b bucketstore.Row) int { return bytes.Compare(a.Key, b.Key) })
	if req.Limit > 0 && len(rows) > req.Limit {
		rows = rows[:req.Limit]
	}
	return rows
}

// checkModel applies the same operations to the store and to a model.
func checkModel(f fixture) {
	steps := Rounds(f, 3000)
	g := generator{seriestest.NewRand(f)}
	m := make(model)
	for step := range steps {
		switch n := g.IntN(100); {
		case n < 45:
			muts := g.mutations()
			f.apply(bucketstore.Metric, muts...)
			for _, mut := range muts {
				m.apply(mut)
			}
		case n < 55:
			cond, mut := g.condition(m), g.mutation(g.bytes(1))
			want := m.holds(mut.Key, cond)
			f.wantApplied(want, bucketstore.Metric, cond, mut)
			if want {
				m.apply(mut)
			}
		case n < 57:
			r := g.rowRange()
			f.drop(bucketstore.Metric, r)
			m.dropIf(func(c column) bool { return r.Contains([]byte(c.key)) })
		default:
			req := g.request()
			f.wantScan(req, m.scan(req)...)
		}
		if step%500 == 0 || step == steps-1 {
			f.wantTable(bucketstore.Metric, m.scan(everything(bucketstore.Metric))...)
		}
	}
}

// A generator makes random requests that meet each other often.
type generator struct{ *rand.Rand }

// bytes returns up to three awkward bytes, at least atLeast.
func (g generator) bytes(atLeast int) []byte {
	const alphabet = "\x00\x01a\xfe\xff"
	b := make([]byte, atLeast+g.IntN(4-atLeast))
	for i := range b {
		b[i] = alphabet[g.IntN(len(alphabet))]
	}
	return b
}

func (g generator) family() string {
	return []string{rollup.OneHour.Family(), rollup.FiveMinutes.Family(), series.FamilyCount, series.FamilyLate, series.FamilyR0, series.FamilyR2}[g.IntN(6)]
}

// number returns a value of a sum family.
func (g generator) number() []byte { return bucketstore.AppendSum(nil, int64(g.IntN(5)-2)) }

func (g generator) op() bucketstore.Op {
	op := bucketstore.Op{Family: g.family(), Qualifier: g.bytes(0), Time: int64(g.IntN(6)), Value: g.bytes(0)}
	switch n := g.IntN(20); {
	case n < 2:
		op.Kind = bucketstore.DeleteColumn
	case n < 4:
		op.Kind = bucketstore.DeleteColumnBefore
	case n < 5:
		op.Kind = bucketstore.DeleteFamily
	case op.Family == series.FamilyCount:
		op.Kind, op.Value = bucketstore.Add, g.number()
	}
	return op
}

func (g generator) mutation(key []byte) bucketstore.Mutation {
	mut := bucketstore.Mutation{Key: key}
	for range 1 + g.IntN(4) {
		mut.Ops = append(mut.Ops, g.op())
	}
	return mut
}

// mutations returns mutations of different rows.
func (g generator) mutations() []bucketstore.Mutation {
	var muts []bucketstore.Mutation
	for range 1 + g.IntN(5) {
		key := g.bytes(1)
		if !slices.ContainsFunc(muts, func(m bucketstore.Mutation) bool { return bytes.Equal(m.Key, key) }) {
			muts = append(muts, g.mutation(key))
		}
	}
	return muts
}

// condition returns one on a column that mostly exists.
func (g generator) condition(m model) bucketstore.Condition {
	cond := bucketstore.Condition{Family: g.family(), Qualifier: g.bytes(0), Value: g.bytes(0), Absent: g.IntN(3) == 0}
	switch {
	case cond.Absent:
		cond.Value = nil
	case cond.Family == series.FamilyCount:
		cond.Value = g.number()
	}
	return cond
}

func (g generator) rowRange() series.RowRange {
	switch g.IntN(4) {
	case 0:
		return series.PrefixRange(g.bytes(1))
	case 1:
		return series.SingleRow(g.bytes(1))
	}
	bounds := [][]byte{g.bytes(0), g.bytes(1)}
	slices.SortFunc(bounds, bytes.Compare)
	return series.RowRange{Start: bounds[0], Limit: bounds[1]}
}

// request returns a scan of up to six ranges and some of the families.
func (g generator) request() bucketstore.ScanRequest {
	req := bucketstore.ScanRequest{Table: bucketstore.Metric, Limit: max(0, g.IntN(12)-6)}
	var bounds [][]byte
	for range 2 + 2*g.IntN(6) {
		bounds = append(bounds, g.bytes(0))
	}
	slices.SortFunc(bounds, bytes.Compare)
	for i := 0; i < len(bounds); i += 2 {
		r := series.RowRange{Start: bounds[i], Limit: bounds[i+1]}
		if len(r.Limit) > 0 { // Only the last range may be without a limit.
			req.Rows = append(req.Rows, r)
		}
	}
	if g.IntN(3) == 0 {
		req.Rows = append(req.Rows, series.RowRange{Start: bounds[len(bounds)-1]})
	}
	for _, family := range []string{rollup.OneHour.Family(), rollup.FiveMinutes.Family(), series.FamilyCount, series.FamilyLate, series.FamilyR0, series.FamilyR1, series.FamilyR2} {
		switch g.IntN(3) {
		case 0:
			req.Families = append(req.Families, bucketstore.FamilyRange{Family: family})
		case 1:
			req.Families = append(req.Families, bucketstore.FamilyRange{Family: family, Start: g.bytes(0), Limit: g.bytes(0)})
		}
	}
	return req
}
