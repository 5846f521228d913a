package rollup

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/dense"
)

// maxKept is how many samples a bucket may keep between the first and the last.
const maxKept = 64

// headSize is the size of the kind and the flags of a cell.
const headSize = 2

// edgeHeadSize is that of kinds with edges: the least class of the buckets follows.
const edgeHeadSize = headSize + 1

// floatColumns are those of floats.
var floatColumns = [...]int{columnFirst, columnSum, columnLast, columnBetween, columnTailValue}

// A decoder reads the buckets of a cell, one after the other. It reuses its memory.
type decoder struct {
	cell       []byte
	resolution Resolution
	day        int64
	data       [numColumns][]byte
	ints       [numColumns][]int64
	floats     [numColumns][]float64
	// at are the places in the columns.
	at   [numColumns]int
	want Want
	// withTails says that the tails are read.
	withTails bool
	bucket    decoded
	kind      byte
	// hasSteps says that the values of tails are steps.
	hasSteps bool
	// isHistograms says that the samples are those of chunks.
	isHistograms bool
	chunks       chunkReader
}

// A decoded is a bucket that was read.
type decoded struct {
	start, end int64
	flags      int64
	// times and values are those of the samples that it keeps.
	times  []int64
	values []float64
	// histograms are in place of values if there are any.
	histograms []cell.Value
	samples    int32
	sum        float64
	changes    int32
	resets     int32
	// known is the class of the samples that are kept, and tail the times of those of the columns of the tail, the last one first.
	known  int64
	tail   []int64
	marker int64
	// markerValue is the marker if the others are histograms.
	markerValue cell.Value
	isEstimated bool
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: rollup cell: %s", series.ErrCorrupt, fmt.Sprintf(format, args...))
}

// isOpen says whether a cell is open, and no bucket that begins from after on was passed.
func (d *decoder) isOpen(data []byte, after int64) bool {
	if len(d.cell) != len(data) || &d.cell[0] != &data[0] {
		return false
	}
	at := d.at[columnNumber]
	return at == 0 || d.start(at-1) < after
}

// start returns when a bucket begins.
func (d *decoder) start(i int) int64 {
	return d.day + d.ints[columnNumber][i]*d.resolution.Span()
}

// nextStart returns when the next bucket begins, if there is one.
func (d *decoder) nextStart() (start int64, ok bool) {
	if at := d.at[columnNumber]; at < len(d.ints[columnNumber]) {
		return d.start(at), true
	}
	return 0, false
}

// open begins a cell, which is not empty. withTails says whether the tail of any bucket is asked for.
func (d *decoder) open(data []byte, r Resolution, day int64, want Want, withTails bool) error {
	d.cell, d.kind, d.isHistograms = nil, data[0], isOfHistograms(data[0])
	head := headSize
	if hasEdges(d.kind) {
		if head = edgeHeadSize; len(data) < head || !isKnown(int64(data[head-1])) {
			return corrupt("%x", data[:min(head, len(data))])
		}
	}
	d.want, d.withTails = want, withTails
	if err := d.readCell(data[head:], int(Day/r.Span())); err != nil {
		return err
	}
	d.cell, d.resolution, d.day = data, r, day
	return nil
}

// readCell reads what follows the flags of a cell.
func (d *decoder) readCell(data []byte, maxBuckets int) error {
	buckets, n := binary.Uvarint(data)
	if n <= 0 || buckets < 1 || buckets > uint64(maxBuckets) {
		return corrupt("%d buckets", buckets)
	}
	data = data[n:]
	for i := range numColumns {
		d.data[i], d.ints[i], d.floats[i], d.at[i] = nil, d.ints[i][:0], d.floats[i][:0], 0
	}
	for _, i := range columnsOf[d.kind] {
		size, n := binary.Uvarint(data)
		if n <= 0 || size > uint64(len(data)-n) {
			return corrupt("column %d is not whole", i)
		}
		d.data[i], data = data[n:n+int(size)], data[n+int(size):]
	}
	if len(data) > 0 {
		return corrupt("%d bytes follow it", len(data))
	}
	return d.readColumns(int(buckets), int64(maxBuckets))
}

