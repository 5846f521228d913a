package merge_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/seriestest"
)

const rowBase = 302 * series.Period

// readRow returns what is left in rs.
func readRow(t testing.TB, rs *merge.Row) []seriestest.TimedValue {
	t.Helper()
	samples, _, err := seriestest.ReadRow(rs)
	if err != nil {
		t.Fatal(err)
	}
	return samples
}

// passAll lets all chunks of histograms pass.
func passAll(chunkenc.Chunk) bool { return true }

// text is a sample as it would be stored, without a hint of counter resets:
// TestHints is about them.
func text(s seriestest.TimedValue) string {
	if s.V.Histogram != nil {
		s.V.Histogram = s.V.Histogram.Copy()
		s.V.Histogram.CounterResetHint = histogram.UnknownCounterReset
	}
	if s.V.FloatHistogram != nil {
		s.V.FloatHistogram = s.V.FloatHistogram.Copy()
		s.V.FloatHistogram.CounterResetHint = histogram.UnknownCounterReset
	}
	return fmt.Sprintf("%d %x", s.T, cell.Append(nil, s.V))
}

func texts(samples []seriestest.TimedValue) (all []string) {
	for _, s := range samples {
		all = append(all, text(s))
	}
	return all
}

// A modelRow is cells as they are stored, and what they say of each time.
type modelRow struct {
	t      testing.TB
	rng    *rand.Rand
	chunks []modelChunk
	raw    map[string]map[uint32][]byte
}

type modelChunk struct {
	qual, value []byte
	stamp       int64
	samples     []seriestest.TimedValue
}

// newModelRow makes a row of a few windows, with chunks that may overlap.
func newModelRow(t testing.TB, rng *rand.Rand) *modelRow {
	m := &modelRow{t: t, rng: rng, raw: map[string]map[uint32][]byte{}}
	for range rng.IntN(8) {
		m.addChunk()
	}
	slices.SortFunc(m.chunks, func(a, b modelChunk) int { return bytes.Compare(a.qual, b.qual) })
	for _, family := range []string{"l", "r0", "r1", "r2", "r3"} {
		m.raw[family] = map[uint32][]byte{}
		if rng.IntN(3) > 0 {
			continue
		}
		for range rng.IntN(40) {
			encoding := seriestest.AllEncodings[rng.IntN(len(seriestest.AllEncodings))]
			m.raw[family][m.delta()] = cell.Append(nil, seriestest.ValueFor(encoding, rng.IntN(9), m.float()))
		}
	}
	return m
}

// delta is one of few, so that cells meet.
func (m *modelRow) delta() uint32 {
	return uint32(int64(m.rng.IntN(3))*series.Window + int64(m.rng.IntN(60))*(series.Window-1)/59)
}

func (m *modelRow) float() float64 {
	switch m.rng.IntN(8) {
	case 0:
		return math.Float64frombits(value.StaleNaN)
	case 1:
		return math.Copysign(0, -1)
	case 2:
		return math.Float64frombits(m.rng.Uint64())
	}
	return float64(m.rng.IntN(100)) / 4
}

func (m *modelRow) addChunk() {
	window := int64(m.rng.IntN(3)) * series.Window
	first, n := int64(m.rng.IntN(60)), 1+m.rng.IntN(40)
	encoding := seriestest.AllEncodings[m.rng.IntN(len(seriestest.AllEncodings))]
	isFloat := encoding == chunk.EncodingDense || encoding == chunk.EncodingOpen || encoding == byte(chunkenc.EncXOR) || encoding == byte(chunkenc.EncXOR2)
	var samples []seriestest.TimedValue
	for i := first; i < 60 && len(samples) < n; i += 1 + int64(m.rng.IntN(2)) {
		v := m.float()
		if !isFloat && math.IsNaN(v) {
			v = 1 // a stale histogram has no buckets
		}
		samples = append(samples, seriestest.At(rowBase+window+i*(series.Window-1)/59, seriestest.ValueFor(encoding, len(samples), v)))
	}
	c := seriestest.Sealed(m.t, encoding, rowBase, int64(m.rng.IntN(3)), samples)
	value := chunk.Append(nil, c)
	m.chunks = append(m.chunks, modelChunk{chunk.AppendQualifier(nil, c.First, c.Last, value), value, c.Stamp, samples})
}

