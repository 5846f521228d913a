package backfill_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.uber.org/goleak"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/backfill"
	"github.com/promtable/promtable/remote/engine/indexrows"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
	"github.com/promtable/promtable/series/rollup"
)

// TestMain wants no goroutine to outlive the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// someTime is the middle of a window, far from the turn of an index period or of a base. In 1974.
const someTime = 30*series.Period + 3*series.IndexPeriod + 100*series.Window + series.Window/2

// spy is a Store that notes and checks what is applied.
type spy struct {
	bucketstore.Store
	// onApply, if set, is called before each Apply; an error is its answer.
	onApply func(bucketstore.Table, []bucketstore.Mutation) error
	// batches are the bytes of each Apply to METRIC.
	batches []int
}

func (s *spy) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if s.onApply != nil {
		if err := s.onApply(table, muts); err != nil {
			return err
		}
	}
	if table == bucketstore.Metric {
		size := 0
		for _, m := range muts {
			size += len(m.Key)
			for _, op := range m.Ops {
				size += len(op.Qualifier) + len(op.Value)
			}
		}
		s.batches = append(s.batches, size)
	}
	return s.Store.Apply(ctx, table, muts)
}

// fixture is an embedded store.
type fixture struct {
	*spy
	t      *testing.T
	schema series.Schema
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	store, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{}), CacheBytes: 4 << 20, MemTableBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := series.NewSchema([]string{"host"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := engine.Check(context.Background(), engine.CheckConfig{
			Store: store, Schema: schema, Progress: func(bucketstore.Table, int64, int64) {},
			Report: func(f bucketstore.Finding) { t.Errorf("a check of the store finds %s", f) },
		})
		if err := errors.Join(err, store.Close()); err != nil {
			t.Error(err)
		}
	})
	return &fixture{&spy{Store: storetest.Shared(store, true)}, t, schema} // the index is written beside the engine
}

// writer returns a Writer to store, with an index that has written nothing.
func (f *fixture) writer(store bucketstore.Store, batchBytes int) *backfill.Writer {
	return backfill.New(f.config(store, batchBytes))
}

func (f *fixture) config(store bucketstore.Store, batchBytes int) backfill.Config {
	x := index.New(index.Config{Schema: f.schema, AtomicPuts: true}, indexrows.New(f.spy))
	return backfill.Config{Store: store, Index: x, Schema: f.schema, BatchBytes: batchBytes}
}

// samples are values by time, in milliseconds.
type samples map[int64]float64

// every returns n samples from a time on, with values from v on.
func every(from, step int64, n int, v float64) samples {
	made := make(samples, n)
	for i := range n {
		made[from+int64(i)*step] = v + float64(i)
	}
	return made
}

// add appends samples to a series of w and closes it.
func add(t *testing.T, w *backfill.Writer, ls labels.Labels, made samples) {
	t.Helper()
	s, err := w.Series(ls)
	if err != nil {
		t.Fatal(err)
	}
	var values []float64
	times := slices.Sorted(maps.Keys(made))
	for _, at := range times {
		values = append(values, made[at])
	}
	n := len(times) / 3 // in two calls
	if err := errors.Join(s.Append(t.Context(), times[:n], values[:n]), s.Append(t.Context(), times[n:], values[n:]), s.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func flush(t *testing.T, w *backfill.Writer) {
	t.Helper()
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// open opens an engine on the store, in direct mode.
func (f *fixture) open() *engine.Engine {
	f.t.Helper()
	now := func() time.Time { return time.UnixMilli(someTime) }
	e, err := engine.New(engine.Config{
		Store: f.spy, Appender: bucketstore.NewDirect(f.spy, f.schema, now, nil), Schema: f.schema, Now: now, MaxFuture: engine.Unbounded,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			f.t.Error(err)
		}
	})
	return e
}

// want checks that an engine reads these samples, bit for bit.
func (f *fixture) want(what string, e *engine.Engine, name string, want samples) {
	f.t.Helper()
	set, err := e.Select(f.t.Context(), reader.Query{Mint: 0, Maxt: math.MaxInt64, Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, name)}})
	if err != nil {
		f.t.Fatal(err)
	}
	found := make(samples)
	for set.Next() {
		for chunks := set.At().Iterator(nil); chunks.Next(); {
			it := chunks.At().Chunk.Iterator(nil)
			for it.Next() == chunkenc.ValFloat {
				at, v := it.At()
				found[at] = v
			}
		}
	}
	same := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
	if err := set.Err(); err != nil || !maps.EqualFunc(found, want, same) {
		f.t.Fatalf("%s: %d samples, want %d: %v", what, len(found), len(want), err)
	}
}

