package series_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series"
)

// A timedValue is a sample of any kind.
type timedValue struct {
	t int64
	v series.Value
}

// allEncodings are those that a chunk may have.
var allEncodings = []byte{
	series.EncodingDense, series.EncodingOpen, byte(chunkenc.EncXOR), byte(chunkenc.EncXOR2), byte(chunkenc.EncHistogram),
	byte(chunkenc.EncFloatHistogram), byte(chunkenc.EncHistogramST), byte(chunkenc.EncFloatHistogramST),
}

// chunkData encodes samples, which must fit into one chunk of the encoding.
func chunkData(t testing.TB, encoding byte, samples []timedValue) []byte {
	t.Helper()
	if encoding == series.EncodingDense || encoding == series.EncodingOpen {
		var ts []int64
		var vs []float64
		for _, s := range samples {
			ts, vs = append(ts, s.t), append(vs, s.v.Float)
		}
		if encoding == series.EncodingOpen {
			return series.AppendOpen(nil, ts, vs)
		}
		return series.AppendDense(nil, ts, vs)
	}
	chunk, err := chunkenc.NewEmptyChunk(chunkenc.Encoding(encoding))
	if err != nil {
		t.Fatal(err)
	}
	app, err := chunk.Appender()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		var cut chunkenc.Chunk
		var recoded bool
		switch {
		case s.v.Histogram != nil:
			cut, recoded, app, err = app.AppendHistogram(nil, s.v.Start, s.t, s.v.Histogram, false)
		case s.v.FloatHistogram != nil:
			cut, recoded, app, err = app.AppendFloatHistogram(nil, s.v.Start, s.t, s.v.FloatHistogram, false)
		default:
			app.Append(s.v.Start, s.t, s.v.Float)
		}
		if err != nil || cut != nil && !recoded {
			t.Fatalf("%+v does not fit into the chunk: %v", s, err)
		}
		if recoded {
			chunk = cut
		}
	}
	return chunk.Bytes()
}

// valueFor returns a value that a chunk of the encoding can hold, of which the
// n-th has larger counts than the one before.
func valueFor(encoding byte, n int, v float64) (value series.Value) {
	spans := []histogram.Span{{Offset: -2, Length: 2}, {Offset: 3, Length: 1}}
	h := &histogram.Histogram{
		Schema: 1, ZeroThreshold: 0.001, ZeroCount: uint64(n), Count: uint64(12*n + 3), Sum: v, PositiveSpans: spans,
		PositiveBuckets: []int64{int64(n + 1), int64(2 * n), int64(-n)}, NegativeSpans: spans[:1], NegativeBuckets: []int64{int64(n), int64(n)},
	}
	switch chunkenc.Encoding(encoding) {
	case chunkenc.EncXOR2:
		return series.Value{Start: int64(n / 3 * 1000), Float: v}
	case chunkenc.EncHistogram:
		return series.Value{Histogram: h}
	case chunkenc.EncFloatHistogram:
		return series.Value{FloatHistogram: h.ToFloat(nil)}
	case chunkenc.EncHistogramST:
		return series.Value{Start: int64(n/3*1000 + 7), Histogram: h}
	case chunkenc.EncFloatHistogramST:
		return series.Value{Start: int64(n/3*1000 + 7), FloatHistogram: h.ToFloat(nil)}
	}
	return series.Value{Float: v}
}

// sealed returns the chunk of samples in the bucket at base.
func sealed(t testing.TB, encoding byte, base, stamp int64, samples []timedValue) series.Chunk {
	t.Helper()
	return series.Chunk{
		Encoding: encoding, Stamp: stamp, Data: chunkData(t, encoding, samples),
		First: uint32(samples[0].t - base), Last: uint32(samples[len(samples)-1].t - base),
	}
}

func TestChunks(t *testing.T) {
	window := uint32(series.Window)
	for _, c := range []series.Chunk{
		{Encoding: series.EncodingDense, Data: []byte{}},
		{Encoding: 1, Stamp: series.MaxTime, First: window - 1, Last: window - 1, Data: []byte("data")},
		{Encoding: 6, Stamp: 1, First: math.MaxUint32 - window + 1, Last: math.MaxUint32, Data: []byte{0}},
	} {
		value := series.AppendChunk([]byte("x"), c)[1:]
		qual := series.AppendChunkQualifier([]byte("x"), c.First, c.Last, value)[1:]
		got, err := series.ParseChunk(qual, value)
		if err != nil || got.Encoding != c.Encoding || got.Stamp != c.Stamp || got.First != c.First || got.Last != c.Last || !bytes.Equal(got.Data, c.Data) {
			t.Errorf("%+v comes back as %+v, %v", c, got, err)
		}
		if len(qual) != series.ChunkQualifierSize {
			t.Errorf("qualifier % x", qual)
		}
		for i := range value {
			damaged := bytes.Clone(value)
			damaged[i] ^= 0x10
			if c, err := series.ParseChunk(qual, damaged); !errors.Is(err, series.ErrCorrupt) {
				t.Errorf("byte %d of % x is another: %+v, %v", i, value, c, err)
			}
		}
		for n := range qual {
			if c, err := series.ParseChunk(qual[:n], value); !errors.Is(err, series.ErrCorrupt) {
				t.Errorf("%d bytes of qualifier: %+v, %v", n, c, err)
			}
		}
	}
}

