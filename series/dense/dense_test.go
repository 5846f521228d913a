package dense_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/dense"
	"github.com/promtable/promtable/series/seriestest"
)

// checkDense encodes and decodes, and returns the bytes.
func checkDense(t testing.TB, ts []int64, vs []float64) []byte {
	t.Helper()
	data := dense.Append([]byte("front"), ts, vs)
	if again := dense.Append([]byte("front"), ts, vs); !slices.Equal(again, data) || string(data[:5]) != "front" {
		t.Fatalf("%x is encoded again as %x", data, again)
	}
	data = data[5:]
	gotT, gotV, err := dense.Decode(data, []int64{7}, []float64{8})
	if err != nil {
		t.Fatalf("%v, %v as %x: %v", ts, vs, data, err)
	}
	if gotT[0] != 7 || gotV[0] != 8 || !slices.Equal(gotT[1:], ts) || !seriestest.SameBits(gotV[1:], vs) {
		t.Fatalf("%v, %v as %x come back as %v, %v", ts, vs, data, gotT[1:], gotV[1:])
	}
	return data
}

func TestDenseEdges(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	negZero := math.Copysign(0, -1)
	payload := math.Float64frombits(0xfff8_dead_beef_0001)
	tiny := math.SmallestNonzeroFloat64
	cases := []struct {
		Name string
		Vs   []float64
	}{
		{"one", []float64{42}},
		{"one zero", []float64{0}},
		{"one negative zero", []float64{negZero}},
		{"one stale", []float64{seriestest.StaleNaN}},
		{"one full", []float64{math.Pi}},
		{"two", []float64{1, 2}},
		{"two far apart", []float64{-math.MaxFloat64, math.MaxFloat64}},
		{"only stale", []float64{seriestest.StaleNaN, seriestest.StaleNaN, seriestest.StaleNaN}},
		{"zeros of both signs", []float64{0, negZero, 0, negZero, negZero, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"infinite", []float64{inf, -inf, inf, 1, 2, 3, inf}},
		{"kinds of NaN", []float64{nan, seriestest.StaleNaN, payload, -payload, nan}},
		{"NaN first", []float64{seriestest.StaleNaN, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}},
		{"NaN among full", []float64{math.Pi, math.E, math.Sqrt2, math.Phi, nan, math.Ln2, math.Ln10, 1 / 3., 2 / 3., 1 / 7.}},
		{"NaN last among full", []float64{math.Pi, math.E, math.Sqrt2, math.Phi, math.Ln2, math.Ln10, 1 / 3., 2 / 3., 1 / 7., nan}},
		{"subnormal", []float64{tiny, -tiny, 3 * tiny, 0, tiny, 1e-310}},
		{"largest", []float64{math.MaxFloat64, -math.MaxFloat64, 1, math.MaxFloat64}},
		{"at 2^51", []float64{1 << 51, 1<<51 - 1, 1<<51 + 1, -1 << 51, 0.5, 1, 2, 3}},
		{"at 2^53", []float64{1 << 53, 1<<53 - 1, 1<<53 + 2, -1 << 53, 1, 2, 3, 4}},
		{"at 2^63", []float64{1 << 63, -1 << 63, 1 << 62, -1 << 62, 1<<62 - 512, 1<<63 - 1024, 1, 2, 3}},
		{"halves", []float64{0.5, 1.5, -0.5, -1.5, 2.5, 1e9 + 0.5}},
		{"digits grow", []float64{1, 2, 3, 4.5, 5, 6.25, 7, 8.125, 9, 10.0625, 11, 12.03125}},
		{"one with many digits", append(slices.Repeat([]float64{1, 2, 3}, 10), 1.23456789012, 5)},
		{"15 digits after the point", []float64{0.123456789012345, 0.123456789012346, 0.5}},
		{"one outlier", append(slices.Repeat([]float64{10, 11, 13}, 20), 1e15, 12)},
		{"thirds", []float64{1 / 3., 2 / 3., 1, 4 / 3., 5 / 3.}},
		{"multiples", []float64{0, 3e6, 9e6, 6e6, 0, -3e6, 12e6, 15e6, 3e6, 6e6}},
		{"powers of two", []float64{1 << 20, 1 << 40, 1. / (1 << 40), 1 << 50, 1. / (1 << 10), 1, 2, 4}},
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			ts := make([]int64, len(c.Vs))
			for i := range ts {
				ts[i] = int64(i) * 15_000
			}
			checkDense(t, ts, c.Vs)
			for i := range ts {
				ts[i] = math.MaxInt64 - int64(len(ts)*len(ts)) + int64(i*i)
			}
			checkDense(t, ts, c.Vs)
		})
	}
}

