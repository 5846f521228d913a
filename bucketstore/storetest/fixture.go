package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// patience is the longest time of one check, in case a backend hangs.
const patience = 2 * time.Minute

// A fixture is a store under test. Its methods end the test on any error.
type fixture struct {
	testing.TB
	ctx   context.Context
	store bucketstore.Store
}

// newFixture bounds the time of the store, so that the test can still say where it hung.
func newFixture(t *testing.T, store bucketstore.Store) fixture {
	end := time.Now().Add(patience)
	if deadline, ok := t.Deadline(); ok && deadline.Add(-time.Second).Before(end) {
		end = deadline.Add(-time.Second)
	}
	ctx, cancel := context.WithDeadline(t.Context(), end)
	t.Cleanup(cancel)
	return fixture{TB: t, ctx: ctx, store: store}
}

// apply writes muts.
func (f fixture) apply(table bucketstore.Table, muts ...bucketstore.Mutation) {
	f.Helper()
	if err := f.store.Apply(f.ctx, table, muts); err != nil {
		f.Fatalf("Apply to %s: %v", table, err)
	}
}

// scan returns a copy of the rows that req finds.
func (f fixture) scan(req bucketstore.ScanRequest) []bucketstore.Row {
	f.Helper()
	var rows []bucketstore.Row
	err := f.store.Scan(f.ctx, req, func(r bucketstore.Row) error {
		rows = append(rows, copyRow(r))
		return nil
	})
	if err != nil {
		f.Fatalf("Scan of %s: %v", describe(req), err)
	}
	return rows
}

// wantScan checks that req finds exactly the rows want, cells and times
// included, in this order.
func (f fixture) wantScan(req bucketstore.ScanRequest, want ...bucketstore.Row) {
	f.Helper()
	if got, want := format(f.scan(req)), format(want); got != want {
		f.Fatalf("Scan of %s found\n%s\nwant\n%s", describe(req), got, want)
	}
}

// wantTable checks that table holds exactly the rows want.
func (f fixture) wantTable(table bucketstore.Table, want ...bucketstore.Row) {
	f.Helper()
	f.wantScan(everything(table), want...)
}

// everything asks for all cells of a table.
func everything(table bucketstore.Table) bucketstore.ScanRequest {
	req := bucketstore.ScanRequest{Table: table, Rows: []series.RowRange{{}}}
	for _, spec := range bucketstore.Tables(bucketstore.Retention{}) {
		if spec.Table != table {
			continue
		}
		for _, family := range spec.Families {
			req.Families = append(req.Families, bucketstore.FamilyRange{Family: family.Name})
		}
	}
	return req
}

// mutate makes the mutation of one row.
func mutate(key string, ops ...bucketstore.Op) bucketstore.Mutation {
	return bucketstore.Mutation{Key: []byte(key), Ops: ops}
}

func set(family, qual string, t int64, value string) bucketstore.Op {
	return bucketstore.Op{Kind: bucketstore.SetCell, Family: family, Qualifier: []byte(qual), Time: t, Value: []byte(value)}
}

func deleteColumn(family, qual string) bucketstore.Op {
	return bucketstore.Op{Kind: bucketstore.DeleteColumn, Family: family, Qualifier: []byte(qual)}
}

func deleteBefore(family, qual string, t int64) bucketstore.Op {
	return bucketstore.Op{Kind: bucketstore.DeleteColumnBefore, Family: family, Qualifier: []byte(qual), Time: t}
}

func deleteFamily(family string) bucketstore.Op {
	return bucketstore.Op{Kind: bucketstore.DeleteFamily, Family: family}
}

// row makes a row as a Scan finds it.
func row(key string, cells ...bucketstore.Cell) bucketstore.Row {
	return bucketstore.Row{Key: []byte(key), Cells: cells}
}

func cell(family, qual string, t int64, value string) bucketstore.Cell {
	return bucketstore.Cell{Family: family, Qualifier: []byte(qual), Time: t, Value: []byte(value)}
}

// between is the range [start, limit) of rows.
func between(start, limit string) series.RowRange {
	return series.RowRange{Start: []byte(start), Limit: []byte(limit)}
}

// columns is the range [start, limit) of the qualifiers of a family.
func columns(family, start, limit string) bucketstore.FamilyRange {
	return bucketstore.FamilyRange{Family: family, Start: []byte(start), Limit: []byte(limit)}
}

func copyRow(r bucketstore.Row) bucketstore.Row {
	c := bucketstore.Row{Key: slices.Clone(r.Key), Cells: slices.Clone(r.Cells)}
	for i := range c.Cells {
		c.Cells[i].Family = strings.Clone(c.Cells[i].Family)
		c.Cells[i].Qualifier = slices.Clone(c.Cells[i].Qualifier)
		c.Cells[i].Value = slices.Clone(c.Cells[i].Value)
	}
	return c
}

// format formats rows for messages, so that equal rows have equal text. It shortens long
// values: callers compare these themselves.
func format(rows []bucketstore.Row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%q", r.Key)
		for _, c := range r.Cells {
			fmt.Fprintf(&b, " %s:%q@%d=%.64q", c.Family, c.Qualifier, c.Time, c.Value)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// describe formats req for messages.
func describe(req bucketstore.ScanRequest) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s rows %v", req.Table, req.Rows)
	for _, fr := range req.Families {
		fmt.Fprintf(&b, " %s[%q, %q)", fr.Family, fr.Start, fr.Limit)
	}
	fmt.Fprintf(&b, " limit %d", req.Limit)
	return b.String()
}