// cells returns the cells of a family of METRIC, by row, qualifier and time.
func (f *fixture) cells(family string) map[string][]byte {
	f.t.Helper()
	found := make(map[string][]byte)
	req := bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: family}}}
	err := f.Scan(f.t.Context(), req, func(row bucketstore.Row) error {
		for _, c := range row.Cells {
			found[fmt.Sprintf("%s %x %d", row.Key, c.Qualifier, c.Time)] = bytes.Clone(c.Value)
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return found
}

var (
	up   = labels.FromStrings("__name__", "up", "host", "a")
	temp = labels.FromStrings("__name__", "temp", "room", "1")
)

// TestIndexFirst wants the series of each chunk to be found in its index period before the chunk is applied, and no chunk
// at all where the index fails.
func TestIndexFirst(t *testing.T) {
	f := newFixture(t)
	applied := 0
	f.onApply = func(table bucketstore.Table, muts []bucketstore.Mutation) error {
		if table != bucketstore.Metric {
			return nil
		}
		stored := index.New(index.Config{Schema: f.schema}, indexrows.New(f.Store))
		for _, m := range muts {
			key, base, err := f.schema.ParseRowKey(nil, m.Key)
			if err != nil {
				return err
			}
			for _, op := range m.Ops {
				c, err := chunk.Parse(op.Qualifier, op.Value)
				if err != nil {
					return err
				}
				at := base + int64(c.First)
				found, err := stored.Select(t.Context(), index.Query{Start: at, Limit: at + 1, Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchNotEqual, labels.MetricName, "")}})
				if err != nil {
					return err
				}
				if !slices.ContainsFunc(found.Series, func(s index.Series) bool { return string(s.Key) == string(key) }) {
					t.Errorf("a chunk of %s at %d is applied before its index", key, at)
				}
				applied++
			}
		}
		return nil
	}
	w := f.writer(f.spy, 2000)
	history := every(someTime, 600_000, 6000, 1) // 41 days: seven index periods, and the turn of a base
	add(t, w, up, history)
	add(t, w, temp, history)
	flush(t, w)
	if applied != len(f.cells(series.FamilyChunk)) || len(f.batches) < 10 {
		t.Errorf("%d chunks in %d batches", applied, len(f.batches))
	}
	f.want("after it", f.open(), "up", history)

	f = newFixture(t)
	full := errors.New("the index is full")
	f.onApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
		if table == bucketstore.Index {
			return full
		}
		t.Error("chunks are applied without an index")
		return nil
	}
	w = f.writer(f.spy, 0)
	add(t, w, up, history)
	for range 2 {
		if err := w.Flush(t.Context()); !errors.Is(err, full) || !strings.Contains(err.Error(), up.String()) {
			t.Error(err)
		}
	}
}

