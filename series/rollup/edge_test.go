package rollup_test

import (
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// TestEdgesOfBases: of a bucket that a base divides, both rows say where a window may begin.
func TestEdgesOfBases(t *testing.T) {
	r := seriestest.NewRand(t)
	var e rollup.Encoder
	// They lie 4.9 s before the end of a bucket of each resolution, and 43.9 s before an hour.
	for _, base := range []int64{1786706395136, 1292785156096} {
		if base%series.Period != 0 {
			t.Fatalf("%d is no base", base)
		}
		day := rollup.DayOf(base)
		decided, edges := 0, 0
		for range 3000 {
			ts, vs := randomDay(r)
			for i := range ts {
				ts[i] += day - firstDay
			}
			n, _ := part(ts, base-1, math.MaxInt64)
			for _, resolution := range rollup.Downsampled {
				var p rollup.Points
				p.Reset(rollup.Resets|rollup.Sums|rollup.Counts, anyWindows(day))
				for _, row := range [][]byte{e.Append(nil, resolution, day, ts[:n], vs[:n]), e.Append(nil, resolution, day, ts[n:], vs[n:])} {
					if err := p.AppendCell(resolution, day, row, day, day+rollup.Day); err != nil {
						t.Fatal(err)
					}
				}
				bucket := resolution.Start(base)
				start := randomEdge(r, resolution, bucket, ts)
				edges++
				if isEdge(&p, start) {
					continue
				}
				decided++
				compareWindow(t, resolution, &p, ts, vs, start, bucket+(1+r.Int64N(3))*resolution.Span())
			}
			if t.Failed() {
				t.FailNow()
			}
		}
		if decided < edges/4 || decided == edges {
			t.Errorf("base %d: %d of %d edges are decided", base, decided, edges)
		}
	}
}

// TestAppendUnknown: a cell tells of windows what its buckets do, whether the head of the cell is enough to know or not.
func TestAppendUnknown(t *testing.T) {
	r := seriestest.NewRand(t)
	var e rollup.Encoder
	told := map[bool]int{}
	for range 3000 {
		ts, vs := randomDay(r)
		for _, resolution := range rollup.Downsampled {
			cell := rollup.Cell{Resolution: resolution, Value: e.Append(nil, resolution, day, ts, vs)}
			w := rollup.Windows{Count: 1 + r.IntN(30), Step: resolution.Span() * (1 + r.Int64N(3)), Range: resolution.Span() + 1 + r.Int64N(60_000)}
			w.Start = day - rollup.Day/2 + r.Int64N(rollup.Day)/resolution.Span()*resolution.Span()
			var p rollup.Points
			want := []rollup.Want{rollup.Sums, rollup.Resets, rollup.Counts}[r.IntN(3)]
			p.Reset(want, w)
			if err := p.AppendCell(resolution, day, cell.Value, day, day+rollup.Day); err != nil {
				t.Fatal(err)
			}
			var unknown []rollup.Span
			for i := range w.Count {
				if at := w.Start + int64(i)*w.Step - w.Range; isEdge(&p, at) {
					start := resolution.Start(at + 1)
					unknown = append(unknown, rollup.Span{After: start, To: start + resolution.Span()})
				}
			}
			p.Reset(want, w)
			got, err := p.AppendUnknown(nil, cell, day)
			if len(p.Holes) == 0 && (err != nil || !slices.Equal(got, unknown)) && !hasHoles(&p, cell) {
				t.Fatalf("%s: %v, %v, want %v of %+v", resolution, got, err, unknown, w)
			}
			told[len(got) == 0]++
		}
	}
	if told[true] == 0 || told[false] == 0 {
		t.Errorf("told %v", told)
	}
}

// hasHoles says whether a bucket of a cell has no sum.
func hasHoles(p *rollup.Points, c rollup.Cell) bool { return !rollup.HasAll(c.Value, p.Want) }

// TestEarlierKinds: cells of kinds that are no longer written are read. Nothing is known of the ends of their buckets.
func TestEarlierKinds(t *testing.T) {
	const start = 1641600000000 // of the day
	for _, tt := range []struct {
		name, cell string
		samples    int32
	}{
		// Every 15 s from the first millisecond on, of a quarter of an hour and of half of that.
		{"floats", `01 00 04 03 00 03 02 03 00 03 00 05 28 00 40 25 04 03 00 03 00 03 02 03 00 04 00 00 03 78
			0b 00 f4 08 01 80 e0 12 01 02 ab 3e 05 ae ea 01 03 00 04 00 72 03 78 03 26 03 00 03 00 03 00 00 00 00`, 61},
		{"histograms", `03 04 02 03 00 03 02 03 08 03 00 03 28 03 11 03 00 03 00 00 00 00 00 00 03 26 03 11 03 00 03 00 00 00 00
			5f 02 5d 00 04 00 ff 3f 50 62 4d d2 f1 a9 fc 8c a4 94 65 24 a3 fc 00 02 fc 6d f8 40 03 8c 92 01 93 33 33 33 33 33 34 63 74 63 77 e0
			22 ca 47 2a f2 7a 76 8a cc cc cc cc cc cf 26 32 63 f7 ef 85 43 ab da e8 79 33 33 33 33 33 3d 70 d7 0f c0 20 f5 8e 28 e2 74 71 f3 ea
			aa aa aa aa ab 89 18 90`, 31},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cell, err := hex.DecodeString(strings.Join(strings.Fields(tt.cell), ""))
			if err != nil {
				t.Fatal(err)
			}
			var p rollup.Points
			p.Reset(rollup.Counts, anyWindows(start))
			if err := p.AppendCell(rollup.FiveMinutes, start, cell, start, start+rollup.Day); err != nil {
				t.Fatal(err)
			}
			if got := p.Numbers[len(p.Numbers)-1]; got != tt.samples {
				t.Errorf("%d samples, want %d", got, tt.samples)
			}
			if got, want := p.Edges[0], (rollup.Edge{From: start + 1, Limit: start + 285_001, Start: start}); got != want {
				t.Errorf("the first bucket has the edge %v, want %v", got, want)
			}
		})
	}
}

