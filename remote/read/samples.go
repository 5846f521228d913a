package read

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/series/chunk"
)

// Bounds of an answer in one block. maxSampleBytes is more than a float takes on
// the wire; histograms and labels take of the same budget, and of
// minSamplesBytes, so that an answer of many series without samples is bounded
// as well.
const (
	maxSampleBytes  = 24
	minSamplesBytes = 1 << 20
)

// Tags of the answer's fields: number<<3 | wire type.
const (
	tagResult     = byte(1<<3 | protowire.BytesType) // ReadResponse.results
	tagTimeseries = byte(1<<3 | protowire.BytesType) // QueryResult.timeseries
	tagLabel      = byte(1<<3 | protowire.BytesType) // TimeSeries.labels
	tagSample     = byte(2<<3 | protowire.BytesType) // TimeSeries.samples
	tagName       = byte(1<<3 | protowire.BytesType)
	tagLabelValue = byte(2<<3 | protowire.BytesType)
	tagValue      = byte(1<<3 | protowire.Fixed64Type)
	tagTimestamp  = byte(2<<3 | protowire.VarintType)
)

// samples answers with one block: a result for each query, of which sets are the
// series, in order. Nothing is sent before all of it is encoded.
func (h *Handler) samples(ctx context.Context, w http.ResponseWriter, queries []reader.Query, sets []storage.ChunkSeriesSet) (started bool, err error) {
	enc := h.samplesEncoder()
	defer h.releaseSamples(enc)
	for i, set := range sets {
		if err := enc.addResult(ctx, set, queries[i].Mint); err != nil {
			return false, fmt.Errorf("query %d: %w", i, err)
		}
	}
	block := enc.compress()
	h.metrics.series.WithLabelValues(responseSamples).Add(float64(enc.series))
	h.metrics.bytes.WithLabelValues(responseSamples).Add(float64(len(block)))
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Header().Set("Content-Encoding", "snappy")
	_, err = w.Write(block)
	return true, err
}

// maxPooledSamples is the largest answer whose buffers are kept for the next one:
// growing them is a large part of the cost of an answer.
const maxPooledSamples = 16 << 20

// answerCopies is how often an answer is in memory: as it grows, as what it was before, and as its compressed block.
const answerCopies = 3

// samplesEncoder returns an encoder of an empty answer.
func (h *Handler) samplesEncoder() *samplesEncoder {
	enc, ok := h.encoders.Get().(*samplesEncoder)
	if !ok {
		enc = new(samplesEncoder)
	}
	*enc = samplesEncoder{maxSamples: h.maxSamples, buf: enc.buf[:0], block: enc.block, histogram: enc.histogram}
	return enc
}

// releaseSamples keeps the buffers of enc for the next answer.
func (h *Handler) releaseSamples(enc *samplesEncoder) {
	if cap(enc.buf) <= maxPooledSamples && cap(enc.block) <= maxPooledSamples {
		h.encoders.Put(&samplesEncoder{buf: enc.buf, block: enc.block, histogram: enc.histogram})
	}
}

// samplesEncoder encodes a prometheus.ReadResponse series by series, so that
// samples are in memory only as they are sent. The generated encoder would
// leave out a value of -0 as if it were 0.
type samplesEncoder struct {
	maxSamples int

	buf     []byte
	front   int // where the answer begins in buf
	samples int
	series  int
	// lent is what the answer counts as memory of queries, in bytes.
	lent int

	block     []byte // the answer, compressed
	histogram []byte // the Histogram being encoded
	chunks    chunks.Iterator
	values    chunkenc.Iterator
}

// compress returns the answer as it is sent, until the encoder is used again.
func (e *samplesEncoder) compress() []byte {
	answer := e.buf[e.front:]
	if n := snappy.MaxEncodedLen(len(answer)); n > cap(e.block) {
		e.block = make([]byte, n)
	}
	return snappy.Encode(e.block[:cap(e.block)], answer)
}

