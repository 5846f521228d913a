package downsample

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/rollup"
)

// A rowMaker makes the rollups of one row after another.
type rowMaker struct {
	resolutions []rollup.Resolution
	samples     merge.Row
	encoder     rollup.Encoder
	// times and values are the floats of a day, and histograms the rollups of its histograms, one of each resolution.
	times      []int64
	values     []float64
	histograms []rollup.HistogramEncoder
}

// A dayKind says what samples a day has.
type dayKind int

// The kinds of days: of floats, of histograms, and of both or of samples with start timestamps.
const (
	ofFloats dayKind = iota
	ofHistograms
	ofSamples
)

// families returns what is to be read of rows of a base: all that the rollups of a day are made of, and these.
func (m *rowMaker) families(day, base int64) []bucketstore.FamilyRange {
	start, limit := max(day+1, base), min(day+rollup.Day+1, base+series.Period)
	first := series.AppendQualifier(nil, uint32(start-base))
	var end []byte
	if limit < base+series.Period {
		end = series.AppendQualifier(nil, uint32(limit-base))
	}
	own := series.SingleRow(series.AppendQualifier(nil, rollup.Qualifier(day, base)))
	families := []bucketstore.FamilyRange{
		{Family: series.FamilyChunk, Start: chunk.AppendStart(nil, uint32(start-base)), Limit: end},
		{Family: series.FamilyCount, Start: own.Start, Limit: own.Limit},
	}
	for _, family := range series.RawFamilies {
		families = append(families, bucketstore.FamilyRange{Family: family, Start: first, Limit: end})
	}
	for _, r := range m.resolutions {
		families = append(families, bucketstore.FamilyRange{Family: r.Family(), Start: own.Start, Limit: own.Limit})
	}
	slices.SortFunc(families, func(a, b bucketstore.FamilyRange) int { return cmp.Compare(a.Family, b.Family) })
	return families
}

// make returns the rollups of a day that differ from those in cells, which are all of the families. They refer to
// nothing in cells.
func (m *rowMaker) make(day, base int64, cells []bucketstore.Cell) (ops []bucketstore.Op, err error) {
	end := day + rollup.Day
	count, made := int64(0), make(map[string]bucketstore.Cell, len(m.resolutions))
	for _, c := range cells {
		switch c.Family {
		case series.FamilyCount:
			if count, err = bucketstore.ParseSum(c.Value); err != nil {
				return nil, err
			}
		case series.Family5m, series.Family1h:
			made[c.Family] = c
		}
	}
	isRead, kind := false, ofFloats
	for i, r := range m.resolutions {
		was, isMade := made[r.Family()]
		isMade = isMade && was.Time == end+count
		if isMade && rollup.HasBuckets(was.Value) { // else an earlier version may have made it, that knew fewer kinds
			continue
		}
		if !isRead {
			if kind, err = m.read(day, base, cells); err != nil {
				return nil, err
			}
			isRead = true
		}
		var data []byte
		switch kind {
		case ofFloats:
			data = m.encoder.Append(nil, r, day, m.times, m.values)
		case ofHistograms:
			if data, err = m.histograms[i].Append(nil); err != nil {
				return nil, err
			}
		default:
			data = rollup.AppendSamples(nil)
		}
		if isMade && bytes.Equal(data, was.Value) {
			continue
		}
		ops = append(ops, bucketstore.Op{
			Kind: bucketstore.SetCell, Family: r.Family(), Time: end + count, Value: data,
			Qualifier: series.AppendQualifier(nil, rollup.Qualifier(day, base)),
		})
	}
	return ops, nil
}

// read reads the samples of a day, and returns what they are.
func (m *rowMaker) read(day, base int64, cells []bucketstore.Cell) (kind dayKind, err error) {
	m.times, m.values = m.times[:0], m.values[:0]
	m.samples.Reset(base, max(day+1, base), min(day+rollup.Day+1, base+series.Period), merge.Options{})
	for _, c := range cells {
		switch c.Family {
		case series.FamilyChunk:
			sealed, err := chunk.Parse(c.Qualifier, c.Value)
			if err != nil {
				return kind, err
			}
			m.samples.AddChunk(sealed)
		case series.FamilyCount, series.Family5m, series.Family1h:
		default:
			if err := m.samples.AddRaw(c.Family, c.Qualifier, c.Value); err != nil {
				return kind, fmt.Errorf("family %s: %w", c.Family, err)
			}
		}
	}
	for {
		switch m.samples.Next() {
		case merge.Floats:
			times, values := m.samples.Floats()
			m.times, m.values = append(m.times, times...), append(m.values, values...)
		case merge.None:
			if kind == ofHistograms {
				kind, err = m.addMarkers()
			}
			return kind, cmp.Or(err, m.samples.Err())
		default:
			t, v, err := m.samples.Value()
			if err != nil {
				return kind, err
			}
			if v.Start != 0 || v.Histogram == nil && v.FloatHistogram == nil {
				return ofSamples, nil
			}
			if kind == ofFloats {
				m.beginHistograms(day)
			}
			if kind, err = m.addMarkers(); err == nil && kind == ofHistograms {
				err = m.addHistogram(t, v)
			}
			if err != nil || kind == ofSamples {
				return kind, err
			}
		}
	}
}

// beginHistograms begins the rollups of a day of histograms.
func (m *rowMaker) beginHistograms(day int64) {
	m.histograms = slices.Grow(m.histograms, len(m.resolutions))[:len(m.resolutions)]
	for i, r := range m.resolutions {
		m.histograms[i].Begin(r, day)
	}
}

// addMarkers adds the floats that were read between two histograms, if all are staleness markers: some senders write these as floats. Else it returns
// ofSamples.
func (m *rowMaker) addMarkers() (dayKind, error) {
	for i, v := range m.values {
		if !value.IsStaleNaN(v) {
			return ofSamples, nil
		}
		if err := m.addHistogram(m.times[i], cell.Value{Float: v}); err != nil {
			return ofSamples, err
		}
	}
	m.times, m.values = m.times[:0], m.values[:0]
	return ofHistograms, nil
}

// addHistogram adds a sample to the rollups of a day of histograms.
func (m *rowMaker) addHistogram(t int64, v cell.Value) error {
	for i := range m.histograms {
		if err := m.histograms[i].Add(t, v); err != nil {
			return err
		}
	}
	return nil
}
