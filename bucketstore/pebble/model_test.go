package pebble_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/seriestest"
)

// A column is the name of a cell. Its parts sort as the contract wants it.
type column struct{ key, family, qual string }

func compareColumns(a, b column) int {
	if c := strings.Compare(a.key, b.key); c != 0 {
		return c
	}
	if c := strings.Compare(a.family, b.family); c != 0 {
		return c
	}
	return strings.Compare(a.qual, b.qual)
}

// A model is what METRIC should hold.
type model map[column]bucketstore.Op

func (m model) apply(mut bucketstore.Mutation) {
	for _, op := range mut.Ops {
		at := column{string(mut.Key), op.Family, string(op.Qualifier)}
		held, ok := m[at]
		switch {
		case op.Kind == bucketstore.Add && ok && op.Time == held.Time:
			op.Value = bucketstore.AppendSum(nil, sumOf(held.Value)+sumOf(op.Value))
			m[at] = op
		case (op.Kind == bucketstore.SetCell || op.Kind == bucketstore.Add) && (!ok || op.Time >= held.Time):
			m[at] = op
		case op.Kind == bucketstore.DeleteColumn, op.Kind == bucketstore.DeleteColumnBefore && held.Time < op.Time:
			delete(m, at)
		case op.Kind == bucketstore.DeleteFamily:
			maps.DeleteFunc(m, func(c column, _ bucketstore.Op) bool { return c.key == at.key && c.family == at.family })
		}
	}
}

func sumOf(value []byte) int64 {
	n, err := bucketstore.ParseSum(value)
	if err != nil {
		panic(err)
	}
	return n
}

func (m model) holds(key []byte, cond bucketstore.Condition) bool {
	held, ok := m[column{string(key), cond.Family, string(cond.Qualifier)}]
	if cond.Absent {
		return !ok
	}
	return ok && bytes.Equal(held.Value, cond.Value)
}

// scan returns as text what req should find.
func (m model) scan(req bucketstore.ScanRequest) string {
	var found []column
	for at := range m {
		inRow := func(r series.RowRange) bool { return r.Contains([]byte(at.key)) }
		inFamily := func(fr bucketstore.FamilyRange) bool {
			return fr.Family == at.family && series.RowRange{Start: fr.Start, Limit: fr.Limit}.Contains([]byte(at.qual))
		}
		if slices.ContainsFunc(req.Rows, inRow) && slices.ContainsFunc(req.Families, inFamily) {
			found = append(found, at)
		}
	}
	slices.SortFunc(found, compareColumns)
	var b strings.Builder
	rows, last := 0, ""
	for i, at := range found {
		if i == 0 || at.key != last {
			if rows++; req.Limit > 0 && rows > req.Limit {
				break
			}
			last = at.key
			fmt.Fprintf(&b, "%q\n", last)
		}
		fmt.Fprintf(&b, "\t%s:%x@%d=%x\n", at.family, at.qual, m[at].Time, m[at].Value)
	}
	return b.String()
}

