// Package meta reads and writes the META table, which has one cell in each row. cell.go
// reads, compares and sets cells. The rows of this package describe the store as a whole:
// its schema and identity, the logs whose samples are not in the store yet, since when it
// has all samples, what retention rules have cut, and which samples are deleted:
//
//	row        cell, as JSON
//	schema     {"format":1,"resource_labels":[…],"tenancy":false,"identity":"…","retention":{"raw":…}}
//	log,<id>   {"host":"…","path":"…","seen":…,"bytes":…,"closed":…,"oldest":…,"address":"…","token":"…","promise":…,"settings":"…"}
//	stamp,<id> {"stamp":…}
//	horizon    {"raw":…,"deleted.raw":…}
//	tenant,<name>         {"created":…,"dropping":…,"dropped":…,"by":"…","removed":{"METRIC":…}}
//	[tenant,]import,<id>  {"parts":[{"id":"…","start":…,"limit":…}]}
//	rules,<id>         {"tenant":"…","rules":[{"matchers":[…],"closed":…,"cuts":{"raw":…},"gone":{"raw":…}}]}
//	delete,<id>        {"tenant":"…","matchers":[…],"start":…,"limit":…,"at":…,"stamp":…,"log":"…","done":…}
//	delete,<id>,<log>  {"stamp":…,"passed":…}
//
// lease.go has the lease in a row: it says which process does a work, and how far that is. check.go knows the rows of all
// packages.
//
// META/clock, which has a cell for each process, belongs to package seal alone.
//
// The embedded store keeps a copy of META/schema in a file. A store that has lost the row is
// refused: another identity would be that of another store for its log, and another schema
// would write a series under other keys.
package meta

import (
	"bytes"
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

// ErrLostSchema says that a store has lost META/schema: it has rows, or a copy of the
// schema.
var ErrLostSchema = errors.New("the store has lost its schema and identity")

// A schemaCopier is a store that keeps a copy of the cell of META/schema outside its tables.
type schemaCopier interface {
	// ReadSchemaCopy returns nil if there is no copy.
	ReadSchemaCopy() ([]byte, error)
	WriteSchemaCopy(cell []byte) error
}

// storedSchema is the cell of META/schema, as JSON.
type storedSchema struct {
	Format         int      `json:"format"`
	ResourceLabels []string `json:"resource_labels"`
	Tenancy        bool     `json:"tenancy"`
	// Identity is the random name of the store. It is made once. Only want has none.
	Identity string `json:"identity,omitempty"`
	// Retention is how long each resolution is kept, by name, in milliseconds: 0 is for ever, and -1 that none is made. Nil is not known.
	Retention map[string]int64 `json:"retention,omitempty"`
}

// A Store is the META table of a store. Init must not run beside other calls; the other
// methods may be called concurrently. Each of their requests has a deadline of its own.
type Store struct {
	rows   bucketstore.Store
	now    func() time.Time
	schema series.Schema
	// want is the wanted schema, without an identity.
	want storedSchema
	// cell is META/schema as it was read, stored its content.
	cell   Cell
	stored storedSchema
	// copier is nil if the store keeps no copy of the cell. schemaCopy is the copy.
	copier     schemaCopier
	schemaCopy []byte
	copyErr    error
}

// Open reads the schema of a store and compares it with the wanted one. It writes nothing.
// If they differ the error is ErrSchema. If the store has lost its schema the error is
// ErrLostSchema; RestoreSchema may be called then.
func Open(ctx context.Context, rows bucketstore.Store, schema series.Schema, now func() time.Time) (*Store, error) {
	s := &Store{rows: rows, now: now, schema: schema, want: storedSchema{Format: FormatVersion, ResourceLabels: []string{}, Tenancy: schema.Tenancy()}}
	s.want.ResourceLabels = append(s.want.ResourceLabels, schema.ResourceLabels()...) // never null
	if s.copier, _ = rows.(schemaCopier); s.copier != nil {
		s.schemaCopy, s.copyErr = s.copier.ReadSchemaCopy()
	}
	if err := s.readSchema(ctx); err != nil {
		return s, err
	}
	switch {
	case s.cell.Value == nil && s.CanRestore():
		return s, fmt.Errorf("%w: META has no row %q, but there is a copy of it: the part of the store with this row was damaged; stop the adapter, and adapter check --repair=index writes the row back", ErrLostSchema, series.MetaSchema)
	case s.cell.Value == nil:
		return s, s.checkFresh(ctx)
	case s.CanRestore() && !bytes.Equal(s.cell.Value, s.schemaCopy):
		return s, fmt.Errorf("%w: META has %s, and the copy of it is %s: the directory has files of two stores; restore all of it from one backup", ErrSchema, s.cell.Value, s.schemaCopy)
	}
	return s, nil
}

// newCell returns a cell that is written now.
func (s *Store) newCell(value []byte) Cell { return Cell{Value: value, Time: s.now().UnixMilli()} }

// checkFresh checks that a store without META/schema has no rows, and had no copy of it.
func (s *Store) checkFresh(ctx context.Context) error {
	table, err := s.tableWithRows(ctx)
	if err != nil || table == "" && s.copyErr == nil {
		return err
	}
	// Another process may have written both since.
	if err := s.readSchema(ctx); err != nil || s.cell.Value != nil {
		return err
	}
	what := "no copy of it"
	if s.copyErr != nil {
		what = fmt.Sprintf("no copy of it can be read (%v)", s.copyErr)
	}
	if table != "" {
		what += ", but " + table + " has rows"
	}
	return fmt.Errorf("%w: META has no row %q, and there is %s: the part of the store with this row was damaged or deleted; restore the store from a backup", ErrLostSchema, series.MetaSchema, what)
}

// tableWithRows returns the name of a table with rows, other than META, or nothing.
func (s *Store) tableWithRows(ctx context.Context) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for _, spec := range bucketstore.Tables(bucketstore.Retention{}) {
		if spec.Table == bucketstore.Meta {
			continue
		}
		req := bucketstore.ScanRequest{Table: spec.Table, Rows: []series.RowRange{{}}, Limit: 1}
		for _, family := range spec.Families {
			req.Families = append(req.Families, bucketstore.FamilyRange{Family: family.Name})
		}
		err := s.rows.Scan(ctx, req, func(bucketstore.Row) error {
			name = spec.Table.String()
			return nil
		})
		if err != nil || name != "" {
			return name, err
		}
	}
	return "", nil
}