// readColumns reads what is wanted of the columns.
func (d *decoder) readColumns(buckets int, maxBuckets int64) error {
	for _, column := range [...]int{columnNumber, columnFlags, columnSamples, columnKept} {
		if err := d.read(column, buckets); err != nil {
			return err
		}
	}
	var some, several, between, markers int
	before := int64(-1)
	for i, number := range d.ints[columnNumber] {
		if number <= before || number >= maxBuckets {
			return corrupt("bucket %d after %d", number, before)
		}
		before = number
		samples, kept, flags := d.ints[columnSamples][i], d.ints[columnKept][i], d.ints[columnFlags][i]
		if samples < 0 || samples > Day || kept < 0 || kept > min(maxKept, max(0, samples-2)) || flags&^allFlags != 0 {
			return corrupt("bucket %d has %d samples, keeps %d, and has flags %x", i, samples, kept, flags)
		}
		if samples > 0 {
			some++
		}
		if samples > 1 {
			several++
		}
		if between += int(kept); flags&flagMarker != 0 {
			markers++
		}
	}
	if err := d.readEdges(several); err != nil {
		return err
	}
	if d.isHistograms {
		d.chunks.rest, d.chunks.left = d.data[columnChunks], 0
		return d.readCounts(several)
	}
	for column, n := range [numColumns]int{
		columnFirstTime: some, columnFirst: some,
		columnLastTime: several, columnLast: several,
		columnBetweenTime: between, columnBetween: between,
	} {
		if err := d.read(column, n); err != nil {
			return err
		}
	}
	return d.readWanted(some, several, markers)
}

// readWanted reads the columns that not all want.
func (d *decoder) readWanted(some, several, markers int) (err error) {
	if d.want&Sums != 0 {
		err = d.read(columnSum, some)
	}
	if err == nil {
		err = d.readCounts(several)
	}
	if err == nil && d.want&Markers != 0 {
		err = d.read(columnMarker, markers)
	}
	return err
}

// readEdges reads the columns of edges, if the kind has them.
func (d *decoder) readEdges(several int) error {
	if !hasEdges(d.kind) {
		return nil
	}
	if err := d.read(columnKnown, several); err != nil {
		return err
	}
	for _, class := range d.ints[columnKnown] {
		if !isKnown(class) {
			return corrupt("class %d of what is known", class)
		}
	}
	if d.isHistograms || !d.withTails {
		return nil
	}
	if err := d.read(columnTail, several); err != nil {
		return err
	}
	all := 0
	for _, n := range d.ints[columnTail] {
		if n < 0 || n > maxTail {
			return corrupt("a tail of %d samples", n)
		}
		all += int(n)
	}
	if err := d.read(columnTailTime, all); err != nil {
		return err
	}
	if all == 0 {
		return nil
	}
	values := d.data[columnTailValue]
	if len(values) == 0 || values[0] > tailSteps {
		return corrupt("values of tails %x", values[:min(len(values), 1)])
	}
	d.hasSteps, d.data[columnTailValue] = values[0] == tailSteps, values[1:]
	return d.read(columnTailValue, all)
}

// readCounts reads the columns of counts, if they are wanted.
func (d *decoder) readCounts(several int) (err error) {
	if d.want&Counts != 0 {
		if err = d.read(columnChanges, several); err == nil {
			err = d.read(columnResets, several)
		}
	}
	return err
}

// histogramsOf returns how many histograms bucket i has in columnChunks, with the marker, if the cell has that column.
func (d *decoder) histogramsOf(i int) int {
	n := int(min(d.ints[columnSamples][i], 2) + d.ints[columnKept][i])
	if d.ints[columnFlags][i]&flagMarker != 0 {
		n++
	}
	return n
}

// read reads a column of n, if it is not read.
func (d *decoder) read(column, n int) (err error) {
	switch {
	case n == 0 || len(d.ints[column]) > 0:
	case slices.Contains(floatColumns[:], column):
		d.floats[column], err = dense.DecodeFloats(d.data[column], n, d.floats[column])
	default:
		d.ints[column], err = dense.DecodeInts(d.data[column], n, d.ints[column])
	}
	return err
}

// int returns the next one of a column, or 0 if that was not read.
func (d *decoder) int(column int) int64 {
	if d.at[column] >= len(d.ints[column]) {
		return 0
	}
	d.at[column]++
	return d.ints[column][d.at[column]-1]
}

// float is int of a column of floats.
func (d *decoder) float(column int) float64 {
	if d.at[column] >= len(d.floats[column]) {
		return 0
	}
	d.at[column]++
	return d.floats[column][d.at[column]-1]
}

// skip passes the next bucket.
func (d *decoder) skip() error {
	at := d.at[columnNumber]
	samples, kept, flags := d.ints[columnSamples][at], d.ints[columnKept][at], d.ints[columnFlags][at]
	for _, column := range [...]int{columnNumber, columnFlags, columnSamples, columnKept} {
		d.at[column]++
	}
	if samples > 0 {
		d.at[columnFirstTime]++
		d.at[columnFirst]++
		d.at[columnSum]++
	}
	if samples > 1 {
		d.at[columnLastTime]++
		d.at[columnLast]++
		d.at[columnChanges]++
		d.at[columnResets]++
		d.at[columnKnown]++
		d.skipTail()
	}
	d.at[columnBetweenTime] += int(kept)
	d.at[columnBetween] += int(kept)
	if flags&flagMarker != 0 {
		d.at[columnMarker]++
	}
	if d.isHistograms {
		return d.chunks.skip(d.histogramsOf(at))
	}
	return nil
}

