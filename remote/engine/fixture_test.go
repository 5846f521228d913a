package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// someTime is a time like any other: the middle of a window, far from the turn
// of an index period or of a base. In 1974.
const someTime = 30*series.Period + 3*series.IndexPeriod + 100*series.Window + series.Window/2

// clock is one that the test moves. It is safe for concurrent use.
type clock struct{ ms atomic.Int64 }

func newClock(ms int64) *clock {
	c := new(clock)
	c.ms.Store(ms)
	return c
}

func (c *clock) now() time.Time { return time.UnixMilli(c.ms.Load()) }

// backend is a kind of store.
type backend struct {
	name string
	// rounds is how long it may be tried at random.
	rounds int
	open   func(t testing.TB, c *clock) bucketstore.Store
}

func backends() []backend {
	return []backend{
		{"embedded", 60, openEmbedded},
		{"bigtable", 12, func(t testing.TB, _ *clock) bucketstore.Store { return bigtabletest.Open(t) }},
		{"buffered", 60, func(t testing.TB, c *clock) bucketstore.Store { return buffered{openEmbedded(t, c)} }},
	}
}

// buffered is a store that gets a buffer in front.
type buffered struct{ bucketstore.Store }

// Close does nothing: the test closes the store.
func (buffered) Close() error { return nil }

// openBuffer puts a buffer of small chunks between the engine and the spy.
func (f *fixture) openBuffer(t testing.TB, c *clock) {
	t.Helper()
	dir, err := buffer.OpenDir(t.TempDir(), c.now())
	if err != nil {
		t.Fatal(err)
	}
	b, err := buffer.Open(t.Context(), dir, buffer.Config{
		Store: f.store, Schema: f.cfg.Schema, Now: c.now, PartSamples: 3, MaxOpenBytes: 2 << 10, SegmentBytes: 4 << 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close the buffer: %v", err)
		}
	})
	f.cfg.Store, f.cfg.Appender = b, b
}

// openEmbedded opens an empty store on the disk that forgets by c.
func openEmbedded(t testing.TB, c *clock) bucketstore.Store {
	t.Helper()
	store, err := pebble.Open(pebble.Config{
		Dir:           t.TempDir(),
		Tables:        bucketstore.Tables(bucketstore.Retention{}),
		Now:           c.now,
		CacheBytes:    4 << 20,
		MemTableBytes: 4 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return storetest.Shared(store, true) // so that an index of another engine is found
}

// spy is a Store that notes what passes through it, and that can fail.
type spy struct {
	bucketstore.Store
	// onApply, if set, is called before each Apply; an error is its answer.
	// afterApply, if set, is called after each that went well.
	onApply, afterApply func(bucketstore.Table, []bucketstore.Mutation) error

	mu      sync.Mutex
	applied []applied
	scanned []scanned
}

type applied struct {
	table bucketstore.Table
	keys  []string
}

// scanned is a Scan and the rows that it found.
type scanned struct {
	req   bucketstore.ScanRequest
	keys  []string
	cells int
}

func (s *spy) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if s.onApply != nil {
		if err := s.onApply(table, muts); err != nil {
			return err
		}
	}
	if err := s.Store.Apply(ctx, table, muts); err != nil {
		return err
	}
	a := applied{table: table}
	for _, m := range muts {
		a.keys = append(a.keys, string(m.Key))
	}
	s.mu.Lock()
	s.applied = append(s.applied, a)
	s.mu.Unlock()
	if s.afterApply != nil {
		return s.afterApply(table, muts)
	}
	return nil
}

func (s *spy) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	sc := scanned{req: req}
	err := s.Store.Scan(ctx, req, func(r bucketstore.Row) error {
		sc.keys = append(sc.keys, string(r.Key))
		sc.cells += len(r.Cells)
		return fn(r)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scanned = append(s.scanned, sc)
	return err
}

func (s *spy) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied, s.scanned = nil, nil
}

// scans returns the scans of a table since reset.
func (s *spy) scans(table bucketstore.Table) (found []scanned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sc := range s.scanned {
		if sc.req.Table == table {
			found = append(found, sc)
		}
	}
	return found
}

// rows returns how many rows were applied to a table since reset.
func (s *spy) rows(table bucketstore.Table) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.applied {
		if a.table == table {
			n += len(a.keys)
		}
	}
	return n
}