// CopyError says why the copy of the schema cannot be read. Init writes it anew.
func (s *Store) CopyError() error { return s.copyErr }

// CanRestore says whether RestoreSchema has a copy to restore.
func (s *Store) CanRestore() bool { return len(s.schemaCopy) > 0 }

// RestoreSchema writes META/schema back from its copy, after Open returned ErrLostSchema.
func (s *Store) RestoreSchema(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := CompareAndSet(ctx, s.rows, series.MetaSchema, s.cell, s.newCell(s.schemaCopy))
	if err != nil {
		return fmt.Errorf("restore the schema: %w", err)
	}
	return nil
}

// Identity is the random name of the store. It is empty if the store has none before Init.
func (s *Store) Identity() string { return s.stored.Identity }

// Traits returns those of the store that holds META.
func (s *Store) Traits() bucketstore.Traits { return s.rows.Traits() }

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

// Init stores the schema with a new identity if the store has none, and a copy of it if the
// store keeps one. If several processes do
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
		_, err = CompareAndSet(setting, s.rows, series.MetaSchema, s.cell, s.newCell(value))
		cancel()
		if err != nil {
			return fmt.Errorf("store the schema: %w", err)
		}
		if err := s.readSchema(ctx); err != nil {
			return err
		}
	}
	return s.copySchema()
}

// copySchema keeps a copy of the schema, if the store can and has none.
func (s *Store) copySchema() error {
	if s.copier == nil || bytes.Equal(s.cell.Value, s.schemaCopy) {
		return nil
	}
	if err := s.copier.WriteSchemaCopy(s.cell.Value); err != nil {
		return fmt.Errorf("keep a copy of the schema: %w", err)
	}
	s.schemaCopy, s.copyErr = s.cell.Value, nil
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
		if err = json.Unmarshal(text, &found); err == nil && found.Identity == "" {
			err = errors.New("it has no identity")
		}
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
		return fmt.Errorf("%w: it was made %s tenants; start %s --tenancy", ErrSchema, withOrWithout(found.Tenancy), withOrWithout(found.Tenancy))
	}
	return nil
}

func withOrWithout(has bool) string {
	if has {
		return "with"
	}
	return "without"
}

func resourceFlags(names []string) string {
	if len(names) == 0 {
		return "no --schema.resource-label"
	}
	return "--schema.resource-label=" + strings.Join(names, " --schema.resource-label=")
}
