package seriestest

import (
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
)

// A TimedValue is a sample of any kind.
type TimedValue struct {
	T int64
	V cell.Value
}

// At returns the sample of v at t, in milliseconds.
func At(t int64, v cell.Value) TimedValue { return TimedValue{t, v} }

// AllEncodings are those that a chunk may have.
var AllEncodings = []byte{
	chunk.EncodingDense, chunk.EncodingOpen, byte(chunkenc.EncXOR), byte(chunkenc.EncXOR2), byte(chunkenc.EncHistogram),
	byte(chunkenc.EncFloatHistogram), byte(chunkenc.EncHistogramST), byte(chunkenc.EncFloatHistogramST),
}

// ChunkData encodes samples, which must fit into one chunk of the encoding.
func ChunkData(t testing.TB, encoding byte, samples []TimedValue) []byte {
	t.Helper()
	if encoding == chunk.EncodingDense || encoding == chunk.EncodingOpen {
		var ts []int64
		var vs []float64
		for _, s := range samples {
			ts, vs = append(ts, s.T), append(vs, s.V.Float)
		}
		if encoding == chunk.EncodingOpen {
			return AppendOpen(nil, ts, vs)
		}
		return dense.Append(nil, ts, vs)
	}
	encoded, err := chunkenc.NewEmptyChunk(chunkenc.Encoding(encoding))
	if err != nil {
		t.Fatal(err)
	}
	app, err := encoded.Appender()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		var cut chunkenc.Chunk
		var recoded bool
		switch {
		case s.V.Histogram != nil:
			cut, recoded, app, err = app.AppendHistogram(nil, s.V.Start, s.T, s.V.Histogram, false)
		case s.V.FloatHistogram != nil:
			cut, recoded, app, err = app.AppendFloatHistogram(nil, s.V.Start, s.T, s.V.FloatHistogram, false)
		default:
			app.Append(s.V.Start, s.T, s.V.Float)
		}
		if err != nil || cut != nil && !recoded {
			t.Fatalf("%+v does not fit into the chunk: %v", s, err)
		}
		if recoded {
			encoded = cut
		}
	}
	return encoded.Bytes()
}

// AppendOpen appends an open chunk of floats at these times, in milliseconds.
func AppendOpen(dst []byte, ts []int64, vs []float64) []byte {
	if len(ts) == 0 {
		return dst
	}
	t, step, last := ts[0], int64(0), uint64(0)
	dst = chunk.AppendOpenStart(dst, t)
	for i, v := range vs {
		next := ts[i] - t
		dst = chunk.AppendOpenSample(dst, next-step, last, math.Float64bits(v), nil)
		t, step, last = ts[i], next, math.Float64bits(v)
	}
	return dst
}

// ValueFor returns a value that a chunk of the encoding can hold, of which the
// n-th has larger counts than the one before.
func ValueFor(encoding byte, n int, v float64) (value cell.Value) {
	spans := []histogram.Span{{Offset: -2, Length: 2}, {Offset: 3, Length: 1}}
	h := &histogram.Histogram{
		Schema: 1, ZeroThreshold: 0.001, ZeroCount: uint64(n), Count: uint64(12*n + 3), Sum: v, PositiveSpans: spans,
		PositiveBuckets: []int64{int64(n + 1), int64(2 * n), int64(-n)}, NegativeSpans: spans[:1], NegativeBuckets: []int64{int64(n), int64(n)},
	}
	switch chunkenc.Encoding(encoding) {
	case chunkenc.EncXOR2:
		return cell.Value{Start: int64(n / 3 * 1000), Float: v}
	case chunkenc.EncHistogram:
		return cell.Value{Histogram: h}
	case chunkenc.EncFloatHistogram:
		return cell.Value{FloatHistogram: h.ToFloat(nil)}
	case chunkenc.EncHistogramST:
		return cell.Value{Start: int64(n/3*1000 + 7), Histogram: h}
	case chunkenc.EncFloatHistogramST:
		return cell.Value{Start: int64(n/3*1000 + 7), FloatHistogram: h.ToFloat(nil)}
	}
	return cell.Value{Float: v}
}

// Sealed returns the chunk of samples in the bucket at base.
func Sealed(t testing.TB, encoding byte, base, stamp int64, samples []TimedValue) chunk.Sealed {
	t.Helper()
	return chunk.Sealed{
		Encoding: encoding, Stamp: stamp, Data: ChunkData(t, encoding, samples),
		First: uint32(samples[0].T - base), Last: uint32(samples[len(samples)-1].T - base),
	}
}
