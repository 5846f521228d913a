package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// Metadata is what a sender says of a metric family. It has no time: the last
// one counts.
type Metadata struct {
	// Family is the name of the metric family, see FamilyName.
	Family string
	metadata.Metadata
}

// maxHelpBytes is how much of a help text, and of a unit, is kept.
const maxHelpBytes = 4 << 10

// FamilyName returns the name of the metric family that a series with this name
// belongs to, if its family is of this type: those of histograms and summaries
// have suffixes.
func FamilyName(name string, kind model.MetricType) string {
	var suffixes []string
	switch kind {
	case model.MetricTypeHistogram:
		suffixes = []string{"_bucket", "_count", "_sum"}
	case model.MetricTypeGaugeHistogram:
		suffixes = []string{"_bucket", "_gcount", "_gsum", "_count", "_sum"}
	case model.MetricTypeSummary:
		suffixes = []string{"_count", "_sum"}
	}
	for _, suffix := range suffixes {
		if family, ok := strings.CutSuffix(name, suffix); ok && family != "" {
			return family
		}
	}
	return name
}

// storedMetadata is the cell of a row of metadata, as JSON.
type storedMetadata struct {
	Type model.MetricType `json:"type"`
	Unit string           `json:"unit"`
	Help string           `json:"help"`
}

// knownMetadata is what this process has written, so that only changes are
// written: one row a family, and not one a request.
type knownMetadata struct {
	mu sync.Mutex
	// rows maps keys of META to cells.
	rows map[string]string
	// stored has, of families that were asked for, what rows say.
	stored map[string]*atomic.Pointer[metadata.Metadata]
	// families are those of known series.
	families map[knownFamily]*knownFamily
}

// knownFamily is the family of series that come with metadata of one type.
type knownFamily struct {
	tenant, name string
	kind         model.MetricType
	// stored is shared by all types. It points to nothing if it is not known what
	// is stored.
	stored *atomic.Pointer[metadata.Metadata]
}

// family returns the family of this name.
func (k *knownMetadata) family(schema series.Schema, tenant, name string, kind model.MetricType) *knownFamily {
	id := knownFamily{tenant: tenant, name: name, kind: kind}
	key, err := schema.AppendMetaKey(nil, tenant, series.MetaMetadata, name)
	k.mu.Lock()
	defer k.mu.Unlock()
	if f, ok := k.families[id]; ok {
		return f
	}
	f := id
	f.name = strings.Clone(name)
	f.stored = k.stored[string(key)]
	if f.stored == nil {
		f.stored = new(atomic.Pointer[metadata.Metadata])
	}
	if err == nil && len(k.families) < maxKnownMetadata {
		id.name = f.name
		k.stored[string(key)], k.families[id] = f.stored, &f
	}
	return &f
}

func newKnownMetadata() knownMetadata {
	return knownMetadata{
		rows:     make(map[string]string),
		stored:   make(map[string]*atomic.Pointer[metadata.Metadata]),
		families: make(map[knownFamily]*knownFamily),
	}
}

// maxKnownMetadata bounds what is remembered. The rest is written each time it
// comes.
const maxKnownMetadata = 50_000

// AppendMetadata stores metadata, of several entries of one family the last.
// Entries without a family, or with one whose name is too long for a key or no
// UTF-8, go to rejected: they can never be stored. An error means that the rest
// may not be stored; the writer may, and should, send it again.
func (e *Engine) AppendMetadata(ctx context.Context, tenant string, batch []Metadata, rejected *Rejected) error {
	entries := make(map[string]metadataEntry)
	for i := range batch {
		m := &batch[i]
		key, err := e.cfg.Schema.AppendMetaKey(nil, tenant, series.MetaMetadata, m.Family)
		switch {
		case m.Family == "":
			rejected.Add(ReasonMetadata, 1, fmt.Errorf("metadata with the help text %.64q names no metric family", m.Help))
			continue
		case !utf8.ValidString(m.Family):
			rejected.Add(ReasonMetadata, 1, fmt.Errorf("metadata of %.64q: the name of the metric family is not valid UTF-8", m.Family))
			continue
		case errors.Is(err, series.ErrKeyTooLong):
			rejected.Add(ReasonMetadata, 1, fmt.Errorf("metadata: %w", err))
			continue
		case err != nil:
			return err
		}
		cell, err := json.Marshal(storedMetadata{m.Type, shorten(m.Unit), shorten(m.Help)})
		if err != nil {
			return fmt.Errorf("encode metadata of %q: %w", m.Family, err)
		}
		entries[string(key)] = metadataEntry{m.Metadata, string(cell)}
	}
	changed := e.metadata.changed(entries)
	if len(changed) > 0 {
		if err := e.writeMetadata(ctx, changed, entries); err != nil {
			return err
		}
	}
	e.metadata.learn(changed, entries)
	return nil
}