// fixture is an engine over a store that is watched.
type fixture struct {
	*engine.Engine
	cfg   engine.Config
	store *spy
	clock *clock
	reg   *prometheus.Registry
	// unchecked says that the test damages the store, or that scans of it fail.
	unchecked bool
}

// openFixture opens an engine on an empty embedded store.
func openFixture(t testing.TB, change ...func(*engine.Config)) *fixture {
	t.Helper()
	c := newClock(someTime)
	return openOn(t, openEmbedded(t, c), c, change...)
}

// openOn opens an engine on store. It flushes CURRENT only when it is closed,
// at the end of the test, unless change says otherwise.
func openOn(t testing.TB, store bucketstore.Store, c *clock, change ...func(*engine.Config)) *fixture {
	t.Helper()
	f := &fixture{store: &spy{Store: store}, clock: c}
	f.cfg = engine.Config{Store: f.store, Now: c.now, CurrentInterval: time.Hour, MaxFuture: engine.Unbounded}
	for _, fn := range change {
		fn(&f.cfg)
	}
	f.cfg.Appender = bucketstore.NewDirect(f.store, f.cfg.Schema, c.now, nil)
	if _, ok := store.(buffered); ok {
		f.openBuffer(t, c)
	}
	f.open(t)
	t.Cleanup(func() {
		f.close(t)
		if found := f.check(t); len(found) > 0 {
			t.Errorf("a check of the store finds %q", found)
		}
	})
	return f
}

// check returns what a check of the store finds.
func (f *fixture) check(t testing.TB) (found []string) {
	t.Helper()
	if f.unchecked {
		return nil
	}
	ctx, horizons := context.Background(), make(map[string]int64)
	cell, err := meta.ReadCell(ctx, f.store.Store, series.MetaHorizon)
	if err == nil && cell.Value != nil {
		err = json.Unmarshal(cell.Value, &horizons)
	}
	if err == nil {
		_, err = engine.Check(ctx, engine.CheckConfig{
			Store: f.store.Store, Schema: f.cfg.Schema, Horizon: horizons[rollup.Raw.String()],
			Report: func(f bucketstore.Finding) { found = append(found, f.String()) }, Progress: func(bucketstore.Table, int64, int64) {},
		})
	}
	if err != nil {
		t.Error("check the store:", err)
	}
	return found
}

