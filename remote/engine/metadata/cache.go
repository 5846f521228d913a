package metadata

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// maxCached bounds how many families are cached. The others are written each time
// that their metadata comes.
const maxCached = 50_000

// cache is what this process has written, so that only changes are written: one row
// a family, and not one a request.
type cache struct {
	mu sync.Mutex
	// rows maps keys of META to cells.
	rows map[string]string
	// said has, of the families of series, what rows say.
	said map[string]*atomic.Pointer[metadata.Metadata]
	// families are those of series.
	families map[familyID]*Family
}

func newCache() cache {
	return cache{
		rows:     make(map[string]string),
		said:     make(map[string]*atomic.Pointer[metadata.Metadata]),
		families: make(map[familyID]*Family),
	}
}

// familyID is what a Family is found by. Families of one name share a row,
// whatever their type is.
type familyID struct {
	name string
	kind model.MetricType
}

// A Family is the metric family of series that come with metadata of one type. It is
// safe for concurrent use.
type Family struct {
	name string
	kind model.MetricType
	// said is what the row says, nil if that is not cached. All types share it.
	said *atomic.Pointer[metadata.Metadata]
}

// Name returns the name of the metric family.
func (f *Family) Name() string { return f.name }

// IsStored says whether said is what is stored of the family. If not, it must be
// given to Append.
func (f *Family) IsStored(said metadata.Metadata) bool {
	stored := f.said.Load()
	return stored != nil && *stored == said
}

// A Handle leads from a series to its Family. The zero value leads nowhere yet. It is
// safe for concurrent use.
type Handle struct{ family atomic.Pointer[Family] }

// Family returns the family of metadata of this type, or nil if it was never set or
// the last one set was of another type.
func (h *Handle) Family(kind model.MetricType) *Family {
	if f := h.family.Load(); f != nil && f.kind == kind {
		return f
	}
	return nil
}

// SetFamily makes h lead to the family of a series with this metric name, whose
// metadata is of this type, and returns it.
func (s *Store) SetFamily(h *Handle, metric string, kind model.MetricType) *Family {
	f := s.cache.family(s.schema, ingest.FamilyName(metric, kind), kind)
	h.family.Store(f)
	return f
}

// family returns the family of this name.
func (c *cache) family(schema series.Schema, name string, kind model.MetricType) *Family {
	key, err := schema.AppendMetaKey(nil, series.MetaMetadata, name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.families[familyID{name, kind}]; ok {
		return f
	}
	f := &Family{name: strings.Clone(name), kind: kind, said: c.said[string(key)]}
	if f.said == nil {
		f.said = new(atomic.Pointer[metadata.Metadata])
	}
	if err == nil && len(c.families) < maxCached {
		c.said[string(key)], c.families[familyID{f.name, kind}] = f.said, f
	}
	return f
}

// changed returns the keys of entries that differ from what was written last.
func (c *cache) changed(entries map[string]encodedEntry) (keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, entry := range entries {
		if c.rows[key] != entry.cell {
			keys = append(keys, key)
		}
	}
	return keys
}

// setWritten caches that the entries with these keys are written, and which of all
// entries are what is stored.
func (c *cache) setWritten(keys []string, entries map[string]encodedEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if _, ok := c.rows[key]; ok || len(c.rows) < maxCached {
			c.rows[key] = entries[key].cell
		}
	}
	for key, entry := range entries {
		// Another request may have written another entry meanwhile.
		if said, ok := c.said[key]; ok && c.rows[key] == entry.cell {
			said.Store(&entry.said)
		}
	}
}
