package cell

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cursor"
)

// Kinds of values that are no plain float, their first byte. No value of a kind
// is eight bytes long: only a plain float is. They are part of the stored format.
const (
	kindFloatStart     = 1
	kindHistogram      = 2
	kindFloatHistogram = 3
)

const floatStartSize = 1 + 8 + 8

// A Value is what a series has at one time: a float, unless one of the
// histograms is set.
type Value struct {
	// Start is the start timestamp in milliseconds: since when the value has been
	// counted. 0 is unknown.
	Start          int64
	Float          float64
	Histogram      *histogram.Histogram
	FloatHistogram *histogram.FloatHistogram
}

// ForgetResets leaves of what the histogram of v says of counter resets only whether it is of a gauge: the rest depends
// on the chunk that it was in. The histogram is changed.
func (v Value) ForgetResets() {
	forget := func(hint *histogram.CounterResetHint) {
		if *hint != histogram.GaugeType {
			*hint = histogram.UnknownCounterReset
		}
	}
	switch {
	case v.Histogram != nil:
		forget(&v.Histogram.CounterResetHint)
	case v.FloatHistogram != nil:
		forget(&v.FloatHistogram.CounterResetHint)
	}
}

// Append appends v as the value of a cell. A float without a start is as
// AppendFloat writes it. The histograms must pass their Validate:
// Append does not check them. A nil list and an empty one are the same.
func Append(dst []byte, v Value) []byte {
	switch {
	case v.Histogram != nil:
		return appendHistogram(dst, v.Start, v.Histogram)
	case v.FloatHistogram != nil:
		return appendFloatHistogram(dst, v.Start, v.FloatHistogram)
	case v.Start != 0:
		dst = binary.BigEndian.AppendUint64(append(dst, kindFloatStart), uint64(v.Start))
	}
	return AppendFloat(dst, v.Float)
}

// Parse is the inverse of Append. The value does not refer to b. The
// histograms in it are as they were written, valid or not. A kind of a later
// version is a series.ErrCorrupt.
func Parse(b []byte) (v Value, err error) {
	switch {
	case len(b) == 8:
		return Value{Float: math.Float64frombits(binary.BigEndian.Uint64(b))}, nil
	case len(b) == 0:
		return v, fmt.Errorf("%w: empty value", series.ErrCorrupt)
	case b[0] == kindFloatStart && len(b) == floatStartSize:
		v.Start = int64(binary.BigEndian.Uint64(b[1:]))
		v.Float = math.Float64frombits(binary.BigEndian.Uint64(b[9:]))
		return v, nil
	case b[0] == kindHistogram:
		return parseHistogram(b[1:])
	case b[0] == kindFloatHistogram:
		return parseFloatHistogram(b[1:])
	}
	return v, fmt.Errorf("%w: value %.32x of %d bytes is of no kind of this version", series.ErrCorrupt, b, len(b))
}

// IsHistogram says whether b, as Append writes it, is a histogram.
func IsHistogram(b []byte) bool {
	return len(b) > 0 && len(b) != 8 && (b[0] == kindHistogram || b[0] == kindFloatHistogram)
}

// AppendFloat appends the bits of v, big-endian: NaN payloads and the sign of
// zero are kept.
func AppendFloat(dst []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(v))
}

// ParseFloat is the inverse of AppendFloat. A value of another size is a
// series.ErrCorrupt.
func ParseFloat(value []byte) (float64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: value %.32x of %d bytes is no float", series.ErrCorrupt, value, len(value))
	}
	return math.Float64frombits(binary.BigEndian.Uint64(value)), nil
}

// Float returns the float and the start timestamp in b, as Append writes them. It
// is not ok if b holds no float.
func Float(b []byte) (v float64, start int64, ok bool) {
	switch {
	case len(b) == 8:
	case len(b) == floatStartSize && b[0] == kindFloatStart:
		start = int64(binary.BigEndian.Uint64(b[1:]))
	default:
		return 0, 0, false
	}
	return math.Float64frombits(binary.BigEndian.Uint64(b[len(b)-8:])), start, true
}

func appendHistogram(dst []byte, start int64, h *histogram.Histogram) []byte {
	dst = appendHistogramHead(append(dst, kindHistogram, byte(h.CounterResetHint)), start, h.Schema, h.ZeroThreshold, h.Sum)
	dst = binary.AppendUvarint(dst, h.Count)
	dst = binary.AppendUvarint(dst, h.ZeroCount)
	dst = appendSpans(appendSpans(dst, h.PositiveSpans), h.NegativeSpans)
	dst = appendList(dst, h.PositiveBuckets, binary.AppendVarint)
	dst = appendList(dst, h.NegativeBuckets, binary.AppendVarint)
	return appendList(dst, h.CustomValues, AppendFloat)
}