// TestLiveWins: what a sender has written stays, whether it was written before or after.
func TestLiveWins(t *testing.T) {
	f := newFixture(t)
	e := f.open()
	send := func(made samples) {
		one := ingest.Series{Labels: up}
		for at, v := range made {
			one.Samples = append(one.Samples, ingest.Sample{T: at, V: v})
		}
		if _, err := e.Append(t.Context(), []ingest.Series{one}, new(ingest.Rejected)); err != nil {
			t.Fatal(err)
		}
	}
	history := every(someTime, 15_000, 2000, 1)
	before, after := every(someTime+15_000, 30_000, 100, -1000), every(someTime+30_000, 60_000, 300, -5000)
	send(before)
	// A buffer, or the sealer, has made this chunk before.
	first := someTime + 1800*15_000
	sealed := bucketstore.ChunkCell(chunk.EncodingDense, 1, first, first, dense.Append(nil, []int64{first}, []float64{math.Copysign(0, -1)}))
	key, err := f.schema.AppendSeriesKey(nil, up)
	if err != nil {
		t.Fatal(err)
	}
	base, _ := series.Split(first)
	if err := f.Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{{Key: f.schema.AppendRowKey(nil, key, base), Ops: []bucketstore.Op{
		{Kind: bucketstore.SetCell, Family: sealed.Family, Qualifier: sealed.Qualifier, Time: sealed.Time, Value: sealed.Value},
	}}}); err != nil {
		t.Fatal(err)
	}
	w := f.writer(f.spy, 0)
	add(t, w, up, history)
	flush(t, w)
	send(after)
	for id, value := range f.cells(series.FamilyChunk) {
		if stamp := bytes.Compare(value[1:7], make([]byte, 6)); stamp != 0 && !bytes.Equal(value, sealed.Value) {
			t.Errorf("the chunk %s has a stamp", id)
		}
	}
	want := maps.Clone(history)
	want[first] = math.Copysign(0, -1)
	maps.Copy(want, before)
	maps.Copy(want, after)
	f.want("history and live samples", e, "up", want)
}

// TestWindows writes windows out of order, twice, and in parts, with a row only once in a batch, and over the turn of a base.
func TestWindows(t *testing.T) {
	f := newFixture(t)
	f.onApply = func(table bucketstore.Table, muts []bucketstore.Mutation) error {
		for i := range muts[1:] {
			if bytes.Compare(muts[i].Key, muts[i+1].Key) >= 0 {
				t.Errorf("%s: row %q after %q", table, muts[i+1].Key, muts[i].Key)
			}
		}
		return nil
	}
	turn := 31 * series.Period
	w := f.writer(f.spy, 0)
	late := every(turn, 1000, 10_000, 1) // from the first delta on
	early := every(turn-1-9999*1000, 1000, 10_000, math.Inf(-1))
	between := every(turn-500_500, 1000, 1000, 7) // in windows that have chunks by then
	beside := every(turn+5_000_250, 1000, 1000, math.NaN())
	all := []samples{late, early, between, beside}
	want := make(samples)
	for _, made := range all {
		add(t, w, up, made)
		maps.Copy(want, made)
	}
	add(t, w, up, nil)
	flush(t, w)
	flush(t, w)
	if len(f.batches) != 1 {
		t.Errorf("%d batches", len(f.batches))
	}
	rows := make(map[string]int)
	for id := range f.cells(series.FamilyChunk) {
		key, _, _ := strings.Cut(id, " ")
		rows[key]++
	}
	if len(rows) != 2 || rows["up,0128849018880,a"]+rows["up,0133143986176,a"] != 2+2+2+1 {
		t.Errorf("chunks of rows: %v", rows)
	}
	f.want("windows", f.open(), "up", want)
	cells := f.cells(series.FamilyChunk)
	w = f.writer(f.spy, 1)
	for _, made := range all {
		add(t, w, up, made)
	}
	if len(f.batches) != 1+7 {
		t.Errorf("%d batches, of a chunk each but the first", len(f.batches))
	}
	if !maps.EqualFunc(cells, f.cells(series.FamilyChunk), bytes.Equal) {
		t.Error("the same samples again make other cells")
	}
}

