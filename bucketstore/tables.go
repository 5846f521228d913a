package bucketstore

import (
	"fmt"
	"time"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// Table names one of the tables of the stored format.
type Table uint8

// The tables. Their rows are described in package series.
const (
	Metric Table = iota
	Current
	Index
	Meta
	// Log has the logs of buffers without a disk, see package rowfiles. A store has it only if it is opened with LogTable.
	Log
	// NumTables is the number of tables.
	NumTables
)

var tableNames = [NumTables]string{Metric: "METRIC", Current: "CURRENT", Index: "INDEX", Meta: "META", Log: "LOG"}

// String returns the name of the table as it is stored.
func (t Table) String() string {
	if t >= NumTables {
		return "UNKNOWN"
	}
	return tableNames[t]
}

// A TableSpec says which families a table has.
type TableSpec struct {
	Table    Table
	Families []FamilySpec
}

// A FamilySpec says what the cells of a family are and how long they are kept.
type FamilySpec struct {
	// Name is made of letters and digits.
	Name string
	// MaxAge is the age, by its time, after which a cell may be deleted. 0 keeps it for
	// ever.
	MaxAge time.Duration
	// Sum makes it a sum family: Add changes its cells, and SetCell does not.
	Sum bool
}

// CheckOp returns an error if op, which names the family, is not for families of its kind, or
// if Add has no number.
func (f *FamilySpec) CheckOp(op *Op) error {
	switch {
	case op.Kind == SetCell && f.Sum:
		return fmt.Errorf("SetCell on family %q, which is a sum family", f.Name)
	case op.Kind == Add && !f.Sum:
		return fmt.Errorf("Add on family %q, which is no sum family", f.Name)
	case op.Kind == Add:
		_, err := ParseSum(op.Value)
		return err
	}
	return nil
}

// MaxCurrentAge is the MaxAge of CURRENT: the span of a bucket, rounded up.
const MaxCurrentAge = 50 * 24 * time.Hour

// MaxLogAge is the MaxAge of LOG. A log is removed when its samples are stored; one that no process has taken by then is lost.
const MaxLogAge = 30 * 24 * time.Hour

// LogTable returns the table LOG.
func LogTable() TableSpec {
	return TableSpec{Log, []FamilySpec{{Name: series.FamilyLog, MaxAge: MaxLogAge}}}
}

// RollupFamilies returns all cells of the families of rollups, sorted.
func RollupFamilies() (all []FamilyRange) {
	for _, name := range rollup.Families() {
		all = append(all, FamilyRange{Family: name})
	}
	return all
}

// Tables returns the tables of the stored format but LOG, in order, families sorted by name.
// The index is kept as long as the longest resolution.
func Tables(kept Retention) []TableSpec {
	family := func(name string, age time.Duration) FamilySpec { return FamilySpec{Name: name, MaxAge: age} }
	raw, current := kept[rollup.Raw], MaxCurrentAge
	if raw > 0 && raw < current {
		current = raw
	}
	var metric []FamilySpec
	for _, name := range rollup.Families() {
		metric = append(metric, family(name, kept[rollup.ResolutionOf(name)]))
	}
	metric = append(metric, family(series.FamilyChunk, raw), FamilySpec{Name: series.FamilyCount, MaxAge: raw, Sum: true}, family(series.FamilyExemplar, raw))
	for _, name := range series.RawFamilies {
		metric = append(metric, family(name, raw))
	}
	return []TableSpec{
		{Metric, metric},
		{Current, []FamilySpec{family(series.FamilyCurrent, current)}},
		{Index, []FamilySpec{family(series.FamilyIndex, kept.Longest())}},
		{Meta, []FamilySpec{family(series.FamilyMeta, 0)}},
	}
}