// next returns the next bucket, until the call after it. Without its tail nothing is known of where windows may begin in it.
func (d *decoder) next(withTail bool) (*decoded, error) {
	b := &d.bucket
	histograms := 0
	if d.isHistograms {
		histograms = d.histogramsOf(d.at[columnNumber])
	}
	start := d.day + d.int(columnNumber)*d.resolution.Span()
	*b = decoded{start: start, end: start + d.resolution.Span(), flags: d.int(columnFlags), isEstimated: d.kind == kindAggregates, times: b.times[:0], values: b.values[:0], histograms: b.histograms[:0], tail: b.tail[:0]}
	kept := d.int(columnKept)
	b.samples = int32(d.int(columnSamples))
	if d.isHistograms {
		return b, d.nextHistograms(histograms)
	}
	if b.samples > 0 {
		b.keep(start+d.int(columnFirstTime), d.float(columnFirst))
		b.sum = d.float(columnSum)
	}
	for range kept {
		b.keep(b.times[len(b.times)-1]+d.int(columnBetweenTime), d.float(columnBetween))
	}
	if b.samples > 1 {
		b.keep(b.end-d.int(columnLastTime), d.float(columnLast))
		b.changes, b.resets = int32(d.int(columnChanges)), int32(d.int(columnResets))
		b.known = d.int(columnKnown)
		if !withTail {
			b.known = knownNone
			d.skipTail()
		} else if err := d.nextTail(); err != nil {
			return b, err
		}
	}
	if b.flags&flagMarker != 0 && d.want&Markers != 0 {
		b.marker = b.end - d.int(columnMarker)
		return b, b.checkTimes(b.marker)
	}
	return b, b.checkTimes()
}

// skipTail passes the tail of the bucket.
func (d *decoder) skipTail() {
	n := int(d.int(columnTail))
	d.at[columnTailTime] += n
	d.at[columnTailValue] += n
}

// nextTail adds the samples of the tail of the bucket to those that were read: in their places, because others may be between them.
func (d *decoder) nextTail() error {
	b := &d.bucket
	t, v := b.times[len(b.times)-1], b.values[len(b.values)-1]
	for range d.int(columnTail) {
		t -= d.int(columnTailTime)
		if next := d.float(columnTailValue); d.hasSteps {
			v -= next
		} else {
			v = next
		}
		b.tail = append(b.tail, t)
		at, isThere := slices.BinarySearch(b.times, t)
		if isThere || at == 0 {
			return corrupt("time %d of a tail is one of another sample, or before the first", t)
		}
		b.times = slices.Insert(b.times, at, t)
		b.values = slices.Insert(b.values, at, v)
	}
	if kept := int32(len(b.times)); kept > b.samples {
		return corrupt("a bucket of %d samples keeps %d", b.samples, kept)
	}
	return nil
}

// checkTimes checks that the times of the bucket ascend, and then that of a marker, if there is one.
func (b *decoded) checkTimes(marker ...int64) error {
	last := b.start
	for _, times := range [...][]int64{b.times, marker} {
		for _, t := range times {
			if t <= last || t > b.end {
				return corrupt("time %d after %d, in the bucket up to %d", t, last, b.end)
			}
			last = t
		}
	}
	return nil
}

// nextHistograms reads the n histograms of the bucket, of which the last one may be a marker.
func (d *decoder) nextHistograms(n int) error {
	b := &d.bucket
	for range n {
		t, v, err := d.chunks.next(d.want&Integers != 0)
		if err != nil {
			return err
		}
		b.times, b.histograms = append(b.times, t), append(b.histograms, v)
	}
	for i, v := range b.histograms {
		if isMarker(v) != (i == n-1 && b.flags&flagMarker != 0) {
			return corrupt("histogram %d of %d of a bucket is a marker, or is none", i, n)
		}
	}
	if b.samples > 1 {
		b.changes, b.resets = int32(d.int(columnChanges)), int32(d.int(columnResets))
		b.known = d.int(columnKnown)
	}
	if b.flags&flagMarker != 0 {
		b.marker, b.markerValue = b.times[n-1], b.histograms[n-1]
	}
	err := b.checkTimes()
	if b.flags&flagMarker != 0 {
		b.times, b.histograms = b.times[:n-1], b.histograms[:n-1]
	}
	return err
}

func (b *decoded) keep(t int64, v float64) {
	b.times, b.values = append(b.times, t), append(b.values, v)
}
