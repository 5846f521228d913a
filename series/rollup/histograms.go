package rollup

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
)

// A HistogramEncoder makes cells of days of histograms. It holds what a bucket keeps of its samples, not all of them.
//
//	e.Begin(resolution, day)
//	e.Add(t, v) // for each sample
//	cell, err := e.Append(nil)
type HistogramEncoder struct {
	resolution Resolution
	day        int64
	// columns are those of integers.
	columns Encoder
	chunks  chunk.Builder
	bucket  histogramBucket
	// tooLarge says that the cell would exceed maxHistogramBytes: then nothing is kept any more.
	tooLarge bool
}

// A keptHistogram is a histogram that a bucket may keep.
type keptHistogram struct {
	t     int64
	value cell.Value
	float *histogram.FloatHistogram
	// always says that it is not only kept for a reset.
	always bool
}

// A histogramBucket is what is known of the samples of a bucket. It is empty if it has neither samples nor a marker.
type histogramBucket struct {
	start           int64
	samples         int
	changes, resets int
	hasGauge        bool
	// kept are in order of time, but for the last sample and the marker that ends the bucket, either of which may be nil.
	kept         []*keptHistogram
	last, marker *keptHistogram
	// times are those of all samples.
	times []int64
}

// Begin begins the cell of a day at resolution r.
func (e *HistogramEncoder) Begin(r Resolution, day int64) {
	e.resolution, e.day, e.tooLarge = r, day, false
	e.bucket, e.chunks = histogramBucket{kept: e.bucket.kept[:0], times: e.bucket.times[:0]}, chunk.Builder{}
	e.columns.begin()
}

// Add adds a histogram without a start timestamp, or a staleness marker of any kind, at a time in milliseconds that is later than all before
// and in the day: times of other days panic. It keeps references to the value, which must not change before Append. The error means that
// upstream does not take the value.
func (e *HistogramEncoder) Add(t int64, v cell.Value) error {
	start := e.resolution.Start(t)
	if start < e.day || start >= e.day+Day {
		panic(fmt.Sprintf("rollup: time %d is not in the day %d", t, e.day))
	}
	if e.tooLarge {
		return nil
	}
	if b := &e.bucket; b.start != start {
		if err := e.endBucket(); err != nil {
			return err
		}
		b.start = start
	}
	if isMarker(v) {
		if v.Histogram == nil && v.FloatHistogram == nil {
			v.Histogram = &histogram.Histogram{Sum: stale}
		}
		e.bucket.marker = &keptHistogram{t: t, value: v}
		return nil
	}
	e.bucket.add(&keptHistogram{t: t, value: v, float: floatOf(v)}, table[e.resolution].maxResets)
	return nil
}

// isMarker says whether a value is a staleness marker.
func isMarker(v cell.Value) bool {
	switch {
	case v.Histogram != nil:
		return value.IsStaleNaN(v.Histogram.Sum)
	case v.FloatHistogram != nil:
		return value.IsStaleNaN(v.FloatHistogram.Sum)
	}
	return isStale(v.Float)
}

// floatOf returns a histogram as functions of PromQL see it. Whether a counter was reset they find out by comparison: what the hint says of it is left
// out, because it is about the sample before, which may not be kept.
func floatOf(v cell.Value) *histogram.FloatHistogram {
	var h histogram.FloatHistogram
	if v.Histogram != nil {
		v.Histogram.ToFloat(&h)
	} else {
		h = *v.FloatHistogram
	}
	if h.CounterResetHint != histogram.GaugeType {
		h.CounterResetHint = histogram.UnknownCounterReset
	}
	return &h
}

// isHistogramChange says whether changes() counts a histogram after another. Empty buckets do not count: chunks add and drop them.
func isHistogramChange(before, h *histogram.FloatHistogram) bool {
	sameBits := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
	if !sameBits(before.Count, h.Count) || !sameBits(before.Sum, h.Sum) {
		return true // most of them
	}
	return !before.Copy().Compact(0).Equals(h.Copy().Compact(0))
}

// add adds a sample.
func (b *histogramBucket) add(k *keptHistogram, maxResets int) {
	b.marker = nil
	if b.last != nil {
		if isHistogramChange(b.last.float, k.float) {
			b.changes++
		}
		if k.float.DetectReset(b.last.float) {
			if b.resets++; b.resets <= maxResets {
				b.keep(b.last)
				b.keep(k)
			}
		}
	}
	isGauge := k.float.CounterResetHint == histogram.GaugeType
	if k.always = b.last == nil || isGauge && !b.hasGauge; k.always {
		b.keep(k)
	}
	b.hasGauge = b.hasGauge || isGauge
	b.last = k
	b.samples++
	b.times = append(b.times, k.t)
}

