package engine

import (
	"github.com/prometheus/prometheus/model/labels"
	prommetadata "github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/metadata"
	"github.com/promtable/promtable/remote/engine/seriescache"
)

// What package seriescache has of a series, and of what senders write.
type (
	// A CachedSeries is a series that was stored before. It is good for the Engine
	// that returned it.
	CachedSeries = seriescache.Entry[SeriesState]
	WireText     = seriescache.WireText
	SymbolTable  = seriescache.SymbolTable
)

// SeriesState is what the parts of the engine keep of a cached series, a field for
// each. It is safe for concurrent use.
type SeriesState struct {
	ref      bucketstore.Ref
	indexed  indexed
	current  current.Handle
	metadata metadata.Handle
	engine   *Engine
}

// stateBytes is about what a SeriesState takes in memory, with its reference and its
// slot in the current table, without the series key.
const stateBytes = 200

// Lookup returns the series that a sender writes so, or nil if it is not cached:
// then it must be given to Append with its labels, and with this text to be
// found the next time. It does not keep the text.
func (e *Engine) Lookup(t WireText) *CachedSeries {
	if e.elections != nil {
		return nil // with HA on, what is stored depends on more than the labels
	}
	return e.cache.Find(t)
}

// Symbols returns the current symbol table, or nil if no series is found by its
// numbers.
func (e *Engine) Symbols() *SymbolTable {
	if e.elections != nil {
		return nil
	}
	return e.cache.Symbols()
}

// newCached returns a series that may be cached once it is stored, or nil if it
// could not be found again.
func (e *Engine) newCached(t WireText, ref bucketstore.Ref) *CachedSeries {
	if e.elections != nil {
		return nil
	}
	c := e.cache.NewEntry(t, stateBytes+len(ref.SeriesKey()))
	if c != nil {
		c.State.ref, c.State.engine = ref, e
		c.State.indexed.ahead = index.AheadFrom(ref.SeriesKey())
	}
	return c
}

// Labels returns the labels of the series, decoded from its key.
func (s *SeriesState) Labels() labels.Labels {
	var b labels.ScratchBuilder
	ls, err := s.engine.cfg.Schema.ParseSeriesKey(s.ref.SeriesKey(), &b)
	if err != nil {
		panic("engine: the key of a stored series: " + err.Error())
	}
	return ls
}

// CompareMetadata returns the name of the metric family that the series belongs to,
// if said is true of it, and whether said differs from what is stored: then it must
// be given to AppendMetadata.
func (s *SeriesState) CompareMetadata(said prommetadata.Metadata) (family string, changed bool) {
	f := s.metadata.Family(said.Type)
	if f == nil {
		f = s.engine.metadata.SetFamily(&s.metadata, s.Labels().Get(labels.MetricName), said.Type)
	}
	return f.Name(), !f.IsStored(said)
}
