package engine

import (
	"github.com/prometheus/prometheus/model/labels"
	prommetadata "github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/metadata"
	"github.com/promtable/promtable/remote/engine/seriescache"
	"github.com/promtable/promtable/remote/ingest"
)

// cachedSeries is what the parts of the engine keep of a cached series, a field for
// each. It is safe for concurrent use.
type cachedSeries struct {
	entry    seriescache.Entry
	ref      bucketstore.Ref
	indexed  indexed
	current  current.Handle
	metadata metadata.Handle
	engine   *Engine
	// rules are those that its labels come from.
	rules *ingest.Relabelling
}

// stateBytes is about what a cachedSeries takes in memory beside its entry, with its reference and its
// slot in the current table, without the series key.
const stateBytes = 200

// Lookup returns the series that a sender writes so, or nil if it is not cached:
// then it must be given to Append with its labels, and with this text to be
// found the next time. It does not keep the text.
func (e *Engine) Lookup(t ingest.WireText) *seriescache.Entry {
	if e.elections != nil {
		return nil // with HA on, what is stored depends on more than the labels
	}
	e.relabelling()
	return e.cache.Find(t)
}

// relabelling returns the rules in force. If they are others than before, no series is found by what senders write any more.
func (e *Engine) relabelling() *ingest.Relabelling {
	now := e.cfg.WriteLimits.Relabelling()
	if before := e.rules.Load(); before != now && e.rules.CompareAndSwap(before, now) {
		e.cache.Clear()
	}
	return now
}

// addCached caches a series, unless other rules are in force by now.
func (e *Engine) addCached(c *cachedSeries) {
	if c.rules != e.rules.Load() {
		return
	}
	e.cache.Add(&c.entry)
	if c.rules != e.rules.Load() { // since then
		e.cache.Clear()
	}
}

// Symbols returns the current symbol table, or nil if no series is found by its
// numbers.
func (e *Engine) Symbols() *seriescache.SymbolTable {
	if e.elections != nil {
		return nil
	}
	return e.cache.Symbols()
}

// newCached returns a series that may be cached once it is stored, or nil if it
// could not be found again.
func (e *Engine) newCached(t ingest.WireText, ref bucketstore.Ref, rules *ingest.Relabelling) *cachedSeries {
	if e.elections != nil {
		return nil
	}
	c := &cachedSeries{ref: ref, engine: e, rules: rules}
	c.entry.State = c
	c.indexed.prewriteFrom = index.PrewriteFrom(ref.SeriesKey())
	if !e.cache.Init(&c.entry, t, stateBytes+len(ref.SeriesKey())) {
		return nil
	}
	return c
}

// Labels implements ingest.Cached: it decodes the labels from the key.
func (s *cachedSeries) Labels() labels.Labels {
	var b labels.ScratchBuilder
	ls, err := s.engine.cfg.Schema.ParseSeriesKey(s.ref.SeriesKey(), &b)
	if err != nil {
		panic("engine: the key of a stored series: " + err.Error())
	}
	return ls
}

// CompareMetadata implements ingest.Cached: what has changed must be given to AppendMetadata.
func (s *cachedSeries) CompareMetadata(said prommetadata.Metadata) (family string, changed bool) {
	f := s.metadata.Family(said.Type)
	if f == nil {
		f = s.engine.metadata.SetFamily(&s.metadata, s.Labels().Get(labels.MetricName), said.Type)
	}
	return f.Name(), !f.IsStored(said)
}
