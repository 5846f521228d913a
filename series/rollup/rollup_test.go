package rollup_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/util/kahansum"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

const (
	day      = 19_000 * rollup.Day
	firstDay = day // of randomDay
)

// known is what functions of PromQL need to know of the samples of a range.
type known struct {
	Samples       int
	First, Last   sample
	Least, Great  float64
	Changes       int
	Resets        int
	Corrections   []float64 // the values before a reset, in order
	Sum, Absolute float64
	Marker        int64 // the time of the marker that ends the range, or 0
}

type sample struct {
	T int64
	V float64
}

func isStale(v float64) bool { return math.Float64bits(v) == value.StaleNaN }

// look returns what is known from samples. numbers, changes, resets and sums are those of
// Points, or nil.
func look(ts []int64, vs []float64, p *rollup.Points, offset int) (k known) {
	var before, correction float64
	var first int32
	for i, v := range vs {
		if isStale(v) {
			k.Marker = ts[i]
			continue
		}
		k.Marker = 0
		at := sample{ts[i], v}
		if k.Samples == 0 {
			k.First, k.Least, k.Great = at, v, v
		} else {
			if v < before {
				k.Corrections = append(k.Corrections, before)
			}
			if p == nil {
				if v != before && !(math.IsNaN(v) && math.IsNaN(before)) {
					k.Changes++
				}
				if v < before {
					k.Resets++
				}
			}
		}
		if v < k.Least || math.IsNaN(k.Least) {
			k.Least = v
		}
		if v > k.Great || math.IsNaN(k.Great) {
			k.Great = v
		}
		add := v
		if p != nil {
			if k.Samples == 0 {
				first = p.Numbers[offset+i] - 1
			} else if p.Want&rollup.Counts != 0 {
				k.Changes += int(p.Changes[offset+i])
				k.Resets += int(p.Resets[offset+i])
			}
			if p.Want&rollup.Sums != 0 {
				add = p.Sums[offset+i]
			}
		}
		k.Sum, correction = kahansum.Inc(add, k.Sum, correction)
		k.Absolute += math.Abs(v)
		before, k.Last = v, at
		if k.Samples++; p != nil {
			k.Samples = int(p.Numbers[offset+i] - first)
		}
	}
	k.Sum += correction
	return k
}

// part returns the positions of the times (after, to].
func part(ts []int64, after, to int64) (first, limit int) {
	first, _ = slices.BinarySearch(ts, after+1)
	limit, _ = slices.BinarySearch(ts, to+1)
	return first, limit
}

func sameFloats(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
}

// TestExact compares what a day's buckets tell of ranges with what its samples do.
func TestExact(t *testing.T) {
	r := seriestest.NewRand(t)
	var e rollup.Encoder
	var p rollup.Points
	for range 2000 {
		ts, vs := randomDay(r)
		for _, resolution := range rollup.Downsampled {
			cell := e.Append(nil, resolution, day, ts, vs)
			for _, want := range []rollup.Want{0, rollup.Markers, rollup.Resets, rollup.Sums, rollup.Counts, rollup.Markers | rollup.Resets | rollup.Sums | rollup.Counts} {
				checkDay(t, r, &p, resolution, cell, ts, vs, want)
			}
		}
		if t.Failed() {
			t.Fatalf("a day of %d samples", len(ts))
		}
	}
}

