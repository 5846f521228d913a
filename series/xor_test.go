package series_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series"
)

// checkXOR compares with Prometheus and decodes.
func checkXOR(t testing.TB, ts []int64, vs []float64) {
	t.Helper()
	want := upstreamXOR(t, ts, vs)
	got := series.AppendXOR([]byte("front"), ts, vs)
	if string(got[:5]) != "front" || !bytes.Equal(got[5:], want) {
		t.Fatalf("%v, %v\n got %x\nwant %x", ts, vs, got[5:], want)
	}
	gotT, gotV, err := series.DecodeXOR(want, []int64{7}, []float64{8})
	if err != nil || gotT[0] != 7 || gotV[0] != 8 || !slices.Equal(gotT[1:], ts) || !sameBits(gotV[1:], vs) {
		t.Fatalf("%v, %v as %x come back as %v, %v, %v", ts, vs, want, gotT, gotV, err)
	}
}

func TestXORLengths(t *testing.T) {
	r := newRand(t)
	for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 120, 600, series.MaxDense} {
		for _, c := range sampleShapes(r, n) {
			checkXOR(t, c.ts, c.vs)
		}
	}
}

// TestXORTimes has both sides of each size of a difference of distances.
func TestXORTimes(t *testing.T) {
	for _, size := range []int{14, 17, 20, 63} {
		for _, edge := range []int64{-1 << (size - 1), 1 << (size - 1)} {
			for _, off := range []int64{-2, -1, 0, 1, 2} {
				ts := []int64{1 << 40, 1<<40 + 10, 1<<40 + 20 + edge + off, 0, -5, math.MaxInt64, math.MinInt64}
				checkXOR(t, ts, []float64{1, 1, 2, 2, 3, 3, -4})
			}
		}
	}
}

// TestXORValues has windows of all sizes at all places.
func TestXORValues(t *testing.T) {
	for size := 1; size <= 64; size++ {
		for at := 0; at+size <= 64; at++ {
			x := uint64(1)<<(size-1) | 1
			vs := []float64{0, math.Float64frombits(x << at), 0, math.Float64frombits(x >> 1 << at), 0, 1, 0}
			checkXOR(t, []int64{0, 15, 30, 45, 60, 75, 90}, vs)
		}
	}
}

// TestXORPlateaus has a value among equal ones, and a step, at each place: many equal
// values are written at once, and no others, whatever bits they have in common.
func TestXORPlateaus(t *testing.T) {
	const n = 24
	ts, _ := every(1000, 15_000, n)
	values := []float64{0, 1, 2, 3, -1, math.Copysign(0, -1), 40.7, math.Inf(1), math.NaN(), staleNaN}
	check := func(vs []float64) {
		checkXOR(t, ts, vs)
		checkDense(t, ts, vs)
		var b series.ChunkBuilder
		b.AppendRegular(nil, ts[0], ts[1]-ts[0], vs)
		if got, want := b.Chunks[0].Chunk.Bytes(), upstreamXOR(t, ts, vs); !bytes.Equal(got, want) {
			t.Fatalf("regular %v\n got %x\nwant %x", vs, got, want)
		}
	}
	for _, a := range values {
		for _, b := range values {
			for at := range n {
				one := slices.Repeat([]float64{a}, n)
				one[at] = b
				check(one)
				check(append(slices.Repeat([]float64{a}, at), slices.Repeat([]float64{b}, n-at)...))
			}
		}
	}
}

func TestXORCorrupt(t *testing.T) {
	good := series.AppendXOR(nil, []int64{1000, 2000, 3001, 4000}, []float64{1, 2.5, staleNaN, 4})
	check := func(name string, data []byte) {
		t.Helper()
		gotT, gotV, err := series.DecodeXOR(data, []int64{1}, []float64{2})
		if !errors.Is(err, series.ErrCorrupt) || len(err.Error()) > 200 || len(gotT) != 1 || len(gotV) != 1 {
			t.Errorf("%s: %d times, %d values, %v, want one of each and a short ErrCorrupt", name, len(gotT), len(gotV), err)
		}
	}
	for n := range good {
		check("cut short", good[:n])
	}
	check("one byte more", append(slices.Clone(good), 0))
	check("no samples but bytes", []byte{0, 0, 0})
	check("more samples than bits", append([]byte{0xff, 0xff}, make([]byte, 100)...))
	check("endless first time", append([]byte{0, 1}, bytes.Repeat([]byte{0xff}, 30)...))
	check("endless distance", append(append([]byte{0, 2, 0}, make([]byte, 8)...), bytes.Repeat([]byte{0xff}, 30)...))
	check("window of 94 bits", append([]byte{0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff}, make([]byte, 7)...))
}

