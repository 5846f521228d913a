package seriestest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series/xor"
)

// StaleNaN is the staleness marker.
var StaleNaN = math.Float64frombits(value.StaleNaN)

// Samples is a case of the tests and benchmarks of chunks.
type Samples struct {
	Name string
	Ts   []int64
	Vs   []float64
}

// Shapes are series of n samples as they occur.
func Shapes(r *rand.Rand, n int) []Samples {
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
	shape := func(name string, ts []int64, next func(i int, last float64) float64) Samples {
		vs := make([]float64, n)
		last := 0.0
		for i := range vs {
			last = next(i, last)
			vs[i] = last
		}
		return Samples{Name: name, Ts: ts, Vs: vs}
	}
	busy := func(i int, last float64) float64 {
		if i == 0 {
			return 8_512_345
		}
		return last + float64(r.IntN(900)+300)
	}
	gauge := func(int, float64) float64 { return math.Round((20+r.NormFloat64()*3)*100) / 100 }
	return []Samples{
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
				return StaleNaN
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

// SeedVariable is the environment variable with the seed of random tests, which repeats a run that failed:
//
//	STORETEST_SEED=7 STORETEST_PERCENT=1 go test -run TestModel ./bucketstore/buffer
const SeedVariable = "STORETEST_SEED"

// Seed returns the seed of a random test, which it logs. Each run draws another one.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(SeedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s=%s: %v", SeedVariable, text, err)
		}
	}
	t.Logf("%s=%d repeats this run", SeedVariable, seed)
	return seed
}

// NewRand returns a source of random numbers that begins with Seed.
func NewRand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}

// Every returns n times from first on, step apart, and as many values.
func Every(first, step int64, n int) (ts []int64, vs []float64) {
	for i := range int64(n) {
		ts, vs = append(ts, first+i*step), append(vs, math.Sqrt(float64(i/3)))
	}
	return ts, vs
}

// Plateaus calls check with samples among whose equal values there is another one,
// or a step, at each position.
func Plateaus(check func(ts []int64, vs []float64)) {
	const n = 24
	ts, _ := Every(1000, 15_000, n)
	values := []float64{0, 1, 2, 3, -1, math.Copysign(0, -1), 40.7, math.Inf(1), math.NaN(), StaleNaN}
	for _, a := range values {
		for _, b := range values {
			for i := range n {
				one := slices.Repeat([]float64{a}, n)
				one[i] = b
				check(ts, one)
				check(ts, append(slices.Repeat([]float64{a}, i), slices.Repeat([]float64{b}, n-i)...))
			}
		}
	}
}

// SameBits says whether a and b are the same to the bit.
func SameBits(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) })
}

// UpstreamXOR returns the chunk of Prometheus of the same samples.
func UpstreamXOR(t testing.TB, ts []int64, vs []float64) []byte {
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

// FuzzSamples builds samples of the bytes of a fuzzer: ten for each, a mode, a
// number for the time and eight for the value.
func FuzzSamples(data []byte) (ts []int64, vs []float64) {
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
			if t < 0 || len(ts) == xor.MaxSamples {
				return ts, vs
			}
			ts, vs = append(ts, t), append(vs, v)
		}
	}
	return ts, vs
}

// AddSamples adds seeds for FuzzSamples.
func AddSamples(f *testing.F) {
	f.Add([]byte{0x11, 1})
	f.Add([]byte{0x20, 15, 1, 2, 0x20, 15, 3, 4, 0x2e, 15, 0, 0, 0x91, 7, 2, 0, 0, 0, 0, 0, 0xf0, 0x7f})
	f.Add(bytes.Repeat([]byte{0x2e, 15, 1, 0, 0x42, 2, 9, 8, 7, 6, 0x81, 1, 1, 2, 3, 4, 5, 6, 7, 8}, 20))
	f.Add(bytes.Repeat([]byte{0x4c, 63, 1, 0, 0, 0}, 40))
}
