package downsample

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/rollup"
)

// A rowMaker makes the rollups of one row after another.
type rowMaker struct {
	resolutions []rollup.Resolution
	samples     merge.Row
	encoder     rollup.DayEncoder
}

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

// make returns the rollups of a day that are not there in cells, or are based on another count or of an earlier kind. Cells are all of the
// families. What is returned refers to nothing in them.
func (m *rowMaker) make(day, base int64, cells []bucketstore.Cell) (ops []bucketstore.Op, err error) {
	end := day + rollup.Day
	var count int64
	var made [rollup.NumResolutions]*bucketstore.Cell // of Raw any
	for i := range cells {
		c := &cells[i]
		made[rollup.ResolutionOf(c.Family)] = c
		if c.Family == series.FamilyCount {
			if count, err = bucketstore.ParseSum(c.Value); err != nil {
				return nil, err
			}
		}
	}
	isRead := false
	for _, r := range m.resolutions {
		if was := made[r]; was != nil && was.Time == end+count && !rollup.IsEarlier(was.Value) {
			continue
		}
		if !isRead {
			if err := m.read(day, base, cells); err != nil {
				return nil, err
			}
			isRead = true
		}
		data, err := m.encoder.Append(nil, r)
		if err != nil {
			return nil, err
		}
		ops = append(ops, bucketstore.Op{
			Kind: bucketstore.SetCell, Family: r.Family(), Time: end + count, Value: data,
			Qualifier: series.AppendQualifier(nil, rollup.Qualifier(day, base)),
		})
	}
	return ops, nil
}

// read gives the samples of a day to the encoder.
func (m *rowMaker) read(day, base int64, cells []bucketstore.Cell) error {
	m.encoder.Begin(day, m.resolutions)
	m.samples.Reset(base, max(day+1, base), min(day+rollup.Day+1, base+series.Period), merge.Options{})
	for _, c := range cells {
		switch c.Family {
		case series.FamilyChunk:
			sealed, err := chunk.Parse(c.Qualifier, c.Value)
			if err != nil {
				return err
			}
			m.samples.AddChunk(sealed)
		case series.FamilyCount:
		default:
			if rollup.ResolutionOf(c.Family) != rollup.Raw {
				continue
			}
			if err := m.samples.AddRaw(c.Family, c.Qualifier, c.Value); err != nil {
				return fmt.Errorf("family %s: %w", c.Family, err)
			}
		}
	}
	for !m.encoder.IsOfSamples() {
		switch m.samples.Next() {
		case merge.Floats:
			m.encoder.AddFloats(m.samples.Floats())
		case merge.None:
			return m.samples.Err()
		default:
			t, v, err := m.samples.Value()
			if err == nil {
				err = m.encoder.Add(t, v)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