// addResult encodes the result of one query, from mint on.
func (e *samplesEncoder) addResult(ctx context.Context, set storage.ChunkSeriesSet, mint int64) error {
	start := e.beginMessage(tagResult)
	for set.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := e.addSeries(set.At(), mint); err != nil {
			return err
		}
		if more := answerCopies*cap(e.buf) - e.lent; more > 0 {
			e.lent += more
			if err := eval.Lend(ctx, more, "the answer to a remote read"); err != nil {
				return err
			}
		}
	}
	if err := set.Err(); err != nil {
		return err
	}
	e.endMessage(start)
	return e.checkBytes(len(e.buf))
}

// lengthRoom is how many bytes are kept for the length of a message.
const lengthRoom = 5

// beginMessage begins a message with this tag and returns where it starts, for
// endMessage.
func (e *samplesEncoder) beginMessage(tag byte) (start int) {
	e.buf = append(e.buf, tag, 0, 0, 0, 0, 0)
	return len(e.buf)
}

// endMessage writes the length of the message that starts at start in front of
// it. The bytes of lengthRoom that are left over are removed: the answer begins
// later, or the message moves.
func (e *samplesEncoder) endMessage(start int) {
	var length [lengthRoom]byte
	size := binary.PutUvarint(length[:], uint64(len(e.buf)-start))
	spare := lengthRoom - size
	if start == 1+lengthRoom {
		e.front = spare
		e.buf[spare] = e.buf[0]
		copy(e.buf[spare+1:], length[:size])
		return
	}
	at := start - lengthRoom
	copy(e.buf[at:], length[:size])
	copy(e.buf[at+size:], e.buf[start:])
	e.buf = e.buf[:len(e.buf)-spare]
}

// addSeries encodes a TimeSeries.
func (e *samplesEncoder) addSeries(s storage.ChunkSeries, mint int64) error {
	e.series++
	start := e.beginMessage(tagTimeseries)
	e.buf = appendLabels(e.buf, s.Labels())
	e.chunks = s.Iterator(e.chunks)
	for e.chunks.Next() {
		if err := e.addChunk(e.chunks.At().Chunk, mint); err != nil {
			return err
		}
		if err := e.checkBytes(len(e.buf)); err != nil {
			return err
		}
	}
	if err := e.chunks.Err(); err != nil {
		return err
	}
	e.endMessage(start)
	return e.checkBytes(len(e.buf))
}

// addChunk encodes the samples of a chunk from mint on. The sample before it only
// decides the reset hint.
func (e *samplesEncoder) addChunk(c chunkenc.Chunk, mint int64) error {
	if floats, ok := c.(*chunk.Decoded); ok {
		ts, vs := floats.Floats()
		from, _ := slices.BinarySearch(ts, mint)
		return e.addFloats(ts[from:], vs[from:])
	}
	e.values = c.Iterator(e.values)
	first := true
	for kind := e.values.Next(); kind != chunkenc.ValNone; kind = e.values.Next() {
		if e.values.AtT() < mint {
			first = false
			continue
		}
		if err := e.countSamples(1); err != nil {
			return err
		}
		switch kind {
		case chunkenc.ValFloat:
			t, v := e.values.At()
			e.buf = appendSample(e.buf, t, v)
		case chunkenc.ValHistogram:
			t, h := e.values.AtHistogram(nil)
			if first {
				h.CounterResetHint = firstHint(c, h.CounterResetHint)
			}
			e.addHistogram(appendHistogram(e.histogram[:0], t, h))
		case chunkenc.ValFloatHistogram:
			t, h := e.values.AtFloatHistogram(nil)
			if first {
				h.CounterResetHint = firstHint(c, h.CounterResetHint)
			}
			e.addHistogram(appendFloatHistogram(e.histogram[:0], t, h))
		default:
			return fmt.Errorf("a chunk holds a %s", kind)
		}
		first = false
	}
	return e.values.Err()
}

// addFloats encodes samples.
func (e *samplesEncoder) addFloats(ts []int64, vs []float64) error {
	if err := e.countSamples(len(ts)); err != nil {
		return err
	}
	e.reserve(maxSampleBytes * len(ts))
	n := len(e.buf)
	for i, t := range ts {
		n += putSample(e.buf[n:n+maxSampleBytes], t, vs[i])
	}
	e.buf = e.buf[:n]
	return nil
}

