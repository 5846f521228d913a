package rollup

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/util/kahansum"

	"github.com/promtable/promtable/series/dense"
)

// Kinds of cells. They are part of the stored format.
const (
	kindFloats     = 1
	kindSamples    = 2
	kindHistograms = 3
)

// Kinds is the greatest kind of cells that this version makes.
const Kinds = kindHistograms

// The columns of a cell. They are part of the stored format.
const (
	columnNumber = iota
	columnFlags
	columnSamples
	columnKept
	columnFirstTime
	columnFirst
	columnSum
	columnLastTime
	columnLast
	columnChanges
	columnResets
	columnBetweenTime
	columnBetween
	columnMarker
	numFloatColumns
	// columnChunks is one of cells of histograms alone.
	columnChunks = numFloatColumns
	numColumns   = numFloatColumns + 1
)

// Flags of a bucket. They are part of the stored format.
const (
	flagMarker   = 1
	flagNoResets = 2
	flagNoSum    = 4
	// flagRemoved says that a part of the samples is deleted, and so all that the bucket kept. A finer bucket may have the others.
	flagRemoved = 8
	allFlags    = flagMarker | flagNoResets | flagNoSum | flagRemoved
)

// maxSummed bounds the values whose sum is kept: the sum of fewer than 2^32 of them is finite, in any order.
const maxSummed = 1e290

// AppendSamples appends the cell of a day whose samples only they themselves can tell: start timestamps, histograms
// beside floats, or very large ones.
func AppendSamples(dst []byte) []byte { return append(dst, kindSamples) }

// An Encoder makes cells. It reuses its memory.
type Encoder struct {
	ints   [numColumns][]int64
	floats [numColumns][]float64
	kept   []int
	column []byte
}

// Append appends the cell of a day at resolution r: times ts, in milliseconds, each later than the one
// before and in the day, and as many values. Of none it appends nothing. Times of other days panic.
func (e *Encoder) Append(dst []byte, r Resolution, day int64, ts []int64, vs []float64) []byte {
	e.begin()
	for len(ts) > 0 {
		start := r.Start(ts[0])
		if start < day || start >= day+Day {
			panic(fmt.Sprintf("rollup: time %d is not in the day %d", ts[0], day))
		}
		n := 1
		for n < len(ts) && ts[n] <= start+int64(r) {
			n++
		}
		e.addBucket(r, day, start, ts[:n], vs[:n])
		ts, vs = ts[n:], vs[n:]
	}
	return e.end(dst, kindFloats)
}

// begin empties the columns.
func (e *Encoder) begin() {
	for i := range numColumns {
		e.ints[i], e.floats[i] = e.ints[i][:0], e.floats[i][:0]
	}
}

// end appends the cell of all buckets, up to the columns of floats, or nothing if there are none.
func (e *Encoder) end(dst []byte, kind byte) []byte {
	buckets := len(e.ints[columnNumber])
	if buckets == 0 {
		return dst
	}
	var flags int64
	for _, f := range e.ints[columnFlags] {
		flags |= f
	}
	dst = binary.AppendUvarint(append(dst, kind, byte(flags)), uint64(buckets))
	for i := range numFloatColumns {
		if len(e.floats[i]) > 0 {
			e.column = dense.AppendFloats(e.column[:0], e.floats[i])
		} else {
			e.column = dense.AppendInts(e.column[:0], e.ints[i])
		}
		dst = append(binary.AppendUvarint(dst, uint64(len(e.column))), e.column...)
	}
	return dst
}

func (e *Encoder) int(column int, v int64) { e.ints[column] = append(e.ints[column], v) }

func (e *Encoder) float(column int, v float64) { e.floats[column] = append(e.floats[column], v) }

