package chunk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/golden"
	"github.com/promtable/promtable/series/seriestest"
)

func TestChunks(t *testing.T) {
	window := uint32(series.Window)
	for _, c := range []chunk.Sealed{
		{Encoding: chunk.EncodingDense, Data: []byte{}},
		{Encoding: 1, Stamp: series.MaxTime, First: window - 1, Last: window - 1, Data: []byte("data")},
		{Encoding: 6, Stamp: 1, First: math.MaxUint32 - window + 1, Last: math.MaxUint32, Data: []byte{0}},
	} {
		value := chunk.Append([]byte("x"), c)[1:]
		qual := chunk.AppendQualifier([]byte("x"), c.First, c.Last, value)[1:]
		got, err := chunk.Parse(qual, value)
		if err != nil || got.Encoding != c.Encoding || got.Stamp != c.Stamp || got.First != c.First || got.Last != c.Last || !bytes.Equal(got.Data, c.Data) {
			t.Errorf("%+v comes back as %+v, %v", c, got, err)
		}
		if len(qual) != chunk.QualifierSize {
			t.Errorf("qualifier % x", qual)
		}
		for i := range value {
			damaged := bytes.Clone(value)
			damaged[i] ^= 0x10
			if c, err := chunk.Parse(qual, damaged); !errors.Is(err, series.ErrCorrupt) {
				t.Errorf("byte %d of % x is another: %+v, %v", i, value, c, err)
			}
		}
		for n := range qual {
			if c, err := chunk.Parse(qual[:n], value); !errors.Is(err, series.ErrCorrupt) {
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
		{"unknown encoding", 1, 2, "\x07" + good[1:], "encoding 7"},
		{"our next encoding", 1, 2, "\x82" + good[1:], "encoding 130"},
		{"stamp past the last time", 1, 2, "\x01\xff\xff\xff\xff\xff\xffdata", "stamp 281474976710655"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			value := []byte(tt.value)
			c, err := chunk.Parse(chunk.AppendQualifier(nil, tt.first, tt.last, value), value)
			if !errors.Is(err, series.ErrCorrupt) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v, %v, want an ErrCorrupt with %q", c, err, tt.want)
			}
		})
	}
}

func TestAppendChunkPanics(t *testing.T) {
	for _, c := range []chunk.Sealed{{}, {Encoding: 127}, {Encoding: 1, Stamp: -1}, {Encoding: 1, Stamp: series.MaxTime + 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v is written", c)
				}
			}()
			chunk.Append(nil, c)
		}()
	}
}

// TestChunkStart: a read from delta on finds a chunk that holds delta, and none
// of the window before.
func TestChunkStart(t *testing.T) {
	window := uint32(series.Window)
	value := chunk.Append(nil, chunk.Sealed{Encoding: 1})
	for _, delta := range []uint32{0, 1, window - 1, window, window + 1, 2*window - 1, math.MaxUint32} {
		start := chunk.AppendStart(nil, delta)
		begin := delta - delta%window
		holding := chunk.AppendQualifier(nil, begin, delta, value)
		if bytes.Compare(start, holding) > 0 {
			t.Errorf("delta %d: start % x is past a chunk from %d on", delta, start, begin)
		}
		if begin == 0 {
			continue
		}
		if before := chunk.AppendQualifier(nil, begin-1, begin-1, value); bytes.Compare(start, before) <= 0 {
			t.Errorf("delta %d: start % x is not past a chunk of the window before", delta, start)
		}
	}
}

// TestGolden pins the stored bytes.
func TestGolden(t *testing.T) {
	golden.Commands(t, map[string]func(*golden.Case){"chunk": goldenChunks})
}

// goldenChunks writes the cell of a chunk for each line: an encoding, a stamp, and
// times and values, of which a histogram makes its sum and counts.
func goldenChunks(c *golden.Case) {
	encodings := map[string]byte{
		"dense": chunk.EncodingDense, "XOR": byte(chunkenc.EncXOR), "XOR2": byte(chunkenc.EncXOR2), "histogram": byte(chunkenc.EncHistogram),
		"floatHistogram": byte(chunkenc.EncFloatHistogram), "histogramST": byte(chunkenc.EncHistogramST), "floatHistogramST": byte(chunkenc.EncFloatHistogramST),
	}
	for _, arg := range c.Args {
		encoding, ok := encodings[arg[0]]
		if !ok {
			c.Fatalf("unknown encoding %q", arg[0])
		}
		var samples []seriestest.TimedValue
		for i := 2; i+1 < len(arg); i += 2 {
			samples = append(samples, seriestest.At(c.Int(arg[i]), seriestest.ValueFor(encoding, i/2-1, c.Float(arg[i+1]))))
		}
		base, _ := series.Split(samples[0].T)
		sealed := seriestest.Sealed(c, encoding, base, c.Int(arg[1]), samples)
		value := chunk.Append(nil, sealed)
		fmt.Fprintf(&c.Out, "%s, encoding %d, stamp %d (%012x), from delta %d (%08x) to %d (%08x)\n",
			arg[0], encoding, sealed.Stamp, sealed.Stamp, sealed.First, sealed.First, sealed.Last, sealed.Last)
		c.Dump("qualifier", chunk.AppendQualifier(nil, sealed.First, sealed.Last, value))
		c.Dump("value", value)
	}
}

// FuzzParseChunk: whatever is taken is written again as the same cell.
func FuzzParseChunk(f *testing.F) {
	for _, encoding := range append([]byte{0, 7, 127, 130, 255}, seriestest.AllEncodings...) {
		value := append([]byte{encoding, 0, 0, 0, 0, 0, 5}, "data"...)
		f.Add(uint32(5), uint32(6), value, true)
		f.Add(uint32(series.Window-1), uint32(series.Window), value, true)
		f.Add(uint32(5), uint32(6), value, false)
	}
	f.Add(uint32(1), uint32(1), bytes.Repeat([]byte{1}, 7), true)
	f.Add(uint32(1), uint32(1), []byte{1}, true)
	f.Fuzz(func(t *testing.T, first, last uint32, value []byte, rightSum bool) {
		qual := chunk.AppendQualifier(nil, first, last, value)
		if !rightSum {
			binary.BigEndian.PutUint32(qual[8:], first)
		}
		c, err := chunk.Parse(qual, value)
		if err != nil {
			if !errors.Is(err, series.ErrCorrupt) {
				t.Errorf("error %v", err)
			}
			return
		}
		again := chunk.Append(nil, c)
		if !bytes.Equal(again, value) || !bytes.Equal(chunk.AppendQualifier(nil, c.First, c.Last, again), qual) {
			t.Errorf("% x, % x is %+v", qual, value, c)
		}
	})
}