// TestKnownShare: rollups of an hour tell the windows that begin 15, 30 and 60 seconds before the end of an hour of counters that are scraped each 15 seconds or less
// often. It logs the share of windows that others do not tell.
func TestKnownShare(t *testing.T) {
	r := seriestest.NewRand(t)
	for _, tt := range []struct {
		name string
		// interval, jitter and phase are in milliseconds. Without an interval samples are at random times, without a phase it is drawn.
		interval, jitter, phase int64
		fails                   float64
		isGauge, isToldAlways   bool
	}{
		{name: "counter", interval: 15_000, jitter: 1000, isToldAlways: true},
		{name: "counter on the clock", interval: 15_000, jitter: 4, phase: -2, isToldAlways: true},
		{name: "counter, scrapes fail", interval: 15_000, jitter: 2, fails: 0.2, isToldAlways: true},
		{name: "counter each minute", interval: 60_000, jitter: 1000, isToldAlways: true},
		{name: "counter each 5 s", interval: 5000, jitter: 2},
		{name: "counter at random times"},
		{name: "gauge", interval: 15_000, jitter: 1000, isGauge: true},
		{name: "gauge on the clock", interval: 15_000, jitter: 4, phase: -2, isGauge: true},
		{name: "gauge each minute", interval: 60_000, jitter: 1000, isGauge: true, isToldAlways: true},
	} {
		const hour, days = int64(3600_000), 40
		var e rollup.Encoder
		unknown := make(map[int64]int)
		for range days {
			var ts []int64
			var vs []float64
			phase, v := tt.phase, 0.0
			if phase == 0 {
				phase = 1 + r.Int64N(max(tt.interval-tt.jitter, 1))
			}
			for at := day + phase; at <= day+rollup.Day-tt.jitter; at += tt.interval {
				if tt.interval == 0 {
					at += 1 + int64(r.ExpFloat64()*15_000)
				}
				if v += float64(r.IntN(100)); tt.isGauge {
					v = r.NormFloat64()
				}
				if at > day && at <= day+rollup.Day-tt.jitter && r.Float64() >= tt.fails {
					ts, vs = append(ts, at+r.Int64N(tt.jitter+1)), append(vs, v)
				}
			}
			cell := rollup.Cell{Resolution: rollup.OneHour, Value: e.Append(nil, rollup.OneHour, day, ts, vs)}
			for _, edge := range []int64{15_000, 30_000, 60_000} {
				var p rollup.Points
				p.Reset(0, rollup.Windows{Start: day + 2*hour, Step: hour, Range: hour + edge, Count: 22})
				found, err := p.AppendUnknown(nil, cell, day)
				if err != nil {
					t.Fatal(err)
				}
				unknown[edge] += len(found)
			}
		}
		t.Logf("%-24s not told of 15 s: %.3f, of 30 s: %.3f, of 60 s: %.3f", tt.name,
			float64(unknown[15_000])/days/22, float64(unknown[30_000])/days/22, float64(unknown[60_000])/days/22)
		if tt.isToldAlways && unknown[15_000]+unknown[30_000]+unknown[60_000] > 0 {
			t.Errorf("%s: %v of %d windows are not told", tt.name, unknown, days*22)
		}
	}
}