func checkDay(t *testing.T, r *rand.Rand, p *rollup.Points, resolution rollup.Resolution, cell []byte, ts []int64, vs []float64, want rollup.Want) {
	t.Helper()
	// One part as buckets, those before and after as samples.
	buckets := rollup.Day / resolution.Span()
	after := day + r.Int64N(buckets+1)*resolution.Span()
	to := after + r.Int64N((day+rollup.Day-after)/resolution.Span()+1)*resolution.Span()
	fill := func(p *rollup.Points, w rollup.Windows) {
		t.Helper()
		p.Reset(want, w)
		first, limit := part(ts, after, to)
		p.Append(ts[:first], vs[:first])
		if err := p.AppendCell(resolution, day, cell, after, to); err != nil {
			t.Fatal(err)
		}
		p.Append(ts[limit:], vs[limit:])
		if !slices.IsSorted(p.Times) {
			t.Fatalf("%s: times %v do not ascend", resolution, p.Times)
		}
	}
	fill(p, anyWindows(day))
	var one rollup.Points
	for i := range 10 {
		start := day + r.Int64N(buckets)*resolution.Span()
		end := start + (1+r.Int64N((day+rollup.Day-start)/resolution.Span()))*resolution.Span()
		if start = randomEdge(r, resolution, start, ts); isEdge(p, start) {
			continue
		}
		compareWindow(t, resolution, p, ts, vs, start, end)
		if i%5 == 0 { // of a query that looks at few windows, other samples are passed
			fill(&one, rollup.Windows{Start: end, Step: resolution.Span(), Range: end - start, Count: 1 + r.IntN(3)})
			if isEdge(&one, start) {
				t.Errorf("%s, want %b: a window may begin at %d, but not if few are looked at", resolution, want, start)
			}
			compareWindow(t, resolution, &one, ts, vs, start, end)
		}
	}
}

// anyWindows are windows that begin at each time of two days from day on: all samples that cells keep are asked for.
func anyWindows(day int64) rollup.Windows {
	return rollup.Windows{Start: day, Step: 1, Count: int(2 * rollup.Day)}
}

// compareWindow compares what points tell of a window with what the samples do.
func compareWindow(t *testing.T, resolution rollup.Resolution, p *rollup.Points, ts []int64, vs []float64, start, end int64) {
	t.Helper()
	want := p.Want
	if slices.ContainsFunc(p.Holes, func(hole [2]int64) bool { return hole[0] <= end && hole[1] > start+1 }) {
		return
	}
	first, limit := part(ts, start, end)
	raw := look(ts[first:limit], vs[first:limit], nil, 0)
	first, limit = part(p.Times, start, end)
	got := look(p.Times[first:limit], p.Values[first:limit], p, first)
	ok := got.Samples == raw.Samples && got.First.T == raw.First.T && got.Last.T == raw.Last.T &&
		sameFloats(got.First.V, raw.First.V) && sameFloats(got.Last.V, raw.Last.V) && sameFloats(got.Least, raw.Least) && sameFloats(got.Great, raw.Great)
	if want&rollup.Resets != 0 {
		ok = ok && slices.EqualFunc(got.Corrections, raw.Corrections, sameFloats)
	}
	if want&rollup.Counts != 0 {
		ok = ok && got.Changes == raw.Changes && got.Resets == raw.Resets
	}
	if want&rollup.Sums != 0 {
		ok = ok && (math.Abs(got.Sum-raw.Sum) <= 1e-12*raw.Absolute || sameFloats(got.Sum, raw.Sum))
	}
	if want&rollup.Markers != 0 {
		ok = ok && got.Marker == raw.Marker
	}
	if !ok {
		t.Errorf("%s, want %b, (%d, %d]: got\n%+v from samples\n%+v", resolution, want, start, end, got, raw)
	}
}

// randomEdge returns where a window begins in the bucket from start on: at its start, or some time before its end, or about a sample.
func randomEdge(r *rand.Rand, resolution rollup.Resolution, start int64, ts []int64) int64 {
	end := start + resolution.Span()
	switch first, limit := part(ts, start, end); r.IntN(4) {
	case 0:
		return start
	case 1:
		return end - []int64{1, 999, 1000, 5000, 15_000, 30_000, 60_000, 120_000, 240_000}[r.IntN(9)]
	case 2:
		if n := min(limit-first, 8); n > 0 { // one of the last
			return min(max(start, ts[limit-1-r.IntN(n)]-r.Int64N(2)), end-1)
		}
	}
	return start + r.Int64N(resolution.Span())
}

