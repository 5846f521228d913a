package rollup

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/util/kahansum"

	"github.com/promtable/promtable/series/dense"
)

// Kinds of cells. They are part of the stored format.
const (
	kindFloats         = 1
	kindSamples        = 2
	kindHistograms     = 3
	kindFloatEdges     = 4
	kindHistogramEdges = 5
	kindAggregates     = 6
)

// columnsOf are the columns of each kind that has buckets, in their order. They are part of the stored format.
var columnsOf = func() (of [kindAggregates + 1][]int) {
	var buckets []int
	for i := columnNumber; i <= columnMarker; i++ {
		buckets = append(buckets, i)
	}
	of[kindFloats], of[kindAggregates] = buckets, buckets
	of[kindHistograms] = append(slices.Clone(buckets), columnChunks)
	of[kindFloatEdges] = append(slices.Clone(buckets), columnKnown, columnTail, columnTailTime, columnTailValue)
	of[kindHistogramEdges] = append(slices.Clone(buckets), columnKnown, columnChunks)
	return of
}()

// isOfBuckets says whether cells of a kind have buckets, and this version knows it.
func isOfBuckets(kind byte) bool { return int(kind) < len(columnsOf) && columnsOf[kind] != nil }

// hasEdges says whether cells of a kind tell of which end of a bucket they keep all samples.
func hasEdges(kind byte) bool { return kind == kindFloatEdges || kind == kindHistogramEdges }

// isOfHistograms says whether cells of a kind have chunks of histograms.
func isOfHistograms(kind byte) bool { return kind == kindHistograms || kind == kindHistogramEdges }

// The columns of cells.
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
	columnKnown
	columnTail
	columnTailTime
	columnTailValue
	// columnChunks are bytes, the others integers or floats.
	columnChunks
	numColumns
)

// Flags of a bucket. They are part of the stored format.
const (
	flagMarker   = 1
	flagNoResets = 2
	flagNoSum    = 4
	// flagRemoved says that a part of the samples is deleted, and so all that the bucket kept. A finer bucket may have the others.
	flagRemoved  = 8
	flagNoCounts = 16
	allFlags     = flagMarker | flagNoResets | flagNoSum | flagRemoved | flagNoCounts
)

// What the column of the values of tails has. It is part of the stored format.
const (
	tailValues = 0
	tailSteps  = 1
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
	chunks []byte
	kept   []int
	tail   []int
	// steps are the differences of columnTailValue to the sample of the tail after each, and areExact says that these lead back to the values.
	steps    []float64
	areExact bool
	column   []byte
	other    []byte
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
		for n < len(ts) && ts[n] <= start+r.Span() {
			n++
		}
		e.addBucket(r, day, start, ts[:n], vs[:n])
		ts, vs = ts[n:], vs[n:]
	}
	return e.end(dst, kindFloatEdges)
}

// begin empties the columns.
func (e *Encoder) begin() {
	for i := range numColumns {
		e.ints[i], e.floats[i] = e.ints[i][:0], e.floats[i][:0]
	}
	e.chunks, e.steps, e.areExact = e.chunks[:0], e.steps[:0], true
}