func (f *fixture) open(t testing.TB) {
	t.Helper()
	f.reg = prometheus.NewRegistry()
	f.cfg.Registerer = f.reg
	e, err := engine.New(f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.Engine = e
}

func (f *fixture) close(t testing.TB) {
	t.Helper()
	if err := f.Close(context.Background()); err != nil {
		t.Errorf("close the engine: %v", err)
	}
}

// reopen closes the engine and opens one with empty memory.
func (f *fixture) reopen(t testing.TB) {
	t.Helper()
	f.close(t)
	f.open(t)
}

// append stores a batch of which nothing must be rejected.
func (f *fixture) append(t testing.TB, batch ...ingest.Series) {
	t.Helper()
	var rejected ingest.Rejected
	stored, err := f.Append(t.Context(), batch, &rejected)
	if err = errors.Join(err, rejected.Err()); err != nil {
		t.Fatal(err)
	}
	if want := samplesIn(batch); stored.Total() != want {
		t.Fatalf("%d samples stored, want %d", stored.Total(), want)
	}
}

func samplesIn(batch []ingest.Series) (n int) {
	for _, s := range batch {
		n += len(s.Samples) + len(s.Histograms) + len(s.Exemplars)
	}
	return n
}

// counter returns the value of a counter or gauge, 0 if it is not there.
func (f *fixture) counter(t testing.TB, name string, pairs ...string) float64 {
	t.Helper()
	families, err := f.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && slices.Equal(labelTexts(m), pairs) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

func labelTexts(m *dto.Metric) (texts []string) {
	for _, l := range m.GetLabel() {
		texts = append(texts, l.GetName(), l.GetValue())
	}
	return texts
}

func newSchema(t testing.TB, resource ...string) series.Schema {
	t.Helper()
	schema, err := series.NewSchema(resource)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// one is a series with samples at these times, each with its number as value.
func one(ls labels.Labels, times ...int64) ingest.Series {
	s := ingest.Series{Labels: ls}
	for i, t := range times {
		s.Samples = append(s.Samples, ingest.Sample{T: t, V: float64(i)})
	}
	return s
}

func match(name, value string) *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchEqual, name, value)
}

// everything asks for all samples of all series.
func everything() reader.Query {
	return reader.Query{Mint: math.MinInt64, Maxt: math.MaxInt64}
}

// collect returns what q selects, and fails if a promise about its form is
// broken.
func (f *fixture) collect(t testing.TB, q reader.Query) []ingest.Series {
	t.Helper()
	set, err := f.Select(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return collectChunks(t, set, q)
}

func collectChunks(t testing.TB, set storage.ChunkSeriesSet, q reader.Query) (found []ingest.Series) {
	t.Helper()
	for set.Next() {
		s := ingest.Series{Labels: set.At().Labels()}
		it := set.At().Iterator(nil)
		last := int64(math.MinInt64)
		for it.Next() {
			meta := it.At()
			samples := decode(t, meta.Chunk)
			switch n := len(samples); {
			case n == 0 || n > math.MaxUint16:
				t.Fatalf("%s: a chunk of %d samples", s.Labels, n)
			case meta.MinTime != samples[0].T || meta.MaxTime != samples[n-1].T:
				t.Fatalf("%s: a chunk of [%d, %d] says it is [%d, %d]", s.Labels, samples[0].T, samples[n-1].T, meta.MinTime, meta.MaxTime)
			case meta.MinTime < q.Mint || meta.MaxTime > q.Maxt:
				t.Fatalf("%s: a chunk of [%d, %d] for [%d, %d]", s.Labels, meta.MinTime, meta.MaxTime, q.Mint, q.Maxt)
			}
			for _, sample := range samples {
				if sample.T <= last {
					t.Fatalf("%s: time %d after %d", s.Labels, sample.T, last)
				}
				last = sample.T
			}
			s.Samples = append(s.Samples, samples...)
		}
		if err := it.Err(); err != nil {
			t.Fatal(err)
		}
		found = append(found, s)
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	wantSorted(t, found)
	return found
}

// wantSorted fails unless the label sets are sorted and unique.
func wantSorted(t testing.TB, found []ingest.Series) {
	t.Helper()
	for i := range found[min(1, len(found)):] {
		if labels.Compare(found[i].Labels, found[i+1].Labels) >= 0 {
			t.Fatalf("%s comes before %s", found[i].Labels, found[i+1].Labels)
		}
	}
}

func decode(t testing.TB, c chunkenc.Chunk) []ingest.Sample {
	t.Helper()
	if c.Encoding() != chunkenc.EncXOR {
		t.Fatalf("chunk of encoding %s", c.Encoding())
	}
	samples := iterate(t, c.Iterator(nil))
	if len(samples) != c.NumSamples() {
		t.Fatalf("%d samples in a chunk that says %d", len(samples), c.NumSamples())
	}
	return samples
}

func iterate(t testing.TB, it chunkenc.Iterator) (samples []ingest.Sample) {
	t.Helper()
	for it.Next() == chunkenc.ValFloat {
		ts, v := it.At()
		samples = append(samples, ingest.Sample{T: ts, V: v})
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return samples
}

// text writes series for people, and so that equal bits are equal text.
func text(found []ingest.Series) string {
	var b strings.Builder
	for _, s := range found {
		b.WriteString(s.Labels.String())
		for _, sample := range s.Samples {
			fmt.Fprintf(&b, " %d=%x", sample.T, math.Float64bits(sample.V))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func wantSeries(t testing.TB, what string, got []ingest.Series, want ...ingest.Series) {
	t.Helper()
	if got, want := text(got), text(want); got != want {
		t.Errorf("%s: found\n%swant\n%s", what, got, want)
	}
}

// eventually polls until ok holds, or fails after ten seconds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after ten seconds: %s", what)
		}
	}
}

// notAtomic makes the store of an engine one that may apply a part of the rows of an Apply.
func notAtomic(c *engine.Config) {
	c.Store = storetest.WithTraits(c.Store, func(t *bucketstore.Traits) { t.AtomicApply = false })
}
