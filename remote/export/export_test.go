package export_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/remote/export"
	"github.com/promtable/promtable/series/seriestest"
)

const (
	hour  = int64(3600_000)
	start = 450_000*hour + 600_000
)

// A sample is of a float, or a histogram of any kind.
type sample struct {
	t  int64
	v  float64
	h  *histogram.Histogram
	fh *histogram.FloatHistogram
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return s.h }
func (s sample) FH() *histogram.FloatHistogram { return s.fh }
func (s sample) Copy() chunks.Sample           { return s }

func (s sample) Type() chunkenc.ValueType {
	switch {
	case s.h != nil:
		return chunkenc.ValHistogram
	case s.fh != nil:
		return chunkenc.ValFloatHistogram
	}
	return chunkenc.ValFloat
}

// text tells samples apart to the bit.
func (s sample) text() string {
	return fmt.Sprintf("%d %x %v %v", s.t, math.Float64bits(s.v), s.h, s.fh)
}

// A world is the series of a source, sorted.
type world struct {
	labels  []labels.Labels
	samples [][]chunks.Sample
}

// newWorld makes samples of five hours: floats with staleness markers and strange values, histograms, and a series of one sample.
func newWorld(t *testing.T) *world {
	t.Helper()
	r := seriestest.NewRand(t)
	w := &world{}
	for n := range 6 {
		w.labels = append(w.labels, labels.FromStrings("__name__", "x", "n", fmt.Sprint(n), "quoted", "a\"b\\c\nd"))
		var samples []chunks.Sample
		for at := start + int64(n); at < start+5*hour; at += 15_000 {
			s := sample{t: at, v: float64(r.IntN(1000)) / 7}
			switch i := (at - start) / 15_000; {
			case n == 5 && i != 700:
				continue
			case n == 3:
				s = sample{t: at, h: tsdbutil.GenerateTestHistogram(i)}
			case n == 4:
				s = sample{t: at, fh: tsdbutil.GenerateTestFloatHistogram(i)}
			case i%100 == 99:
				s.v = seriestest.StaleNaN
			case i%100 == 50:
				s.v = []float64{math.NaN(), math.Inf(-1), math.Copysign(0, -1)}[r.IntN(3)]
			}
			samples = append(samples, s)
		}
		w.samples = append(w.samples, samples)
	}
	return w
}

// A list is a storage.SeriesSet.
type list struct {
	storage.SeriesSet
	of []storage.Series
	at int
}

func (l *list) Next() bool                      { l.at++; return l.at <= len(l.of) }
func (l *list) At() storage.Series              { return l.of[l.at-1] }
func (*list) Err() error                        { return nil }
func (*list) Warnings() annotations.Annotations { return nil }

// source returns all series that match; their samples may be outside of the range, as those of a server with chunks.
func (w *world) source(_ context.Context, _, _ int64, ms []*labels.Matcher) (storage.ChunkSeriesSet, error) {
	var found []storage.Series
	for i, ls := range w.labels {
		if !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(ls.Get(m.Name)) }) {
			found = append(found, storage.NewListSeries(ls, w.samples[i]))
		}
	}
	return storage.NewSeriesSetToChunkSet(&list{of: found}), nil
}

func (w *world) want(mint, maxt int64) map[string][]string {
	want := make(map[string][]string)
	for i, ls := range w.labels {
		for _, s := range w.samples[i] {
			if s.T() >= mint && s.T() <= maxt {
				want[ls.String()] = append(want[ls.String()], s.(sample).text())
			}
		}
	}
	return want
}

func all() [][]*labels.Matcher {
	return [][]*labels.Matcher{
		{labels.MustNewMatcher(labels.MatchEqual, "__name__", "x")},
		{labels.MustNewMatcher(labels.MatchRegexp, "n", "[1-3]")},
	}
}

// read returns the samples of the blocks in a directory.
func read(t *testing.T, dir string) map[string][]string {
	t.Helper()
	found := make(map[string][]string)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		block, err := tsdb.OpenBlock(nil, filepath.Join(dir, entry.Name()), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		q, err := tsdb.NewBlockQuerier(block, math.MinInt64, math.MaxInt64)
		if err != nil {
			t.Fatal(err)
		}
		set := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "n", ".*"))
		for set.Next() {
			key := set.At().Labels().String()
			it := set.At().Iterator(nil)
			for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
				s := sample{t: it.AtT()}
				switch kind {
				case chunkenc.ValHistogram:
					_, s.h = it.AtHistogram(nil)
				case chunkenc.ValFloatHistogram:
					_, s.fh = it.AtFloatHistogram(nil)
				default:
					_, s.v = it.At()
				}
				if meta := block.Meta(); s.t < meta.MinTime || s.t >= meta.MaxTime {
					t.Errorf("block of [%d, %d) has a sample at %d", meta.MinTime, meta.MaxTime, s.t)
				}
				found[key] = append(found[key], s.text())
			}
		}
		if err := errors.Join(set.Err(), q.Close(), block.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func wantSame(t *testing.T, got, want map[string][]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d series, want %d", len(got), len(want))
	}
	for key, samples := range want {
		if !slices.Equal(got[key], samples) {
			t.Errorf("%s: %d samples, want %d", key, len(got[key]), len(samples))
		}
	}
}