// isEdge says whether no window may begin at a time.
func isEdge(p *rollup.Points, at int64) bool {
	return slices.ContainsFunc(p.Edges, func(e rollup.Edge) bool { return e.From <= at && at < e.Limit })
}

// randomDay returns samples of a day.
func randomDay(r *rand.Rand) (ts []int64, vs []float64) {
	interval := []int64{1000, 15_000, 60_000, 600_000, 7_200_000, 17_123}[r.IntN(6)]
	shape := r.IntN(5)
	v := 0.0
	start := day + 1 + r.Int64N(interval)
	if r.IntN(4) == 0 { // on the clock
		start = day + interval
	}
	for t := start; t <= day+rollup.Day; t += interval {
		if r.IntN(200) == 0 {
			t += r.Int64N(3 * 3600_000)
			continue
		}
		switch shape {
		case 0:
			v += float64(r.IntN(4))
		case 1:
			v = math.Round(r.NormFloat64() * 100)
		case 2:
			v = r.NormFloat64()
		case 3:
			if v += r.Float64() * 10; r.IntN(50) == 0 {
				v = 0
			}
		case 4:
			v = []float64{0, math.Copysign(0, -1), math.NaN(), 1, 2, math.Inf(1), math.Inf(-1), 1e300, -1e300}[r.IntN(9)]
		}
		at := t
		if r.IntN(3) == 0 {
			at = min(at+r.Int64N(min(interval/2, 2000)), day+rollup.Day)
		}
		if n := len(ts); n > 0 && at <= ts[n-1] {
			continue
		}
		ts = append(ts, at)
		if r.IntN(100) == 0 {
			vs = append(vs, seriestest.StaleNaN)
			continue
		}
		vs = append(vs, v)
	}
	return ts, vs
}

// TestSize bounds the bytes of a sample, of the shapes of series that occur.
func TestSize(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var e rollup.Encoder
	for _, s := range seriestest.Shapes(r, 5760) {
		first := s.Ts[0]
		for i := range s.Ts {
			s.Ts[i] += day + 15_000 - first
		}
		_, limit := part(s.Ts, 0, day+rollup.Day)
		for _, resolution := range rollup.Downsampled {
			size := len(e.Append(nil, resolution, day, s.Ts[:limit], s.Vs[:limit]))
			perSample := float64(size) / float64(limit)
			t.Logf("%-16s %s  %.4f bytes per sample", s.Name, resolution, perSample)
			if perSample > map[rollup.Resolution]float64{rollup.FiveMinutes: 1.8, rollup.OneHour: 0.4, rollup.Coarsest: 0.4}[resolution] {
				t.Errorf("%s: %.3f bytes per sample at %s", s.Name, perSample, resolution)
			}
		}
	}
}

// TestSamples: a day of other samples has no buckets.
func TestSamples(t *testing.T) {
	var p rollup.Points
	p.Reset(0, rollup.Windows{})
	if err := p.AppendCell(rollup.OneHour, day, rollup.AppendSamples(nil), day, day+rollup.Day); !errors.Is(err, rollup.ErrSamples) {
		t.Errorf("got %v", err)
	}
	if err := p.AppendCell(rollup.OneHour, day, []byte{6}, day, day+rollup.Day); !errors.Is(err, series.ErrCorrupt) {
		t.Errorf("a later kind: got %v", err)
	}
	if err := p.AppendCell(rollup.OneHour, day, nil, day, day+rollup.Day); err != nil || len(p.Times)+len(p.Holes) > 0 {
		t.Errorf("an empty cell: got %v, points %v", err, p)
	}
}

