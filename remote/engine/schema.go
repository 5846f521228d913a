package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// FormatVersion is the version of the stored format that this code writes.
const FormatVersion = 1

// storedSchema is the cell of META/schema, as JSON.
type storedSchema struct {
	Format         int      `json:"format"`
	ResourceLabels []string `json:"resource_labels"`
	Tenancy        bool     `json:"tenancy"`
}

// ErrSchema marks a store that was written with another schema.
var ErrSchema = errors.New("the store has another schema")

// checkSchema stores the schema if the store has none, and compares it with
// the stored one otherwise.
func checkSchema(ctx context.Context, store bucketstore.Store, schema series.Schema, now time.Time) error {
	want := storedSchema{Format: FormatVersion, ResourceLabels: []string{}, Tenancy: schema.Tenancy()}
	want.ResourceLabels = append(want.ResourceLabels, schema.ResourceLabels()...) // never null
	value, err := json.Marshal(want)
	if err != nil {
		return err
	}
	key, qualifier := []byte(series.MetaSchema), []byte(series.QualifierMeta)
	_, err = store.CheckAndApply(ctx, bucketstore.Meta,
		bucketstore.Condition{Family: series.FamilyMeta, Qualifier: qualifier, Absent: true},
		bucketstore.Mutation{Key: key, Ops: []bucketstore.Op{{
			Kind: bucketstore.SetCell, Family: series.FamilyMeta, Qualifier: qualifier, Time: now.UnixMilli(), Value: value,
		}}})
	if err != nil {
		return fmt.Errorf("store the schema: %w", err)
	}
	var found storedSchema
	err = store.Scan(ctx, bucketstore.ScanRequest{
		Table:    bucketstore.Meta,
		Rows:     []series.RowRange{series.SingleRow(key)},
		Families: []bucketstore.FamilyRange{{Family: series.FamilyMeta}},
	}, func(row bucketstore.Row) error {
		found, err = parseSchema(row.Cells[0].Value)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	return compareSchemas(found, want)
}

// parseSchema reads a stored schema. Of a format that this code does not know
// it reads only the number.
func parseSchema(text []byte) (found storedSchema, err error) {
	var version struct {
		Format int `json:"format"`
	}
	if err = json.Unmarshal(text, &version); err == nil && version.Format == FormatVersion {
		err = json.Unmarshal(text, &found)
	}
	if err != nil {
		return found, fmt.Errorf("%w: it is in no known format: %v", ErrSchema, err)
	}
	found.Format = version.Format
	return found, nil
}

// compareSchemas returns an error that says which flag to change.
func compareSchemas(found, want storedSchema) error {
	switch {
	case found.Format != want.Format:
		return fmt.Errorf("%w: format %d, this adapter knows format %d; use the version that wrote it", ErrSchema, found.Format, want.Format)
	case !slices.Equal(found.ResourceLabels, want.ResourceLabels):
		return fmt.Errorf("%w: it was written with resource labels [%s], not [%s]; start with %s",
			ErrSchema, strings.Join(found.ResourceLabels, " "), strings.Join(want.ResourceLabels, " "), resourceFlags(found.ResourceLabels))
	case found.Tenancy != want.Tenancy:
		return fmt.Errorf("%w: tenancy is %t in it, not %t", ErrSchema, found.Tenancy, want.Tenancy)
	}
	return nil
}

func resourceFlags(names []string) string {
	if len(names) == 0 {
		return "no --schema.resource-label"
	}
	return "--schema.resource-label=" + strings.Join(names, " --schema.resource-label=")
}