// TestBlocks: blocks have exactly the samples of the range, and an export that was interrupted goes on.
func TestBlocks(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	mint, maxt := start+hour/2, start+4*hour
	b := export.Blocks{From: w.source, Selection: export.Selection{Selectors: all(), Mint: mint, Maxt: maxt}, Dir: dir, Name: "a"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	interrupted := b
	interrupted.From = func(ctx context.Context, mint, maxt int64, ms []*labels.Matcher) (storage.ChunkSeriesSet, error) {
		if mint > start+hour {
			cancel()
			return nil, context.Canceled
		}
		return w.source(ctx, mint, maxt, ms)
	}
	if _, err := interrupted.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	first, err := os.ReadDir(dir)
	if err != nil || len(first) != 1 {
		t.Fatalf("%d blocks, %v", len(first), err)
	}
	progress, err := b.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := os.ReadDir(dir)
	if err != nil || len(blocks) != 3 || !slices.ContainsFunc(blocks, func(e os.DirEntry) bool { return e.Name() == first[0].Name() }) {
		t.Errorf("%d blocks, %v", len(blocks), err)
	}
	want := w.want(mint, maxt)
	wantSame(t, read(t, dir), want)
	samples := 0
	for _, of := range want {
		samples += len(of)
	}
	if progress.Samples != int64(samples) {
		t.Errorf("%d samples reported, want %d", progress.Samples, samples)
	}
	if _, err := b.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if again, err := os.ReadDir(dir); err != nil || len(again) != len(blocks) {
		t.Errorf("%d blocks after a second run, %v", len(again), err)
	}
	// A longer time, as of an export that ends now: the last block is written again, in place of the shorter one.
	b.Selection.Maxt += hour / 2
	if _, err := b.Run(t.Context()); err != nil {
		t.Error(err)
	}
	wantSame(t, read(t, dir), w.want(mint, maxt+hour/2))
	// Another source has blocks of its own.
	other := b
	other.Name = "other"
	if _, err := other.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if again, err := os.ReadDir(dir); err != nil || len(again) != 2*len(blocks) {
		t.Errorf("%d blocks of two sources, %v", len(again), err)
	}
	b.Selection.Selectors = [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchEqual, "n", "none")}}
	b.Name = "b"
	if _, err := b.Run(t.Context()); !errors.Is(err, export.ErrNothing) {
		t.Error(err)
	}
}

// TestOpenMetrics parses what was written with upstream's parser.
func TestOpenMetrics(t *testing.T) {
	w := newWorld(t)
	w.labels = append(w.labels, labels.FromStrings("__name__", "x.y", "n", "6", "a.b", "c"), labels.FromStrings("n", "7"))
	w.samples = append(w.samples, []chunks.Sample{sample{t: start, v: 0.1}}, []chunks.Sample{sample{t: start + 1, v: 2}})
	var out strings.Builder
	sel := export.Selection{Selectors: [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchRegexp, "n", ".+")}}, Mint: start, Maxt: start + 5*hour}
	progress, err := export.OpenMetrics(t.Context(), w.source, sel, &out, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string][]string)
	p := textparse.NewOpenMetricsParser([]byte(out.String()), labels.NewSymbolTable())
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, at, v := p.Series()
		var ls labels.Labels
		p.Labels(&ls)
		if math.IsNaN(v) {
			v = math.NaN() // one NaN is as good as another in text
		}
		got[ls.String()] = append(got[ls.String()], sample{t: *at, v: v}.text())
	}
	want, left := make(map[string][]string), int64(0)
	for i, ls := range w.labels {
		for _, s := range w.samples[i] {
			if of := s.(sample); of.Type() != chunkenc.ValFloat || !ls.Has("__name__") || math.Float64bits(of.v) == math.Float64bits(seriestest.StaleNaN) {
				left++
				continue
			} else if math.IsNaN(of.v) {
				s = sample{t: of.t, v: math.NaN()}
			}
			want[ls.String()] = append(want[ls.String()], s.(sample).text())
		}
	}
	wantSame(t, got, want)
	if progress.Left != left || left == 0 {
		t.Errorf("%d samples left out, want %d", progress.Left, left)
	}
}