// addBucket adds the bucket that begins at start. ts is not empty.
func (e *Encoder) addBucket(r Resolution, day, start int64, ts []int64, vs []float64) {
	end := start + int64(r)
	var flags int64
	if last := len(ts) - 1; isStale(vs[last]) {
		flags |= flagMarker
		e.int(columnMarker, end-ts[last])
	}
	b := bucketOf(vs)
	if !b.hasSum {
		flags |= flagNoSum
	}
	if kept := e.choose(&b, vs, r.maxResets()); !kept {
		flags |= flagNoResets
	}
	e.int(columnNumber, (start-day)/int64(r))
	e.int(columnFlags, flags)
	e.int(columnSamples, int64(b.samples))
	e.int(columnKept, int64(max(0, len(e.kept)-2)))
	if b.samples == 0 {
		return
	}
	e.int(columnFirstTime, ts[b.first]-start)
	e.float(columnFirst, vs[b.first])
	e.float(columnSum, b.sum)
	if b.samples == 1 {
		return
	}
	e.int(columnLastTime, end-ts[b.last])
	e.float(columnLast, vs[b.last])
	e.int(columnChanges, int64(b.changes))
	e.int(columnResets, int64(len(b.resets)))
	for i := 1; i < len(e.kept)-1; i++ {
		e.int(columnBetweenTime, ts[e.kept[i]]-ts[e.kept[i-1]])
		e.float(columnBetween, vs[e.kept[i]])
	}
}

// A bucket is what is known of the samples of a bucket. Positions are those among its values.
type bucket struct {
	samples         int
	first, last     int
	least, greatest int
	sum             float64
	hasSum          bool
	changes         int
	resets          [][2]int // positions before and after
}

// bucketOf looks at the values of a bucket, of which the markers do not count.
func bucketOf(vs []float64) (b bucket) {
	b.hasSum = true
	var correction float64
	for i, v := range vs {
		switch {
		case isStale(v):
			continue
		case b.samples == 0:
			b.first, b.least, b.greatest = i, i, i
		default:
			before := vs[b.last]
			if isChange(before, v) {
				b.changes++
			}
			if v < before {
				b.resets = append(b.resets, [2]int{b.last, i})
			}
			if least := vs[b.least]; v < least || math.IsNaN(least) {
				b.least = i
			}
			if greatest := vs[b.greatest]; v > greatest || math.IsNaN(greatest) {
				b.greatest = i
			}
		}
		b.hasSum = b.hasSum && !(math.Abs(v) > maxSummed)
		b.sum, correction = kahansum.Inc(v, b.sum, correction)
		b.last = i
		b.samples++
	}
	if b.sum += correction; !b.hasSum {
		b.sum = 0
	}
	return b
}

// isChange says whether changes() counts a value after another.
func isChange(before, v float64) bool { return v != before && !(math.IsNaN(v) && math.IsNaN(before)) }

// choose makes kept the positions of the samples that a bucket keeps, and says whether its resets
// are those of these.
func (e *Encoder) choose(b *bucket, vs []float64, maxResets int) (hasResets bool) {
	e.kept = e.kept[:0]
	if b.samples == 0 {
		return true
	}
	e.keep(b.first)
	e.keep(b.last)
	if len(b.resets) <= maxResets {
		for _, pair := range b.resets {
			e.keep(pair[0])
			e.keep(pair[1])
		}
	}
	if again := e.lookAgain(vs); !same(vs[b.least], vs[again.least]) {
		e.keep(b.least)
	}
	if again := e.lookAgain(vs); !same(vs[b.greatest], vs[again.greatest]) {
		e.keep(b.greatest)
	}
	// Too many, or a NaN hides them: of 2, NaN, 1 there is no reset, of 2, 1 there is.
	return len(e.lookAgain(vs).resets) == len(b.resets)
}

// keep adds a position, in its place, unless it is there.
func (e *Encoder) keep(at int) {
	i := len(e.kept)
	for i > 0 && e.kept[i-1] >= at {
		if i--; e.kept[i] == at {
			return
		}
	}
	e.kept = append(e.kept, 0)
	copy(e.kept[i+1:], e.kept[i:])
	e.kept[i] = at
}

// lookAgain looks at the kept values only, with the positions of all.
func (e *Encoder) lookAgain(vs []float64) bucket {
	var values [64]float64
	kept := values[:0]
	for _, at := range e.kept {
		kept = append(kept, vs[at])
	}
	b := bucketOf(kept)
	b.least, b.greatest = e.kept[b.least], e.kept[b.greatest]
	return b
}

// same says whether two floats have the same bits, or are both no number.
func same(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
}

func isStale(v float64) bool { return math.Float64bits(v) == value.StaleNaN }
