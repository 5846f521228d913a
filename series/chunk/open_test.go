package chunk_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/seriestest"
)

// checkOpen encodes and decodes.
func checkOpen(t testing.TB, ts []int64, vs []float64) {
	t.Helper()
	data := seriestest.AppendOpen([]byte("front"), ts, vs)
	if string(data[:5]) != "front" {
		t.Fatalf("%v, %v: %x in front", ts, vs, data[:5])
	}
	gotT, gotV, err := chunk.DecodeOpen(data[5:], []int64{7}, []float64{8})
	if err != nil || gotT[0] != 7 || gotV[0] != 8 || !slices.Equal(gotT[1:], ts) || !seriestest.SameBits(gotV[1:], vs) {
		t.Fatalf("%v, %v as %x come back as %v, %v, %v", ts, vs, data, gotT, gotV, err)
	}
}

func TestOpen(t *testing.T) {
	r := seriestest.NewRand(t)
	for _, n := range []int{1, 2, 3, 4, 5, 9, 10, 19, 20, 120, 600, chunk.MaxSamples} {
		for _, c := range seriestest.Shapes(r, n) {
			checkOpen(t, c.Ts, c.Vs)
		}
	}
	checkOpen(t, []int64{0, math.MaxInt64, math.MinInt64, -1}, []float64{math.Copysign(0, -1), seriestest.StaleNaN, math.Float64frombits(1), math.Inf(1)})
}

// TestOpenValues has differences of all sizes at all positions.
func TestOpenValues(t *testing.T) {
	for size := 1; size <= 64; size++ {
		for at := 0; at+size <= 64; at++ {
			x := uint64(1)<<(size-1) | 1
			checkOpen(t, []int64{0, 15, 30, 45}, []float64{math.Float64frombits(x << at), 0, math.Float64frombits(x >> 1 << at), 1})
		}
	}
}

// TestOpenMixed: floats and other values come back in the order in which they were
// appended, and are refused where all must be floats.
func TestOpenMixed(t *testing.T) {
	samples := []struct {
		t     int64
		v     float64
		value string
	}{{5, 1, ""}, {5, 1, ""}, {-7, 0, "abc"}, {math.MaxInt64, 1.5, ""}, {0, 0, strings.Repeat("x", 300)}, {1, 1.5, ""}}
	data := chunk.AppendOpenStart(nil, 3)
	at, step, last := int64(3), int64(0), uint64(0)
	for _, s := range samples {
		var value []byte
		if s.value != "" {
			value = []byte(s.value)
		}
		data = chunk.AppendOpenSample(data, s.t-at-step, last, math.Float64bits(s.v), value)
		at, step = s.t, s.t-at
		if value == nil {
			last = math.Float64bits(s.v)
		}
	}
	n := 0
	err := chunk.EachOpen(data, func(t0 int64, bits uint64, value []byte) {
		want := samples[n]
		if n++; t0 != want.t || string(value) != want.value || value == nil && bits != math.Float64bits(want.v) {
			t.Errorf("sample %d is at %d, %x, %q, want %+v", n, t0, bits, value, want)
		}
	})
	if err != nil || n != len(samples) {
		t.Errorf("%d samples, %v", n, err)
	}
	if _, _, err := chunk.DecodeOpen(data, nil, nil); !errors.Is(err, series.ErrCorrupt) {
		t.Errorf("taken for floats: %v", err)
	}
	for n := range data {
		if err := chunk.EachOpen(data[:n], func(int64, uint64, []byte) {}); err != nil && !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestOpenCorrupt(t *testing.T) {
	ts, vs := []int64{1000, 2000, 3001, 4000}, []float64{1, 2.5, seriestest.StaleNaN, 4}
	good := seriestest.AppendOpen(nil, ts, vs)
	tests := []struct {
		name string
		data []byte
	}{
		{"nothing", nil},
		{"half a start", good[:7]},
		{"cut in a value", good[:len(good)-1]},
		{"cut before a value", seriestest.AppendOpen(nil, ts[:1], vs[:1])[:9]},
		{"endless distance", append(slices.Clone(good), bytes.Repeat([]byte{0xff}, 30)...)},
		{"endless distance at the end", append(slices.Clone(good), 0xff)},
		{"nine bytes of value", append(slices.Clone(good), 0, 9<<3, 1, 2, 3, 4, 5, 6, 7, 8, 9)},
		{"a value beyond its eight bytes", append(slices.Clone(good), 0, 8<<3|1, 1, 2, 3, 4, 5, 6, 7, 8, 9)},
		{"no float", append(slices.Clone(good), 0, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)},
		{"too many samples", make([]byte, 8+2*(chunk.MaxSamples+1))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			gotT, gotV, err := chunk.DecodeOpen(tt.data, []int64{1}, []float64{2})
			if !errors.Is(err, series.ErrCorrupt) || len(gotT) != 1 || len(gotV) != 1 {
				t.Errorf("%d times, %d values, %v, want one of each and an ErrCorrupt", len(gotT), len(gotV), err)
			}
		})
	}
}

// checkEach: EachOpen finds what DecodeOpen does, and more only if it is no float or
// there are too many.
func checkEach(t *testing.T, data []byte, ts []int64, vs []float64, decodeErr error) {
	t.Helper()
	n, floats := 0, true
	err := chunk.EachOpen(data, func(at int64, bits uint64, value []byte) {
		if floats = floats && value == nil; decodeErr == nil && (at != ts[n] || bits != math.Float64bits(vs[n])) {
			t.Fatalf("%x: sample %d is at %d, %x", data, n, at, bits)
		}
		n++
	})
	switch {
	case err != nil && (!errors.Is(err, series.ErrCorrupt) || decodeErr == nil):
		t.Fatalf("%x: %v, but %v", data, err, decodeErr)
	case err == nil && decodeErr != nil && floats && n <= chunk.MaxSamples:
		t.Fatalf("%x: %d floats, but %v", data, n, decodeErr)
	}
}

func FuzzOpen(f *testing.F) {
	seriestest.AddSamples(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if ts, vs := seriestest.FuzzSamples(data); len(ts) > 0 {
			checkOpen(t, ts, vs)
		}
	})
}

func FuzzDecodeOpen(f *testing.F) {
	f.Add([]byte{})
	for _, c := range seriestest.Shapes(seriestest.NewRand(f), 9) {
		f.Add(seriestest.AppendOpen(nil, c.Ts, c.Vs))
	}
	f.Add(chunk.AppendOpenSample(chunk.AppendOpenStart(nil, 1), 2, 0, 0, []byte("value")))
	f.Fuzz(func(t *testing.T, data []byte) {
		ts, vs, err := chunk.DecodeOpen(data, nil, nil)
		checkEach(t, data, ts, vs, err)
		switch {
		case err != nil && (!errors.Is(err, series.ErrCorrupt) || len(ts) > 0 || len(vs) > 0):
			t.Fatalf("%x: %v, %v, %v", data, ts, vs, err)
		case len(ts) != len(vs) || cap(ts) > 2*chunk.MaxSamples:
			t.Fatalf("%x: %d times, %d values, room for %d", data, len(ts), len(vs), cap(ts))
		case err == nil && len(ts) > 0:
			checkOpen(t, ts, vs)
		}
	})
}