// known is that of Encoder, of what choose has left.
func (b *histogramBucket) known(end int64) int64 {
	kept := len(b.kept) - 1
	for i := len(b.times) - 1; i >= 0; i-- {
		if kept < 0 || b.kept[kept].t != b.times[i] {
			return knownSince(end - b.times[i])
		}
		kept--
	}
	return knownAll
}

// keep keeps a sample that is the last one of those kept, or later.
func (b *histogramBucket) keep(k *keptHistogram) {
	if n := len(b.kept); n == 0 || b.kept[n-1] != k {
		b.kept = append(b.kept, k)
	}
}

// choose leaves in kept what the bucket keeps, and says whether its resets are those of these.
func (b *histogramBucket) choose(maxResets int) (hasResets bool) {
	if b.last != nil {
		b.last.always = true
		b.keep(b.last)
	}
	if b.resets > maxResets {
		kept := b.kept[:0]
		for _, k := range b.kept {
			if k.always {
				kept = append(kept, k)
			}
		}
		b.kept = kept
	}
	resets := 0
	for i := 1; i < len(b.kept); i++ {
		if b.kept[i].float.DetectReset(b.kept[i-1].float) {
			resets++
		}
	}
	return resets == b.resets
}

// endBucket adds the bucket to the columns, if it is not empty, and begins an empty one.
func (e *HistogramEncoder) endBucket() error {
	b := &e.bucket
	if b.last == nil && b.marker == nil {
		return nil
	}
	flags := int64(flagNoSum)
	if !b.choose(table[e.resolution].maxResets) {
		flags |= flagNoResets
	}
	if b.marker != nil {
		flags |= flagMarker
	}
	e.addColumns(&decoded{
		start: b.start, flags: flags, samples: int32(b.samples), changes: int32(b.changes), resets: int32(b.resets),
		known: b.known(b.start + e.resolution.Span()),
	}, len(b.kept))
	if b.marker != nil {
		b.kept = append(b.kept, b.marker)
	}
	for _, k := range b.kept {
		if err := e.chunks.Append(k.t, copyOf(k.value)); err != nil {
			return err
		}
	}
	*b = histogramBucket{kept: b.kept[:0], times: b.times[:0]}
	if e.chunks.Bytes() > maxHistogramBytes {
		e.tooLarge, e.chunks = true, chunk.Builder{}
	}
	return nil
}

// addColumns adds what a bucket has beside its samples, of which it keeps some.
func (e *HistogramEncoder) addColumns(b *decoded, kept int) {
	e.columns.int(columnNumber, (b.start-e.day)/e.resolution.Span())
	e.columns.int(columnFlags, b.flags)
	e.columns.int(columnSamples, int64(b.samples))
	e.columns.int(columnKept, int64(max(0, kept-2)))
	if b.samples > 1 {
		e.columns.int(columnChanges, int64(b.changes))
		e.columns.int(columnResets, int64(b.resets))
		e.columns.int(columnKnown, b.known)
	}
}

// copyOf returns a copy of a histogram: to append one to a chunk may add empty buckets to it.
func copyOf(v cell.Value) cell.Value {
	if v.Histogram != nil {
		return cell.Value{Histogram: v.Histogram.Copy()}
	}
	return cell.Value{FloatHistogram: v.FloatHistogram.Copy()}
}

// maxHistogramBytes bounds the cell of a day of histograms: some have a hundred thousand buckets.
const maxHistogramBytes = 1 << 20

// Append appends the cell, or nothing if there are no samples. If it would be larger than a megabyte, it is that of AppendSamples. The error
// means that upstream does not take a value.
func (e *HistogramEncoder) Append(dst []byte) ([]byte, error) {
	if err := e.endBucket(); err != nil {
		return dst, err
	}
	if e.tooLarge {
		return AppendSamples(dst), nil
	}
	return e.end(dst, kindHistogramEdges), nil
}

// end appends the cell of the buckets, or nothing if there are none.
func (e *HistogramEncoder) end(dst []byte, kind byte) []byte {
	if len(e.chunks.Chunks) == 0 {
		return dst
	}
	for _, c := range e.chunks.Chunks {
		data := c.Chunk.Bytes()
		e.columns.chunks = binary.AppendUvarint(append(e.columns.chunks, byte(c.Chunk.Encoding())), uint64(len(data)))
		e.columns.chunks = append(e.columns.chunks, data...)
	}
	return e.columns.end(dst, kind)
}