// reserve makes room for n bytes. It doubles the buffer where append would add a
// quarter and copy a large answer many times.
func (e *samplesEncoder) reserve(n int) {
	if cap(e.buf)-len(e.buf) >= n {
		return
	}
	grown := make([]byte, len(e.buf), max(2*cap(e.buf), len(e.buf)+n))
	copy(grown, e.buf)
	e.buf = grown
}

// countSamples counts n more samples, or returns an error if they are too many.
func (e *samplesEncoder) countSamples(n int) error {
	if n > e.maxSamples-e.samples {
		return fmt.Errorf("%w: more than %d samples in one answer", reader.ErrLimit, e.maxSamples)
	}
	e.samples += n
	return nil
}

// addHistogram adds an encoded histogram to the answer, and keeps its memory.
func (e *samplesEncoder) addHistogram(h []byte) {
	e.histogram = h
	e.buf = binary.AppendUvarint(append(e.buf, tagHistogram), uint64(len(h)))
	e.buf = append(e.buf, h...)
}

// checkBytes returns an error if an answer may not have n bytes. Snappy panics if
// it does not fit into a block, of not quite 4 GiB.
func (e *samplesEncoder) checkBytes(n int) error {
	limit := math.MaxInt
	if e.maxSamples < (math.MaxInt-minSamplesBytes)/maxSampleBytes {
		limit = minSamplesBytes + e.maxSamples*maxSampleBytes
	}
	switch {
	case n > limit:
		return fmt.Errorf("%w: more than %d bytes in one answer", reader.ErrLimit, limit)
	case snappy.MaxEncodedLen(n) < 0:
		return fmt.Errorf("%w: %d bytes of an answer do not fit into one block, shorten the time range or ask for a streamed answer", reader.ErrLimit, n)
	}
	return nil
}

// appendLabels appends the labels of a TimeSeries or of a ChunkedSeries.
func appendLabels(dst []byte, ls labels.Labels) []byte {
	ls.Range(func(l labels.Label) {
		dst = binary.AppendUvarint(append(dst, tagLabel), uint64(labelSize(l)))
		dst = binary.AppendUvarint(append(dst, tagName), uint64(len(l.Name)))
		dst = append(dst, l.Name...)
		dst = binary.AppendUvarint(append(dst, tagLabelValue), uint64(len(l.Value)))
		dst = append(dst, l.Value...)
	})
	return dst
}

// labelSize is the size of a Label.
func labelSize(l labels.Label) int {
	return 2 + varintSize(len(l.Name)) + len(l.Name) + varintSize(len(l.Value)) + len(l.Value)
}

// labelsSize is what appendLabels appends.
func labelsSize(ls labels.Labels) (size int) {
	ls.Range(func(l labels.Label) {
		n := labelSize(l)
		size += 1 + varintSize(n) + n
	})
	return size
}

// appendSample appends a sample of a TimeSeries.
func appendSample(dst []byte, t int64, v float64) []byte {
	dst = slices.Grow(dst, maxSampleBytes)
	n := len(dst)
	return dst[:n+putSample(dst[n:n+maxSampleBytes], t, v)]
}

// putSample writes a sample of a TimeSeries into dst, which has maxSampleBytes,
// and returns how many it takes.
func putSample(dst []byte, t int64, v float64) int {
	const valueAt, timeAt = 3, 3 + 8 + 1
	dst[0], dst[2], dst[timeAt-1] = tagSample, tagValue, tagTimestamp
	binary.LittleEndian.PutUint64(dst[valueAt:], math.Float64bits(v))
	n := timeAt + binary.PutUvarint(dst[timeAt:maxSampleBytes], uint64(t))
	dst[1] = byte(n - 2)
	return n
}

// varintSize is how many bytes n takes as a varint.
func varintSize(n int) int { return protowire.SizeVarint(uint64(n)) }