func appendFloatHistogram(dst []byte, start int64, h *histogram.FloatHistogram) []byte {
	dst = appendHistogramHead(append(dst, kindFloatHistogram, byte(h.CounterResetHint)), start, h.Schema, h.ZeroThreshold, h.Sum)
	dst = AppendFloat(dst, h.Count)
	dst = AppendFloat(dst, h.ZeroCount)
	dst = appendSpans(appendSpans(dst, h.PositiveSpans), h.NegativeSpans)
	dst = appendList(dst, h.PositiveBuckets, AppendFloat)
	dst = appendList(dst, h.NegativeBuckets, AppendFloat)
	return appendList(dst, h.CustomValues, AppendFloat)
}

// appendHistogramHead appends what follows the kind and the hint in both kinds of histograms.
func appendHistogramHead(dst []byte, start int64, schema int32, threshold, sum float64) []byte {
	dst = binary.AppendVarint(dst, start)
	dst = binary.AppendVarint(dst, int64(schema))
	return AppendFloat(AppendFloat(dst, threshold), sum)
}

func appendSpans(dst []byte, spans []histogram.Span) []byte {
	return appendList(dst, spans, func(dst []byte, s histogram.Span) []byte {
		dst = binary.AppendVarint(dst, int64(s.Offset))
		return binary.AppendUvarint(dst, uint64(s.Length))
	})
}

// appendList appends the length of list and its elements.
func appendList[T any](dst []byte, list []T, appendOne func([]byte, T) []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, e := range list {
		dst = appendOne(dst, e)
	}
	return dst
}

func parseHistogram(b []byte) (v Value, err error) {
	p := &valueParser{cursor.Cursor{Rest: b}}
	h := &histogram.Histogram{}
	v = Value{Histogram: h}
	v.Start, h.CounterResetHint, h.Schema, h.ZeroThreshold, h.Sum = p.histogramHead()
	h.Count, h.ZeroCount = p.Uvarint(), p.Uvarint()
	h.PositiveSpans, h.NegativeSpans = parseList(p, 2, p.span), parseList(p, 2, p.span)
	h.PositiveBuckets, h.NegativeBuckets = parseList(p, 1, p.Varint), parseList(p, 1, p.Varint)
	h.CustomValues = parseList(p, 8, p.float)
	return v, p.end()
}

func parseFloatHistogram(b []byte) (v Value, err error) {
	p := &valueParser{cursor.Cursor{Rest: b}}
	h := &histogram.FloatHistogram{}
	v = Value{FloatHistogram: h}
	v.Start, h.CounterResetHint, h.Schema, h.ZeroThreshold, h.Sum = p.histogramHead()
	h.Count, h.ZeroCount = p.float(), p.float()
	h.PositiveSpans, h.NegativeSpans = parseList(p, 2, p.span), parseList(p, 2, p.span)
	h.PositiveBuckets, h.NegativeBuckets = parseList(p, 8, p.float), parseList(p, 8, p.float)
	h.CustomValues = parseList(p, 8, p.float)
	return v, p.end()
}

// valueParser reads the parts of a histogram. After something that is not there
// all that follows is zero.
type valueParser struct{ cursor.Cursor }

func (p *valueParser) histogramHead() (start int64, hint histogram.CounterResetHint, schema int32, threshold, sum float64) {
	hint = histogram.CounterResetHint(p.Byte())
	start = p.Varint()
	schema = int32(p.inRange(p.Varint(), math.MinInt32, math.MaxInt32))
	return start, hint, schema, p.float(), p.float()
}

func (p *valueParser) span() histogram.Span {
	offset := p.inRange(p.Varint(), math.MinInt32, math.MaxInt32)
	length := p.inRange(int64(p.Uvarint()), 0, math.MaxUint32)
	return histogram.Span{Offset: int32(offset), Length: uint32(length)}
}

func (p *valueParser) inRange(n, low, high int64) int64 {
	if n < low || n > high {
		p.Fail()
		return 0
	}
	return n
}

// parseList reads a list whose elements have at least size bytes. An empty list
// is nil.
func parseList[T any](p *valueParser, size int, parseOne func() T) []T {
	n := p.Uvarint()
	if n > uint64(len(p.Rest)/size) {
		p.Fail()
		return nil
	}
	if n == 0 {
		return nil
	}
	list := make([]T, n)
	for i := range list {
		list[i] = parseOne()
	}
	return list
}

func (p *valueParser) float() float64 {
	return math.Float64frombits(binary.BigEndian.Uint64(p.Bytes(8)))
}

// end says whether all was there and nothing else.
func (p *valueParser) end() error {
	if p.Failed || len(p.Rest) > 0 {
		return fmt.Errorf("%w: histogram cut short or with %d bytes too many", series.ErrCorrupt, len(p.Rest))
	}
	return nil
}