func TestParseChunkCorrupt(t *testing.T) {
	good := "\x01\x00\x00\x00\x00\x00\x05data"
	window := uint32(series.Window)
	for _, tt := range []struct {
		name        string
		first, last uint32
		value       string
		want        string
	}{
		{"no value", 1, 1, "", "value of 0 bytes"},
		{"short value", 1, 1, good[:6], "value of 6 bytes"},
		{"last before first", 2, 1, good, "from delta 2 to 1"},
		{"two windows", window - 1, window, good, "no part of a window"},
		{"encoding 0", 1, 2, "\x00" + good[1:], "encoding 0"},
		{"encoding of nobody", 1, 2, "\x07" + good[1:], "encoding 7"},
		{"our next encoding", 1, 2, "\x82" + good[1:], "encoding 130"},
		{"stamp past the last time", 1, 2, "\x01\xff\xff\xff\xff\xff\xffdata", "stamp 281474976710655"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			value := []byte(tt.value)
			c, err := series.ParseChunk(series.AppendChunkQualifier(nil, tt.first, tt.last, value), value)
			if !errors.Is(err, series.ErrCorrupt) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v, %v, want an ErrCorrupt with %q", c, err, tt.want)
			}
		})
	}
}

func TestAppendChunkPanics(t *testing.T) {
	for _, c := range []series.Chunk{{}, {Encoding: 127}, {Encoding: 1, Stamp: -1}, {Encoding: 1, Stamp: series.MaxTime + 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v is written", c)
				}
			}()
			series.AppendChunk(nil, c)
		}()
	}
}

// TestChunkStart: a read from delta on finds a chunk that holds delta, and none
// of the window before.
func TestChunkStart(t *testing.T) {
	window := uint32(series.Window)
	value := series.AppendChunk(nil, series.Chunk{Encoding: 1})
	for _, delta := range []uint32{0, 1, window - 1, window, window + 1, 2*window - 1, math.MaxUint32} {
		start := series.AppendChunkStart(nil, delta)
		begin := delta - delta%window
		holding := series.AppendChunkQualifier(nil, begin, delta, value)
		if bytes.Compare(start, holding) > 0 {
			t.Errorf("delta %d: start % x is past a chunk from %d on", delta, start, begin)
		}
		if begin == 0 {
			continue
		}
		if before := series.AppendChunkQualifier(nil, begin-1, begin-1, value); bytes.Compare(start, before) <= 0 {
			t.Errorf("delta %d: start % x is not past a chunk of the window before", delta, start)
		}
	}
}

// chunks writes the cell of a chunk for each line: an encoding, a stamp, and
// times and values, of which a histogram makes its sum and counts.
func (c *goldenCase) chunks() {
	encodings := map[string]byte{
		"dense": series.EncodingDense, "XOR": byte(chunkenc.EncXOR), "XOR2": byte(chunkenc.EncXOR2), "histogram": byte(chunkenc.EncHistogram),
		"floatHistogram": byte(chunkenc.EncFloatHistogram), "histogramST": byte(chunkenc.EncHistogramST), "floatHistogramST": byte(chunkenc.EncFloatHistogramST),
	}
	for _, arg := range c.args {
		encoding, ok := encodings[arg[0]]
		if !ok {
			c.t.Fatalf("unknown encoding %q", arg[0])
		}
		var samples []timedValue
		for i := 2; i+1 < len(arg); i += 2 {
			samples = append(samples, timedValue{c.int(arg[i]), valueFor(encoding, i/2-1, c.float(arg[i+1]))})
		}
		base, _ := series.Split(samples[0].t)
		chunk := sealed(c.t, encoding, base, c.int(arg[1]), samples)
		value := series.AppendChunk(nil, chunk)
		fmt.Fprintf(&c.out, "%s, encoding %d, stamp %d (%012x), from delta %d (%08x) to %d (%08x)\n",
			arg[0], encoding, chunk.Stamp, chunk.Stamp, chunk.First, chunk.First, chunk.Last, chunk.Last)
		c.dump("qualifier", series.AppendChunkQualifier(nil, chunk.First, chunk.Last, value))
		c.dump("value", value)
	}
}
