package merge

import (
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
	"github.com/promtable/promtable/series/xor"
)

// upstreamHeaderSize is that of all encodings that upstream decodes for us: how
// many samples there are in two bytes, and a byte about resets or start timestamps.
const upstreamHeaderSize = 3

// A chunkDecoder decodes chunks one after another, into the same buffers. Floats
// are decoded all at once. Histograms are large, so that they are decoded one by one,
// when they are asked for.
type chunkDecoder struct {
	chunk chunk.Sealed
	base  int64
	// ts are the times of the samples, in milliseconds; of a chunk of histograms
	// only that of the current one.
	ts []int64
	vs []float64
	// starts are the start timestamps, if the encoding has them.
	starts []int64

	upstream chunkenc.Chunk
	iter     chunkenc.Iterator
	// read is how many histograms have been read.
	read int
}

// isHistogramChunk says whether a chunk of this encoding holds histograms.
func isHistogramChunk(encoding byte) bool {
	switch chunkenc.Encoding(encoding) {
	case chunkenc.EncHistogram, chunkenc.EncFloatHistogram, chunkenc.EncHistogramST, chunkenc.EncFloatHistogramST:
		return true
	}
	return false
}

// open begins with c, which is in the bucket at base. The samples of floats, or
// the first histogram, are there afterwards.
func (d *chunkDecoder) open(base int64, c chunk.Sealed) error {
	d.chunk, d.base, d.read = c, base, 0
	d.ts, d.vs, d.starts = d.ts[:0], d.vs[:0], d.starts[:0]
	if err := c.CheckDeltas(); err != nil {
		return err
	}
	if isHistogramChunk(c.Encoding) {
		return d.openHistograms()
	}
	if err := d.decodeFloats(); err != nil {
		return d.corrupt(err)
	}
	return d.checkTimes()
}

func (d *chunkDecoder) decodeFloats() (err error) {
	switch d.chunk.Encoding {
	case chunk.EncodingDense:
		d.ts, d.vs, err = dense.Decode(d.chunk.Data, d.ts, d.vs)
		return err
	case chunk.EncodingOpen:
		d.ts, d.vs, err = chunk.DecodeOpen(d.chunk.Data, d.ts, d.vs)
		return err
	case byte(chunkenc.EncXOR):
		d.ts, d.vs, err = xor.Decode(d.chunk.Data, d.ts, d.vs)
		return err
	case byte(chunkenc.EncXOR2):
		return d.decodeXOR2()
	}
	return fmt.Errorf("encoding %d is of no kind of this version", d.chunk.Encoding)
}

// openUpstream gives the data to upstream's decoder. It refuses data shorter than the
// header, because upstream reads the header without a check of the length.
func (d *chunkDecoder) openUpstream() error {
	if len(d.chunk.Data) < upstreamHeaderSize {
		return fmt.Errorf("%d bytes of data", len(d.chunk.Data))
	}
	if encoding := chunkenc.Encoding(d.chunk.Encoding); d.upstream == nil || d.upstream.Encoding() != encoding {
		var err error
		if d.upstream, err = chunkenc.FromData(encoding, d.chunk.Data); err != nil {
			return err
		}
	} else {
		d.upstream.Reset(d.chunk.Data)
	}
	d.iter = d.upstream.Iterator(d.iter)
	return nil
}

func (d *chunkDecoder) decodeXOR2() error {
	if err := d.openUpstream(); err != nil {
		return err
	}
	for d.iter.Next() != chunkenc.ValNone {
		t, v := d.iter.At()
		d.ts, d.vs, d.starts = append(d.ts, t), append(d.vs, v), append(d.starts, d.iter.AtST())
	}
	return d.iter.Err()
}

// checkTimes checks the times of a chunk that is decoded as a whole.
func (d *chunkDecoder) checkTimes() error {
	n := len(d.ts)
	if n == 0 || n > chunk.MaxSamples || n != len(d.vs) {
		return d.corrupt(fmt.Errorf("%d times and %d values", n, len(d.vs)))
	}
	if d.chunk.Encoding != chunk.EncodingDense { // whose times ascend if they can be decoded
		if err := d.checkOrder(); err != nil {
			return err
		}
	}
	if err := d.checkFirst(d.ts[0]); err != nil {
		return err
	}
	return d.checkLast(d.ts[n-1])
}

