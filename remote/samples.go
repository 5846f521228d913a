package remote

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/remote/engine"
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
	tagResult     = 1<<3 | wireBytes // ReadResponse.results
	tagTimeseries = 1<<3 | wireBytes // QueryResult.timeseries
	tagLabel      = 1<<3 | wireBytes // TimeSeries.labels
	tagSample     = 2<<3 | wireBytes // TimeSeries.samples
	tagName       = 1<<3 | wireBytes
	tagLabelValue = 2<<3 | wireBytes
	tagValue      = 1<<3 | wireFixed64
	tagTimestamp  = 2<<3 | wireVarint
)

// samples answers with one block: a result for each query, of which sets are the
// series, in order. Nothing is sent before all of it is encoded.
func (h *readHandler) samples(ctx context.Context, w http.ResponseWriter, queries []engine.Query, sets []storage.ChunkSeriesSet) (started bool, err error) {
	enc := samplesEncoder{maxSamples: h.maxSamples}
	for i, set := range sets {
		if err := enc.addResult(ctx, set, queries[i].Mint); err != nil {
			return false, fmt.Errorf("query %d: %w", i, err)
		}
	}
	block := snappy.Encode(nil, enc.buf)
	h.metrics.series.WithLabelValues(responseSamples).Add(float64(enc.series))
	h.metrics.bytes.WithLabelValues(responseSamples).Add(float64(len(block)))
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Header().Set("Content-Encoding", "snappy")
	w.Header().Set("Content-Length", strconv.Itoa(len(block)))
	_, err = w.Write(block)
	return true, err
}

// samplesEncoder encodes a prometheus.ReadResponse series by series, so that
// samples are in memory only as they are sent. The generated encoder would
// leave out a value of -0 as if it were 0.
type samplesEncoder struct {
	maxSamples int

	buf     []byte
	samples int
	series  int

	message   []byte // the TimeSeries being encoded
	histogram []byte // the Histogram being encoded
	chunks    chunks.Iterator
	values    chunkenc.Iterator
}

// addResult encodes the result of one query, from mint on.
func (e *samplesEncoder) addResult(ctx context.Context, set storage.ChunkSeriesSet, mint int64) error {
	start := len(e.buf)
	for set.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := e.addSeries(set.At(), mint); err != nil {
			return err
		}
	}
	if err := set.Err(); err != nil {
		return err
	}
	head := binary.AppendUvarint([]byte{tagResult}, uint64(len(e.buf)-start))
	e.buf = slices.Insert(e.buf, start, head...)
	return e.checkBytes(len(e.buf))
}

func (e *samplesEncoder) addSeries(s storage.ChunkSeries, mint int64) error {
	e.series++
	e.message = appendLabels(e.message[:0], s.Labels())
	e.chunks = s.Iterator(e.chunks)
	for e.chunks.Next() {
		if err := e.addChunk(e.chunks.At().Chunk, mint); err != nil {
			return err
		}
		if err := e.checkBytes(len(e.buf) + len(e.message)); err != nil {
			return err
		}
	}
	if err := e.chunks.Err(); err != nil {
		return err
	}
	e.buf = append(e.buf, tagTimeseries)
	e.buf = binary.AppendUvarint(e.buf, uint64(len(e.message)))
	e.buf = append(e.buf, e.message...)
	return e.checkBytes(len(e.buf))
}

// addChunk encodes the samples of a chunk from mint on. One before it only tells
// of resets.
func (e *samplesEncoder) addChunk(c chunkenc.Chunk, mint int64) error {
	e.values = c.Iterator(e.values)
	first := true
	for kind := e.values.Next(); kind != chunkenc.ValNone; kind = e.values.Next() {
		if e.values.AtT() < mint {
			first = false
			continue
		}
		if e.samples++; e.samples > e.maxSamples {
			return fmt.Errorf("%w: more than %d samples in one answer", engine.ErrLimit, e.maxSamples)
		}
		switch kind {
		case chunkenc.ValFloat:
			t, v := e.values.At()
			e.message = appendSample(e.message, t, v)
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

// addHistogram adds an encoded histogram to the message, and keeps its memory.
func (e *samplesEncoder) addHistogram(h []byte) {
	e.histogram = h
	e.message = binary.AppendUvarint(append(e.message, tagHistogram), uint64(len(h)))
	e.message = append(e.message, h...)
}

// checkBytes says whether an answer of n bytes may be made. Snappy would panic
// over one that does not fit into a block, of not quite 4 GiB.
func (e *samplesEncoder) checkBytes(n int) error {
	limit := math.MaxInt
	if e.maxSamples < (math.MaxInt-minSamplesBytes)/maxSampleBytes {
		limit = minSamplesBytes + e.maxSamples*maxSampleBytes
	}
	switch {
	case n > limit:
		return fmt.Errorf("%w: more than %d bytes in one answer", engine.ErrLimit, limit)
	case snappy.MaxEncodedLen(n) < 0:
		return fmt.Errorf("%w: %d bytes of an answer do not fit into one block, shorten the time range or ask for a streamed answer", engine.ErrLimit, n)
	}
	return nil
}

// appendLabels appends the labels of a TimeSeries.
func appendLabels(dst []byte, ls labels.Labels) []byte {
	ls.Range(func(l labels.Label) {
		size := 2 + uvarintSize(len(l.Name)) + len(l.Name) + uvarintSize(len(l.Value)) + len(l.Value)
		dst = binary.AppendUvarint(append(dst, tagLabel), uint64(size))
		dst = binary.AppendUvarint(append(dst, tagName), uint64(len(l.Name)))
		dst = append(dst, l.Name...)
		dst = binary.AppendUvarint(append(dst, tagLabelValue), uint64(len(l.Value)))
		dst = append(dst, l.Value...)
	})
	return dst
}

// appendSample appends a sample of a TimeSeries.
func appendSample(dst []byte, t int64, v float64) []byte {
	dst = append(dst, tagSample, 0, tagValue)
	size := len(dst) - 2
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
	dst = binary.AppendUvarint(append(dst, tagTimestamp), uint64(t))
	dst[size] = byte(len(dst) - size - 1) // at most 20
	return dst
}

func uvarintSize(n int) int { return uvarintSize64(uint64(n)) }

func uvarintSize64(n uint64) int {
	size := 1
	for n >= 0x80 {
		n >>= 7
		size++
	}
	return size
}
