package current

import (
	"bytes"
	"math"

	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series/cell"
)

// sample is a sample without its series: V and its start timestamp ST, unless Value
// is set, the value as it is stored.
type sample struct {
	T     int64
	V     float64
	ST    int64
	Value []byte
}

// newSample copies a sample. Floats are copied without an allocation.
func newSample(s *bucketstore.Sample) sample {
	if s.Value == nil {
		return sample{T: s.T, V: s.V}
	}
	if !cell.IsHistogram(s.Value) {
		if v, err := cell.Parse(s.Value); err == nil {
			return sample{T: s.T, V: v.Float, ST: v.Start}
		}
	}
	return sample{T: s.T, Value: bytes.Clone(s.Value)}
}

// isStale says whether s is a staleness marker.
func (s sample) isStale() bool {
	if s.Value == nil {
		return value.IsStaleNaN(s.V)
	}
	v, err := cell.Parse(s.Value)
	return err == nil && isStale(v)
}

// same says whether s and t are the same, bit for bit.
func (s sample) same(t sample) bool {
	return s.T == t.T && math.Float64bits(s.V) == math.Float64bits(t.V) && s.ST == t.ST && bytes.Equal(s.Value, t.Value)
}

// A Handle leads from a series to its slot in a Table, so that Add need not look it
// up. The zero value leads nowhere yet. It belongs to the Table, under its lock.
type Handle struct{ slot *slot }

// A slot holds the current sample of a series. There are as many slots as series.
type slot struct {
	// pending says that the sample is not in CURRENT yet.
	pending bool
	// idle says that it was not pending in the last flush of all.
	idle bool
	// dropped says that the slot is no longer in the Table.
	dropped bool
	// stale says that the slot is in the list of those to flush at once.
	stale bool
	// isWhole says that the sample is more than the time t and the value v, and is
	// in whole.
	isWhole bool
	t       int64
	v       float64
	whole   *sample
	// key lies in the memory of a reference to the series.
	key string
}

// setPending makes s the sample of a slot, if that is pending and both are floats
// without a start timestamp, s no staleness marker: nearly all are. Then no more is to
// be done.
func (at *slot) setPending(s *bucketstore.Sample) bool {
	if !at.pending || at.isWhole || s.Value != nil || value.IsStaleNaN(s.V) {
		return false
	}
	at.t, at.v = s.T, s.V
	return true
}

// set makes s the sample of a slot.
func (at *slot) set(s sample) {
	at.t, at.v, at.isWhole = s.T, s.V, s.Value != nil || s.ST != 0
	switch {
	case at.isWhole && at.whole == nil:
		at.whole = new(sample)
		fallthrough
	case at.isWhole:
		*at.whole = s
	case at.whole != nil:
		*at.whole = sample{} // memory for the next one
	}
}

// sample returns the sample of a slot.
func (at *slot) sample() sample {
	if at.isWhole {
		return *at.whole
	}
	return sample{T: at.t, V: at.v}
}

// isStale says whether v is a staleness marker: of a histogram, its sum is.
func isStale(v cell.Value) bool {
	switch {
	case v.Histogram != nil:
		return value.IsStaleNaN(v.Histogram.Sum)
	case v.FloatHistogram != nil:
		return value.IsStaleNaN(v.FloatHistogram.Sum)
	}
	return value.IsStaleNaN(v.Float)
}
