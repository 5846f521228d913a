package deletion

import (
	"bytes"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/rollup"
)

// A filter takes what is deleted out of rows of METRIC. It is used for one row after another;
// its zero value is ready.
type filter struct {
	samples merge.Row
	encoder bucketstore.ChunkEncoder
	rollups rollup.Encoder
}

// row returns the cells of the row of a bucket without what is deleted by records of its
// series. changed says whether they differ; if not they are the same slice.
func (f *filter) row(base int64, cells []bucketstore.Cell, records []*record) (left []bucketstore.Cell, changed bool) {
	for i := range cells {
		deleted, rest, err := f.cell(base, &cells[i], records)
		if deleted = deleted && err == nil; deleted && !changed { // reading a damaged chunk tells what is wrong
			left, changed = slices.Clone(cells[:i]), true
		}
		switch {
		case deleted:
			left = append(left, rest...)
		case changed:
			left = append(left, cells[i])
		}
	}
	if !changed {
		return cells, false
	}
	sortChunks(left)
	return left, true
}

// sortChunks sorts the chunks of a row, which stand side by side: what is left of one that
// was cut may belong behind another one.
func sortChunks(cells []bucketstore.Cell) {
	isChunk := func(c bucketstore.Cell) bool { return c.Family == series.FamilyChunk }
	first := slices.IndexFunc(cells, isChunk)
	if first < 0 {
		return
	}
	n := slices.IndexFunc(cells[first:], func(c bucketstore.Cell) bool { return !isChunk(c) })
	if n < 0 {
		n = len(cells) - first
	}
	slices.SortFunc(cells[first:first+n], func(a, b bucketstore.Cell) int { return bytes.Compare(a.Qualifier, b.Qualifier) })
}

// cell says whether a cell is deleted, in whole or in part. What is left of it are cells in its
// place. The error is about a chunk of which a part is deleted.
func (f *filter) cell(base int64, c *bucketstore.Cell, records []*record) (deleted bool, left []bucketstore.Cell, err error) {
	if r := rollup.ResolutionOf(c.Family); r != rollup.Raw {
		return f.rollup(base, c, r, records)
	}
	switch c.Family {
	case series.FamilyChunk:
		return f.chunk(base, c, records)
	case series.FamilyExemplar, series.FamilyLate, series.FamilyR0, series.FamilyR1, series.FamilyR2, series.FamilyR3:
	default:
		return false, nil, nil
	}
	if len(c.Qualifier) < series.QualifierSize {
		return false, nil, nil
	}
	delta, err := series.ParseQualifier(c.Qualifier[:series.QualifierSize])
	if err != nil {
		return false, nil, nil // reading it tells what is wrong
	}
	for _, r := range records {
		if r.has(base+int64(delta)) && (c.Family != series.FamilyLate || c.Time <= r.Stamp) {
			return true, nil, nil
		}
	}
	return false, nil, nil
}

// rollup is cell for a rollup. What is left has no bucket of which a part is deleted, and no reader takes it for one that is right
// while the samples of its day are there.
func (f *filter) rollup(base int64, c *bucketstore.Cell, r rollup.Resolution, records []*record) (deleted bool, left []bucketstore.Cell, err error) {
	day := rollup.DayOfCell(base, c.Qualifier)
	value := c.Value
	for _, rec := range records {
		if !rec.overlaps(day+1, day+rollup.Day+1) {
			continue
		}
		deleted = true
		if value, err = f.rollups.Without(value, r, day, rec.Start, rec.Limit); err != nil {
			return true, nil, err
		}
	}
	if !deleted {
		return false, nil, nil
	}
	return true, []bucketstore.Cell{{Family: c.Family, Qualifier: c.Qualifier, Value: value}}, nil
}

// A span is a range of time, half-open, in milliseconds.
type span struct{ start, limit int64 }

// chunk is cell for a chunk.
func (f *filter) chunk(base int64, c *bucketstore.Cell, records []*record) (deleted bool, left []bucketstore.Cell, err error) {
	sealed, err := chunk.Parse(c.Qualifier, c.Value)
	if err != nil {
		return false, nil, nil // reading it tells what is wrong
	}
	kept := []span{{base + int64(sealed.First), base + int64(sealed.Last) + 1}}
	for _, r := range records {
		if sealed.Stamp <= r.Stamp {
			kept = subtract(kept, r.Start, r.Limit)
		}
	}
	if len(kept) == 1 && kept[0].limit-kept[0].start == int64(sealed.Last-sealed.First)+1 {
		return false, nil, nil
	}
	for _, part := range kept {
		f.samples.Reset(base, part.start, part.limit, merge.Options{})
		f.samples.AddChunk(sealed)
		cells, err := f.encoder.Encode(&f.samples, sealed.Stamp)
		if err != nil {
			return true, nil, err
		}
		left = append(left, cells...)
	}
	return true, left, nil
}

// subtract returns spans without the times in [start, limit).
func subtract(spans []span, start, limit int64) (left []span) {
	for _, s := range spans {
		if before := (span{s.start, min(s.limit, start)}); before.start < before.limit {
			left = append(left, before)
		}
		if after := (span{max(s.start, limit), s.limit}); after.start < after.limit {
			left = append(left, after)
		}
	}
	return left
}
