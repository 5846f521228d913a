package meta

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// A rowKind is a kind of rows of META, and what their cells are.
type rowKind struct {
	kind string
	// isNamed says that there are many rows, each with a name behind the kind; else there is one.
	isNamed bool
	// check checks the value of a cell of the row with this name.
	check func(name string, value []byte) error
}

// allTenants are the rows that are for all tenants.
var allTenants = []rowKind{
	{series.MetaSchema, false, func(_ string, value []byte) error { return errOf(parseSchema(value)) }},
	{series.MetaHorizon, false, isJSON[map[string]int64]},
	{series.MetaClock, false, isJSON[map[string]any]},
	{series.MetaSeal, false, isJSON[Holding]},
	{series.MetaRollup, false, isJSON[Holding]},
	{series.MetaDelete, false, isJSON[Holding]},
	{series.MetaRules, false, isJSON[Holding]},
	{series.MetaLog, true, isJSON[Log]},
	{series.MetaStamp, true, isJSON[logStamp]},
	{series.MetaForgotten, true, isJSON[forgotten]},
	{series.MetaDelete, true, isDeletion},
	{series.MetaRules, true, isJSON[RuleList]},
	{series.MetaTenant, true, isJSON[Tenant]},
	{series.MetaLate, true, func(name string, _ []byte) error { return isTime(name) }}, // the value is random
}

// eachTenant are the rows that each tenant has.
var eachTenant = []rowKind{
	{series.MetaSealPeriod, true, isPeriod},
	{series.MetaImport, true, isJSON[imported]},
	{series.MetaMetadata, true, isJSON[map[string]string]},
	{series.MetaHA, true, isJSON[map[string]any]},
	{series.MetaRecorded, true, isJSON[map[string]any]},
	{series.MetaBoard, true, isJSON[map[string]any]},
}

// CheckRow checks that a row of META is one of those that are stored, and that each cell is what it should be.
// A row of another tenant than that of schema, which may be of all, or of a kind that this version does not have, is an error.
func CheckRow(schema series.Schema, row bucketstore.Row) error {
	kind, name, isNamed := strings.Cut(string(row.Key), ",")
	found := find(allTenants, kind, isNamed)
	if found == nil {
		var err error
		if kind, name, err = schema.ParseMetaKey(row.Key); err != nil {
			return err
		}
		found = find(eachTenant, kind, true)
	}
	if found == nil {
		return fmt.Errorf("%w: this version stores no such row", series.ErrCorrupt)
	}
	for _, c := range row.Cells {
		if err := found.check(name, c.Value); err != nil {
			return err
		}
	}
	return nil
}

func find(kinds []rowKind, kind string, isNamed bool) *rowKind {
	for i := range kinds {
		if k := &kinds[i]; k.kind == kind && k.isNamed == isNamed {
			return k
		}
	}
	return nil
}

func errOf[T any](_ T, err error) error { return err }

// isJSON checks that a value is the JSON of a T.
func isJSON[T any](_ string, value []byte) error {
	if err := json.Unmarshal(value, new(T)); err != nil {
		return fmt.Errorf("%w: %.80q is not the JSON of this row: %v", series.ErrCorrupt, value, err)
	}
	return nil
}

// isDeletion checks a deletion, or what a log says of it.
func isDeletion(name string, value []byte) error {
	if strings.Contains(name, ",") {
		return isJSON[LogState](name, value)
	}
	return isJSON[Deletion](name, value)
}

// isTime checks a name that is a time.
func isTime(name string) error {
	if _, ok := series.ParseTime([]byte(name)); !ok || len(name) != series.TimeDigits {
		return fmt.Errorf("%w: %.80q in its key is no time", series.ErrCorrupt, name)
	}
	return nil
}

// isPeriod checks the note of an index period, which has the time of the note.
func isPeriod(name string, value []byte) error {
	if err := isTime(name); err != nil {
		return err
	}
	return isJSON[int64](name, value)
}
