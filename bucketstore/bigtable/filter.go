package bigtable

import (
	"fmt"

	"cloud.google.com/go/bigtable"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// maxFilterSize is Bigtable's limit for a filter, in bytes.
const maxFilterSize = 20_480

// filter returns a filter that passes the latest version of each requested cell and perhaps
// others, or nil if no cell is requested. If exact is set it passes no row without a
// requested cell, so that Bigtable can count rows.
//
// A filter on a range of qualifiers is for one family, so several need an interleave. That
// keeps other cells off the wire. The emulator, however, copies the row for each part of an
// interleave and sorts all columns again after each merge. Microseconds of CPU for each
// cell of a row, client and fake in one process, for rows of 480 and 5,000 cells in one
// family:
//
//	no filter on families              2.4    2.1
//	one column range                   2.4    2.3
//	interleave of two column ranges    5.7   21
//	interleave of five column ranges   7.9   25
//	regular expression on families    11      9
//
// So the emulator sends whole rows, and the store leaves out other cells itself.
func (t *table) filter(families []bucketstore.FamilyRange, emulated, exact bool) (bigtable.Filter, error) {
	columns, whole, err := t.columnRanges(families)
	latest := bigtable.LatestNFilter(1)
	switch {
	case err != nil || len(columns) == 0:
		return nil, err
	case len(columns) == 1:
		return bigtable.ChainFilters(columns[0], latest), nil
	case !exact && (emulated || whole == len(t.families)):
		return latest, nil
	}
	return bigtable.ChainFilters(bigtable.InterleaveFilters(columns...), latest), nil
}

// columnRanges returns a filter for each non-empty part of a row, and how many of them are
// whole families.
func (t *table) columnRanges(families []bucketstore.FamilyRange) (columns []bigtable.Filter, whole int, err error) {
	size := 0
	for _, f := range families {
		if err := t.checkFamily(f.Family); err != nil {
			return nil, 0, err
		}
		if qualifiers := (series.RowRange{Start: f.Start, Limit: f.Limit}); qualifiers.IsEmpty() {
			continue
		}
		if len(f.Start) == 0 && len(f.Limit) == 0 {
			whole++
		}
		columns = append(columns, bigtable.ColumnRangeFilter(f.Family, string(f.Start), string(f.Limit)))
		size += len(f.Family) + len(f.Start) + len(f.Limit) + opOverhead
	}
	if size > maxFilterSize {
		return nil, 0, fmt.Errorf("scan %s: filter of %d bytes, want at most %d", t.name, size, maxFilterSize)
	}
	return columns, whole, nil
}

// cellFilter returns a filter for the latest cell of the column of cond. It passes the cell
// if it has the value, or in any case if cond is on absence. A range from a text to the
// next one holds that text alone; unlike the regular expressions of other filters it needs
// no quoting.
func cellFilter(cond *bucketstore.Condition) bigtable.Filter {
	qualifier := string(cond.Qualifier)
	column := bigtable.ColumnRangeFilter(cond.Family, qualifier, qualifier+"\x00")
	if cond.Absent {
		return column
	}
	value := append([]byte{}, cond.Value...)
	next := append(value[:len(value):len(value)], 0)
	return bigtable.ChainFilters(column, bigtable.LatestNFilter(1), bigtable.ValueRangeFilter(value, next))
}
