package rollup

import (
	"slices"

	"github.com/promtable/promtable/series/cell"
)

// A DayEncoder makes the cells of a day at some resolutions, whatever its samples are. It reuses its memory.
//
//	e.Begin(day, resolutions)
//	e.AddFloats(times, values) // and Add, in order of time
//	cell, err := e.Append(nil, resolution)
type DayEncoder struct {
	day         int64
	resolutions []Resolution
	kind        dayKind
	floats      Encoder
	// times and values are the floats of a day, or those since the last histogram. histograms has one of each resolution.
	times      []int64
	values     []float64
	histograms []HistogramEncoder
}

// A dayKind says what samples a day has.
type dayKind int

// The kinds of days: of floats, of histograms, and of both or of samples with start timestamps.
const (
	ofFloats dayKind = iota
	ofHistograms
	ofSamples
)

// Begin begins a day without samples.
func (e *DayEncoder) Begin(day int64, resolutions []Resolution) {
	e.day, e.resolutions, e.kind = day, resolutions, ofFloats
	e.times, e.values = e.times[:0], e.values[:0]
}

// AddFloats adds floats without start timestamps, at times in milliseconds that are later than all before and in the day.
func (e *DayEncoder) AddFloats(ts []int64, vs []float64) {
	if e.kind != ofSamples {
		e.times, e.values = append(e.times, ts...), append(e.values, vs...)
	}
}

// Add adds another sample. It may keep references to it until the next Begin. The error means that upstream does not take the value.
func (e *DayEncoder) Add(t int64, v cell.Value) error {
	if v.Start != 0 || v.Histogram == nil && v.FloatHistogram == nil {
		e.kind = ofSamples
	}
	if e.kind == ofFloats {
		e.kind = ofHistograms
		e.histograms = slices.Grow(e.histograms[:0], len(e.resolutions))[:len(e.resolutions)]
		for i, r := range e.resolutions {
			e.histograms[i].Begin(r, e.day)
		}
	}
	if err := e.addMarkers(); err != nil || e.kind == ofSamples {
		return err
	}
	return e.addHistogram(t, v)
}

// addMarkers adds the floats between two histograms, if all are staleness markers: some senders write these as floats.
func (e *DayEncoder) addMarkers() error {
	if e.kind != ofHistograms {
		return nil
	}
	for i, v := range e.values {
		if !isStale(v) {
			e.kind = ofSamples
			return nil
		}
		if err := e.addHistogram(e.times[i], cell.Value{Float: v}); err != nil {
			return err
		}
	}
	e.times, e.values = e.times[:0], e.values[:0]
	return nil
}

func (e *DayEncoder) addHistogram(t int64, v cell.Value) error {
	for i := range e.histograms {
		if err := e.histograms[i].Add(t, v); err != nil {
			return err
		}
	}
	return nil
}

// IsOfSamples says that the cells are those of AppendSamples, whatever is added.
func (e *DayEncoder) IsOfSamples() bool { return e.kind == ofSamples }

// Append appends the cell at one of the resolutions. Nothing may be added after it. The error means that upstream does not take a value.
func (e *DayEncoder) Append(dst []byte, r Resolution) ([]byte, error) {
	if err := e.addMarkers(); err != nil {
		return dst, err
	}
	switch e.kind {
	case ofFloats:
		return e.floats.Append(dst, r, e.day, e.times, e.values), nil
	case ofHistograms:
		return e.histograms[slices.Index(e.resolutions, r)].Append(dst)
	}
	return AppendSamples(dst), nil
}
