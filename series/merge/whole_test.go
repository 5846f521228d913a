package merge_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/seriestest"
)

// denseChunk is a dense chunk of the bucket at 0.
func denseChunk(stamp int64, ts []int64, vs []float64) chunk.Sealed {
	return chunk.Sealed{
		Encoding: chunk.EncodingDense, Stamp: stamp,
		First: uint32(ts[0]), Last: uint32(ts[len(ts)-1]), Data: dense.Append(nil, ts, vs),
	}
}

// openChunk is a chunk of the bucket at 0 that is still open.
func openChunk(stamp int64, ts []int64, vs []float64) chunk.Sealed {
	c := denseChunk(stamp, ts, vs)
	c.Encoding, c.Data = chunk.EncodingOpen, seriestest.AppendOpen(nil, ts, vs)
	return c
}

// readRegular reads a row, regular chunks as a whole if that is asked for, and
// counts these.
func readRegular(t *testing.T, rs *merge.Row, whole bool) (ts []int64, vs []float64, passed int) {
	t.Helper()
	for {
		if whole {
			if first, step, floats, ok := rs.NextRegular(); ok {
				for i, v := range floats {
					ts, vs = append(ts, first+int64(i)*step), append(vs, v)
				}
				passed++
				continue
			}
		}
		if !rs.Next() {
			break
		}
		ts, vs = append(ts, rs.T()), append(vs, rs.Float())
	}
	if err := rs.Err(); err != nil {
		t.Fatal(err)
	}
	return ts, vs, passed
}

// TestNextRegular: what is taken as a whole are the samples of the chunk, and what
// is not is there one by one.
func TestNextRegular(t *testing.T) {
	const least = chunk.SamplesPerChunk / 2
	regular, values := seriestest.Every(1000, 15_000, least)
	last := regular[least-1]
	late := slices.Clone(regular)
	late[least/2]++
	few, fewValues := seriestest.Every(1000, 15_000, least-1)
	constant := slices.Repeat([]float64{7}, least)
	odd := slices.Clone(constant)
	odd[5] = seriestest.StaleNaN
	for _, tt := range []struct {
		name         string
		chunk        chunk.Sealed
		start, limit int64
		raw          int64 // the time of a raw cell
		want         bool
	}{
		{"whole", denseChunk(1, regular, values), 1000, last + 1, 0, true},
		{"constant", denseChunk(1, regular, constant), 0, math.MaxInt64, 0, true},
		{"constant but for one", denseChunk(1, regular, odd), 0, math.MaxInt64, 0, true},
		{"too few", denseChunk(1, few, fewValues), 0, math.MaxInt64, 0, false},
		{"not regular", denseChunk(1, late, values), 0, math.MaxInt64, 0, false},
		{"cut in front", denseChunk(1, regular, values), 1001, math.MaxInt64, 0, false},
		{"cut behind", denseChunk(1, regular, values), 0, last, 0, false},
		{"a raw cell in it", denseChunk(1, regular, values), 0, math.MaxInt64, 1001, false},
		{"a raw cell instead of its last", denseChunk(1, regular, values), 0, math.MaxInt64, last, false},
		{"a raw cell in front", denseChunk(1, regular, values), 0, math.MaxInt64, 999, false},
		{"a raw cell behind", denseChunk(1, regular, values), 0, math.MaxInt64, last + 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rs merge.Row
			open := func() {
				rs.Reset(0, tt.start, tt.limit)
				rs.AddChunk(tt.chunk)
				if tt.raw == 0 {
					return
				}
				if err := rs.AddRaw("l", series.AppendQualifier(nil, uint32(tt.raw)), cell.AppendFloat(nil, 3)); err != nil {
					t.Fatal(err)
				}
			}
			open()
			wantT, wantV, _ := readRegular(t, &rs, false)
			open()
			if _, _, _, ok := rs.NextRegular(); ok != tt.want {
				t.Errorf("taken as a whole: %t, want %t", ok, tt.want)
			}
			open()
			if gotT, gotV, _ := readRegular(t, &rs, true); !slices.Equal(gotT, wantT) || !seriestest.SameBits(gotV, wantV) {
				t.Errorf("%v, %v, want %v, %v", gotT, gotV, wantT, wantV)
			}
		})
	}
}