// metadataEntry is metadata and the cell for them.
type metadataEntry struct {
	said metadata.Metadata
	cell string
}

// writeMetadata writes those rows of entries that have these keys.
func (e *Engine) writeMetadata(ctx context.Context, keys []string, entries map[string]metadataEntry) error {
	now := e.cfg.Now().UnixMilli()
	muts := make([]bucketstore.Mutation, 0, len(keys))
	for _, key := range keys {
		muts = append(muts, bucketstore.Mutation{Key: []byte(key), Ops: []bucketstore.Op{{
			Kind:      bucketstore.SetCell,
			Family:    series.FamilyMeta,
			Qualifier: []byte(series.QualifierMeta),
			Time:      now,
			Value:     []byte(entries[key].cell),
		}}})
	}
	if err := e.cfg.Store.Apply(ctx, bucketstore.Meta, muts); err != nil {
		return fmt.Errorf("write metadata of %d families: %w", len(muts), err)
	}
	e.metrics.metadataRows.Add(float64(len(muts)))
	return nil
}

// shorten cuts text after maxHelpBytes and makes it valid UTF-8.
func shorten(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxHelpBytes)], "")
}

// changed returns the keys of entries that are not known to be stored.
func (k *knownMetadata) changed(entries map[string]metadataEntry) (keys []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, entry := range entries {
		if k.rows[key] != entry.cell {
			keys = append(keys, key)
		}
	}
	return keys
}

// learn remembers that the entries with these keys are written, and which of
// all entries are what is stored.
func (k *knownMetadata) learn(keys []string, entries map[string]metadataEntry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		if _, ok := k.rows[key]; ok || len(k.rows) < maxKnownMetadata {
			k.rows[key] = entries[key].cell
		}
	}
	for key, entry := range entries {
		// Somebody else may have written another one meanwhile.
		if stored, ok := k.stored[key]; ok && k.rows[key] == entry.cell {
			stored.Store(&entry.said)
		}
	}
}

// errEnough ends a scan that has found what was asked for.
var errEnough = errors.New("enough")

// Metadata returns what is known of a family, or of all if family is empty, in
// the order of their rows, which is that of their names but for escapes. A limit
// over 0 bounds how many.
func (e *Engine) Metadata(ctx context.Context, tenant, family string, limit int) ([]Metadata, error) {
	rows, err := e.cfg.Schema.MetaRange(tenant, series.MetaMetadata)
	if family != "" {
		var key []byte
		key, err = e.cfg.Schema.AppendMetaKey(nil, tenant, series.MetaMetadata, family)
		rows = series.SingleRow(key)
	}
	switch {
	case errors.Is(err, series.ErrKeyTooLong):
		return nil, nil // there is none
	case err != nil:
		return nil, err
	}
	var found []Metadata
	err = e.cfg.Store.Scan(ctx, bucketstore.ScanRequest{
		Table:    bucketstore.Meta,
		Rows:     []series.RowRange{rows},
		Families: []bucketstore.FamilyRange{{Family: series.FamilyMeta}},
	}, func(row bucketstore.Row) error {
		if limit > 0 && len(found) == limit {
			return errEnough
		}
		m, err := e.parseMetadata(row)
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

func (e *Engine) parseMetadata(row bucketstore.Row) (m Metadata, err error) {
	var stored storedMetadata
	if _, _, m.Family, err = e.cfg.Schema.ParseMetaKey(row.Key); err != nil {
		return m, err
	}
	if err = json.Unmarshal(row.Cells[0].Value, &stored); err != nil {
		return m, fmt.Errorf("row %q of META: %w", row.Key, err)
	}
	m.Type, m.Unit, m.Help = stored.Type, stored.Unit, stored.Help
	return m, nil
}