// scanText returns what the store finds, in the same form.
func scanText(t *testing.T, s *pebble.Store, req bucketstore.ScanRequest) string {
	t.Helper()
	var b strings.Builder
	err := s.Scan(t.Context(), req, func(row bucketstore.Row) error {
		fmt.Fprintf(&b, "%q\n", row.Key)
		for _, c := range row.Cells {
			fmt.Fprintf(&b, "\t%s:%x@%d=%x\n", c.Family, c.Qualifier, c.Time, c.Value)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A generator makes random requests about few rows, bases and days.
type generator struct{ *rand.Rand }

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

// base returns one of four in a row, the first two being testBase and nextBase.
func (g generator) base() string {
	return fmt.Sprintf("%013d", 987842478080+int64(g.IntN(4))*series.Period)
}

// key returns keys of all kinds: most have a base, and some that have none sort
// between two that have.
func (g generator) key() string {
	switch g.IntN(8) {
	case 0:
		return "a," + g.base() + pick(g, "=x,", "x=y,") + g.base()
	case 1:
		return pick(g, "a", "a,", "a,0:=1,", "a,099,", "a\x00,", "b\xff,", "b,"+testBase[:9])
	case 2:
		return pick(g, "a,", `a\,`+nextBase+",", "a\x00,", "a,c=d,") + g.base()
	case 3:
		return "a," + g.base() + pick(g, ",", ",host", ",host,pod", ","+nextBase, "\x00", "=", ",\x00")
	}
	return pick(g, "a,", "b,") + g.base()
}

func (g generator) qual() []byte {
	if g.IntN(12) == 0 {
		return []byte(pick(g, "", "\x00", "\x80\x00", "\xff\xff\xff\xff", "\xff\xff\xff\xff\xff"))
	}
	qual := daysIn(pick(g, 0, 1, 2, 10, 49), uint32(g.IntN(3)))
	return append(qual, pick(g, "", "", "\x00", "rest")...)
}

func (g generator) family() string { return pick(g, "1h", "5m", "c", "d", "l", "r0") }

func (g generator) op() bucketstore.Op {
	op := bucketstore.Op{Family: g.family(), Qualifier: g.qual(), Time: int64(g.IntN(6)), Value: []byte{byte(g.IntN(4))}}
	switch n := g.IntN(20); {
	case n < 2:
		op.Kind = bucketstore.DeleteColumn
	case n < 4:
		op.Kind = bucketstore.DeleteColumnBefore
	case n < 5:
		op.Kind = bucketstore.DeleteFamily
	case op.Family == series.FamilyCount:
		op.Kind, op.Value = bucketstore.Add, bucketstore.AppendSum(nil, int64(op.Value[0])-1)
	}
	return op
}

func (g generator) mutation(key string) bucketstore.Mutation {
	mut := bucketstore.Mutation{Key: []byte(key)}
	for range 1 + g.IntN(5) {
		mut.Ops = append(mut.Ops, g.op())
	}
	return mut
}

// mutations returns mutations of different rows.
func (g generator) mutations() (muts []bucketstore.Mutation) {
	seen := make(map[string]bool)
	for range 1 + g.IntN(5) {
		if key := g.key(); !seen[key] {
			seen[key] = true
			muts = append(muts, g.mutation(key))
		}
	}
	return muts
}

func (g generator) condition() bucketstore.Condition {
	cond := bucketstore.Condition{Family: g.family(), Qualifier: g.qual(), Absent: g.IntN(2) == 0}
	if !cond.Absent {
		cond.Value = []byte{byte(g.IntN(4))}
	}
	return cond
}

// rowRange returns ranges as readers make them, and others.
func (g generator) rowRange() series.RowRange {
	bounds := []string{g.key(), g.key()}
	switch g.IntN(6) {
	case 0:
		return series.SingleRow([]byte(bounds[0]))
	case 1:
		return series.PrefixRange([]byte(bounds[0]))
	case 2:
		return series.PrefixRange([]byte(pick(g, "", "a", "a,", "a,0", "a,098", "b,")))
	case 3, 4:
		series := pick(g, "a,", "b,", "a,c=d,")
		bounds = []string{series + g.base() + pick(g, "", "", ","), series + g.base() + pick(g, "\x00", "\x00", "", ",host\x00")}
	}
	slices.Sort(bounds)
	return series.RowRange{Start: []byte(bounds[0]), Limit: []byte(bounds[1])}
}

// request returns a scan of some ranges and some of the families.
func (g generator) request() bucketstore.ScanRequest {
	req := bucketstore.ScanRequest{Table: bucketstore.Metric, Limit: max(0, g.IntN(12)-6)}
	var ranges []series.RowRange
	for range 1 + g.IntN(6) {
		ranges = append(ranges, g.rowRange())
	}
	slices.SortFunc(ranges, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
	for _, r := range ranges {
		if n := len(req.Rows); n > 0 && (len(req.Rows[n-1].Limit) == 0 || bytes.Compare(r.Start, req.Rows[n-1].Limit) < 0) {
			continue
		}
		req.Rows = append(req.Rows, r)
	}
	for _, family := range []string{"1h", "5m", "c", "d", "l", "r0", "r1"} {
		switch g.IntN(3) {
		case 0:
			req.Families = append(req.Families, bucketstore.FamilyRange{Family: family})
		case 1:
			req.Families = append(req.Families, bucketstore.FamilyRange{Family: family, Start: g.qual(), Limit: g.qual()})
		}
	}
	return req
}

// TestModelOverDays applies the same operations to a store and to a model, and reopens the
// store now and then.
func TestModelOverDays(t *testing.T) {
	const steps = 600
	g := generator{seriestest.NewRand(t)}
	disk, m := vfs.NewMem(), make(model)
	for range storetest.Rounds(t, 8) {
		cfg := onDisk("/data")
		cfg.MemTableBytes, cfg.CacheBytes = 16<<10, 1<<20
		s, err := pebble.Open(cfg.WithFS(disk))
		if err != nil {
			t.Fatal(err)
		}
		for range steps {
			modelStep(t, g, s, m)
		}
		if got, want := scanText(t, s, allOf(bucketstore.Metric)), m.scan(allOf(bucketstore.Metric)); got != want {
			t.Fatalf("the store holds\n%s\nwant\n%s", got, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func modelStep(t *testing.T, g generator, s *pebble.Store, m model) {
	t.Helper()
	switch n := g.IntN(100); {
	case n < 45:
		muts := g.mutations()
		if err := s.Apply(t.Context(), bucketstore.Metric, muts); err != nil {
			t.Fatal(err)
		}
		for _, mut := range muts {
			m.apply(mut)
		}
	case n < 55:
		cond, mut := g.condition(), g.mutation(g.key())
		want := m.holds(mut.Key, cond)
		if got, err := s.CheckAndApply(t.Context(), bucketstore.Metric, cond, mut); err != nil || got != want {
			t.Fatalf("CheckAndApply of row %q says %t, %v, want %t", mut.Key, got, err, want)
		}
		if want {
			m.apply(mut)
		}
	case n < 57:
		r := g.rowRange()
		if err := s.Drop(t.Context(), bucketstore.Metric, r); err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(m, func(c column, _ bucketstore.Op) bool { return r.Contains([]byte(c.key)) })
	default:
		req := g.request()
		if got, want := scanText(t, s, req), m.scan(req); got != want {
			t.Fatalf("scan of %q, families %q, limit %d found\n%s\nwant\n%s", req.Rows, req.Families, req.Limit, got, want)
		}
	}
}