// TestNextRegularJoins: short chunks are taken together as long as each goes on where
// the one before ends.
func TestNextRegularJoins(t *testing.T) {
	const step, end = 1000, math.MaxInt64
	ts, vs := seriestest.Every(1000, step, 2000)
	dense := func(from, to int) chunk.Sealed { return denseChunk(1, ts[from:to], vs[from:to]) }
	open := func(from, to int) chunk.Sealed { return openChunk(2, ts[from:to], vs[from:to]) }
	moved := slices.Clone(ts)
	for i := range moved {
		moved[i] += int64(i / 1000)
	}
	faster, _ := seriestest.Every(ts[100], step/2, 500)
	for _, tt := range []struct {
		name         string
		chunks       []chunk.Sealed
		start, limit int64
		first        int64
		want         int // samples that are taken at once
	}{
		{"parts and what is open", []chunk.Sealed{dense(0, 80), dense(80, 160), open(160, 200)}, 0, end, 1000, 200},
		{"one open sample", []chunk.Sealed{dense(0, 150), open(150, 151)}, 0, end, 1000, 151},
		{"one open sample elsewhere", []chunk.Sealed{dense(0, 150), open(151, 152)}, 0, end, 1000, 150},
		{"open alone", []chunk.Sealed{open(0, 200)}, 0, end, 0, 0},
		{"enough", []chunk.Sealed{dense(0, 449), dense(449, 559), dense(559, 600)}, 0, end, 1000, 559},
		{"a sample is missing between", []chunk.Sealed{dense(0, 150), dense(151, 300)}, 0, end, 1000, 150},
		{"the next comes sooner", []chunk.Sealed{dense(0, 100), denseChunk(1, faster, vs[:500])}, 0, end, 0, 0},
		{"the next comes a bit later", []chunk.Sealed{denseChunk(1, moved[800:1000], vs[:200]), denseChunk(1, moved[1000:1200], vs[:200])}, 0, end, moved[800], 200},
		{"too few in all", []chunk.Sealed{dense(0, 50), dense(50, 100), open(100, 119)}, 0, end, 0, 0},
		{"too few before a gap", []chunk.Sealed{dense(0, 50), dense(50, 100), dense(101, 400)}, 0, end, 0, 0},
		{"cut in front", []chunk.Sealed{dense(0, 500)}, 1001, end, 1000 + step, 499},
		{"cut in front at a sample", []chunk.Sealed{dense(0, 500)}, ts[7], end, ts[7], 493},
		{"cut behind", []chunk.Sealed{dense(0, 500)}, 0, ts[200], 1000, 200},
		{"cut behind a sample", []chunk.Sealed{dense(0, 500)}, 0, ts[200] + 1, 1000, 201},
		{"cut on both sides", []chunk.Sealed{dense(0, 100), dense(100, 250), open(250, 300)}, ts[60] - 1, ts[290] + 1, ts[60], 231},
		{"cut to one of the first", []chunk.Sealed{dense(0, 100), dense(100, 300)}, ts[99], end, ts[99], 201},
		{"nothing between cuts", []chunk.Sealed{dense(0, 500)}, ts[200] + 1, ts[201], 0, 0},
		{"overlapping", []chunk.Sealed{dense(0, 300), denseChunk(2, ts[298:400], vs[298:400])}, 0, ts[299], 0, 0},
		{"overlapping in what is cut", []chunk.Sealed{dense(0, 300), denseChunk(2, ts[298:400], vs[298:400])}, 0, ts[298], 1000, 298},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rs merge.Row
			reset := func() {
				rs.Reset(0, tt.start, tt.limit)
				for _, c := range tt.chunks {
					rs.AddChunk(c)
				}
			}
			reset()
			wantT, wantV, _ := readRegular(t, &rs, false)
			reset()
			first, d, got, ok := rs.NextRegular()
			if ok != (tt.want > 0) || len(got) != tt.want || first != tt.first || ok && d != step {
				t.Errorf("%d from %d on, %d apart, %t; want %d from %d on, %d apart", len(got), first, d, ok, tt.want, tt.first, step)
			}
			reset()
			if gotT, gotV, _ := readRegular(t, &rs, true); !slices.Equal(gotT, wantT) || !seriestest.SameBits(gotV, wantV) {
				t.Errorf("%d samples are others than these %d", len(gotT), len(wantT))
			}
		})
	}
}

