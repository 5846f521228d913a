package series_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series"
)

var staleNaN = math.Float64frombits(value.StaleNaN)

// sampled is a case of the tests and benchmarks of chunks.
type sampled struct {
	name string
	ts   []int64
	vs   []float64
}

// sampleShapes are series of n samples as they occur.
func sampleShapes(r *rand.Rand, n int) []sampled {
	const start, interval = 1_700_000_000_123, 15_000
	regular := make([]int64, n)
	jitter := make([]int64, n)
	gaps := make([]int64, n)
	missed := int64(0)
	for i := range n {
		regular[i] = start + int64(i)*interval
		jitter[i] = regular[i] + r.Int64N(11) - 5
		if r.IntN(50) == 0 {
			missed += interval * (1 + r.Int64N(3))
		}
		gaps[i] = regular[i] + missed
	}
	shape := func(name string, ts []int64, next func(i int, last float64) float64) sampled {
		vs := make([]float64, n)
		last := 0.0
		for i := range vs {
			last = next(i, last)
			vs[i] = last
		}
		return sampled{name: name, ts: ts, vs: vs}
	}
	busy := func(i int, last float64) float64 {
		if i == 0 {
			return 8_512_345
		}
		return last + float64(r.IntN(900)+300)
	}
	gauge := func(int, float64) float64 { return math.Round((20+r.NormFloat64()*3)*100) / 100 }
	return []sampled{
		shape("constant", regular, func(int, float64) float64 { return 1 }),
		shape("slow-counter", regular, func(i int, last float64) float64 { return last + float64(r.IntN(10)/8) }),
		shape("rare-counter", regular, func(i int, last float64) float64 { return last + float64(r.IntN(60)/59*r.IntN(400)) }),
		shape("busy-counter", regular, busy),
		shape("bursty-counter", regular, func(i int, last float64) float64 { return last + math.Round(math.Exp(4+1.5*r.NormFloat64())) }),
		shape("reset-counter", regular, func(i int, last float64) float64 {
			if i == n*2/3 {
				return 3
			}
			return busy(i, last)
		}),
		shape("decimal-gauge", regular, gauge),
		shape("memory-gauge", regular, func(i int, last float64) float64 {
			if i == 0 {
				return 3_221_225_472
			}
			return last + 4096*float64(r.IntN(4000)-2000)
		}),
		shape("seconds-counter", regular, func(i int, last float64) float64 { return math.Round((last+r.Float64()*0.4)*100) / 100 }),
		shape("float-counter", regular, func(i int, last float64) float64 { return last + r.Float64()*0.01*float64(r.IntN(3)/2) }),
		shape("full-gauge", regular, func(int, float64) float64 { return 40 + 20*r.Float64() }),
		shape("walking-gauge", regular, func(i int, last float64) float64 {
			if i == 0 {
				return math.Pi
			}
			return last + r.NormFloat64()*0.01
		}),
		shape("jitter-counter", jitter, busy),
		shape("gaps-counter", gaps, busy),
		shape("stale-counter", regular, func(i int, last float64) float64 {
			if i == n-1 {
				return staleNaN
			}
			return busy(i, last)
		}),
		shape("states", regular, func(i int, last float64) float64 {
			if r.IntN(16) == 0 {
				return float64(r.IntN(4))
			}
			return last
		}),
		shape("idle-gauge", regular, func(i int, last float64) float64 {
			switch {
			case r.IntN(16) > 0:
				return last
			case last != 0:
				return 0
			}
			return 40 + 20*r.Float64()
		}),
		shape("nan-gauge", regular, func(i int, last float64) float64 {
			if r.IntN(40) == 0 {
				return math.NaN()
			}
			return gauge(i, last)
		}),
	}
}

// newRand prints its seed.
func newRand(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// checkDense encodes and decodes, and returns the bytes.
func checkDense(t testing.TB, ts []int64, vs []float64) []byte {
	t.Helper()
	data := series.AppendDense([]byte("front"), ts, vs)
	if again := series.AppendDense([]byte("front"), ts, vs); !slices.Equal(again, data) || string(data[:5]) != "front" {
		t.Fatalf("%x is encoded again as %x", data, again)
	}
	data = data[5:]
	gotT, gotV, err := series.DecodeDense(data, []int64{7}, []float64{8})
	if err != nil {
		t.Fatalf("%v, %v as %x: %v", ts, vs, data, err)
	}
	if gotT[0] != 7 || gotV[0] != 8 || !slices.Equal(gotT[1:], ts) || !sameBits(gotV[1:], vs) {
		t.Fatalf("%v, %v as %x come back as %v, %v", ts, vs, data, gotT[1:], gotV[1:])
	}
	return data
}

func sameBits(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) })
}

// upstreamXOR returns the chunk of Prometheus of the same samples.
func upstreamXOR(t testing.TB, ts []int64, vs []float64) []byte {
	t.Helper()
	c := chunkenc.NewXORChunk()
	app, err := c.Appender()
	if err != nil {
		t.Fatal(err)
	}
	for i := range ts {
		app.Append(0, ts[i], vs[i])
	}
	return c.Bytes()
}