// TestDenseTimes has the times of which the distances do not fit into an int64.
func TestDensePlateaus(t *testing.T) {
	seriestest.Plateaus(func(ts []int64, vs []float64) { checkDense(t, ts, vs) })
}

func TestDenseTimes(t *testing.T) {
	cases := []struct {
		Name string
		Ts   []int64
	}{
		{"first and last", []int64{0, math.MaxInt64}},
		{"far in the middle", []int64{0, 1, math.MaxInt64 - 1, math.MaxInt64}},
		{"doubling", []int64{1, 2, 4, 8, 16, 1 << 10, 1 << 20, 1 << 40, 1 << 60, 1 << 62}},
		{"slower and slower", []int64{0, 1000, 3000, 6000, 10000, 15000, 21000, 28000, 36000}},
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { checkDense(t, c.Ts, make([]float64, len(c.Ts))) })
	}
}

func TestDenseLengths(t *testing.T) {
	r := seriestest.NewRand(t)
	for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 127, 128, 129, 130, 256, 257, 258, 600, 639, 640, 641, dense.MaxSamples} {
		for _, c := range seriestest.Shapes(r, n) {
			checkDense(t, c.Ts, c.Vs)
		}
	}
}

// TestDenseSize holds the sizes that the layout promises, in bytes a sample, and
// that no shape is larger than it is with XOR.
func TestDenseSize(t *testing.T) {
	limits := map[string]float64{
		"constant": 0.2, "slow-counter": 0.4, "rare-counter": 0.5, "busy-counter": 1.5, "bursty-counter": 1.9, "reset-counter": 1.6,
		"decimal-gauge": 1.6, "memory-gauge": 2, "seconds-counter": 1, "float-counter": 3.5, "full-gauge": 6.8, "walking-gauge": 7,
		"jitter-counter": 2.1, "gaps-counter": 1.7, "stale-counter": 1.7, "nan-gauge": 2.4, "states": 0.4, "idle-gauge": 1,
	}
	for _, n := range []int{120, 500} {
		for _, c := range seriestest.Shapes(rand.New(rand.NewPCG(1, 2)), n) {
			data := checkDense(t, c.Ts, c.Vs)
			asXOR := seriestest.UpstreamXOR(t, c.Ts, c.Vs)
			size := float64(len(data)) / float64(n)
			t.Logf("%4d %-16s %6.3f, XOR %6.3f", n, c.Name, size, float64(len(asXOR))/float64(n))
			if size > limits[c.Name] || len(data) > len(asXOR) {
				t.Errorf("%d of %s: %.3f bytes a sample, want %.3f and not more than %d in all", n, c.Name, size, limits[c.Name], len(asXOR))
			}
		}
	}
}