// TestNextRegularRefuses: what says other times than its qualifier is left to Next,
// which names it.
func TestNextRegularRefuses(t *testing.T) {
	ts, vs := seriestest.Every(1000, 15_000, 200)
	good := denseChunk(1, ts, vs)
	for name, spoil := range map[string]func(c *chunk.Sealed){
		"first":         func(c *chunk.Sealed) { c.First++ },
		"last":          func(c *chunk.Sealed) { c.Last++ },
		"cut short":     func(c *chunk.Sealed) { c.Data = c.Data[:len(c.Data)-1] },
		"one byte more": func(c *chunk.Sealed) { c.Data = append(slices.Clone(c.Data), 0) },
		"no data":       func(c *chunk.Sealed) { c.Data = nil },
		"times descend": func(c *chunk.Sealed) {
			c.Data = bytes.Replace(c.Data, []byte{3, 0xb0, 0xea, 1}, []byte{3, 0xaf, 0xea, 1}, 1)
		},
		"times overflow": func(c *chunk.Sealed) {
			c.Data = bytes.Replace(c.Data, []byte{3, 0xb0, 0xea, 1}, []byte{3, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			spoil(&c)
			if c.First == good.First && c.Last == good.Last && bytes.Equal(c.Data, good.Data) {
				t.Fatal("nothing is spoilt")
			}
			var rs merge.Row
			rs.Reset(0, 0, math.MaxInt64)
			rs.AddChunk(c)
			if _, _, _, ok := rs.NextRegular(); ok {
				t.Error("taken as a whole")
			}
			if rs.Next() || rs.Err() == nil {
				t.Errorf("at %d, no error", rs.T())
			}
		})
	}
}

// TestNextRegularModel: random rows are the same, whether chunks are taken as a whole
// or not.
func TestNextRegularModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	var rs merge.Row
	passed := 0
	for n := range 1000 {
		var chunks []chunk.Sealed
		step := 1 + rng.Int64N(15_000)
		for at := int64(0); at < series.Window-3_000_000; {
			follows := rng.IntN(2) == 0
			if !follows {
				step = 1 + rng.Int64N(15_000)
			}
			ts, vs := seriestest.Every(at, step, 1+rng.IntN(300))
			for i := range vs {
				vs[i] += float64(rng.IntN(1 + n%3))
			}
			if rng.IntN(4) == 0 {
				ts[len(ts)-1] += rng.Int64N(5)
			}
			last := ts[len(ts)-1]
			if stamp := rng.Int64N(3); last >= series.Window {
			} else if rng.IntN(4) > 0 {
				chunks = append(chunks, denseChunk(stamp, ts, vs))
			} else {
				chunks = append(chunks, openChunk(stamp, ts, vs))
			}
			if follows {
				at = last + step
				continue
			}
			at = max(last+rng.Int64N(10)*rng.Int64N(1000)-2000, int64(len(chunks))*300_000)
		}
		start, limit := int64(0), int64(math.MaxInt64)
		if rng.IntN(2) == 0 {
			start = rng.Int64N(series.Window)
			limit = start + rng.Int64N(series.Window)
		}
		raw := rng.Int64N(5 * series.Window)
		open := func() {
			rs.Reset(0, start, limit)
			for _, c := range chunks {
				rs.AddChunk(c)
			}
			if err := rs.AddRaw("l", series.AppendQualifier(nil, uint32(raw)), cell.AppendFloat(nil, 3)); err != nil {
				t.Fatal(err)
			}
		}
		open()
		wantT, wantV, _ := readRegular(t, &rs, false)
		open()
		gotT, gotV, count := readRegular(t, &rs, true)
		if !slices.Equal(gotT, wantT) || !seriestest.SameBits(gotV, wantV) {
			t.Fatalf("seed %d, row %d: %d samples are others than these %d", seed, n, len(gotT), len(wantT))
		}
		passed += count
	}
	if passed < 100 {
		t.Errorf("seed %d: only %d times was something taken as a whole", seed, passed)
	}
}

// FuzzNextRegular lets what DecodeDense decodes be taken the same or not at all, and
// nothing else.
func FuzzNextRegular(f *testing.F) {
	f.Add([]byte{})
	ts, vs := seriestest.Every(1000, 9000, 200)
	f.Add(dense.Append(nil, ts, vs))
	f.Add(dense.Append(nil, ts, slices.Repeat([]float64{1}, 200)))
	f.Add(dense.Append(nil, ts, append(slices.Repeat([]float64{1}, 199), seriestest.StaleNaN)))
	ts[100]++
	f.Add(dense.Append(nil, ts, vs))
	f.Fuzz(func(t *testing.T, data []byte) {
		ts, vs, err := dense.Decode(data, nil, nil)
		c := chunk.Sealed{Encoding: chunk.EncodingDense, First: 1000, Last: 1000 + 199*9000, Data: data}
		if err == nil && ts[len(ts)-1] < series.Window {
			c.First, c.Last = uint32(ts[0]), uint32(ts[len(ts)-1])
		}
		var rs merge.Row
		rs.Reset(0, 0, math.MaxInt64)
		rs.AddChunk(c)
		first, step, got, ok := rs.NextRegular()
		if !ok {
			return
		}
		if err != nil || !seriestest.SameBits(got, vs) {
			t.Fatalf("%x: %v, want %v, %v", data, got, vs, err)
		}
		for i, at := range ts {
			if at != first+int64(i)*step {
				t.Fatalf("%x: from %d on %d apart, want %v", data, first, step, ts)
			}
		}
	})
}