// TestCounts: a day that may have rollups is counted, so that they are made again. Others are not.
func TestCounts(t *testing.T) {
	f := newFixture(t)
	const begin = 2000 * rollup.Day
	now := time.UnixMilli(begin + 4*rollup.Day)
	days, err := downsample.Open(t.Context(), downsample.Config{Store: storetest.Shared(f.spy, false), Schema: f.schema, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	maker := downsample.NewMaker(days, downsample.MakerConfig{Resolutions: rollup.Downsampled, RowsPerSecond: 1e9, Timeline: timelinetest.Bounds{}})
	counted := days.Counted(f.spy)
	w := f.writer(counted, 0)
	add(t, w, up, every(begin+1, 60_000, 6*24*60, 1))
	flush(t, w)
	if found := f.cells(series.FamilyCount); len(found) > 0 {
		t.Errorf("days without rollups are counted: %v", found)
	}
	if err := maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if made := days.Made(); made != begin+3*rollup.Day {
		t.Fatalf("rollups are made up to %d", made)
	}
	if found := f.cells(rollup.OneHour.Family()); len(found) != 3 {
		t.Errorf("%d rollups", len(found))
	}
	w = f.writer(counted, 0)
	add(t, w, up, samples{begin + rollup.Day: 5, begin + rollup.Day + 1: 6, begin + 3*rollup.Day + 1: 7}) // the end of a day belongs to it
	flush(t, w)
	counts := f.cells(series.FamilyCount)
	for _, value := range counts {
		if n, err := bucketstore.ParseSum(value); n != 1 || err != nil {
			t.Errorf("a count is %d, %v", n, err)
		}
	}
	if len(counts) != 2 {
		t.Errorf("counts of %d days, want 2: %v", len(counts), counts)
	}
}

// TestBounds: the samples and the errors of a Writer, and how much it holds.
func TestBounds(t *testing.T) {
	f := newFixture(t)
	w := f.writer(f.spy, 0)
	for _, tt := range []struct {
		name  string
		times []int64
		want  string
	}{
		{"twice", []int64{7, 7}, "time 7 after 7"},
		{"back", []int64{7, 8, 6}, "time 6 after 8"},
	} {
		s, err := w.Series(temp)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Append(t.Context(), tt.times, make([]float64, len(tt.times)))
		if !errors.Is(err, backfill.ErrSamples) || !strings.Contains(err.Error(), temp.String()) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	long := labels.FromStrings("__name__", "long", "x", strings.Repeat("y", 4000))
	if _, err := w.Series(long); !errors.Is(err, series.ErrKeyTooLong) || !strings.Contains(err.Error(), `__name__="long"`) {
		t.Error(err)
	}
	ends := samples{0: 1, series.MaxTime: 2}
	add(t, w, temp, ends)
	flush(t, w)
	e := f.open()
	f.want("the first and the last time", e, "temp", ends)

	// A chunk has so many samples at most, though its window has more.
	dense := every(someTime-someTime%series.Window, 1, 3*65_535+1, 0)
	add(t, w, labels.FromStrings("__name__", "dense"), dense)
	flush(t, w)
	f.want("each millisecond", e, "dense", dense)

	f.batches = nil
	const batch, chunkBytes = 100_000, 5000
	w = f.writer(f.spy, batch)
	var all []*backfill.Series
	for i := range 100 {
		s, err := w.Series(labels.FromStrings("__name__", "many", "n", fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	for at := int64(0); at < 10*series.Window; at += 15_000 {
		for i, s := range all {
			if err := s.Append(t.Context(), []int64{at}, []float64{math.Sqrt(float64(at + int64(i)))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	flush(t, w)
	if largest := slices.Max(f.batches); len(f.batches) < 8 || largest > 2*batch+chunkBytes || largest < batch {
		t.Errorf("%d batches of up to %d bytes, want up to twice %d", len(f.batches), largest, batch)
	}
}

// TestStoreFails: the error names the row that was not stored, and nothing is written after it.
func TestStoreFails(t *testing.T) {
	f := newFixture(t)
	refused := errors.New("no room for this row")
	applies := 0
	f.onApply = func(table bucketstore.Table, muts []bucketstore.Mutation) error {
		if table != bucketstore.Metric {
			return nil
		}
		applies++
		return &bucketstore.RowsError{Failed: map[int]error{1: refused}}
	}
	w := f.writer(f.spy, 0)
	for _, ls := range []labels.Labels{up, temp} {
		add(t, w, ls, samples{someTime: 1})
	}
	for range 2 {
		err := w.Flush(t.Context())
		if !errors.Is(err, refused) || !strings.Contains(err.Error(), "not that of up,") {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.writer(f.spy, 0).Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if applies != 1 {
		t.Errorf("%d applies", applies)
	}
}
