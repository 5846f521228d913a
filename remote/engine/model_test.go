package engine_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/seriestest"
)

// awkwardLabels are label sets that a careless key would confuse with each
// other, or with bases around modelBase.
func awkwardLabels() []labels.Labels {
	base := func(n int64) string { return fmt.Sprintf("%013d", modelBase+n*series.Period) }
	return []labels.Labels{
		labels.FromStrings("__name__", "up"),
		labels.FromStrings("__name__", "up", "job", "a"),
		labels.FromStrings("__name__", "up", "job", "a", "instance", `x,y=z\`),
		labels.FromStrings("__name__", "up", "job", "b", "host", "h1"),
		labels.FromStrings("__name__", "up", "job", "b", "host", "h2", "podname", "p,1"),
		labels.FromStrings("__name__", "up", "podname", base(0)),
		labels.FromStrings("__name__", "up", base(0), "a"),
		labels.FromStrings("__name__", "up", base(-1), base(-1)),
		labels.FromStrings("__name__", "up,job=a"),
		labels.FromStrings("__name__", base(0)),
		labels.FromStrings("__name__", "up", "A", "sorts before the name"),
		labels.FromStrings("__name__", "up\n\x00", "a=b", "c", "ключ", "значение"),
		labels.FromStrings("__name__", "up", "job", strings.Repeat(`long,`, 200)+"1"),
		labels.FromStrings("__name__", "up", "job", strings.Repeat(`long,`, 200)+"2"),
	}
}

// modelBase is the base around whose start the model lives.
const modelBase = 30 * series.Period

// model is what an engine should hold, in its plainest form.
type model struct {
	rand   *rand.Rand
	clock  *clock
	labels []labels.Labels
	// samples are those of each label set.
	samples []map[int64]modelSample
	// lastWins says that the last write of a sample counts in any case. Direct mode
	// does not promise it of those far ahead of the clock.
	lastWins bool
	// latest are what CURRENT should hold of each label set, nil for nothing.
	latest []*ingest.Sample
}

type modelSample struct {
	v float64
	// ahead is set if the sample was more than a window ahead of the clock when it
	// was first written: until it is past it keeps that value.
	ahead bool
}

func newModel(r *rand.Rand, c *clock) *model {
	m := &model{rand: r, clock: c, labels: awkwardLabels()}
	m.latest = make([]*ingest.Sample, len(m.labels))
	for range m.labels {
		m.samples = append(m.samples, make(map[int64]modelSample))
	}
	return m
}

// write makes a batch and takes it.
func (m *model) write() (batch []ingest.Series) {
	for range 1 + m.rand.IntN(6) {
		n := m.rand.IntN(len(m.labels))
		s := ingest.Series{Labels: m.labels[n]}
		for range m.rand.IntN(8) {
			sample := ingest.Sample{T: m.time(n), V: m.value()}
			s.Samples = append(s.Samples, sample)
			m.put(n, sample)
		}
		batch = append(batch, s)
	}
	return batch
}

func (m *model) put(n int, s ingest.Sample) {
	if last := m.latest[n]; last == nil || last.T <= s.T {
		m.latest[n] = &s
	}
	w, now := s.T/series.Window, m.clock.ms.Load()/series.Window
	isRaw := now-1 <= w && w <= now+1
	have, ok := m.samples[n][s.T]
	if ok && have.ahead && isRaw && !m.lastWins {
		return
	}
	m.samples[n][s.T] = modelSample{v: s.V, ahead: have.ahead || w > now+1}
}

// time returns a time for a sample of label set n.
func (m *model) time(n int) int64 {
	now := m.clock.ms.Load()
	switch m.rand.IntN(8) {
	case 0: // the bounds of a base
		return modelBase + m.rand.Int64N(3)*series.Period - series.Period + m.rand.Int64N(3) - 1
	case 1: // the bounds of a window
		return (now/series.Window+m.rand.Int64N(6)-3)*series.Window + m.rand.Int64N(3) - 1
	case 2: // anywhere near
		return modelBase - series.Period + m.rand.Int64N(2*series.Period)
	case 3: // once more
		if t, ok := m.written(n); ok {
			return t
		}
	case 4:
		return []int64{0, series.MaxTime, series.MaxTime - 1, 1}[m.rand.IntN(4)]
	case 5:
		return now + m.rand.Int64N(5*series.Window)
	}
	return now - m.rand.Int64N(20)*15000
}

// written returns the time of some sample of label set n.
func (m *model) written(n int) (int64, bool) {
	times := slices.Sorted(maps.Keys(m.samples[n]))
	if len(times) == 0 {
		return 0, false
	}
	return times[m.rand.IntN(len(times))], true
}

func (m *model) value() float64 {
	special := []uint64{
		value.StaleNaN, value.NormalNaN, 0x7ff8000000abcdef, 0xfff0000000000001, 0x8000000000000000, 0,
		math.Float64bits(math.Inf(1)), math.Float64bits(math.Inf(-1)), 1, 0x7fefffffffffffff,
	}
	if n := m.rand.IntN(2 * len(special)); n < len(special) {
		return math.Float64frombits(special[n])
	}
	return float64(m.rand.IntN(1000)) / 8
}

// query makes one.
func (m *model) query() reader.Query {
	q := reader.Query{Mint: m.bound(), Maxt: m.bound()}
	if m.rand.IntN(8) > 0 && q.Mint > q.Maxt {
		q.Mint, q.Maxt = q.Maxt, q.Mint
	}
	if m.rand.IntN(5) == 0 {
		q.Mint, q.Maxt = math.MinInt64, math.MaxInt64
	}
	for range m.rand.IntN(4) {
		q.Matchers = append(q.Matchers, m.matcher())
	}
	return q
}

// bound returns an end of a range.
func (m *model) bound() int64 {
	switch m.rand.IntN(6) {
	case 0:
		return []int64{math.MinInt64, -1, 0, series.MaxTime, series.MaxTime + 1, math.MaxInt64}[m.rand.IntN(6)]
	case 1, 2:
		return modelBase + m.rand.Int64N(4)*series.Period - 2*series.Period + m.rand.Int64N(3) - 1
	case 3:
		return m.clock.ms.Load() + m.rand.Int64N(2*series.Window) - series.Window
	}
	if t, ok := m.written(m.rand.IntN(len(m.labels))); ok {
		return t + m.rand.Int64N(3) - 1
	}
	return modelBase
}

func (m *model) matcher() *labels.Matcher {
	var names, values []string
	m.labels[m.rand.IntN(len(m.labels))].Range(func(l labels.Label) {
		names, values = append(names, l.Name), append(values, l.Value)
	})
	names = append(names, "__name__", "job", "host", "absent")
	n := m.rand.IntN(len(names))
	typ := labels.MatchType(m.rand.IntN(4))
	texts := []string{"", "a", "up", "h1"}
	if typ == labels.MatchRegexp || typ == labels.MatchNotRegexp {
		texts = []string{"", ".*", ".+", "a|b", "up.*", "(up|long).+", "h[12]", "|a", "[^a]", "p,.", "x?", ".*a.*"}
	} else if n < len(values) && m.rand.IntN(4) > 0 {
		texts = values[n : n+1]
	}
	return labels.MustNewMatcher(typ, names[n], texts[m.rand.IntN(len(texts))])
}

// answer is what q should find.
func (m *model) answer(q reader.Query) (found []ingest.Series) {
	for n, ls := range m.labels {
		if !matches(ls, q.Matchers) {
			continue
		}
		s := ingest.Series{Labels: ls}
		for _, t := range slices.Sorted(maps.Keys(m.samples[n])) {
			if q.Mint <= t && t <= q.Maxt {
				s.Samples = append(s.Samples, ingest.Sample{T: t, V: m.samples[n][t].v})
			}
		}
		if len(s.Samples) > 0 {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b ingest.Series) int { return labels.Compare(a.Labels, b.Labels) })
	return found
}

// current is what CURRENT should show of all series.
func (m *model) current(mint int64) (found []ingest.Series) {
	for n, s := range m.latest {
		if s != nil && s.T >= mint && !value.IsStaleNaN(s.V) {
			found = append(found, ingest.Series{Labels: m.labels[n], Samples: []ingest.Sample{*s}})
		}
	}
	return found
}

func matches(ls labels.Labels, ms []*labels.Matcher) bool {
	return !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(ls.Get(m.Name)) })
}

// advance moves the clock, by nothing or by windows.
func (m *model) advance() {
	steps := []int64{0, 1, 15_000, series.Window / 2, series.Window, 3 * series.Window, 9*series.Window + 1}
	m.clock.ms.Add(steps[m.rand.IntN(len(steps))])
}

// TestModel compares random writes and queries with a sorted map, bit for bit.
func TestModel(t *testing.T) {
	for _, b := range backends() {
		for _, resource := range [][]string{nil, {"host", "podname"}} {
			t.Run(fmt.Sprintf("%s/resource labels %v", b.name, resource), func(t *testing.T) {
				const queries = 6
				r := seriestest.NewRand(t)
				c := newClock(modelBase - 3*series.Window)
				store := storetest.WithTraits(b.open(t, c), func(t *bucketstore.Traits) { t.ParallelScans = 1 + r.IntN(4) })
				if b.name == "buffered" {
					store = buffered{store}
				}
				f := openOn(t, store, c, func(cfg *engine.Config) {
					cfg.Schema = newSchema(t, resource...)
					setCacheSize(r, cfg)
				})
				m := newModel(r, c)
				m.lastWins = b.name == "buffered"
				for range storetest.Rounds(t, b.rounds) {
					m.advance()
					f.append(t, f.written(byte(r.IntN(3)), m.write())...)
					switch r.IntN(10) {
					case 0:
						setCacheSize(r, &f.cfg)
						f.reopen(t)
					case 1, 2:
						if err := f.FlushCurrent(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					if f.SetBatchBytes(16 << 20); r.IntN(2) == 0 {
						f.SetBatchBytes(1 + r.IntN(256))
					}
					f.SetMinScanSeries(1 + r.IntN(8))
					for range queries {
						compare(t, f, m.query(), m)
					}
					if b.name == "embedded" { // the other forgets by a clock of its own
						compareCurrent(t, f, m)
					}
				}
			})
		}
	}
}

// setCacheSize makes the engine cache few series, or not.
func setCacheSize(r *rand.Rand, cfg *engine.Config) {
	cfg.SeriesCache.MaxSeries = [...]int{0, 1, 4}[r.IntN(3)]
}

// compare asks q in every way and compares with the model.
func compare(t *testing.T, f *fixture, q reader.Query, m *model) {
	t.Helper()
	want := text(m.answer(q))
	what := fmt.Sprintf("clock %d, %v in [%d, %d]", m.clock.ms.Load(), q.Matchers, q.Mint, q.Maxt)
	if got := text(f.collect(t, q)); got != want {
		t.Fatalf("%s: Select found\n%swant\n%s", what, got, want)
	}
	chunked, err := f.ChunkQuerier(q.Mint, q.Maxt)
	if err != nil {
		t.Fatal(err)
	}
	if got := text(collectChunks(t, chunked.Select(t.Context(), true, nil, q.Matchers...), q)); got != want {
		t.Fatalf("%s: ChunkQuerier found\n%swant\n%s", what, got, want)
	}
	querier, err := f.Querier(q.Mint, q.Maxt)
	if err != nil {
		t.Fatal(err)
	}
	if got := text(collectSamples(t, querier.Select(t.Context(), false, nil, q.Matchers...))); got != want {
		t.Fatalf("%s: Querier found\n%swant\n%s", what, got, want)
	}
}

func collectSamples(t testing.TB, set storage.SeriesSet) (found []ingest.Series) {
	t.Helper()
	for set.Next() {
		found = append(found, ingest.Series{Labels: set.At().Labels(), Samples: iterate(t, set.At().Iterator(nil))})
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

func compareCurrent(t *testing.T, f *fixture, m *model) {
	t.Helper()
	mint := m.clock.ms.Load() - m.rand.Int64N(10*series.Window)
	got := f.current(t, mint)
	want := m.current(mint)
	slices.SortFunc(want, func(a, b ingest.Series) int {
		if c := strings.Compare(a.Labels.Get("__name__"), b.Labels.Get("__name__")); c != 0 {
			return c
		}
		return labels.Compare(a.Labels, b.Labels)
	})
	if text(got) != text(want) {
		t.Fatalf("clock %d, from %d on: current samples\n%swant\n%s", m.clock.ms.Load(), mint, text(got), text(want))
	}
}

// current returns the current samples of all series.
func (f *fixture) current(t testing.TB, mint int64, selectors ...[]*labels.Matcher) (found []ingest.Series) {
	t.Helper()
	if len(selectors) == 0 {
		selectors = [][]*labels.Matcher{nil}
	}
	samples, err := f.Current(t.Context(), selectors, mint)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		found = append(found, ingest.Series{Labels: s.Labels, Samples: []ingest.Sample{{T: s.T, V: s.V}}})
	}
	return found
}