// checkOrder checks that the times are not negative and ascend.
func (d *chunkDecoder) checkOrder() error {
	last := int64(-1)
	for _, t := range d.ts {
		if t <= last {
			return d.corrupt(fmt.Errorf("sample at %d after %d", t, last))
		}
		last = t
	}
	return nil
}

func (d *chunkDecoder) checkFirst(t int64) error {
	if t != d.base+int64(d.chunk.First) {
		return d.corrupt(fmt.Errorf("the first sample is at %d", t))
	}
	return nil
}

func (d *chunkDecoder) checkLast(t int64) error {
	if t != d.base+int64(d.chunk.Last) {
		return d.corrupt(fmt.Errorf("the last sample is at %d", t))
	}
	return nil
}

// CheckData returns what is wrong with the data of a chunk of an encoding of Prometheus that upstream's decoder trusts: it may panic
// over them, or take all memory. What it finds out itself is not checked.
func CheckData(encoding byte, data []byte) error {
	if isHistogramChunk(encoding) {
		return checkHistogramData(encoding, data)
	}
	if len(data) < upstreamHeaderSize {
		return fmt.Errorf("%d bytes of data", len(data))
	}
	return nil
}

// checkHistogramData checks the layout of a chunk of histograms.
func checkHistogramData(encoding byte, data []byte) error {
	bucketBits := 1
	if e := chunkenc.Encoding(encoding); e == chunkenc.EncFloatHistogram || e == chunkenc.EncFloatHistogramST {
		bucketBits = 64
	}
	return checkHistogramLayout(data, bucketBits)
}

func (d *chunkDecoder) openHistograms() error {
	err := checkHistogramData(d.chunk.Encoding, d.chunk.Data)
	if err == nil {
		err = d.openUpstream()
	}
	if err != nil {
		return d.corrupt(err)
	}
	_, err = d.nextHistogram()
	return err
}

// nextHistogram moves to the next histogram. There is none left if it returns
// false.
func (d *chunkDecoder) nextHistogram() (bool, error) {
	if d.iter.Next() == chunkenc.ValNone {
		return false, d.endHistograms()
	}
	t := d.iter.AtT()
	if d.read++; d.read == 1 {
		d.ts = append(d.ts, t)
		return true, d.checkFirst(t)
	}
	if t <= d.ts[0] || t > d.base+int64(d.chunk.Last) {
		return false, d.corrupt(fmt.Errorf("sample at %d after %d", t, d.ts[0]))
	}
	d.ts[0] = t
	return true, nil
}

// endHistograms says whether the histograms may end here.
func (d *chunkDecoder) endHistograms() error {
	switch err := d.iter.Err(); {
	case err != nil:
		return d.corrupt(err)
	case d.read == 0:
		return d.corrupt(errors.New("no samples"))
	}
	return d.checkLast(d.ts[0])
}

// histogram returns the current histogram. follows says that the last sample of the
// row was the histogram before it in the chunk.
func (d *chunkDecoder) histogram(follows bool) cell.Value {
	v := cell.Value{Start: d.iter.AtST()}
	switch chunkenc.Encoding(d.chunk.Encoding) {
	case chunkenc.EncHistogram, chunkenc.EncHistogramST:
		_, v.Histogram = d.iter.AtHistogram(nil)
		v.Histogram.CounterResetHint = d.hint(v.Histogram.CounterResetHint, v.Histogram.Sum, follows)
	default:
		_, v.FloatHistogram = d.iter.AtFloatHistogram(nil)
		v.FloatHistogram.CounterResetHint = d.hint(v.FloatHistogram.CounterResetHint, v.FloatHistogram.Sum, follows)
	}
	return v
}

