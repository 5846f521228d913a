package reader

import (
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
)

const (
	// rowCells is how many cells of a row one read should return. A backend holds them
	// all in memory, with more than 200 bytes for each cell.
	rowCells = 100_000
	// firstSpan is how much of a bucket the first read takes, in milliseconds: 37
	// hours, or 134,000 samples a second apart. Its result says how dense the rows are.
	firstSpan = series.Period / 32
	// maxGrowth bounds how much the next read may grow after one of few cells.
	maxGrowth = 8
)

// A part is what one scan reads of a batch: the times [start, limit), which
// either lie in one bucket or are whole buckets.
type part struct {
	start, limit int64
	// wanted says of which series of the batch it reads. Nil is all.
	wanted []bool
}

// has says whether p reads of the bucket with this base.
func (p part) has(base int64) bool {
	return base < p.limit && base+series.Period > p.start
}

// inOneBucket says whether p lies in one bucket.
func (p part) inOneBucket() bool {
	first, _ := series.Split(p.start)
	last, _ := series.Split(p.limit - 1)
	return first == last
}

// span returns how much of a row p reads, in milliseconds.
func (p part) span() int64 { return min(p.limit-p.start, series.Period) }

// families returns what p reads of each of its rows.
func (p part) families() []bucketstore.FamilyRange {
	start, limit := p.qualifiers()
	chunks := bucketstore.FamilyRange{Family: series.FamilyChunk, Limit: limit}
	if start != nil {
		_, delta := series.Split(p.start)
		chunks.Start = chunk.AppendStart(nil, delta)
	}
	families := []bucketstore.FamilyRange{chunks}
	for _, family := range series.RawFamilies {
		families = append(families, bucketstore.FamilyRange{Family: family, Start: start, Limit: limit})
	}
	return families
}

// qualifiers returns the range of qualifiers that p reads of each of its rows,
// half-open; nil is no bound.
func (p part) qualifiers() (start, limit []byte) {
	if base, delta := series.Split(p.start); delta > 0 || p.limit < base+series.Period {
		start = series.AppendQualifier(nil, delta)
	}
	if _, delta := series.Split(p.limit); delta > 0 {
		limit = series.AppendQualifier(nil, delta)
	}
	return start, limit
}

// basesOf returns the bases of the buckets of a batch, ascending.
func basesOf(batch []index.Series) (bases []int64) {
	for i := range batch {
		bases = append(bases, batch[i].Bases...)
	}
	slices.Sort(bases)
	return slices.Compact(bases)
}

// nextPart returns the part to read next before end, of buckets with these bases, ascending. All
// before start is read: so the rows of a series come in the order of time. Buckets
// with few cells are read whole, many at once.
func (r *batchReader) nextPart(bases []int64, start, end int64) (p part, ok bool) {
	base, _ := series.Split(start)
	i, _ := slices.BinarySearch(bases, base)
	if i == len(bases) || bases[i] >= end || start >= end {
		return part{}, false
	}
	p.start = max(start, bases[i])
	p.limit = min(bases[i]+series.Period, end)
	if p.limit-p.start > r.widths.span {
		p.limit = p.start + r.widths.span
	}
	for p.start == bases[i] && i+1 < len(bases) && p.limit == bases[i]+series.Period && bases[i+1]+series.Period <= end {
		i++
		p.limit = bases[i] + series.Period
	}
	return p, true
}

// widths decides how much of a bucket is read at once, by the widest row of the reads
// before.
type widths struct {
	// span is how much, in milliseconds, more than 0 and at most a bucket.
	span int64
	// cells is what the widest row should have.
	cells int
}

// adjust adjusts the span after a read over span, whose widest row had this many cells.
// A read over less than w.span only tells if it was too wide.
func (w *widths) adjust(span int64, widest int) {
	switch {
	case widest == 0 && span >= w.span:
		// The row may begin later, so nothing is learned of how dense it is.
		w.span = max(w.span, min(maxGrowth*w.span, series.IndexPeriod))
	case widest > w.cells || span >= w.span:
		w.span = max(1, min(int64(w.cells)*span/int64(widest), maxGrowth*span, series.Period))
	}
}