func TestDenseEdges(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	negZero := math.Copysign(0, -1)
	payload := math.Float64frombits(0xfff8_dead_beef_0001)
	tiny := math.SmallestNonzeroFloat64
	cases := []struct {
		name string
		vs   []float64
	}{
		{"one", []float64{42}},
		{"one zero", []float64{0}},
		{"one negative zero", []float64{negZero}},
		{"one stale", []float64{staleNaN}},
		{"one full", []float64{math.Pi}},
		{"two", []float64{1, 2}},
		{"two far apart", []float64{-math.MaxFloat64, math.MaxFloat64}},
		{"only stale", []float64{staleNaN, staleNaN, staleNaN}},
		{"zeros of both signs", []float64{0, negZero, 0, negZero, negZero, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"infinite", []float64{inf, -inf, inf, 1, 2, 3, inf}},
		{"kinds of NaN", []float64{nan, staleNaN, payload, -payload, nan}},
		{"NaN first", []float64{staleNaN, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}},
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
		t.Run(c.name, func(t *testing.T) {
			ts := make([]int64, len(c.vs))
			for i := range ts {
				ts[i] = int64(i) * 15_000
			}
			checkDense(t, ts, c.vs)
			for i := range ts {
				ts[i] = math.MaxInt64 - int64(len(ts)*len(ts)) + int64(i*i)
			}
			checkDense(t, ts, c.vs)
		})
	}
}

// TestDenseTimes has the times of which the distances do not fit into an int64.
func TestDenseTimes(t *testing.T) {
	cases := []struct {
		name string
		ts   []int64
	}{
		{"first and last", []int64{0, math.MaxInt64}},
		{"far in the middle", []int64{0, 1, math.MaxInt64 - 1, math.MaxInt64}},
		{"doubling", []int64{1, 2, 4, 8, 16, 1 << 10, 1 << 20, 1 << 40, 1 << 60, 1 << 62}},
		{"slower and slower", []int64{0, 1000, 3000, 6000, 10000, 15000, 21000, 28000, 36000}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { checkDense(t, c.ts, make([]float64, len(c.ts))) })
	}
}

func TestDenseLengths(t *testing.T) {
	r := newRand(t)
	for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 127, 128, 129, 130, 256, 257, 258, 600, 639, 640, 641, series.MaxDense} {
		for _, c := range sampleShapes(r, n) {
			checkDense(t, c.ts, c.vs)
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
		for _, c := range sampleShapes(rand.New(rand.NewPCG(1, 2)), n) {
			dense := checkDense(t, c.ts, c.vs)
			xor := upstreamXOR(t, c.ts, c.vs)
			size := float64(len(dense)) / float64(n)
			t.Logf("%4d %-16s %6.3f, XOR %6.3f", n, c.name, size, float64(len(xor))/float64(n))
			if size > limits[c.name] || len(dense) > len(xor) {
				t.Errorf("%d of %s: %.3f bytes a sample, want %.3f and not more than %d in all", n, c.name, size, limits[c.name], len(xor))
			}
		}
	}
}

func TestDenseCorrupt(t *testing.T) {
	ts, vs := []int64{1000, 2000, 3001, 4000}, []float64{1, 2.5, staleNaN, 4}
	good := series.AppendDense(nil, ts, vs)
	check := func(name string, data []byte) {
		t.Helper()
		oldT, oldV := []int64{1}, []float64{2}
		gotT, gotV, err := series.DecodeDense(data, oldT, oldV)
		if !errors.Is(err, series.ErrCorrupt) || len(err.Error()) > 200 || len(gotT) != 1 || len(gotV) != 1 {
			t.Errorf("%s: %d times, %d values, %v, want one of each and a short ErrCorrupt", name, len(gotT), len(gotV), err)
		}
	}
	for n := range good {
		check("cut short", good[:n])
	}
	check("one byte more", append(slices.Clone(good), 0))
	check("no samples", []byte{0, 1, 3, 2, 0, 0, 3, 0})
	many := binary.AppendUvarint(nil, series.MaxDense+1)
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
	if _, _, err := series.DecodeDense([]byte{3, 1, 3, 2, 0, 0, 0, 0x40, 2, 3}, nil, nil); err != nil {
		t.Errorf("the cases above differ from a good one in more than they say: %v", err)
	}
}

// TestDenseBounded decodes counts that the data cannot hold.
func TestDenseBounded(t *testing.T) {
	data := binary.AppendUvarint(nil, series.MaxDense)
	data = append(data, 1, 1, 0, 2, 0, 2, 0, 2, 0, 2)
	if n := testing.AllocsPerRun(10, func() { series.DecodeDense(data, nil, nil) }); n > 5 {
		t.Errorf("%v allocations", n)
	}
	ts, _, _ := series.DecodeDense(data, nil, nil)
	if cap(ts) != 0 {
		t.Errorf("room for %d times", cap(ts))
	}
}

func TestDenseAllocations(t *testing.T) {
	for _, c := range sampleShapes(newRand(t), 600) {
		data := series.AppendDense(nil, c.ts, c.vs)
		dst := make([]byte, 0, 2*len(data)+64)
		if n := testing.AllocsPerRun(10, func() { series.AppendDense(dst, c.ts, c.vs) }); n > 0 {
			t.Errorf("%s: %v allocations to encode", c.name, n)
		}
		ts, vs := make([]int64, 0, 600), make([]float64, 0, 600)
		if n := testing.AllocsPerRun(10, func() { series.DecodeDense(data, ts, vs) }); n > 0 {
			t.Errorf("%s: %v allocations to decode", c.name, n)
		}
	}
}

func TestDensePanics(t *testing.T) {
	cases := []struct {
		name string
		ts   []int64
		vs   []float64
	}{
		{"none", nil, nil},
		{"more values", []int64{1}, []float64{1, 2}},
		{"negative time", []int64{-1}, []float64{1}},
		{"equal times", []int64{1, 1}, []float64{1, 2}},
		{"too many", make([]int64, series.MaxDense+1), make([]float64, series.MaxDense+1)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			series.AppendDense(nil, c.ts, c.vs)
		})
	}
}
