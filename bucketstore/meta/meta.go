// Package meta reads and writes the META table, which has one cell in each row. cell.go
// reads, compares and sets cells. The rows of this package describe the store as a whole:
// its schema and identity, and the logs whose samples are not in the store yet:
//
//	row        cell, as JSON
//	schema     {"format":1,"resource_labels":[…],"tenancy":false,"identity":"…"}
//	log,<id>   {"host":"…","path":"…","seen":…,"bytes":…}
//
// META/clock, which has a cell for each process, belongs to package seal alone.
//
// A store made by an early version gets its identity at its first start with this version.
package meta

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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

// requestTimeout bounds one request to META.
const requestTimeout = 30 * time.Second

// ErrSchema says that the store was written with another schema.
var ErrSchema = errors.New("the store has another schema")

// storedSchema is the cell of META/schema, as JSON.
type storedSchema struct {
	Format         int      `json:"format"`
	ResourceLabels []string `json:"resource_labels"`
	Tenancy        bool     `json:"tenancy"`
	// Identity is the random name of the store. It is made once.
	Identity string `json:"identity,omitempty"`
}

// A Store is the META table of a store. Init must not run beside other calls; the other
// methods may be called concurrently. Each of their requests has a deadline of its own.
type Store struct {
	rows bucketstore.Store
	now  func() time.Time
	// want is the wanted schema, without an identity.
	want storedSchema
	// cell is META/schema as it was read, stored its content.
	cell   Cell
	stored storedSchema
}

// Open reads the schema of a store and compares it with the wanted one. It writes nothing.
// If they differ the error is ErrSchema.
func Open(ctx context.Context, rows bucketstore.Store, schema series.Schema, now func() time.Time) (*Store, error) {
	s := &Store{rows: rows, now: now, want: storedSchema{Format: FormatVersion, ResourceLabels: []string{}, Tenancy: schema.Tenancy()}}
	s.want.ResourceLabels = append(s.want.ResourceLabels, schema.ResourceLabels()...) // never null
	return s, s.readSchema(ctx)
}

// Identity is the random name of the store. It is empty if the store has none before Init.
func (s *Store) Identity() string { return s.stored.Identity }

// IsEarly says whether the store was written by an early version, which gave it no
// identity.
func (s *Store) IsEarly() bool { return s.cell.Value != nil && s.stored.Identity == "" }

// SchemaDigest is the first half of the SHA-256 of the schema, without the
// identity, in hexadecimal digits.
func (s *Store) SchemaDigest() string {
	text, err := json.Marshal(s.want)
	if err != nil {
		panic(err) // it holds texts and numbers only
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:len(sum)/2])
}

// Init stores the schema with a new identity if the store has none. If several processes do
// so at the same time, one wins and all use its identity.
func (s *Store) Init(ctx context.Context) error {
	for s.stored.Identity == "" {
		next := s.want
		next.Identity = rand.Text()
		value, err := json.Marshal(next)
		if err != nil {
			return err
		}
		setting, cancel := context.WithTimeout(ctx, requestTimeout)
		_, _, err = CompareAndSet(setting, s.rows, series.MetaSchema, s.cell, value, s.now().UnixMilli())
		cancel()
		if err != nil {
			return fmt.Errorf("store the schema: %w", err)
		}
		if err := s.readSchema(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readSchema reads META/schema and compares it with the wanted one.
func (s *Store) readSchema(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if s.cell, err = ReadCell(ctx, s.rows, series.MetaSchema); err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	s.stored = s.want
	if s.cell.Value == nil {
		return nil
	}
	if s.stored, err = parseSchema(s.cell.Value); err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	return compareSchemas(s.stored, s.want)
}

// parseSchema reads a stored schema. Of another format it reads only the number.
func parseSchema(text []byte) (found storedSchema, err error) {
	var version struct {
		Format int `json:"format"`
	}
	if err = json.Unmarshal(text, &version); err == nil && version.Format == FormatVersion {
		err = json.Unmarshal(text, &found)
	}
	if err != nil {
		return found, fmt.Errorf("%w: its format cannot be read: %v", ErrSchema, err)
	}
	found.Format = version.Format
	return found, nil
}

// compareSchemas returns an error that says which flag to change.
func compareSchemas(found, want storedSchema) error {
	switch {
	case found.Format != want.Format:
		return fmt.Errorf("%w: format %d, this adapter reads format %d; use the version that wrote it", ErrSchema, found.Format, want.Format)
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
