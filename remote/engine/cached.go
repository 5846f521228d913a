package engine

import (
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	prommetadata "github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/metadata"
	"github.com/promtable/promtable/remote/engine/seriescache"
	"github.com/promtable/promtable/series"
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

// Lookup returns the series that a tenant's sender writes so, or nil if it is not
// cached: then it must be given to Append with its labels, and with this text to be
// found the next time. It does not keep the text.
func (e *Engine) Lookup(tenant string, t WireText) *CachedSeries {
	if e.elections != nil {
		return nil // with HA on, what is stored depends on more than the labels
	}
	return e.cache.Find(tenant, t)
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
func (e *Engine) newCached(tenant string, t WireText, ref bucketstore.Ref) *CachedSeries {
	if e.elections != nil {
		return nil
	}
	c := e.cache.NewEntry(tenant, t, stateBytes+len(ref.SeriesKey()))
	if c != nil {
		c.State.ref, c.State.engine = ref, e
		c.State.indexed.ahead = index.AheadFrom(ref.SeriesKey())
	}
	return c
}

// Labels returns the labels of the series, decoded from its key.
func (s *SeriesState) Labels() labels.Labels {
	_, ls := s.parseKey()
	return ls
}

func (s *SeriesState) parseKey() (tenant string, ls labels.Labels) {
	var b labels.ScratchBuilder
	tenant, ls, err := s.engine.cfg.Schema.ParseSeriesKey(s.ref.SeriesKey(), &b)
	if err != nil {
		panic("engine: the key of a stored series: " + err.Error())
	}
	return tenant, ls
}

// CompareMetadata returns the name of the metric family that the series belongs to,
// if said is true of it, and whether said differs from what is stored: then it must
// be given to AppendMetadata.
func (s *SeriesState) CompareMetadata(said prommetadata.Metadata) (family string, changed bool) {
	f := s.metadata.Family(said.Type)
	if f == nil {
		tenant, ls := s.parseKey()
		f = s.engine.metadata.SetFamily(&s.metadata, tenant, ls.Get(labels.MetricName), said.Type)
	}
	return f.Name(), !f.IsStored(said)
}

// indexed is which index periods have the rows of a series. It is safe for
// concurrent use.
type indexed struct {
	// durable are the periods whose rows are durable.
	durable periods
	// ahead is from where in an index period on the series is needed in the next
	// one too, in milliseconds.
	ahead int64
	// queued is the number of the last index period whose rows the index has queued,
	// to be written ahead.
	queued atomic.Int64
}

// has says whether the index need not see a sample at t: all rows that it needs are
// durable, and those of the next period are queued if it is time.
func (x *indexed) has(t int64) bool {
	n := t / series.IndexPeriod
	return x.durable.has(n) && (t%series.IndexPeriod < x.ahead || x.queued.Load() == n+1)
}

// add notes that the index has seen a sample at t.
func (x *indexed) add(t int64) {
	n := t / series.IndexPeriod
	x.durable.add(n)
	if t%series.IndexPeriod >= x.ahead {
		x.queued.Store(n + 1)
	}
}

// periods is a set of numbers of index periods: the greatest one ever added, and
// which of the 31 before it. What is dropped is only written again. It is
// safe for concurrent use.
type periods struct {
	// bits has the greatest number, plus one, in its upper half; bit i of its
	// lower half stands for the number that is less by i.
	bits atomic.Uint64
}

// has says whether n, which is not negative, is in p.
func (p *periods) has(n int64) bool {
	bits := p.bits.Load()
	back := int64(bits>>32) - 1 - n
	return back >= 0 && back < 32 && bits>>back&1 == 1
}

// add adds n, which is not negative and less than 1<<32 - 1.
func (p *periods) add(n int64) {
	for {
		bits := p.bits.Load()
		greatest, set := int64(bits>>32)-1, uint32(bits)
		if n > greatest {
			// A shift by 32 or more leaves nothing.
			set, greatest = set<<uint64(n-greatest)|1, n
		} else if back := greatest - n; back < 32 {
			set |= 1 << back
		}
		if p.bits.CompareAndSwap(bits, uint64(greatest+1)<<32|uint64(set)) {
			return
		}
	}
}
