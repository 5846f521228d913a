package bucketstore

import (
	"time"

	"github.com/promtable/promtable/series"
)

// Table names one of the tables of the stored format.
type Table uint8

// The tables. Their rows are described in package series.
const (
	Metric Table = iota
	Current
	Index
	Meta
	// NumTables is the number of tables.
	NumTables
)

var tableNames = [NumTables]string{Metric: "METRIC", Current: "CURRENT", Index: "INDEX", Meta: "META"}

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

// A FamilySpec says how long the cells of a family are kept.
type FamilySpec struct {
	// Name is made of letters and digits.
	Name string
	// MaxAge is the age, by its time, after which a cell may be deleted. 0 keeps it for
	// ever.
	MaxAge time.Duration
}

// MaxCurrentAge is the MaxAge of CURRENT: the span of a bucket, rounded up.
const MaxCurrentAge = 50 * 24 * time.Hour

// Tables returns the tables of the stored format, in order, families sorted by name.
// retention is how long samples are kept; 0 is for ever.
func Tables(retention time.Duration) []TableSpec {
	family := func(name string, age time.Duration) FamilySpec { return FamilySpec{Name: name, MaxAge: age} }
	current := MaxCurrentAge
	if retention > 0 && retention < current {
		current = retention
	}
	metric := []FamilySpec{family(series.FamilyChunk, retention), family(series.FamilyExemplar, retention)}
	for _, name := range series.RawFamilies {
		metric = append(metric, family(name, retention))
	}
	return []TableSpec{
		{Metric, metric},
		{Current, []FamilySpec{family(series.FamilyCurrent, current)}},
		{Index, []FamilySpec{family(series.FamilyIndex, retention)}},
		{Meta, []FamilySpec{family(series.FamilyMeta, 0)}},
	}
}
