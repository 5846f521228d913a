package rollup_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

func encodeHistograms(t testing.TB, r rollup.Resolution, day int64, samples []seriestest.TimedValue) []byte {
	t.Helper()
	var e rollup.HistogramEncoder
	e.Begin(r, day)
	for _, s := range samples {
		if err := e.Add(s.T, s.V); err != nil {
			t.Fatal(err)
		}
	}
	data, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// namedHistograms returns histograms of a kind by their numbers. A staleness marker is a float.
func namedHistograms(t testing.TB, kind string, ts []int64, vs []float64) (samples []seriestest.TimedValue) {
	t.Helper()
	for i, v := range vs {
		value := cell.Value{Float: v}
		switch n := int64(v); {
		case isStale(v):
		case kind == "integer":
			value = cell.Value{Histogram: tsdbutil.GenerateTestHistogram(n)}
		case kind == "float":
			value = cell.Value{FloatHistogram: tsdbutil.GenerateTestFloatHistogram(n)}
		case kind == "gauge":
			value = cell.Value{Histogram: tsdbutil.GenerateTestGaugeHistogram(n)}
		case kind == "custom":
			value = cell.Value{Histogram: tsdbutil.GenerateTestCustomBucketsHistogram(n)}
		default:
			t.Fatalf("histograms of kind %q", kind)
		}
		samples = append(samples, seriestest.At(ts[i], value))
	}
	return samples
}

// randomHistograms returns histograms of a day.
func randomHistograms(r *rand.Rand) (samples []seriestest.TimedValue) {
	source := seriestest.HistogramSource{Rand: r, Float: r.IntN(2) == 0, Custom: r.IntN(3) == 0, Gauge: r.IntN(4) == 0, Steady: r.IntN(4) == 0}
	interval := []int64{15_000, 60_000, 600_000, 7_200_000}[r.IntN(4)]
	for t := day + 1 + r.Int64N(interval); t <= day+rollup.Day; t += interval {
		switch r.IntN(200) {
		case 0:
			samples = append(samples, seriestest.At(t, cell.Value{Histogram: &histogram.Histogram{Sum: seriestest.StaleNaN}}))
		case 1:
			samples = append(samples, seriestest.At(t, cell.Value{FloatHistogram: &histogram.FloatHistogram{Sum: seriestest.StaleNaN}}))
		case 2:
			samples = append(samples, seriestest.At(t, cell.Value{Float: seriestest.StaleNaN}))
		case 3:
			t += r.Int64N(3 * 3600_000)
		default:
			samples = append(samples, seriestest.At(t, source.Next()))
		}
	}
	return samples
}

// pointsOf returns what samples tell.
func pointsOf(samples []seriestest.TimedValue, want rollup.Want) *rollup.Points {
	var p rollup.Points
	p.Reset(want, anyWindows(day))
	appendTo(&p, samples)
	return &p
}

func appendTo(p *rollup.Points, samples []seriestest.TimedValue) {
	for _, s := range samples {
		switch {
		case s.V.Histogram != nil:
			p.AppendHistogram(s.T, s.V.Histogram.ToFloat(nil))
		case s.V.FloatHistogram != nil:
			p.AppendHistogram(s.T, s.V.FloatHistogram)
		default:
			p.Append([]int64{s.T}, []float64{s.V.Float})
		}
	}
}

// knownOfHistograms is what functions of PromQL need to know of the histograms of a range.
type knownOfHistograms struct {
	Samples         int32
	First, Last     seriestest.TimedValue
	Changes, Resets int32
	// Corrections are the samples before a reset and after one, in order.
	Corrections []seriestest.TimedValue
	LeastSchema int32
	HasGauge    bool
	Marker      int64
}

// lookAtHistograms returns what is known from the points of (after, to].
func lookAtHistograms(p *rollup.Points, after, to int64) (k knownOfHistograms) {
	k.LeastSchema = math.MaxInt32
	first, limit := part(p.Times, after, to)
	before := int32(0)
	for i := first; i < limit; i++ {
		h, at := p.Histograms[i].FloatHistogram, p.Times[i]
		if k.Marker = 0; h == nil {
			k.Marker = at
			continue
		}
		if k.First.V.FloatHistogram == nil {
			k.First, before = seriestest.At(at, p.Histograms[i]), p.Numbers[i]-1
		} else {
			k.Changes += p.Changes[i]
			k.Resets += p.Resets[i]
			if h.DetectReset(k.Last.V.FloatHistogram) {
				k.Corrections = append(k.Corrections, k.Last, seriestest.At(at, p.Histograms[i]))
			}
		}
		k.Last, k.Samples = seriestest.At(at, p.Histograms[i]), p.Numbers[i]-before
		k.LeastSchema = min(k.LeastSchema, h.Schema)
		k.HasGauge = k.HasGauge || h.CounterResetHint == histogram.GaugeType
	}
	return k
}

// sameSamples says whether two histograms of one time are the same, but for empty buckets.
func sameSamples(a, b seriestest.TimedValue) bool {
	x, y := a.V.FloatHistogram, b.V.FloatHistogram
	if x == nil || y == nil {
		return x == y
	}
	return a.T == b.T && x.CounterResetHint == y.CounterResetHint && x.Copy().Compact(0).Equals(y.Copy().Compact(0))
}

func (k knownOfHistograms) isSame(other knownOfHistograms, want rollup.Want) bool {
	same := k.Samples == other.Samples && sameSamples(k.First, other.First) && sameSamples(k.Last, other.Last) &&
		k.Changes == other.Changes && k.Resets == other.Resets && k.HasGauge == other.HasGauge && k.Marker == other.Marker
	return same && (want&rollup.Resets == 0 || k.LeastSchema == other.LeastSchema && slices.EqualFunc(k.Corrections, other.Corrections, sameSamples))
}

// TestExactHistograms compares what a day's buckets tell of ranges with what its histograms do.
func TestExactHistograms(t *testing.T) {
	r := seriestest.NewRand(t)
	compared := 0
	for range 100 {
		samples := randomHistograms(r)
		for _, resolution := range rollup.Downsampled {
			data := encodeHistograms(t, resolution, day, samples)
			for _, want := range []rollup.Want{rollup.Counts | rollup.Markers, rollup.Counts | rollup.Markers | rollup.Resets} {
				raw := pointsOf(samples, want)
				compared += compareHistograms(t, r, resolution, data, samples, raw, want)
			}
		}
		if t.Failed() {
			t.Fatalf("a day of %d samples", len(samples))
		}
	}
	if t.Logf("%d ranges compared", compared); compared < 1000 {
		t.Errorf("%d ranges compared", compared)
	}
}

func compareHistograms(t *testing.T, r *rand.Rand, resolution rollup.Resolution, data []byte, samples []seriestest.TimedValue, raw *rollup.Points, want rollup.Want) (compared int) {
	t.Helper()
	// One part as buckets, in two pieces, those before and after as samples.
	span := resolution.Span()
	bounds := []int64{day + r.Int64N(rollup.Day/span+1)*span, day + r.Int64N(rollup.Day/span+1)*span, day + r.Int64N(rollup.Day/span+1)*span}
	slices.Sort(bounds)
	at := func(t int64) int {
		n, _ := slices.BinarySearchFunc(samples, t, func(s seriestest.TimedValue, t int64) int { return cmp.Compare(s.T, t+1) })
		return n
	}
	p := pointsOf(samples[:at(bounds[0])], want)
	for i := range 2 {
		if err := p.AppendCell(resolution, day, data, bounds[i], bounds[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	appendTo(p, samples[at(bounds[2]):])
	if !slices.IsSorted(p.Times) {
		t.Fatalf("%s: times %v do not ascend", resolution, p.Times)
	}
	times := make([]int64, len(samples))
	for i, s := range samples {
		times[i] = s.T
	}
	for range 10 {
		start := day + r.Int64N(rollup.Day/span)*span
		end := start + (1+r.Int64N((day+rollup.Day-start)/span))*span
		if start = randomEdge(r, resolution, start, times); isEdge(p, start) {
			continue
		}
		if slices.ContainsFunc(p.Holes, func(hole [2]int64) bool { return hole[0] <= end && hole[1] > start+1 }) {
			continue
		}
		compared++
		if got, of := lookAtHistograms(p, start, end), lookAtHistograms(raw, start, end); !got.isSame(of, want) {
			t.Errorf("%s, want %b, (%d, %d]: got\n%+v from samples\n%+v", resolution, want, start, end, got, of)
		}
	}
	return compared
}

// TestHistogramsAsWritten: with rollup.Integers, histograms are those that were written.
func TestHistogramsAsWritten(t *testing.T) {
	said := tsdbutil.GenerateTestHistogram(9)
	said.CounterResetHint = histogram.CounterReset
	samples := []seriestest.TimedValue{
		seriestest.At(day+1000, cell.Value{Histogram: tsdbutil.GenerateTestHistogram(7)}),
		seriestest.At(day+3600_001, cell.Value{Histogram: said}),
		seriestest.At(day+2*3600_001, cell.Value{FloatHistogram: tsdbutil.GenerateTestFloatHistogram(10)}),
		seriestest.At(day+3*3600_001, cell.Value{Histogram: tsdbutil.GenerateTestGaugeHistogram(3)}),
		seriestest.At(day+4*3600_001, cell.Value{FloatHistogram: tsdbutil.GenerateTestCustomBucketsFloatHistogram(3)}),
		seriestest.At(day+4*3600_002, cell.Value{FloatHistogram: &histogram.FloatHistogram{Sum: seriestest.StaleNaN}}),
	}
	var p rollup.Points
	p.Reset(rollup.Markers|rollup.Integers, rollup.Windows{})
	if err := p.AppendCell(rollup.OneHour, day, encodeHistograms(t, rollup.OneHour, day, samples), day, day+rollup.Day); err != nil {
		t.Fatal(err)
	}
	if len(p.Times) != len(samples) {
		t.Fatalf("times %v", p.Times)
	}
	for i, s := range samples {
		if got := p.Histograms[i]; p.Times[i] != s.T || string(cell.Append(nil, got)) != string(cell.Append(nil, s.V)) {
			t.Errorf("at %d: %+v, want %+v at %d", p.Times[i], got, s.V, s.T)
		}
	}
}

// TestLargeHistograms: what would make a very large cell has no buckets.
func TestLargeHistograms(t *testing.T) {
	r := seriestest.NewRand(t)
	var samples []seriestest.TimedValue
	counts := make([]float64, 2000)
	for at := day + 1; at <= day+rollup.Day; at += 15 * 60_000 {
		for i := range counts {
			counts[i] += r.Float64()
		}
		h := &histogram.FloatHistogram{Schema: 3, PositiveSpans: []histogram.Span{{Length: uint32(len(counts))}}, PositiveBuckets: slices.Clone(counts)}
		samples = append(samples, seriestest.At(at, cell.Value{FloatHistogram: h}))
	}
	if data := encodeHistograms(t, rollup.FiveMinutes, day, samples); rollup.HasBuckets(data) {
		t.Errorf("%d bytes", len(data))
	}
	if data := encodeHistograms(t, rollup.OneHour, day, samples); !rollup.HasBuckets(data) || len(data) < 1<<19 {
		t.Errorf("%d bytes of hours", len(data))
	}
}

// TestLargeHistogramsMemory: what exceeds a cell is not held until the end of the day.
func TestLargeHistogramsMemory(t *testing.T) {
	r := seriestest.NewRand(t)
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var e rollup.HistogramEncoder
	e.Begin(rollup.FiveMinutes, day)
	before := held()
	for i := range int64(200) {
		h := &histogram.FloatHistogram{Schema: 3, PositiveSpans: []histogram.Span{{Length: 20_000}}, PositiveBuckets: make([]float64, 20_000)}
		for j := range h.PositiveBuckets {
			h.PositiveBuckets[j] = r.Float64()
		}
		if err := e.Add(day+1+i*5*60_000, cell.Value{FloatHistogram: h}); err != nil {
			t.Fatal(err)
		}
	}
	if after := held(); after > before+8<<20 {
		t.Errorf("%d bytes are held", after-before)
	}
	if data, err := e.Append(nil); err != nil || rollup.HasBuckets(data) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// TestWithoutHistograms: a cell without the buckets of a range tells of the others what it told before.
func TestWithoutHistograms(t *testing.T) {
	r := seriestest.NewRand(t)
	var e rollup.Encoder
	const want = rollup.Markers | rollup.Counts
	for range 50 {
		samples := randomHistograms(r)
		for _, resolution := range rollup.Downsampled {
			start := day - rollup.Day/4 + r.Int64N(rollup.Day*3/2)
			limit := start + 1 + r.Int64N(rollup.Day/2)
			data := encodeHistograms(t, resolution, day, samples)
			left, err := e.Without(data, resolution, day, start, limit)
			if err != nil {
				t.Fatal(err)
			}
			var p, before rollup.Points
			p.Reset(want, rollup.Windows{})
			before.Reset(want, rollup.Windows{})
			if err := p.AppendCell(resolution, day, left, day, day+rollup.Day); err != nil {
				t.Fatal(err)
			}
			if err := before.AppendCell(resolution, day, data, day, day+rollup.Day); err != nil {
				t.Fatal(err)
			}
			for begin := day; begin < day+rollup.Day; begin += resolution.Span() {
				end := begin + resolution.Span()
				got, old := lookAtHistograms(&p, begin, end), lookAtHistograms(&before, begin, end)
				if isRemoved := end >= start && begin+1 < limit; isRemoved {
					old = lookAtHistograms(&before, begin, begin)
				}
				if !got.isSame(old, want) {
					t.Fatalf("%s without [%d, %d), the bucket from %d: %+v, want %+v", resolution, start-day, limit-day, begin-day, got, old)
				}
			}
		}
	}
}
