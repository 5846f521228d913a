package read

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// Tags of a prometheus.Histogram: number<<3 | wire type.
const (
	tagHistogram      = byte(4<<3 | protowire.BytesType) // TimeSeries.histograms
	tagCountInt       = byte(1<<3 | protowire.VarintType)
	tagCountFloat     = byte(2<<3 | protowire.Fixed64Type)
	tagSum            = byte(3<<3 | protowire.Fixed64Type)
	tagSchema         = byte(4<<3 | protowire.VarintType)
	tagZeroThreshold  = byte(5<<3 | protowire.Fixed64Type)
	tagZeroCountInt   = byte(6<<3 | protowire.VarintType)
	tagZeroCountFloat = byte(7<<3 | protowire.Fixed64Type)
	tagNegativeSpan   = byte(8<<3 | protowire.BytesType)
	tagNegativeDeltas = byte(9<<3 | protowire.BytesType)
	tagNegativeCounts = byte(10<<3 | protowire.BytesType)
	tagPositiveSpan   = byte(11<<3 | protowire.BytesType)
	tagPositiveDeltas = byte(12<<3 | protowire.BytesType)
	tagPositiveCounts = byte(13<<3 | protowire.BytesType)
	tagResetHint      = byte(14<<3 | protowire.VarintType)
	tagHistogramTime  = byte(15<<3 | protowire.VarintType)
	tagCustomValues   = 16<<3 | byte(protowire.BytesType)
	tagOffset         = byte(1<<3 | protowire.VarintType)
	tagLength         = byte(2<<3 | protowire.VarintType)
)

// firstHint returns the reset hint of the first histogram of a chunk. Iterators
// return an unknown hint, because the chunk before may be missing. But in a stored
// chunk the header holds the hint that was sent.
func firstHint(c chunkenc.Chunk, fromIterator histogram.CounterResetHint) histogram.CounterResetHint {
	headed, ok := c.(interface {
		GetCounterResetHeader() chunkenc.CounterResetHeader
	})
	if ok && headed.GetCounterResetHeader() == chunkenc.CounterReset {
		return histogram.CounterReset
	}
	return fromIterator
}

// appendHistogram appends a prometheus.Histogram without its own tag. Zeros are
// written where they may be -0, which the generated encoder would leave out.
func appendHistogram(dst []byte, t int64, h *histogram.Histogram) []byte {
	dst = binary.AppendUvarint(append(dst, tagCountInt), h.Count)
	dst = appendHistogramHead(dst, h.Sum, h.Schema, h.ZeroThreshold)
	dst = binary.AppendUvarint(append(dst, tagZeroCountInt), h.ZeroCount)
	dst = appendSpans(dst, tagNegativeSpan, h.NegativeSpans)
	dst = appendPackedDeltas(dst, tagNegativeDeltas, h.NegativeBuckets)
	dst = appendSpans(dst, tagPositiveSpan, h.PositiveSpans)
	dst = appendPackedDeltas(dst, tagPositiveDeltas, h.PositiveBuckets)
	return appendHistogramTail(dst, h.CounterResetHint, t, h.CustomValues)
}

// appendFloatHistogram appends a prometheus.Histogram with float counts,
// likewise.
func appendFloatHistogram(dst []byte, t int64, h *histogram.FloatHistogram) []byte {
	dst = appendFixed(append(dst, tagCountFloat), h.Count)
	dst = appendHistogramHead(dst, h.Sum, h.Schema, h.ZeroThreshold)
	dst = appendFixed(append(dst, tagZeroCountFloat), h.ZeroCount)
	dst = appendSpans(dst, tagNegativeSpan, h.NegativeSpans)
	dst = appendPackedDoubles(dst, tagNegativeCounts, h.NegativeBuckets)
	dst = appendSpans(dst, tagPositiveSpan, h.PositiveSpans)
	dst = appendPackedDoubles(dst, tagPositiveCounts, h.PositiveBuckets)
	return appendHistogramTail(dst, h.CounterResetHint, t, h.CustomValues)
}

func appendHistogramHead(dst []byte, sum float64, schema int32, threshold float64) []byte {
	dst = appendFixed(append(dst, tagSum), sum)
	dst = appendZigzag(append(dst, tagSchema), int64(schema))
	return appendFixed(append(dst, tagZeroThreshold), threshold)
}

func appendHistogramTail(dst []byte, hint histogram.CounterResetHint, t int64, custom []float64) []byte {
	dst = binary.AppendUvarint(append(dst, tagResetHint), uint64(hint))
	dst = binary.AppendUvarint(append(dst, tagHistogramTime), uint64(t))
	return appendPackedDoubles(dst, tagCustomValues, custom)
}

func appendFixed(dst []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
}

func appendZigzag(dst []byte, v int64) []byte {
	return binary.AppendUvarint(dst, protowire.EncodeZigZag(v))
}

func appendSpans(dst []byte, tag byte, spans []histogram.Span) []byte {
	for _, s := range spans {
		dst = append(dst, tag, 0)
		size := len(dst) - 1
		dst = appendZigzag(append(dst, tagOffset), int64(s.Offset))
		dst = binary.AppendUvarint(append(dst, tagLength), uint64(s.Length))
		dst[size] = byte(len(dst) - size - 1) // at most 12
	}
	return dst
}

// appendPackedDoubles appends a field of doubles, whose tag may take two bytes,
// unless there are none.
func appendPackedDoubles(dst []byte, tag byte, list []float64) []byte {
	if len(list) == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(tag))
	dst = binary.AppendUvarint(dst, uint64(8*len(list)))
	for _, v := range list {
		dst = appendFixed(dst, v)
	}
	return dst
}

// appendPackedDeltas appends a field of sint64, unless there are none.
func appendPackedDeltas(dst []byte, tag byte, list []int64) []byte {
	if len(list) == 0 {
		return dst
	}
	size := 0
	for _, v := range list {
		size += protowire.SizeVarint(protowire.EncodeZigZag(v))
	}
	dst = binary.AppendUvarint(append(dst, tag), uint64(size))
	for _, v := range list {
		dst = appendZigzag(dst, v)
	}
	return dst
}