// want returns the samples in [start, limit): written from the weakest cell to
// the strongest.
func (m *modelRow) want(start, limit int64) []string {
	byTime := map[int64]string{}
	byStamp := slices.Clone(m.chunks)
	slices.SortStableFunc(byStamp, func(a, b modelChunk) int { return int(a.stamp - b.stamp) })
	for _, c := range byStamp {
		for _, s := range c.samples {
			byTime[s.T] = text(s)
		}
	}
	for _, family := range []string{"r3", "r2", "r1", "r0", "l"} {
		for delta, value := range m.raw[family] {
			v, err := cell.Parse(value)
			if err != nil {
				m.t.Fatal(err)
			}
			s := seriestest.At(rowBase+int64(delta), v)
			byTime[s.T] = text(s)
		}
	}
	var all []string
	for t, text := range byTime {
		if start <= t && t < limit {
			all = append(all, text)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(a[:13], b[:13]) })
	return all
}

// add adds all cells to rs.
func (m *modelRow) add(rs *merge.Row) {
	for _, c := range m.chunks {
		sealed, err := chunk.Parse(c.qual, c.value)
		if err != nil {
			m.t.Fatal(err)
		}
		rs.AddChunk(sealed)
	}
	for family, cells := range m.raw {
		var deltas []uint32
		for delta := range cells {
			deltas = append(deltas, delta)
		}
		slices.Sort(deltas)
		for _, delta := range deltas {
			if err := rs.AddRaw(family, series.AppendQualifier(nil, delta), cells[delta]); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

// TestModel: random rows, read as a whole and in part, in all shapes, are what a map
// says.
func TestModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	var rs merge.Row
	passed, floats := 0, 0
	for n := range 2000 {
		m := newModelRow(t, rng)
		start, limit := int64(0), int64(math.MaxInt64)
		if rng.IntN(2) == 0 {
			start = rowBase + int64(m.delta())
			limit = start + rng.Int64N(2*series.Window)
		}
		want := m.want(start, limit)
		for _, options := range []merge.Options{{}, {PassChunk: passAll}, {PassChunk: passAll, Regular: true}, {}} {
			rs.Reset(rowBase, start, limit, options)
			m.add(&rs)
			samples, runs, err := seriestest.ReadRow(&rs)
			if got := texts(samples); err != nil || !slices.Equal(got, want) {
				t.Fatalf("seed %d, row %d, [%d, %d): %v\ngot  %d: %v\nwant %d: %v", seed, n, start, limit, err, len(got), got, len(want), want)
			}
			passed += runs[merge.Chunk]
			floats += runs[merge.Floats]
		}
	}
	if passed == 0 || floats == 0 {
		t.Errorf("%d chunks were taken as a whole, %d runs of floats", passed, floats)
	}
}

// TestPrecedence: which of several samples of one time counts.
func TestPrecedence(t *testing.T) {
	chunk := func(stamp int64, v float64) func(rs *merge.Row) {
		return func(rs *merge.Row) {
			c := seriestest.Sealed(t, 1, rowBase, stamp, []seriestest.TimedValue{seriestest.At(rowBase+5, cell.Value{Float: v})})
			rs.AddChunk(c)
		}
	}
	raw := func(family string, v float64) func(rs *merge.Row) {
		return func(rs *merge.Row) {
			if err := rs.AddRaw(family, series.AppendQualifier(nil, 5), cell.AppendFloat(nil, v)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name string
		adds []func(*merge.Row)
		want float64
	}{
		{"late over raw", []func(*merge.Row){raw("l", 1), raw("r0", 2)}, 1},
		{"late over raw, added after it", []func(*merge.Row){raw("r0", 2), raw("l", 1)}, 1},
		{"r0 over r3", []func(*merge.Row){raw("r0", 1), raw("r3", 2)}, 1},
		{"r2 over r3", []func(*merge.Row){raw("r2", 1), raw("r3", 2)}, 1},
		{"raw over chunk", []func(*merge.Row){chunk(series.MaxTime, 2), raw("r3", 1)}, 1},
		{"higher stamp", []func(*merge.Row){chunk(8, 1), chunk(7, 2)}, 1},
		{"higher stamp, later", []func(*merge.Row){chunk(7, 2), chunk(8, 1)}, 1},
		{"equal stamps", []func(*merge.Row){chunk(7, 3), chunk(7, 2), chunk(7, 1)}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rs merge.Row
			rs.Reset(rowBase, 0, math.MaxInt64, merge.Options{})
			for _, add := range tt.adds {
				add(&rs)
			}
			got := readRow(t, &rs)
			if len(got) != 1 || got[0].T != rowBase+5 || got[0].V.Float != tt.want {
				t.Errorf("got %+v, want %v", got, tt.want)
			}
		})
	}
}

// TestHints: what is said of counter resets is what the sender said or
// what is still true.
func TestHints(t *testing.T) {
	const unknown, reset, none, gauge = histogram.UnknownCounterReset, histogram.CounterReset, histogram.NotCounterReset, histogram.GaugeType
	for _, tt := range []struct {
		name   string
		first  histogram.CounterResetHint
		others histogram.CounterResetHint
		cell   uint32 // a float at this delta, the histograms are at 10, 20, 30
		start  int64
		want   []histogram.CounterResetHint
	}{
		{"unknown", unknown, unknown, 0, 0, []histogram.CounterResetHint{unknown, none, none}},
		{"reset", reset, unknown, 0, 0, []histogram.CounterResetHint{reset, none, none}},
		{"no reset", none, unknown, 0, 0, []histogram.CounterResetHint{unknown, none, none}},
		{"gauge", gauge, gauge, 0, 0, []histogram.CounterResetHint{gauge, gauge, gauge}},
		{"something in between", reset, unknown, 25, 0, []histogram.CounterResetHint{reset, none, unknown}},
		{"something instead", reset, unknown, 20, 0, []histogram.CounterResetHint{reset, unknown}},
		{"gauge and something in between", gauge, gauge, 25, 0, []histogram.CounterResetHint{gauge, gauge, gauge}},
		{"cut", reset, unknown, 0, rowBase + 20, []histogram.CounterResetHint{unknown, none}},
	} {
		for _, encoding := range seriestest.AllEncodings[4:] {
			t.Run(fmt.Sprintf("%s/%d", tt.name, encoding), func(t *testing.T) {
				var samples []seriestest.TimedValue
				for i := range 3 {
					v := seriestest.ValueFor(encoding, i, 1)
					hint := tt.others
					if i == 0 {
						hint = tt.first
					}
					if v.Histogram != nil {
						v.Histogram.CounterResetHint = hint
					} else {
						v.FloatHistogram.CounterResetHint = hint
					}
					samples = append(samples, seriestest.At(rowBase+int64(i+1)*10, v))
				}
				var rs merge.Row
				rs.Reset(rowBase, tt.start, math.MaxInt64, merge.Options{})
				rs.AddChunk(seriestest.Sealed(t, encoding, rowBase, 1, samples))
				if tt.cell != 0 {
					if err := rs.AddRaw("l", series.AppendQualifier(nil, tt.cell), cell.AppendFloat(nil, 1)); err != nil {
						t.Fatal(err)
					}
				}
				var got []histogram.CounterResetHint
				for _, s := range readRow(t, &rs) {
					switch {
					case s.V.Histogram != nil:
						got = append(got, s.V.Histogram.CounterResetHint)
					case s.V.FloatHistogram != nil:
						got = append(got, s.V.FloatHistogram.CounterResetHint)
					}
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("hints %v, want %v", got, tt.want)
				}
			})
		}
	}
}

// TestHintBehindChunk: a chunk that is taken as a whole comes in between, too.
func TestHintBehindChunk(t *testing.T) {
	ts, vs := seriestest.Every(1000, 1000, 200)
	histograms := seriestest.Sealed(t, byte(chunkenc.EncHistogram), 0, 1, []seriestest.TimedValue{
		seriestest.At(500, seriestest.ValueFor(byte(chunkenc.EncHistogram), 0, 1)),
		seriestest.At(4_000_000, seriestest.ValueFor(byte(chunkenc.EncHistogram), 1, 1)),
	})
	between := seriestest.Sealed(t, byte(chunkenc.EncFloatHistogram), 0, 1, []seriestest.TimedValue{
		seriestest.At(1000, seriestest.ValueFor(byte(chunkenc.EncFloatHistogram), 0, 1)),
	})
	for _, tt := range []struct {
		name  string
		shape merge.Shape
		chunk chunk.Sealed
	}{{"regular", merge.Regular, denseChunk(1, ts, vs)}, {"a chunk of histograms", merge.Chunk, between}} {
		t.Run(tt.name, func(t *testing.T) {
			var rs merge.Row
			// The first chunk is no whole one, as the other lies in it.
			rs.Reset(0, 0, math.MaxInt64, merge.Options{Regular: true, PassChunk: passAll})
			rs.AddChunk(histograms)
			rs.AddChunk(tt.chunk)
			for i, want := range []merge.Shape{merge.Value, tt.shape, merge.Value} {
				if got := rs.Next(); got != want {
					t.Fatalf("run %d has shape %d, want %d, %v", i, got, want, rs.Err())
				}
			}
			at, v, err := rs.Value()
			if err != nil || at != 4_000_000 || v.Histogram.CounterResetHint != histogram.UnknownCounterReset {
				t.Errorf("at %d: %v, %v", at, v.Histogram, err)
			}
		})
	}
}

func TestStaleHistogram(t *testing.T) {
	stale := math.Float64frombits(value.StaleNaN)
	for _, encoding := range seriestest.AllEncodings[4:] {
		v := cell.Value{Histogram: &histogram.Histogram{Sum: stale}}
		if seriestest.ValueFor(encoding, 0, 0).Histogram == nil {
			v = cell.Value{FloatHistogram: &histogram.FloatHistogram{Sum: stale}}
		}
		samples := []seriestest.TimedValue{seriestest.At(rowBase, seriestest.ValueFor(encoding, 0, 1)), seriestest.At(rowBase+1, v)}
		var rs merge.Row
		rs.Reset(rowBase, 0, math.MaxInt64, merge.Options{})
		rs.AddChunk(seriestest.Sealed(t, encoding, rowBase, 1, samples))
		got := readRow(t, &rs)
		got[1].V.Start = 0
		if !slices.Equal(texts(got), texts(samples)) {
			t.Errorf("encoding %d: %v, want %v", encoding, texts(got), texts(samples))
		}
	}
}

// TestRestOfRow: after a value that cannot be read the others can.
func TestRestOfRow(t *testing.T) {
	var rs merge.Row
	rs.Reset(rowBase, 0, math.MaxInt64, merge.Options{})
	for i, cell := range [][]byte{cell.AppendFloat(nil, 1), {99}, cell.AppendFloat(nil, 2), cell.AppendFloat(nil, 3)} {
		if err := rs.AddRaw("r1", series.AppendQualifier(nil, uint32(i)), cell); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for shape := rs.Next(); shape != merge.None; shape = rs.Next() {
		if shape == merge.Floats {
			got = append(got, fmt.Sprint(rs.Floats()))
			continue
		}
		at, _, err := rs.Value()
		if !errors.Is(err, series.ErrCorrupt) || !strings.Contains(err.Error(), "family r1, delta 1") {
			t.Errorf("at %d: error %v", at, err)
		}
		got = append(got, fmt.Sprint(at))
	}
	want := []string{fmt.Sprintf("[%d] [1]", rowBase), fmt.Sprint(rowBase + 1), fmt.Sprintf("[%d %d] [2 3]", rowBase+2, rowBase+3)}
	if !slices.Equal(got, want) || rs.Err() != nil {
		t.Errorf("%q, %v, want %q", got, rs.Err(), want)
	}
}

func TestAddRawErrors(t *testing.T) {
	qual := func(delta uint32) []byte { return series.AppendQualifier(nil, delta) }
	for _, tt := range []struct {
		name, family string
		qual         []byte
		want         string
	}{
		{"qualifier of an exemplar", "r0", []byte("12345678"), "family r0"},
		{"no qualifier", "l", nil, "family l"},
		{"another family", "e", qual(9), `family "e"`},
		{"not ascending", "r0", qual(4), "delta 4 after 5"},
		{"twice", "r0", qual(5), "delta 5 after 5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rs merge.Row
			rs.Reset(rowBase, 0, math.MaxInt64, merge.Options{})
			if err := rs.AddRaw("r0", qual(5), cell.AppendFloat(nil, 1)); err != nil {
				t.Fatal(err)
			}
			if err := rs.AddRaw(tt.family, tt.qual, cell.AppendFloat(nil, 1)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if got := readRow(t, &rs); len(got) != 1 {
				t.Errorf("samples %+v", got)
			}
		})
	}
}

// fromBits is these bits behind zeros.
func fromBits(zeros int, bits ...string) (b []byte) {
	text := strings.Repeat("0", zeros) + strings.ReplaceAll(strings.Join(bits, ""), " ", "")
	for i, c := range text {
		if i%8 == 0 {
			b = append(b, 0)
		}
		b[i/8] |= byte(c-'0') << (7 - i%8)
	}
	return b
}

// TestCorrupt: what is wrong with the data of a chunk is said.
func TestCorrupt(t *testing.T) {
	at := func(deltas ...int64) (samples []seriestest.TimedValue) {
		for _, delta := range deltas {
			samples = append(samples, seriestest.At(rowBase+delta, cell.Value{}))
		}
		return samples
	}
	xor := seriestest.ChunkData(t, 1, at(10, 20, 30))
	for _, tt := range []struct {
		name        string
		encoding    byte
		first, last uint32
		data        []byte
		want        string
	}{
		{"first is another", 1, 9, 30, xor, "the first sample is at 1297080123402"},
		{"last before first", 2, 10, 9, seriestest.ChunkData(t, 2, []seriestest.TimedValue{seriestest.At(rowBase+10, seriestest.ValueFor(2, 0, 1))}), "no part of a window"},
		{"last histogram is another", 2, 10, 11, seriestest.ChunkData(t, 2, []seriestest.TimedValue{seriestest.At(rowBase+10, seriestest.ValueFor(2, 0, 1))}), "the last sample is at"},
		{"last is another", 1, 10, 31, xor, "the last sample is at"},
		{"not ascending", 1, 10, 30, seriestest.ChunkData(t, 1, at(10, 30, 30)), "after 1297080123422"},
		{"going back", 4, 10, 30, seriestest.ChunkData(t, 4, at(10, 40, 30)), "after 1297080123432"},
		{"no samples", 1, 10, 10, []byte{0, 0}, "encoding 1"},
		{"no samples with start timestamps", 4, 10, 10, []byte{0, 0, 0}, "0 times"},
		{"fewer than it says", 1, 10, 30, append([]byte{0, 9}, xor[2:]...), "encoding 1"},
		{"unknown encoding", 77, 10, 30, xor, "encoding 77"},
		{"not dense", chunk.EncodingDense, 10, 30, []byte{}, "encoding 128"},
		{"XOR without header", 1, 0, 0, []byte{0}, "encoding 1"},
		{"XOR2 without header", 4, 0, 0, []byte{0, 1}, "2 bytes of data"},
		{"histogram without header", 2, 0, 0, []byte{0, 1}, "2 bytes of data"},
		{"histogram without data", 2, 0, 0, []byte{0, 1, 0}, "end before the first sample"},
		{"histogram of none", 2, 0, 0, []byte{0, 0, 0, 0, 0}, "no samples"},
		// Threshold 0, schema 0, one span of 2^31 buckets.
		{"billions of buckets", 2, 0, 0, fromBits(24, "00000000 0 10001 11111110", fmt.Sprintf("%056b", 1<<31), "0"), "more than"},
		// Threshold 0, schema 0, 2^55 spans.
		{"endless spans", 3, 0, 0, fromBits(24, "00000000 0 11111110", fmt.Sprintf("%056b", 1<<55), strings.Repeat("0", 99)), "end before"},
		// Threshold 0, schema 20: upstream would bring it down to 8, and panic if it cannot.
		{"unknown schema", 3, 0, 0, fromBits(24, "00000000 110 010100 0 0"), "schema 20"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rs merge.Row
			rs.Reset(rowBase, 0, math.MaxInt64, merge.Options{})
			rs.AddChunk(chunk.Sealed{Encoding: tt.encoding, First: tt.first, Last: tt.last, Data: tt.data})
			_, _, err := seriestest.ReadRow(&rs)
			if !errors.Is(err, series.ErrCorrupt) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), fmt.Sprintf("from delta %d to %d", tt.first, tt.last)) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			if rs.Next() != merge.None {
				t.Error("a sample after the error")
			}
		})
	}
}

// TestEarlierXOR2: chunks of floats with start timestamps are read as Prometheus' encoder made them up to 3.15, which chose other windows of
// bits than later ones do.
func TestEarlierXOR2(t *testing.T) {
	value, err := hex.DecodeString("0409184e729fff000403" + "80a0cee0d54b4045000000000000" + "9875d10760175c1ffe00012eae0a3948")
	if err != nil {
		t.Fatal(err)
	}
	const at = 1300000000000
	sealed, err := chunk.Parse(chunk.AppendQualifier(nil, 2919876608, 2919921608, value), value)
	if err != nil {
		t.Fatal(err)
	}
	base, _ := series.Split(at)
	var rs merge.Row
	rs.Reset(base, 0, math.MaxInt64, merge.Options{})
	rs.AddChunk(sealed)
	var want []seriestest.TimedValue
	for i, v := range []float64{42, 42.5, 43, 44} {
		want = append(want, seriestest.At(at+int64(i)*15_000, seriestest.ValueFor(byte(chunkenc.EncXOR2), i, v)))
	}
	if got := readRow(t, &rs); !slices.Equal(texts(got), texts(want)) {
		t.Errorf("read %q, want %q", texts(got), texts(want))
	}
}

// TestCutData: each chunk is corrupt when its end is cut off, or is read
// without a panic.
func TestCutData(t *testing.T) {
	for _, encoding := range seriestest.AllEncodings {
		var samples []seriestest.TimedValue
		for i := range 20 {
			samples = append(samples, seriestest.At(rowBase+int64(i*i), seriestest.ValueFor(encoding, i, math.Sqrt(float64(i)))))
		}
		c := seriestest.Sealed(t, encoding, rowBase, 1, samples)
		whole := c.Data
		for n := range len(whole) - 1 { // the last byte may hold nothing but the end of the last value
			c.Data = whole[:n]
			var rs merge.Row
			rs.Reset(rowBase, 0, math.MaxInt64, merge.Options{})
			rs.AddChunk(c)
			if _, _, err := seriestest.ReadRow(&rs); err != nil && !errors.Is(err, series.ErrCorrupt) {
				t.Errorf("encoding %d, %d bytes of %d: %v", encoding, n, len(whole), err)
			}
		}
	}
}

// TestAllocations: to read floats once more allocates nothing.
func TestAllocations(t *testing.T) {
	for _, row := range benchRows(t) {
		var rs merge.Row
		if n := testing.AllocsPerRun(10, func() { row.read(t, &rs) }); n > 0 {
			t.Errorf("%s: %v allocations a row", row.name, n)
		}
	}
}
