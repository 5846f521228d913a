package wire

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/promtable/promtable/remote/ingest"
)

// wireHistogram is a histogram as it is sent. Both versions have the same fields,
// but for the start timestamp. It is scratch space: its lists are used again.
type wireHistogram struct {
	t, st         int64
	isFloat       bool
	count         uint64 // the bits, if isFloat is set
	zeroCount     uint64
	zeroFloat     float64
	sum           float64
	schema        int32
	zeroThreshold float64
	hint          histogram.CounterResetHint

	positiveSpans, negativeSpans   []histogram.Span
	positiveDeltas, negativeDeltas []int64
	positiveCounts, negativeCounts []float64
	customValues                   []float64
}

// reset clears all but the memory of the lists.
func (h *wireHistogram) reset() {
	*h = wireHistogram{
		positiveSpans: h.positiveSpans[:0], negativeSpans: h.negativeSpans[:0],
		positiveDeltas: h.positiveDeltas[:0], negativeDeltas: h.negativeDeltas[:0],
		positiveCounts: h.positiveCounts[:0], negativeCounts: h.negativeCounts[:0],
		customValues: h.customValues[:0],
	}
}

// decode reads a Histogram.
func (h *wireHistogram) decode(msg field) error {
	h.reset()
	return msg.each(h.setField)
}

// setField sets one field. The last one of several counts, also if one is of
// integers and another of floats.
func (h *wireHistogram) setField(f field) (err error) {
	switch f.num {
	case 1: // count_int
		h.count, h.isFloat, err = f.value, false, f.want(protowire.VarintType)
	case 2: // count_float
		h.count, h.isFloat, err = f.value, true, f.want(protowire.Fixed64Type)
	case 3:
		h.sum, err = math.Float64frombits(f.value), f.want(protowire.Fixed64Type)
	case 4:
		h.schema, err = int32(protowire.DecodeZigZag(uint64(uint32(f.value)))), f.want(protowire.VarintType)
	case 5:
		h.zeroThreshold, err = math.Float64frombits(f.value), f.want(protowire.Fixed64Type)
	case 6: // zero_count_int
		h.zeroCount, h.zeroFloat, err = f.value, 0, f.want(protowire.VarintType)
	case 7: // zero_count_float
		h.zeroCount, h.zeroFloat, err = 0, math.Float64frombits(f.value), f.want(protowire.Fixed64Type)
	case 8:
		h.negativeSpans, err = appendSpan(h.negativeSpans, f)
	case 9:
		h.negativeDeltas, err = appendDeltas(h.negativeDeltas, f)
	case 10:
		h.negativeCounts, err = appendDoubles(h.negativeCounts, f)
	case 11:
		h.positiveSpans, err = appendSpan(h.positiveSpans, f)
	case 12:
		h.positiveDeltas, err = appendDeltas(h.positiveDeltas, f)
	case 13:
		h.positiveCounts, err = appendDoubles(h.positiveCounts, f)
	case 14:
		h.hint, err = resetHint(f.value), f.want(protowire.VarintType)
	case 15:
		h.t, err = int64(f.value), f.want(protowire.VarintType)
	case 16:
		h.customValues, err = appendDoubles(h.customValues, f)
	case 17: // start_timestamp, in 2.0
		h.st, err = int64(f.value), f.want(protowire.VarintType)
	}
	return err
}

// resetHint returns what a reset_hint stands for: unknown if it is not
// defined.
func resetHint(v uint64) histogram.CounterResetHint {
	if v > uint64(histogram.GaugeType) {
		return histogram.UnknownCounterReset
	}
	return histogram.CounterResetHint(v)
}

// appendSpan decodes a BucketSpan.
func appendSpan(spans []histogram.Span, msg field) ([]histogram.Span, error) {
	var s histogram.Span
	err := msg.each(func(f field) (err error) {
		switch f.num {
		case 1:
			s.Offset, err = int32(protowire.DecodeZigZag(uint64(uint32(f.value)))), f.want(protowire.VarintType)
		case 2:
			s.Length, err = uint32(f.value), f.want(protowire.VarintType)
		}
		return err
	})
	return append(spans, s), err
}

// appendDeltas appends the numbers of a field of sint64, packed or not.
func appendDeltas(deltas []int64, f field) ([]int64, error) {
	if f.wire == protowire.VarintType {
		return append(deltas, protowire.DecodeZigZag(f.value)), nil
	}
	if err := f.want(protowire.BytesType); err != nil {
		return deltas, err
	}
	for rest := f.bytes; len(rest) > 0; {
		v, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			return deltas, errWire
		}
		deltas, rest = append(deltas, protowire.DecodeZigZag(v)), rest[n:]
	}
	return deltas, nil
}

// appendDoubles appends the numbers of a field of double, packed or not.
func appendDoubles(list []float64, f field) ([]float64, error) {
	if f.wire == protowire.Fixed64Type {
		return append(list, math.Float64frombits(f.value)), nil
	}
	if err := f.want(protowire.BytesType); err != nil {
		return list, err
	}
	if len(f.bytes)%8 != 0 {
		return list, errWire
	}
	for rest := f.bytes; len(rest) > 0; rest = rest[8:] {
		list = append(list, math.Float64frombits(binary.LittleEndian.Uint64(rest)))
	}
	return list, nil
}

const (
	// histogramBytes is about what a histogram takes in memory, without its
	// lists.
	histogramBytes = 256
	// elementBytes is what an element of a list takes.
	elementBytes = 8
)

// size returns about how many bytes the histogram will take in memory.
func (h *wireHistogram) size() int {
	return histogramBytes + elementBytes*(len(h.positiveSpans)+len(h.negativeSpans)+len(h.positiveDeltas)+
		len(h.negativeDeltas)+len(h.positiveCounts)+len(h.negativeCounts)+len(h.customValues))
}

// histogram returns a copy. As in the generated code, the type of the count is
// that of the histogram, and lists of the other type are left out.
func (h *wireHistogram) histogram() ingest.Histogram {
	if h.isFloat {
		return ingest.Histogram{T: h.t, ST: h.st, FH: &histogram.FloatHistogram{
			CounterResetHint: h.hint,
			Schema:           h.schema,
			ZeroThreshold:    h.zeroThreshold,
			ZeroCount:        h.zeroFloat,
			Count:            math.Float64frombits(h.count),
			Sum:              h.sum,
			PositiveSpans:    cloneList(h.positiveSpans),
			NegativeSpans:    cloneList(h.negativeSpans),
			PositiveBuckets:  cloneList(h.positiveCounts),
			NegativeBuckets:  cloneList(h.negativeCounts),
			CustomValues:     cloneList(h.customValues),
		}}
	}
	return ingest.Histogram{T: h.t, ST: h.st, H: &histogram.Histogram{
		CounterResetHint: h.hint,
		Schema:           h.schema,
		ZeroThreshold:    h.zeroThreshold,
		ZeroCount:        h.zeroCount,
		Count:            h.count,
		Sum:              h.sum,
		PositiveSpans:    cloneList(h.positiveSpans),
		NegativeSpans:    cloneList(h.negativeSpans),
		PositiveBuckets:  cloneList(h.positiveDeltas),
		NegativeBuckets:  cloneList(h.negativeDeltas),
		CustomValues:     cloneList(h.customValues),
	}}
}

// cloneList copies a list. An empty one is nil.
func cloneList[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return slices.Clone(list)
}