// TestDigest: digests do not depend on chunks or on the order of series, and change with each sample.
func TestDigest(t *testing.T) {
	w := newWorld(t)
	sel := export.Selection{Selectors: all(), Mint: start, Maxt: start + 5*hour}
	sums := func(w *world) string {
		t.Helper()
		days, err := export.Digest(t.Context(), w.source, sel, nil)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(days)
	}
	want := sums(w)
	for range 20 {
		i := rand.IntN(len(w.samples))
		j := rand.IntN(len(w.samples[i]))
		before := w.samples[i][j].(sample)
		changed := before
		switch {
		case changed.h != nil:
			changed.h = changed.h.Copy()
			changed.h.ZeroCount++
			changed.h.Count++
		case changed.fh != nil:
			changed.fh = changed.fh.Copy()
			changed.fh.Sum++
		default:
			changed.v = math.Float64frombits(math.Float64bits(changed.v) + 1)
		}
		if w.samples[i][j] = changed; sums(w) == want {
			t.Errorf("the digest is the same with another sample %d of series %d", j, i)
		}
		w.samples[i][j] = before
	}
	var samples int64
	each := make(map[string]bool)
	days, err := export.Digest(t.Context(), w.source, sel, func(ls labels.Labels, d export.DayDigest) {
		samples += d.Samples
		each[fmt.Sprint(ls, d.Start)] = true
	})
	if err != nil || len(days) == 0 {
		t.Fatal(err)
	}
	for _, d := range days {
		samples -= d.Samples
	}
	if samples != 0 || len(each) < len(w.labels) {
		t.Errorf("%d samples more by series, %d series and days", samples, len(each))
	}
}

// TestMissing: of one series those samples are missing in another at whose times that has none, whatever values it has.
func TestMissing(t *testing.T) {
	of := func(times ...int64) storage.ChunkSeries {
		var samples []chunks.Sample
		for _, at := range times {
			samples = append(samples, sample{t: at, v: math.Float64frombits(0x7ff8000000000003 + uint64(at))})
		}
		meta, err := chunks.ChunkFromSamples(samples)
		if err != nil {
			t.Fatal(err)
		}
		return &storage.ChunkSeriesEntry{ChunkIteratorFn: func(chunks.Iterator) chunks.Iterator { return storage.NewListChunkSeriesIterator(meta) }}
	}
	for _, c := range []struct {
		name       string
		one, other storage.ChunkSeries
		want       []int64
	}{
		{"no other", of(1, 3), nil, []int64{1, 3}},
		{"the same", of(1, 3), of(1, 3), nil},
		{"more", of(1, 3), of(0, 1, 2, 3, 4), nil},
		{"a hole", of(1, 2, 3, 4, 5), of(1, 2, 5), []int64{3, 4}},
		{"all after it", of(1, 2), of(3, 4), []int64{1, 2}},
		{"all before it", of(3, 4), of(1, 2), []int64{3, 4}},
		{"beside the range", of(0, 5, 11), of(0), []int64{5}},
	} {
		missing, n, err := export.Missing(c.one, c.other, 1, 10)
		var got []int64
		if missing != nil {
			for it := missing.Iterator(nil); it.Next(); {
				values := it.At().Chunk.Iterator(nil)
				for values.Next() != chunkenc.ValNone {
					at, v := values.At()
					if got = append(got, at); math.Float64bits(v) != 0x7ff8000000000003+uint64(at) {
						t.Errorf("%s: the value at %d is %x", c.name, at, math.Float64bits(v))
					}
				}
			}
		}
		if err != nil || !slices.Equal(got, c.want) || n != int64(len(got)) {
			t.Errorf("%s: %d missing, at %v, want %v: %v", c.name, n, got, c.want, err)
		}
	}
}

// TestPaced: all samples come, and a rate that is far too low makes the reader wait, until its context ends.
func TestPaced(t *testing.T) {
	w := newWorld(t)
	sel := export.Selection{Selectors: all(), Mint: start, Maxt: start + 5*hour}
	want, err := export.Digest(t.Context(), w.source, sel, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := export.Digest(t.Context(), export.Paced(w.source, 1e5), sel, nil)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v, %v", got, want, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := export.Digest(ctx, export.Paced(w.source, 1), sel, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