func TestXORAllocations(t *testing.T) {
	for _, c := range sampleShapes(newRand(t), 600) {
		data := series.AppendXOR(nil, c.ts, c.vs)
		dst := make([]byte, 0, len(data)+100)
		if n := testing.AllocsPerRun(10, func() { series.AppendXOR(dst, c.ts, c.vs) }); n > 0 {
			t.Errorf("%s: %v allocations to encode", c.name, n)
		}
		ts, vs := make([]int64, 0, 600), make([]float64, 0, 600)
		if n := testing.AllocsPerRun(10, func() { series.DecodeXOR(data, ts, vs) }); n > 0 {
			t.Errorf("%s: %v allocations to decode", c.name, n)
		}
	}
}

// fuzzSamples builds samples of the bytes of a fuzzer: ten for each, a mode, a
// number for the time and eight for the value.
func fuzzSamples(data []byte) (ts []int64, vs []float64) {
	var t int64
	var v float64
	for len(data) >= 2 {
		mode, n := data[0], int64(data[1])
		data = data[2:]
		var arg [8]byte
		size := min(int(mode>>4), 8, len(data))
		copy(arg[:], data[:size])
		data = data[size:]
		bits := binary.LittleEndian.Uint64(arg[:])
		switch mode & 3 {
		case 0:
			v += float64(bits & 0xffff)
		case 1:
			v = math.Float64frombits(bits)
		case 2:
			v = float64(int32(bits)) / math.Pow10(int(n%12))
		}
		for range 1 + int(mode>>2&3)*int(n%64) {
			t += 1 + n<<(mode>>1&31)
			if t < 0 || len(ts) == series.MaxDense {
				return ts, vs
			}
			ts, vs = append(ts, t), append(vs, v)
		}
	}
	return ts, vs
}

func addSamples(f *testing.F) {
	f.Add([]byte{0x11, 1})
	f.Add([]byte{0x20, 15, 1, 2, 0x20, 15, 3, 4, 0x2e, 15, 0, 0, 0x91, 7, 2, 0, 0, 0, 0, 0, 0xf0, 0x7f})
	f.Add(bytes.Repeat([]byte{0x2e, 15, 1, 0, 0x42, 2, 9, 8, 7, 6, 0x81, 1, 1, 2, 3, 4, 5, 6, 7, 8}, 20))
	f.Add(bytes.Repeat([]byte{0x4c, 63, 1, 0, 0, 0}, 40))
}

func FuzzXOR(f *testing.F) {
	addSamples(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		ts, vs := fuzzSamples(data)
		checkXOR(t, ts, vs)
	})
}

// FuzzDecodeXOR lets what Prometheus decodes be decoded the same, or refused where
// the doc comment says so.
func FuzzDecodeXOR(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0})
	for _, c := range sampleShapes(newRand(f), 5) {
		f.Add(series.AppendXOR(nil, c.ts, c.vs))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ts, vs, err := series.DecodeXOR(data, nil, nil)
		if err != nil {
			if !errors.Is(err, series.ErrCorrupt) || len(ts) > 0 || len(vs) > 0 {
				t.Fatalf("%x: %v, %v, %v", data, ts, vs, err)
			}
			return
		}
		var c chunkenc.XORChunk
		c.Reset(data)
		it := c.Iterator(nil)
		for i := range ts {
			if it.Next() != chunkenc.ValFloat {
				t.Fatalf("%x: Prometheus has %d samples, %v, want %d", data, i, it.Err(), len(ts))
			}
			if wantT, wantV := it.At(); wantT != ts[i] || math.Float64bits(wantV) != math.Float64bits(vs[i]) {
				t.Fatalf("%x: sample %d is %d, %x, want %d, %x", data, i, ts[i], vs[i], wantT, wantV)
			}
		}
		if it.Next() != chunkenc.ValNone || it.Err() != nil {
			t.Fatalf("%x: Prometheus has more than %d samples, %v", data, len(ts), it.Err())
		}
		// Trailing bits are free and windows may be wasteful, but what comes
		// back is what was read.
		againT, againV, err := series.DecodeXOR(series.AppendXOR(nil, ts, vs), nil, nil)
		if err != nil || !slices.Equal(againT, ts) || !sameBits(againV, vs) {
			t.Fatalf("%x: %v, %v, %v, want %v, %v", data, againT, againV, err, ts, vs)
		}
	})
}

func FuzzDense(f *testing.F) {
	addSamples(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if ts, vs := fuzzSamples(data); len(ts) > 0 {
			checkDense(t, ts, vs)
		}
	})
}

func FuzzDecodeDense(f *testing.F) {
	f.Add([]byte{})
	for _, c := range sampleShapes(newRand(f), 9) {
		f.Add(series.AppendDense(nil, c.ts, c.vs))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ts, vs, err := series.DecodeDense(data, nil, nil)
		if err != nil {
			if !errors.Is(err, series.ErrCorrupt) || len(ts) > 0 || len(vs) > 0 {
				t.Fatalf("%x: %v, %v, %v", data, ts, vs, err)
			}
			return
		}
		if len(ts) != len(vs) || cap(ts) > 2*series.MaxDense || cap(vs) > 2*series.MaxDense {
			t.Fatalf("%x: %d times, %d values, room for %d and %d", data, len(ts), len(vs), cap(ts), cap(vs))
		}
		checkDense(t, ts, vs)
	})
}