// end appends the cell of all buckets, or nothing if there are none.
func (e *Encoder) end(dst []byte, kind byte) []byte {
	buckets := len(e.ints[columnNumber])
	if buckets == 0 {
		return dst
	}
	var flags int64
	for _, f := range e.ints[columnFlags] {
		flags |= f
	}
	dst = append(dst, kind, byte(flags))
	if hasEdges(kind) {
		least := int64(knownAll)
		for _, known := range e.ints[columnKnown] {
			least = min(least, known)
		}
		dst = append(dst, byte(least))
	}
	dst = binary.AppendUvarint(dst, uint64(buckets))
	for _, i := range columnsOf[kind] {
		switch {
		case i == columnChunks:
			e.column = append(e.column[:0], e.chunks...)
		case i == columnTailValue && len(e.steps) > 0:
			e.appendTail()
		case len(e.floats[i]) > 0:
			e.column = dense.AppendFloats(e.column[:0], e.floats[i])
		default:
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
	end := start + r.Span()
	var flags int64
	if last := len(ts) - 1; isStale(vs[last]) {
		flags |= flagMarker
		e.int(columnMarker, end-ts[last])
	}
	b := bucketOf(vs)
	if !b.hasSum {
		flags |= flagNoSum
	}
	hasResets := e.choose(&b, vs, table[r].maxResets)
	if !hasResets {
		flags |= flagNoResets
	}
	if e.addKept(r, day, start, flags, &b, ts, vs); b.samples < 2 {
		return
	}
	e.tail = e.tail[:0]
	if hasResets && table[r].hasTail {
		e.chooseTail(&b, ts, vs, end)
	}
	e.addTail(ts, vs)
	e.int(columnKnown, e.known(&b, ts, vs, end))
}

// addKept adds the columns of a bucket that keeps the samples at kept, but those of its marker and of edges.
func (e *Encoder) addKept(r Resolution, day, start, flags int64, b *bucket, ts []int64, vs []float64) {
	end := start + r.Span()
	e.int(columnNumber, (start-day)/r.Span())
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

// chooseTail makes tail the positions of what a bucket of several samples keeps at its end beside the others, the last one first. It keeps none if all together
// tell something else: of 2, NaN, 1 there is no reset, of 2, 1 there is.
func (e *Encoder) chooseTail(b *bucket, ts []int64, vs []float64, end int64) {
	left := maxTail
	for i := len(ts) - 1; i >= 0 && left > 0 && ts[i] > end-tailSpan; i-- {
		if isStale(vs[i]) {
			continue
		}
		left--
		if _, isKept := slices.BinarySearch(e.kept, i); !isKept {
			e.tail = append(e.tail, i)
		}
	}
	e.kept = append(e.kept, e.tail...)
	slices.Sort(e.kept)
	again := e.lookAgain(vs)
	e.kept = slices.DeleteFunc(e.kept, func(i int) bool { return slices.Contains(e.tail, i) })
	if len(again.resets) != len(b.resets) || !same(vs[b.least], vs[again.least]) || !same(vs[b.greatest], vs[again.greatest]) {
		e.tail = e.tail[:0]
	}
}

// addTail adds the columns of the tail.
func (e *Encoder) addTail(ts []int64, vs []float64) {
	e.int(columnTail, int64(len(e.tail)))
	later := e.kept[len(e.kept)-1]
	for _, i := range e.tail {
		e.addTailSample(ts[later]-ts[i], vs[later], vs[i])
		later = i
	}
}

// addTailSample adds a sample of the tail, some time before the next one of it, or the last one of the bucket.
func (e *Encoder) addTailSample(before int64, next, v float64) {
	e.int(columnTailTime, before)
	e.float(columnTailValue, v)
	step := next - v
	e.steps = append(e.steps, step)
	e.areExact = e.areExact && math.Float64bits(next-step) == math.Float64bits(v)
}

// appendTail makes column the values of tails, or where that is shorter their steps.
func (e *Encoder) appendTail() {
	e.column = dense.AppendFloats(append(e.column[:0], tailValues), e.floats[columnTailValue])
	if e.areExact {
		if e.other = dense.AppendFloats(append(e.other[:0], tailSteps), e.steps); len(e.other) < len(e.column) {
			e.column, e.other = e.other, e.column
		}
	}
}

// known returns the class of the samples that a bucket keeps, of which there are two or more.
func (e *Encoder) known(b *bucket, ts []int64, vs []float64, end int64) int64 {
	if len(e.kept)+len(e.tail) == b.samples {
		return knownAll
	}
	for i := b.last; ; i-- { // up to the last one that is not kept
		_, isKept := slices.BinarySearch(e.kept, i)
		if !isKept && !isStale(vs[i]) && !slices.Contains(e.tail, i) {
			return knownSince(end - ts[i])
		}
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
