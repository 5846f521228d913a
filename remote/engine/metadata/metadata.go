// Package metadata keeps what senders say of metric families, their type, unit and
// help text, in META: one row a family.
//
//	Store    appends and reads entries                         metadata.go
//	Family   whether a series brings metadata that is stored   cache.go
package metadata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// maxHelpBytes is how much of a help text, and of a unit, is kept.
const maxHelpBytes = 4 << 10

// stored is the cell of a row, as JSON.
type stored struct {
	Type model.MetricType `json:"type"`
	Unit string           `json:"unit"`
	Help string           `json:"help"`
}

// A Store keeps metadata in META. It is safe for concurrent use.
type Store struct {
	store       bucketstore.Store
	schema      series.Schema
	now         func() time.Time
	cache       cache
	rowsWritten prometheus.Counter
}

// New returns a Store on store. The clock is now; reg may be nil.
func New(store bucketstore.Store, schema series.Schema, now func() time.Time, reg prometheus.Registerer) *Store {
	return &Store{
		store:  store,
		schema: schema,
		now:    now,
		cache:  newCache(),
		rowsWritten: metricset.New(reg).Counter("adapter_metadata_rows_total",
			"Rows of metadata written, one for each metric family whose metadata is new or has changed."),
	}
}

// encodedEntry is metadata and the cell for them.
type encodedEntry struct {
	said metadata.Metadata
	cell string
}

// Append stores metadata, of several entries of one family the last. Entries without
// a family, or with one whose name is too long for a key or no UTF-8, can never be
// stored: reject is called for each. An error means that the rest may not be stored;
// the writer may, and should, send it again.
func (s *Store) Append(ctx context.Context, batch []ingest.Metadata, reject func(error)) error {
	entries := make(map[string]encodedEntry)
	for i := range batch {
		m := &batch[i]
		key, err := s.schema.AppendMetaKey(nil, series.MetaMetadata, m.Family)
		switch {
		case m.Family == "":
			reject(fmt.Errorf("metadata with the help text %.64q names no metric family", m.Help))
			continue
		case !utf8.ValidString(m.Family):
			reject(fmt.Errorf("metadata of %.64q: the name of the metric family is not valid UTF-8", m.Family))
			continue
		case err != nil:
			reject(fmt.Errorf("metadata: %w", err))
			continue
		}
		cell, err := json.Marshal(stored{m.Type, shorten(m.Unit), shorten(m.Help)})
		if err != nil {
			return fmt.Errorf("encode metadata of %q: %w", m.Family, err)
		}
		entries[string(key)] = encodedEntry{m.Metadata, string(cell)}
	}
	changed := s.cache.changed(entries)
	if len(changed) > 0 {
		if err := s.writeRows(ctx, changed, entries); err != nil {
			return err
		}
	}
	s.cache.setWritten(changed, entries)
	return nil
}

// writeRows writes those rows of entries that have these keys.
func (s *Store) writeRows(ctx context.Context, keys []string, entries map[string]encodedEntry) error {
	now := s.now().UnixMilli()
	muts := make([]bucketstore.Mutation, 0, len(keys))
	for _, key := range keys {
		muts = append(muts, meta.SetCell(key, meta.Cell{Value: []byte(entries[key].cell), Time: now}))
	}
	if err := s.store.Apply(ctx, bucketstore.Meta, muts); err != nil {
		return fmt.Errorf("write metadata of %d families: %w", len(muts), err)
	}
	s.rowsWritten.Add(float64(len(muts)))
	return nil
}

// shorten cuts text after maxHelpBytes and makes it valid UTF-8.
func shorten(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxHelpBytes)], "")
}

// errEnough ends a scan that has found as many families as were asked for.
var errEnough = errors.New("enough")

// Read returns what is stored of a family, or of all if family is empty, in the
// order of their rows, which is that of their names but for escapes. A limit over 0
// bounds how many.
func (s *Store) Read(ctx context.Context, family string, limit int) ([]ingest.Metadata, error) {
	rows := s.schema.MetaRange(series.MetaMetadata)
	if family != "" {
		key, err := s.schema.AppendMetaKey(nil, series.MetaMetadata, family)
		if err != nil {
			return nil, nil // no row can have so long a name
		}
		rows = series.SingleRow(key)
	}
	var found []ingest.Metadata
	err := meta.ScanCells(ctx, s.store, rows, func(key []byte, c meta.Cell) error {
		if limit > 0 && len(found) == limit {
			return errEnough
		}
		m, err := s.parseRow(key, c)
		if err == nil {
			found = append(found, m)
		}
		return err
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	return found, nil
}

// suffixes are those of series of families, by which ReadMetrics looks for metadata.
var suffixes = []string{"_bucket", "_count", "_sum", "_gcount", "_gsum"}

// ReadMetrics returns what is stored of the families of metrics, by metric name. It reads a row
// or two for each.
func (s *Store) ReadMetrics(ctx context.Context, names []string) (map[string]ingest.Metadata, error) {
	metrics := make(map[string][]string) // by key
	for _, name := range names {
		families := []string{name}
		for _, suffix := range suffixes {
			if family, ok := strings.CutSuffix(name, suffix); ok && family != "" {
				families = append(families, family)
			}
		}
		for _, family := range families {
			if key, err := s.schema.AppendMetaKey(nil, series.MetaMetadata, family); err == nil { // else no row can have so long a name
				metrics[string(key)] = append(metrics[string(key)], name)
			}
		}
	}
	rows := make([]series.RowRange, 0, len(metrics))
	for _, key := range slices.Sorted(maps.Keys(metrics)) {
		rows = append(rows, series.SingleRow([]byte(key)))
	}
	found := make(map[string]ingest.Metadata)
	err := meta.ScanRanges(ctx, s.store, rows, func(key []byte, c meta.Cell) error {
		m, err := s.parseRow(key, c)
		for _, name := range metrics[string(key)] {
			if ingest.FamilyName(name, m.Type) == m.Family && (found[name].Family != name || m.Family == name) {
				found[name] = m
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	return found, nil
}

func (s *Store) parseRow(key []byte, c meta.Cell) (m ingest.Metadata, err error) {
	var found stored
	if _, m.Family, err = s.schema.ParseMetaKey(key); err != nil {
		return m, err
	}
	err = meta.ParseJSON(key, c.Value, &found)
	m.Type, m.Unit, m.Help = found.Type, found.Unit, found.Help
	return m, err
}
