package rollup

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/dense"
)

// maxKept is how many samples a bucket may keep between the first and the last.
const maxKept = 64

// headSize is the size of the kind and the flags of a cell.
const headSize = 2

// floatColumns are those of floats.
var floatColumns = [...]int{columnFirst, columnSum, columnLast, columnBetween}

// A decoder reads the buckets of a cell, one after the other. It reuses its memory.
type decoder struct {
	cell       []byte
	resolution Resolution
	day        int64
	data       [numColumns][]byte
	ints       [numColumns][]int64
	floats     [numColumns][]float64
	// at are the places in the columns.
	at     [numColumns]int
	want   Want
	bucket decoded
}

// A decoded is a bucket that was read.
type decoded struct {
	start, end int64
	flags      int64
	// times and values are those of the samples that it keeps.
	times   []int64
	values  []float64
	samples int32
	sum     float64
	changes int32
	resets  int32
	marker  int64
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: rollup cell: %s", series.ErrCorrupt, fmt.Sprintf(format, args...))
}

// isOpen says whether a cell is open, and no bucket that begins from after on was passed.
func (d *decoder) isOpen(cell []byte, after int64) bool {
	if len(d.cell) != len(cell) || &d.cell[0] != &cell[0] {
		return false
	}
	at := d.at[columnNumber]
	return at == 0 || d.start(at-1) < after
}

// start returns when a bucket begins.
func (d *decoder) start(i int) int64 {
	return d.day + d.ints[columnNumber][i]*int64(d.resolution)
}

// nextStart returns when the next bucket begins, if there is one.
func (d *decoder) nextStart() (start int64, ok bool) {
	if at := d.at[columnNumber]; at < len(d.ints[columnNumber]) {
		return d.start(at), true
	}
	return 0, false
}

// open begins a cell, which is not empty.
func (d *decoder) open(cell []byte, r Resolution, day int64, want Want) error {
	d.cell = nil
	if err := d.readCell(cell[headSize:], int(Day/int64(r)), want); err != nil {
		return err
	}
	d.cell, d.resolution, d.day = cell, r, day
	return nil
}

// readCell reads what follows the flags of a cell.
func (d *decoder) readCell(data []byte, maxBuckets int, want Want) error {
	buckets, n := binary.Uvarint(data)
	if n <= 0 || buckets < 1 || buckets > uint64(maxBuckets) {
		return corrupt("%d buckets", buckets)
	}
	data = data[n:]
	for i := range d.data {
		size, n := binary.Uvarint(data)
		if n <= 0 || size > uint64(len(data)-n) {
			return corrupt("column %d is not whole", i)
		}
		d.data[i], data = data[n:n+int(size)], data[n+int(size):]
		d.ints[i], d.floats[i], d.at[i] = d.ints[i][:0], d.floats[i][:0], 0
	}
	if len(data) > 0 {
		return corrupt("%d bytes follow it", len(data))
	}
	d.want = want
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
	if err == nil && d.want&Counts != 0 {
		if err = d.read(columnChanges, several); err == nil {
			err = d.read(columnResets, several)
		}
	}
	if err == nil && d.want&Markers != 0 {
		err = d.read(columnMarker, markers)
	}
	return err
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
func (d *decoder) skip() {
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
	}
	d.at[columnBetweenTime] += int(kept)
	d.at[columnBetween] += int(kept)
	if flags&flagMarker != 0 {
		d.at[columnMarker]++
	}
}

// next returns the next bucket, until the call after it.
func (d *decoder) next() (*decoded, error) {
	b := &d.bucket
	start := d.day + d.int(columnNumber)*int64(d.resolution)
	*b = decoded{start: start, end: start + int64(d.resolution), flags: d.int(columnFlags), times: b.times[:0], values: b.values[:0]}
	kept := d.int(columnKept)
	if b.samples = int32(d.int(columnSamples)); b.samples > 0 {
		b.keep(start+d.int(columnFirstTime), d.float(columnFirst))
		b.sum = d.float(columnSum)
	}
	for range kept {
		b.keep(b.times[len(b.times)-1]+d.int(columnBetweenTime), d.float(columnBetween))
	}
	if b.samples > 1 {
		b.keep(b.end-d.int(columnLastTime), d.float(columnLast))
		b.changes, b.resets = int32(d.int(columnChanges)), int32(d.int(columnResets))
	}
	last := start
	for _, t := range b.times {
		if t <= last || t > b.end {
			return nil, corrupt("time %d after %d, in the bucket up to %d", t, last, b.end)
		}
		last = t
	}
	if b.flags&flagMarker != 0 && d.want&Markers != 0 {
		if b.marker = b.end - d.int(columnMarker); b.marker <= last || b.marker > b.end {
			return nil, corrupt("marker at %d after %d, in the bucket up to %d", b.marker, last, b.end)
		}
	}
	return b, nil
}

func (b *decoded) keep(t int64, v float64) {
	b.times, b.values = append(b.times, t), append(b.values, v)
}
