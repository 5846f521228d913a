package engine

import (
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	prommetadata "github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/metadata"
	"github.com/promtable/promtable/series"
)

// A Spelling is the bytes in which a sender writes a label set, mostly the same
// in every request. Equal texts of one form always stand for the same labels.
type Spelling struct {
	// Form says how to read Text. It is for the caller to choose; 0 is no spelling
	// at all.
	Form byte
	Text []byte
}

// maxSpelling bounds the texts that are remembered, in bytes: more than a series
// key can hold. Nobody needs longer ones, but a message can be written so that
// its labels take any space.
const maxSpelling = 2 * series.MaxSeriesKey

// Known is a series that was stored before, found by how a sender spells it:
// nothing of it needs to be decoded, checked or built again. It is safe for
// concurrent use, and good for the Engine that returned it.
//
// What each sample asks for comes first: it is in one cache line, or two.
type Known struct {
	text string
	// next is what came after this one the last time.
	next atomic.Pointer[Known]
	// age is that of the younger half that it was last added to.
	age  atomic.Uint32
	form byte

	ref bucketstore.Ref
	// indexed is where the series is in the index, durably.
	indexed periods
	// ahead is from where in an index period on the series is needed in the next
	// one too, in milliseconds.
	ahead int64

	// current is for the current table.
	current current.Handle
	// queued is the number of the last index period for which the index has noted
	// the series down, to be written ahead.
	queued atomic.Int64
	engine *Engine

	// metadata is for the metadata store.
	metadata metadata.Handle

	hash   uint64
	tenant string
}

// Next returns the series that a sender sent after k the last time, of the same
// tenant, or nil. Senders keep to an order, so that whoever compares its text
// with what comes next mostly needs no Lookup.
func (k *Known) Next() *Known {
	next := k.next.Load()
	if next == nil || !k.engine.known.keeps(next) {
		return nil
	}
	return next
}

// Precedes notes that next came after k.
func (k *Known) Precedes(next *Known) { k.next.Store(next) }

// Text returns the text of a spelling of this form, or nothing if the series was
// found by one of another form.
func (k *Known) Text(form byte) string {
	if k.form != form {
		return ""
	}
	return k.text
}

// Labels returns the labels of the series, decoded from its key.
func (k *Known) Labels() labels.Labels {
	var b labels.ScratchBuilder
	_, ls, err := k.engine.cfg.Schema.ParseSeriesKey(k.ref.SeriesKey(), &b)
	if err != nil {
		panic("engine: the key of a stored series: " + err.Error())
	}
	return ls
}

// TakeMetadata returns the name of the metric family that the series belongs to,
// if said is true of it, and whether said is news, which must be given to
// AppendMetadata. Else it is what is stored.
func (k *Known) TakeMetadata(said prommetadata.Metadata) (family string, news bool) {
	f := k.metadata.Family(said.Type)
	if f == nil {
		f = k.engine.metadata.SetFamily(&k.metadata, k.tenant, k.Labels().Get(labels.MetricName), said.Type)
	}
	return f.Name(), !f.IsStored(said)
}

// Lookup returns the series that a tenant's sender spells so, or nil if it is
// not known: then it must be given to Append with its labels, and with its
// spelling to be known the next time. It does not keep the text.
func (e *Engine) Lookup(tenant string, s Spelling) *Known {
	if e.elections != nil || len(s.Text) > maxSpelling {
		return nil // with HA on, what is stored depends on more than the labels
	}
	return e.known.find(tenant, s)
}

// newKnown makes a series that may be remembered once it is stored, or returns
// nil if nobody could find it again.
func (e *Engine) newKnown(tenant string, s Spelling, ref bucketstore.Ref) *Known {
	if e.elections != nil || s.Form == 0 || len(s.Text) > maxSpelling {
		return nil
	}
	return &Known{
		hash:   e.known.hash(tenant, s.Text),
		tenant: tenant,
		text:   string(s.Text),
		form:   s.Form,
		ref:    ref,
		engine: e,
		ahead:  index.AheadFrom(ref.SeriesKey()),
	}
}

// is says whether k is what a tenant's sender spells so.
func (k *Known) is(tenant string, s Spelling) bool {
	return k.text == string(s.Text) && k.form == s.Form && k.tenant == tenant
}

// knownBytes is about what a Known takes in memory, with its reference, its slot
// and its places in tables, without texts.
const knownBytes = 400

// size returns about how many bytes k takes in memory.
func (k *Known) size() int { return knownBytes + len(k.text) + len(k.ref.SeriesKey()) }

// isIndexed says whether the index need not hear of a sample at t: all rows that
// it needs are durable, and those of the next period are on their way if it is
// time.
func (k *Known) isIndexed(t int64) bool {
	n := t / series.IndexPeriod
	return k.indexed.has(n) && (t%series.IndexPeriod < k.ahead || k.queued.Load() == n+1)
}

// setIndexed notes that the index has heard of a sample at t.
func (k *Known) setIndexed(t int64) {
	n := t / series.IndexPeriod
	k.indexed.add(n)
	if t%series.IndexPeriod >= k.ahead {
		k.queued.Store(n + 1)
	}
}

// periods is a set of numbers of index periods: the greatest one ever added, and
// which of the 31 before it. What is forgotten is only asked for again. It is
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

// currentHandle returns the handle of k, or nil if k is nil.
func (k *Known) currentHandle() *current.Handle {
	if k == nil {
		return nil
	}
	return &k.current
}