// FuzzAppendCell feeds bytes to the decoder.
func FuzzAppendCell(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	var e rollup.Encoder
	for range 20 {
		ts, vs := randomDay(r)
		f.Add(e.Append(nil, rollup.OneHour, day, ts, vs), byte(r.IntN(32)))
		f.Add(encodeHistograms(f, rollup.OneHour, day, randomHistograms(r)), byte(r.IntN(32)))
	}
	f.Fuzz(func(t *testing.T, cell []byte, want byte) {
		for _, resolution := range rollup.Downsampled {
			var p rollup.Points
			p.Reset(rollup.Want(want), rollup.Windows{})
			err := p.AppendCell(resolution, day, cell, day, day+rollup.Day)
			if err != nil && !errors.Is(err, series.ErrCorrupt) && !errors.Is(err, rollup.ErrSamples) {
				t.Fatal(err)
			}
			if err == nil && !slices.IsSorted(p.Times) {
				t.Fatalf("times %v do not ascend", p.Times)
			}
		}
	})
}

// checkRemoved checks that a cell without [start, limit) has the points of want, and a hole for each coarser bucket of which a part is removed.
func checkRemoved(t *testing.T, r rollup.Resolution, got, want []byte, ts []int64, start, limit int64) {
	t.Helper()
	var left, other rollup.Points
	for p, cell := range map[*rollup.Points][]byte{&left: got, &other: want} {
		p.Reset(rollup.Markers|rollup.Sums, rollup.Windows{})
		if err := p.AppendCell(r, day, cell, day, day+rollup.Day); err != nil {
			t.Fatal(err)
		}
	}
	holes := make(map[int64]bool)
	for _, at := range ts {
		begin := r.Start(at)
		end := begin + r.Span()
		if isIn := end >= start && begin+1 < limit; isIn && (begin+1 < start || end >= limit) && r != rollup.Finest {
			holes[begin] = true
		}
	}
	if !slices.Equal(left.Times, other.Times) || fmt.Sprint(left.Values) != fmt.Sprint(other.Values) {
		t.Fatalf("%s without [%d, %d): times %v, want %v", r, start-day, limit-day, left.Times, other.Times)
	}
	for begin := range holes {
		if !slices.ContainsFunc(left.Holes, func(h [2]int64) bool { return h[0] <= begin+1 && begin+r.Span() < h[1] }) {
			t.Fatalf("%s without [%d, %d): no hole from %d: %v", r, start-day, limit-day, begin-day, left.Holes)
		}
	}
	if len(holes) == 0 && len(left.Holes) != len(other.Holes) || len(holes) > 0 && !rollup.NeedsFiner(got, 0) {
		t.Fatalf("%s without [%d, %d): holes %v, want of %v", r, start-day, limit-day, left.Holes, holes)
	}
}

// TestWithout: a cell without the buckets of a range is that of the samples outside of them.
func TestWithout(t *testing.T) {
	r := seriestest.NewRand(t)
	var e, other rollup.Encoder
	for range 1000 {
		ts, vs := randomDay(r)
		for _, resolution := range rollup.Downsampled {
			start := day - rollup.Day/4 + r.Int64N(rollup.Day*3/2)
			limit := start + 1 + r.Int64N(rollup.Day/2)
			cell := e.Append(nil, resolution, day, ts, vs)
			got, err := other.Without(cell, resolution, day, start, limit)
			if err != nil {
				t.Fatal(err)
			}
			var keptTimes []int64
			var keptValues []float64
			for i, at := range ts {
				if begin := resolution.Start(at); begin+resolution.Span() < start || begin+1 >= limit {
					keptTimes, keptValues = append(keptTimes, at), append(keptValues, vs[i])
				}
			}
			want := e.Append(nil, resolution, day, keptTimes, keptValues)
			if resolution == rollup.Finest && !bytes.Equal(got, want) {
				t.Fatalf("%s without [%d, %d): %x, want %x", resolution, start-day, limit-day, got, want)
			}
			checkRemoved(t, resolution, got, want, ts, start, limit)
		}
	}
	if left, err := e.Without(rollup.AppendSamples(nil), rollup.OneHour, day, day+5, day+6); err != nil || len(left) > 0 {
		t.Errorf("a day of other samples: %x, %v", left, err)
	}
}