// hint returns whether the counter was reset before the current histogram. A reset in
// the header of the chunk is true: the sender wrote it, or a writer that had the sample
// before. Upstream ignores it. For the second histogram and later ones upstream says
// that there was no reset since the one before in the chunk. That is true only if
// follows is set.
func (d *chunkDecoder) hint(hint histogram.CounterResetHint, sum float64, follows bool) histogram.CounterResetHint {
	switch {
	case hint == histogram.GaugeType || value.IsStaleNaN(sum):
		return hint
	case d.read == 1 && SaysReset(d.upstream):
		return histogram.CounterReset
	case d.read > 1 && follows:
		return hint
	}
	return histogram.UnknownCounterReset
}

// SaysReset says whether the header of a chunk tells of a reset before its first histogram.
func SaysReset(c chunkenc.Chunk) bool {
	headed, ok := c.(interface {
		GetCounterResetHeader() chunkenc.CounterResetHeader
	})
	return ok && headed.GetCounterResetHeader() == chunkenc.CounterReset
}

// corrupt says in which chunk err is, and that it is a series.ErrCorrupt.
func (d *chunkDecoder) corrupt(err error) error {
	if !errors.Is(err, series.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", series.ErrCorrupt, err)
	}
	return fmt.Errorf("chunk from delta %d to %d of encoding %d: %w", d.chunk.First, d.chunk.Last, d.chunk.Encoding, err)
}

// checkHistogramLayout checks what a chunk of histograms begins with, after its
// header: schema and spans. Upstream's decoder trusts both. It allocates as many
// buckets as the spans say, which can be billions in ten bytes, and panics over
// schemas out of range. A bucket of the first histogram has at least bucketBits bits.
func checkHistogramLayout(data []byte, bucketBits int) error {
	if len(data) < upstreamHeaderSize {
		return fmt.Errorf("%d bytes of data", len(data))
	}
	b := layoutReader{data: data, at: upstreamHeaderSize * 8}
	if threshold := b.bits(8); threshold == 255 {
		b.bits(64)
	}
	if schema := int32(b.varint()); !histogram.IsExponentialSchema(schema) && !histogram.IsCustomBucketsSchema(schema) {
		return fmt.Errorf("schema %d", schema)
	}
	limit := uint64(len(data)) * 8 / uint64(bucketBits)
	var buckets uint64
	for range 2 { // positive ones, negative ones
		for range min(b.uvarint(), uint64(len(data))*8) {
			length := b.uvarint()
			b.varint() // offset
			if buckets += min(length, limit+1); buckets > limit {
				return fmt.Errorf("more than %d buckets in %d bytes", limit, len(data))
			}
			if b.failed {
				break
			}
		}
	}
	if b.failed {
		return fmt.Errorf("%d bytes of data end before the first sample", len(data))
	}
	return nil
}

// layoutReader reads bits one by one, the highest of each byte first. What is not
// there is zero, and failed is set.
type layoutReader struct {
	data   []byte
	at     int
	failed bool
}

func (b *layoutReader) bits(n int) (v uint64) {
	if b.at+n > len(b.data)*8 {
		b.at, b.failed = len(b.data)*8, true
		return 0
	}
	for range n {
		v = v<<1 | uint64(b.data[b.at/8]>>(7-b.at%8)&1)
		b.at++
	}
	return v
}

// uvarint reads a number. The ones in front of it, at most eight, say how many bits
// it has.
func (b *layoutReader) uvarint() uint64 {
	v, _ := b.varbits()
	return v
}

// varint reads a signed one. The highest bit alone is positive.
func (b *layoutReader) varint() int64 {
	v, size := b.varbits()
	if size > 0 && size < 64 && v > 1<<(size-1) {
		return int64(v) - 1<<size
	}
	return int64(v)
}

func (b *layoutReader) varbits() (v uint64, size int) {
	sizes := [...]int{0, 3, 6, 9, 12, 18, 25, 56, 64}
	ones := 0
	for ones < 8 && b.bits(1) == 1 {
		ones++
	}
	return b.bits(sizes[ones]), sizes[ones]
}
