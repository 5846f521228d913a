package xor_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/dense"
	"github.com/promtable/promtable/series/seriestest"
	"github.com/promtable/promtable/series/xor"
)

// checkXOR compares with Prometheus and decodes.
func checkXOR(t testing.TB, ts []int64, vs []float64) {
	t.Helper()
	want := seriestest.UpstreamXOR(t, ts, vs)
	got := xor.Append([]byte("front"), ts, vs)
	if string(got[:5]) != "front" || !bytes.Equal(got[5:], want) {
		t.Fatalf("%v, %v\n got %x\nwant %x", ts, vs, got[5:], want)
	}
	gotT, gotV, err := xor.Decode(want, []int64{7}, []float64{8})
	if err != nil || gotT[0] != 7 || gotV[0] != 8 || !slices.Equal(gotT[1:], ts) || !seriestest.SameBits(gotV[1:], vs) {
		t.Fatalf("%v, %v as %x come back as %v, %v, %v", ts, vs, want, gotT, gotV, err)
	}
}

func TestXORLengths(t *testing.T) {
	r := seriestest.NewRand(t)
	for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 120, 600, dense.MaxSamples} {
		for _, c := range seriestest.Shapes(r, n) {
			checkXOR(t, c.Ts, c.Vs)
		}
	}
}

// TestXORTimes has both sides of each size of a difference of distances.
func TestXORTimes(t *testing.T) {
	for _, size := range []int{14, 17, 20, 63} {
		for _, bound := range []int64{-1 << (size - 1), 1 << (size - 1)} {
			for _, off := range []int64{-2, -1, 0, 1, 2} {
				ts := []int64{1 << 40, 1<<40 + 10, 1<<40 + 20 + bound + off, 0, -5, math.MaxInt64, math.MinInt64}
				checkXOR(t, ts, []float64{1, 1, 2, 2, 3, 3, -4})
			}
		}
	}
}

// TestXORValues has significant bits of all sizes at all positions.
func TestXORValues(t *testing.T) {
	for size := 1; size <= 64; size++ {
		for at := 0; at+size <= 64; at++ {
			x := uint64(1)<<(size-1) | 1
			vs := []float64{0, math.Float64frombits(x << at), 0, math.Float64frombits(x >> 1 << at), 0, 1, 0}
			checkXOR(t, []int64{0, 15, 30, 45, 60, 75, 90}, vs)
		}
	}
}

// TestXORPlateaus: many equal values are written at once, and no others, whatever
// bits they have in common.
func TestXORPlateaus(t *testing.T) {
	seriestest.Plateaus(func(ts []int64, vs []float64) {
		checkXOR(t, ts, vs)
		if got, want := xor.AppendRegular(nil, ts[0], ts[1]-ts[0], vs), seriestest.UpstreamXOR(t, ts, vs); !bytes.Equal(got, want) {
			t.Fatalf("regular %v\n got %x\nwant %x", vs, got, want)
		}
	})
}

func TestXORCorrupt(t *testing.T) {
	good := xor.Append(nil, []int64{1000, 2000, 3001, 4000}, []float64{1, 2.5, seriestest.StaleNaN, 4})
	check := func(name string, data []byte) {
		t.Helper()
		gotT, gotV, err := xor.Decode(data, []int64{1}, []float64{2})
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
	check("94 significant bits", append([]byte{0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff}, make([]byte, 7)...))
}

func TestXORAllocations(t *testing.T) {
	for _, c := range seriestest.Shapes(seriestest.NewRand(t), 600) {
		data := xor.Append(nil, c.Ts, c.Vs)
		dst := make([]byte, 0, len(data)+100)
		if n := testing.AllocsPerRun(10, func() { xor.Append(dst, c.Ts, c.Vs) }); n > 0 {
			t.Errorf("%s: %v allocations to encode", c.Name, n)
		}
		ts, vs := make([]int64, 0, 600), make([]float64, 0, 600)
		if n := testing.AllocsPerRun(10, func() { xor.Decode(data, ts, vs) }); n > 0 {
			t.Errorf("%s: %v allocations to decode", c.Name, n)
		}
	}
}

func FuzzXOR(f *testing.F) {
	seriestest.AddSamples(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		ts, vs := seriestest.FuzzSamples(data)
		checkXOR(t, ts, vs)
	})
}

// FuzzDecodeXOR lets what Prometheus decodes be decoded the same, or refused where
// the doc comment says so.
func FuzzDecodeXOR(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0})
	for _, c := range seriestest.Shapes(seriestest.NewRand(f), 5) {
		f.Add(xor.Append(nil, c.Ts, c.Vs))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ts, vs, err := xor.Decode(data, nil, nil)
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
		// Trailing bits are free and significant bits may begin and end with zeros, but what comes
		// back is what was read.
		againT, againV, err := xor.Decode(xor.Append(nil, ts, vs), nil, nil)
		if err != nil || !slices.Equal(againT, ts) || !seriestest.SameBits(againV, vs) {
			t.Fatalf("%x: %v, %v, %v, want %v, %v", data, againT, againV, err, ts, vs)
		}
	})
}
