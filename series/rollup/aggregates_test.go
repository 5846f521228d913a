package rollup_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/promtable/promtable/series/rollup"
)

// aggregatesOf returns what another system keeps of samples in spans: it knows by how much a counter rises, but for a system that begins anew at a time.
func aggregatesOf(times []int64, values []float64, span, anew int64) (all []rollup.Aggregate) {
	for i, t := range times {
		v := values[i]
		start := t - 1 - (t-1)%span
		isFirst := i == 0 || times[i-1] <= anew && t > anew
		if n := len(all); n > 0 && isFirst {
			all[n-1].HasLast, all[n-1].Last = true, values[i-1]
			if all[n-1].After == start {
				all[n-1].To = times[i-1]
			}
		}
		if n := len(all); n == 0 || all[n-1].After != start || isFirst {
			all = append(all, rollup.Aggregate{After: start, To: start + span, Least: math.Inf(1), Greatest: math.Inf(-1), HasRise: true, HasFirst: isFirst, First: v, FirstTime: t})
		}
		a := &all[len(all)-1]
		switch {
		case isFirst:
		case v < values[i-1]:
			a.Rise += v
		default:
			a.Rise += v - values[i-1]
		}
		a.Samples++
		a.Sum += v
		a.Least, a.Greatest = min(a.Least, v), max(a.Greatest, v)
	}
	return all
}

// rise returns by how much a counter rises over values.
func rise(values []float64) (sum float64) {
	for i, v := range values {
		if i > 0 {
			sum += v
			if v >= values[i-1] {
				sum -= values[i-1]
			}
		}
	}
	return sum
}

// TestAggregates: of any samples the number, the sum and the bounds of each bucket are true, and a counter rises by as much as it did. Where it begins anew, that
// is an estimate.
func TestAggregates(t *testing.T) {
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 1))
		every, resets, isCounter := []int64{5000, 15_000, 60_000, 240_000}[r.IntN(4)], []int64{0, 6 * 3600_000, 600_000}[r.IntN(3)], r.IntN(3) > 0
		day := (100 + r.Int64N(100)) * rollup.Day
		var times []int64
		var values []float64
		v, lastReset := float64(r.IntN(3))*1000*r.Float64(), int64(0)
		for at := day + 1 + r.Int64N(every); at <= day+rollup.Day; at += every {
			if isCounter && resets > 0 && r.Int64N(resets) < every && at > lastReset+600_000 {
				v, lastReset = float64(r.IntN(2))*r.Float64(), at
			}
			if v += float64(r.IntN(20)); !isCounter {
				v = 100*math.Sin(float64(at)) + r.Float64()
			}
			times, values = append(times, at), append(values, v)
		}
		var e rollup.AggregateEncoder
		e.Begin(day)
		for i, a := range aggregatesOf(times, values, rollup.FiveMinutes.Span(), day+r.Int64N(rollup.Day)) {
			if !e.Add(a) {
				t.Fatalf("seed %d: aggregate %d is not added", seed, i)
			}
		}
		for _, res := range rollup.Downsampled {
			cell := e.Append(nil, res)
			wantBuckets(t, cell, res, day, times, values)
			if p := read(t, cell, res, day, day, day+rollup.Day, rollup.Counts); len(p.Times) > 0 {
				t.Errorf("seed %d, %s: changes are known at %v", seed, res, p.Times)
			}
			if !isCounter {
				continue
			}
			p := read(t, cell, res, day, day, day+rollup.Day, rollup.Resets)
			if res == rollup.FiveMinutes && len(p.Holes) > 0 {
				t.Errorf("seed %d, every %d, resets %d: no value in %v", seed, every, resets, p.Holes)
			}
			bound := 1e-9
			if resets > 0 {
				bound = 0.01
			}
			if got, want := rise(p.Values), rise(values); len(p.Holes) == 0 && math.Abs(got-want) > bound*want {
				t.Errorf("seed %d, %s, every %d, resets %d: it rises by %g, not %g", seed, res, every, resets, got, want)
			}
		}
	}
}

// TestAggregatesGoOn: a part of a day begins after a bucket in which a counter began again, and goes on from there.
func TestAggregatesGoOn(t *testing.T) {
	day, span := 100*rollup.Day, rollup.FiveMinutes.Span()
	var e rollup.AggregateEncoder
	e.Begin(day)
	for i, a := range []rollup.Aggregate{
		{Samples: 4, Sum: 60, Least: 10, Greatest: 20, Rise: 10, HasRise: true, HasFirst: true, First: 10, FirstTime: day + 1},
		{Samples: 4, Sum: 63, Least: 2, Greatest: 30, Rise: 16, HasRise: true}, // 25, 30, 2, 6
		{Samples: 2, Sum: 16, Least: 7, Greatest: 9, Rise: 3, HasRise: true},
	} {
		if i == 2 {
			e.Begin(day)
		}
		a.After, a.To = day+int64(i)*span, day+int64(i+1)*span
		if !e.Add(a) {
			t.Fatalf("%+v is not added", a)
		}
	}
	if p := read(t, e.Append(nil, rollup.FiveMinutes), rollup.FiveMinutes, day, day, day+rollup.Day, rollup.Resets); !slices.Equal(p.Values, []float64{7, 9}) {
		t.Errorf("the values are %v", p.Values)
	}
}

// read returns what a cell has of the times (after, to].
func read(t *testing.T, cell []byte, r rollup.Resolution, day, after, to int64, want rollup.Want) *rollup.Points {
	t.Helper()
	var p rollup.Points
	p.Reset(want, rollup.Windows{})
	if err := p.AppendCell(r, day, cell, after, to); err != nil {
		t.Fatal(err)
	}
	return &p
}

// wantBuckets wants the number, the sum and the bounds of the samples of each bucket.
func wantBuckets(t *testing.T, cell []byte, r rollup.Resolution, day int64, times []int64, values []float64) {
	t.Helper()
	for start := day; start < day+rollup.Day; start += r.Span() {
		first, _ := slices.BinarySearch(times, start+1)
		limit, _ := slices.BinarySearch(times, start+r.Span()+1)
		p := read(t, cell, r, day, start, start+r.Span(), rollup.Sums)
		if first == limit {
			if len(p.Times) > 0 {
				t.Errorf("bucket %d has samples at %v, and there are none", start, p.Times)
			}
			continue
		}
		var sum, got float64
		for i, v := range values[first:limit] {
			sum += v
			if i < len(p.Sums) {
				got += p.Sums[i]
			}
		}
		if !p.IsEstimated || p.Numbers[len(p.Numbers)-1] != int32(limit-first) || math.Abs(got-sum) > 1e-9*max(1, math.Abs(sum)) ||
			slices.Min(p.Values) != slices.Min(values[first:limit]) || slices.Max(p.Values) != slices.Max(values[first:limit]) {
			t.Errorf("bucket %d: %v %v %v of %v", start, p.Numbers, p.Sums, p.Values, values[first:limit])
		}
	}
}