func TestDenseCorrupt(t *testing.T) {
	ts, vs := []int64{1000, 2000, 3001, 4000}, []float64{1, 2.5, seriestest.StaleNaN, 4}
	good := dense.Append(nil, ts, vs)
	check := func(name string, data []byte) {
		t.Helper()
		oldT, oldV := []int64{1}, []float64{2}
		gotT, gotV, err := dense.Decode(data, oldT, oldV)
		if !errors.Is(err, series.ErrCorrupt) || len(err.Error()) > 200 || len(gotT) != 1 || len(gotV) != 1 {
			t.Errorf("%s: %d times, %d values, %v, want one of each and a short ErrCorrupt", name, len(gotT), len(gotV), err)
		}
	}
	for n := range good {
		check("cut short", good[:n])
	}
	check("one byte more", append(slices.Clone(good), 0))
	check("no samples", []byte{0, 1, 3, 2, 0, 0, 3, 0})
	many := binary.AppendUvarint(nil, dense.MaxSamples+1)
	check("too many samples", append(many, 1, 3, 2, 0, 0, 3, 0))
	check("huge count", append(binary.AppendUvarint(nil, math.MaxUint64), 1, 3, 2, 0, 0, 3, 0))
	check("times repeat", []byte{2, 1, 3, 0, 0, 0, 3, 0})
	check("times descend", []byte{2, 100, 3, 1, 0, 0, 3, 0})
	check("negative time", append(binary.AppendUvarint([]byte{1}, 1<<63), 0, 0))
	check("unknown order", []byte{2, 1, 5, 2, 0, 0, 3, 0})
	check("unknown kind", []byte{2, 1, 3, 2, 17, 0, 3, 0})
	check("unknown width", []byte{3, 1, 3, 2, 0, 0, 0, 58, 0, 0, 0})
	check("odd value behind the end", []byte{1, 1, 0x80, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	check("outlier behind the end", []byte{3, 1, 3, 2, 0, 0, 0, 0x80, 0, 1, 2, 2})
	check("bit behind the end", []byte{3, 1, 3, 2, 0, 0, 0, 0x40, 2, 7})
	if _, _, err := dense.Decode([]byte{3, 1, 3, 2, 0, 0, 0, 0x40, 2, 3}, nil, nil); err != nil {
		t.Errorf("the cases above differ from a good one in more than they say: %v", err)
	}
}

// TestDenseBounded decodes counts that the data cannot hold.
func TestDenseBounded(t *testing.T) {
	data := binary.AppendUvarint(nil, dense.MaxSamples)
	data = append(data, 1, 1, 0, 2, 0, 2, 0, 2, 0, 2)
	if n := testing.AllocsPerRun(10, func() { dense.Decode(data, nil, nil) }); n > 5 {
		t.Errorf("%v allocations", n)
	}
	ts, _, _ := dense.Decode(data, nil, nil)
	if cap(ts) != 0 {
		t.Errorf("room for %d times", cap(ts))
	}
}

func TestDenseAllocations(t *testing.T) {
	for _, c := range seriestest.Shapes(seriestest.NewRand(t), 600) {
		data := dense.Append(nil, c.Ts, c.Vs)
		dst := make([]byte, 0, 2*len(data)+64)
		if n := testing.AllocsPerRun(10, func() { dense.Append(dst, c.Ts, c.Vs) }); n > 0 {
			t.Errorf("%s: %v allocations to encode", c.Name, n)
		}
		ts, vs := make([]int64, 0, 600), make([]float64, 0, 600)
		if n := testing.AllocsPerRun(10, func() { dense.Decode(data, ts, vs) }); n > 0 {
			t.Errorf("%s: %v allocations to decode", c.Name, n)
		}
	}
}

func TestDensePanics(t *testing.T) {
	cases := []struct {
		Name string
		Ts   []int64
		Vs   []float64
	}{
		{"none", nil, nil},
		{"more values", []int64{1}, []float64{1, 2}},
		{"negative time", []int64{-1}, []float64{1}},
		{"equal times", []int64{1, 1}, []float64{1, 2}},
		{"too many", make([]int64, dense.MaxSamples+1), make([]float64, dense.MaxSamples+1)},
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			dense.Append(nil, c.Ts, c.Vs)
		})
	}
}

func FuzzDense(f *testing.F) {
	seriestest.AddSamples(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if ts, vs := seriestest.FuzzSamples(data); len(ts) > 0 {
			checkDense(t, ts, vs)
		}
	})
}

func FuzzDecodeDense(f *testing.F) {
	f.Add([]byte{})
	for _, c := range seriestest.Shapes(seriestest.NewRand(f), 9) {
		f.Add(dense.Append(nil, c.Ts, c.Vs))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ts, vs, err := dense.Decode(data, nil, nil)
		if err != nil {
			if !errors.Is(err, series.ErrCorrupt) || len(ts) > 0 || len(vs) > 0 {
				t.Fatalf("%x: %v, %v, %v", data, ts, vs, err)
			}
			return
		}
		if len(ts) != len(vs) || cap(ts) > 2*dense.MaxSamples || cap(vs) > 2*dense.MaxSamples {
			t.Fatalf("%x: %d times, %d values, room for %d and %d", data, len(ts), len(vs), cap(ts), cap(vs))
		}
		checkDense(t, ts, vs)
	})
}
