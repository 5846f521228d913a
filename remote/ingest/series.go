// Package ingest is what a writer gives to the engine, and what it hears of it.
//
//	series.go    batches of series: samples, histograms, exemplars
//	metadata.go  metadata of metric families
//	rejected.go  what can never be stored
//
// It depends on no other package of the module, so that a decoder of requests links neither
// the engine nor PromQL.
package ingest

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
)

// Series is what a writer sends of one series. Labels are sorted by name; an
// empty value is an absent label. The same label set may come more than once.
type Series struct {
	Labels labels.Labels
	// Cached, if set, is what the engine has found by a WireText; then Labels are not looked at.
	Cached Cached
	// WireText, if it has a form, is what Labels were decoded from: the engine will find
	// the series by it once it is stored.
	WireText   WireText
	Samples    []Sample
	Histograms []Histogram
	// Exemplars have their labels sorted by name.
	Exemplars []exemplar.Exemplar
}

// A Cached is a series that was stored before. It is good for the engine that has it in its cache. It is safe for
// concurrent use.
type Cached interface {
	// Labels returns the labels of the series.
	Labels() labels.Labels
	// CompareMetadata returns the name of the metric family that the series belongs to,
	// if said is true of it, and whether said differs from what is stored: then it must
	// be stored.
	CompareMetadata(said metadata.Metadata) (family string, changed bool)
}

// A Relabelling changes the labels of series before they are stored.
type Relabelling struct {
	// Apply returns the labels under which a series with so many samples is stored, and false if it is not to be.
	Apply func(ls labels.Labels, samples int) (_ labels.Labels, keep bool)
}

// WireText is the bytes in which a sender writes a label set, mostly the same in
// every request. Equal texts of one form always stand for the same labels.
type WireText struct {
	// Form says how to read Text. It is for the decoder to choose; 0 is no text at
	// all.
	Form byte
	Text []byte
}

// Sample is a float64 at a time in milliseconds.
type Sample struct {
	T int64
	V float64
	// ST is since when V has been counted, in milliseconds. 0 is unknown.
	ST int64
}

// Histogram is a native histogram at a time in milliseconds: one of H and FH.
// At one time a histogram wins over a sample of the same Series.
type Histogram struct {
	T int64
	// ST is since when it has been counted, in milliseconds. 0 is unknown.
	ST int64
	H  *histogram.Histogram
	FH *histogram.FloatHistogram
}

// DecodedLabels returns the labels of s, decoded from the key of the series if s has
// none.
func (s *Series) DecodedLabels() labels.Labels {
	if s.Cached != nil {
		return s.Cached.Labels()
	}
	return s.Labels
}

// Size is how many samples, histograms and exemplars s has.
func (s *Series) Size() int { return s.Counts().Total() }

// Counts returns what s has as if it were stored.
func (s *Series) Counts() Stored {
	return Stored{Samples: len(s.Samples), Histograms: len(s.Histograms), Exemplars: len(s.Exemplars)}
}

// Oldest returns the earliest time in s, in milliseconds.
func (s *Series) Oldest() int64 {
	oldest := int64(math.MaxInt64)
	for i := range s.Samples {
		oldest = min(oldest, s.Samples[i].T)
	}
	for i := range s.Histograms {
		oldest = min(oldest, s.Histograms[i].T)
	}
	for i := range s.Exemplars {
		oldest = min(oldest, s.Exemplars[i].Ts)
	}
	return oldest
}

// HasIn says whether s has something in [start, limit), in milliseconds.
func (s *Series) HasIn(start, limit int64) bool {
	is := func(t int64) bool { return start <= t && t < limit }
	return slices.ContainsFunc(s.Samples, func(x Sample) bool { return is(x.T) }) ||
		slices.ContainsFunc(s.Histograms, func(x Histogram) bool { return is(x.T) }) ||
		slices.ContainsFunc(s.Exemplars, func(x exemplar.Exemplar) bool { return is(x.Ts) })
}

// Stored counts what is stored, confirmed.
type Stored struct {
	Samples, Histograms, Exemplars int
}

// Total is how many things are stored.
func (s Stored) Total() int { return s.Samples + s.Histograms + s.Exemplars }

// Plus returns the sums of s and t.
func (s Stored) Plus(t Stored) Stored {
	return Stored{s.Samples + t.Samples, s.Histograms + t.Histograms, s.Exemplars + t.Exemplars}
}
