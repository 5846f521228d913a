package buffer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/deletion"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/series"
)

// TestDeletionModel writes, deletes, flushes, kills and removes at random, and compares what is
// read with a map at every step: on the embedded store with one adapter, on Bigtable with two
// for each of two tenants, whose clocks differ, with buffers or with a sealer. Each series is
// written through one adapter.
func TestDeletionModel(t *testing.T) {
	for _, tt := range []struct {
		name     string
		adapters []deletionAdapter
		rounds   int
		open     func(t testing.TB) bucketstore.Store
	}{
		{"embedded", []deletionAdapter{{}}, 10, openPebble},
		{"embedded direct", []deletionAdapter{{direct: true}}, 7, openPebble},
		{"bigtable", []deletionAdapter{{tenant: "a"}, {tenant: "a", skew: 150_000}, {tenant: "b", skew: -100_000}, {tenant: "b"}}, 2, openFake},
		{"bigtable direct", []deletionAdapter{
			{direct: true, tenant: "a"}, {direct: true, tenant: "a", skew: 150_000}, {direct: true, tenant: "b", skew: -100_000}, {direct: true, tenant: "b"},
		}, 4, openFake},
	} {
		for seed := range storetest.Seeds(t, tt.rounds) {
			t.Run(fmt.Sprint(tt.name, " seed ", seed), func(t *testing.T) {
				t.Parallel()
				w := &deletionWorld{
					T: t, rng: rand.New(rand.NewPCG(seed, 7)), clock: new(clock), store: storetest.Shared(tt.open(t), len(tt.adapters) > 1), shared: len(tt.adapters) > 1,
					want: make(map[string]map[int64]*deletionSample), bases: make(map[string]map[int64]bool),
				}
				if w.begin = someTime; w.shared { // a sealer gives requests deadlines by the clock
					w.begin = time.Now().Add(time.Hour).UnixMilli()
				}
				w.clock.ms.Store(w.begin)
				for i := range tt.adapters {
					a := tt.adapters[i]
					a.w, a.number, a.dir = w, i, filepath.Join(t.TempDir(), "log")
					w.adapters = append(w.adapters, &a)
					a.start()
				}
				for step := range 100 {
					what := w.step()
					for _, a := range w.adapters {
						a.check(fmt.Sprintf("step %d, after %s", step, what))
					}
					if t.Failed() {
						return
					}
				}
				w.finish()
			})
		}
	}
}

func openFake(t testing.TB) bucketstore.Store {
	return bigtabletest.Open(t, bigtabletest.WithConfig(func(cfg *bigtable.Config) { cfg.Tables = append(cfg.Tables, bucketstore.LogTable()) }))
}

// A deletionWorld is a store and its adapters, and what they should show.
type deletionWorld struct {
	*testing.T
	rng   *rand.Rand
	clock *clock
	// begin is when the clock began.
	begin    int64
	store    bucketstore.Store
	shared   bool
	adapters []*deletionAdapter
	// want has the samples of each series key, bases the rows that were written.
	want  map[string]map[int64]*deletionSample
	bases map[string]map[int64]bool
	value float64
	steps int
}

type deletionSample struct {
	value string
	// doubtful says that it may be deleted or not: it was written before its adapter knew of a
	// deletion.
	doubtful bool
	step     int
}

// A deletionAdapter is a process.
type deletionAdapter struct {
	w      *deletionWorld
	number int
	tenant string
	// direct says that it has no buffer.
	direct bool
	// skew is how far its clock is ahead, in milliseconds.
	skew int64
	dir  string

	schema series.Schema
	// buffer is nil in direct mode.
	buffer   *buffer.Buffer
	store    bucketstore.Store
	appender bucketstore.Appender
	meta     *meta.Store
	records  *deletion.Records
	executor *deletion.Executor
	// knows are the stamps of deletions that it knows, by ID.
	knows map[string]int64
}

func (a *deletionAdapter) now() time.Time { return time.UnixMilli(a.w.clock.ms.Load() + a.skew) }

// start starts the process, as the adapter does.
func (a *deletionAdapter) start() {
	w, ctx := a.w, a.w.Context()
	if a.tenant != "" {
		var err error
		if a.schema, err = a.schema.ForTenant(a.tenant); err != nil {
			w.Fatal(err)
		}
	}
	rows := &lasting{Store: w.store}
	var err error
	if a.meta, err = meta.Open(ctx, rows, a.schema, a.now); err != nil {
		w.Fatal(err)
	}
	before := w.deletions()
	if a.direct {
		if err := a.meta.Init(ctx); err != nil {
			w.Fatal(err)
		}
		a.openRecords()
		a.openDirect(rows)
	} else {
		a.openBuffer(rows)
	}
	a.executor = deletion.NewExecutor(deletion.ExecutorConfig{Records: a.records, Store: a.store, Find: deletion.FindIn(a.find), RowsPerSecond: 1e9})
	a.learn(before)
}

func (a *deletionAdapter) openRecords() {
	var err error
	a.records, err = deletion.Open(a.w.Context(), deletion.Config{Meta: a.meta, Schema: a.schema, Now: a.now})
	if err != nil {
		a.w.Fatal(err)
	}
}

// openDirect opens direct mode. Where there is a seal.Clock it sends what may have been written
// before the start to l.
func (a *deletionAdapter) openDirect(rows bucketstore.Store) {
	var rawFrom bucketstore.RawFrom
	if started := a.now().UnixMilli(); a.w.shared {
		rawFrom = func(time.Time) int64 { return started + 1 }
	}
	direct := bucketstore.NewDirect(rows, a.schema, a.now, rawFrom)
	direct.OnArrival(a.records.Arrival)
	a.store, a.appender = rows, direct
}

func (a *deletionAdapter) openBuffer(rows bucketstore.Store) {
	w := a.w
	dir, err := buffer.OpenDir(a.dir, a.now())
	if err != nil {
		w.Fatal(err)
	}
	if err := dir.Bind(w.Context(), buffer.Terms{Store: a.meta, Location: "here", Now: a.now}); err != nil {
		w.Fatal(err)
	}
	a.openRecords()
	a.buffer, err = buffer.Open(w.Context(), dir, buffer.Config{
		Store: rows, Schema: a.schema, Now: a.now, SweepInterval: time.Hour, Barriers: a.records.Barriers(),
		PartSamples: 3, MaxOpenBytes: 4 << 10, SegmentBytes: 1000, MaxLogBytes: 8000,
		Die: func(err error) { w.Errorf("Die: %v", err) },
	})
	if err != nil {
		w.Fatal(err)
	}
	if err := a.records.SetBuffer(w.Context(), a.buffer); err != nil {
		w.Fatal(err)
	}
	a.store, a.appender = a.buffer, a.buffer
}

// seal seals what is due, if now is a turn of the sealer, which does not end during the pause.
func (a *deletionAdapter) seal() {
	now := a.now().UnixMilli()
	if in := now & (series.Window - 1); in < 16*60_000 || in > series.Window-30*60_000 {
		return
	}
	a.writeIndex()
	isPaused := a.w.rng.IntN(2) == 0
	rows := &pausing{Store: a.w.store, pause: func() {
		if !isPaused {
			isPaused = true // the sealer has read, and the others go on before it writes
			a.w.clock.ms.Add(a.w.rng.Int64N(100_000))
			a.w.adapters[a.w.rng.IntN(len(a.w.adapters))].delete()
			a.w.clock.ms.Add(a.w.rng.Int64N(100_000))
			for _, other := range a.w.adapters {
				other.advance()
			}
		}
	}}
	sealer := seal.New(seal.Config{Store: rows, Tenants: jobs.NamedTenants(a.schema), Now: a.now, RowsPerSecond: 1e9, Held: a.records.Covered})
	err := sealer.Once(a.w.Context())
	if err != nil && !errors.Is(err, jobs.ErrHeld) {
		a.w.Fatal(err)
	}
}

// A pausing store calls pause after each read of METRIC.
type pausing struct {
	bucketstore.Store
	pause func()
}

func (s *pausing) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	err := s.Store.Scan(ctx, req, fn)
	if req.Table == bucketstore.Metric {
		s.pause()
	}
	return err
}

// writeIndex writes the rows of INDEX by which a sealer finds rows, of the last periods.
func (a *deletionAdapter) writeIndex() {
	var muts []bucketstore.Mutation
	add := func(key []byte, value string) {
		muts = append(muts, bucketstore.Mutation{Key: key, Ops: []bucketstore.Op{{Kind: bucketstore.SetCell, Family: series.FamilyIndex, Qualifier: []byte(series.QualifierIndex), Value: []byte(value)}}})
	}
	for period := series.PeriodOf(a.w.begin - 2*series.Period); period <= a.now().UnixMilli(); period += series.IndexPeriod {
		for _, name := range []string{"m0", "m1"} {
			add(a.schema.AppendValueKey(nil, labels.MetricName, name, period), name)
		}
		for n := range 4 {
			for by := range a.w.adapters {
				other := deletionAdapter{w: a.w, number: by, schema: a.schema}
				key := other.keyOf(n)
				if a.w.bases[string(key)] != nil {
					add(append(a.schema.AppendPostingPrefix(nil, labels.MetricName, fmt.Sprint("m", n%2), period), key...), "")
				}
			}
		}
	}
	if err := a.w.store.Apply(a.w.Context(), bucketstore.Index, muts); err != nil {
		a.w.Fatal(err)
	}
}

func (a *deletionAdapter) find(_ context.Context, ms []*labels.Matcher, limit int64, fn func([]byte, []int64)) error {
	for key, bases := range a.w.bases {
		ls, err := a.schema.ParseSeriesKey([]byte(key), new(labels.ScratchBuilder))
		if err != nil || slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(ls.Get(m.Name)) }) {
			continue
		}
		fn([]byte(key), slices.DeleteFunc(slices.Sorted(maps.Keys(bases)), func(base int64) bool { return base >= limit }))
	}
	return nil
}

// deletions returns what META has.
func (w *deletionWorld) deletions() map[string]meta.Deletion {
	all, err := w.adapters[0].meta.Deletions(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	found := make(map[string]meta.Deletion)
	for _, d := range all {
		found[d.ID] = d
	}
	return found
}

// learn notes that a has read META, which had before. If a has raised the stamp of a deletion,
// what was written since is in doubt.
func (a *deletionAdapter) learn(before map[string]meta.Deletion) {
	a.knows = make(map[string]int64)
	for id, d := range a.w.deletions() {
		a.knows[id] = d.Stamp
		if old, ok := before[id]; ok && old.Stamp < d.Stamp {
			a.w.eachIn(d, func(_ string, _ int64, s *deletionSample) { s.doubtful = true })
		}
	}
}

// eachIn calls fn with the samples that a deletion is about.
func (w *deletionWorld) eachIn(d meta.Deletion, fn func(key string, at int64, s *deletionSample)) {
	for key, samples := range w.want {
		for at, s := range samples {
			if w.isIn(d, key, at) {
				fn(key, at, s)
			}
		}
	}
}

func (w *deletionWorld) isIn(d meta.Deletion, key string, at int64) bool {
	var schema series.Schema
	if d.Tenant != "" {
		schema, _ = schema.ForTenant(d.Tenant)
	}
	ls, err := schema.ParseSeriesKey([]byte(key), new(labels.ScratchBuilder))
	if err != nil || at < d.Start || at >= d.Limit {
		return false
	}
	for _, m := range d.Matchers {
		kind := map[string]labels.MatchType{"=": labels.MatchEqual, "=~": labels.MatchRegexp, "!=": labels.MatchNotEqual}[m.Type]
		if !labels.MustNewMatcher(kind, m.Name, m.Value).Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// step does one operation and returns its name.
func (w *deletionWorld) step() string {
	w.steps++
	a := w.adapters[w.rng.IntN(len(w.adapters))]
	switch w.rng.IntN(16) {
	case 0:
		if a.buffer != nil {
			a.buffer.Kill()
		}
		a.start()
		return "a death"
	case 1:
		a.close()
		a.start()
		return "a stop"
	case 2:
		if a.direct && w.shared {
			a.seal()
		} else if err := a.flush(); err != nil {
			w.Fatal(err)
		}
		return "a flush"
	case 3:
		w.clock.ms.Add(w.rng.Int64N(2 * series.Window))
		if a.buffer != nil {
			a.buffer.Sweep()
		}
		return "a sweep"
	case 4:
		w.clock.ms.Add(w.rng.Int64N(1_200_000))
		return "some minutes"
	case 5, 6:
		a.advance()
		return "an executor"
	case 7, 8:
		a.delete()
		return "a deletion"
	case 9:
		before := w.deletions()
		if err := a.records.Poll(w.Context()); err != nil {
			w.Fatal(err)
		}
		a.learn(before)
		return "a poll"
	}
	w.clock.ms.Add(w.rng.Int64N(30_000))
	a.write()
	return "samples"
}

func (a *deletionAdapter) flush() error {
	if a.buffer == nil {
		return nil
	}
	return a.buffer.Flush(a.w.Context())
}

func (a *deletionAdapter) close() {
	if a.buffer == nil {
		return
	}
	if err := a.buffer.Close(); err != nil {
		a.w.Fatal(err)
	}
}

// advance runs the executor. That some deletions wait is no error.
func (a *deletionAdapter) advance() {
	before := a.w.deletions()
	err := a.executor.Advance(a.w.Context())
	if err != nil && !deletion.IsWaiting(err) {
		a.w.Fatal(err)
	}
	a.learn(before)
}

// keyOf returns one of the series that a writes.
func (a *deletionAdapter) keyOf(n int) []byte {
	key, err := a.schema.AppendSeriesKey(nil, labels.FromStrings("__name__", fmt.Sprint("m", n%2), "n", fmt.Sprint(n), "by", fmt.Sprint(a.number)))
	if err != nil {
		a.w.Fatal(err)
	}
	return key
}

// time returns the time of a sample or of a bound: near the clock, or older.
func (w *deletionWorld) time() int64 {
	at := w.clock.ms.Load() - w.rng.Int64N(600_000)
	switch w.rng.IntN(4) {
	case 0:
		at -= w.rng.Int64N(3 * series.Window)
	case 1:
		at = w.begin - w.rng.Int64N(2*series.Period)
	}
	return at / 10_000 * 10_000
}

func (a *deletionAdapter) write() {
	w := a.w
	var samples []bucketstore.Sample
	for range 1 + w.rng.IntN(8) {
		w.value++
		s := bucketstore.Sample{Ref: a.appender.Ref(a.keyOf(w.rng.IntN(4))), T: w.time(), V: w.value}
		if w.rng.IntN(6) == 0 {
			s.Value = histogramValue(uint64(w.value))
		}
		samples = append(samples, s)
	}
	if err := a.appender.Append(w.Context(), samples); err != nil {
		w.Fatal(err)
	}
	known := w.deletions()
	for _, s := range samples {
		key := string(s.Ref.SeriesKey())
		if w.want[key] == nil {
			w.want[key], w.bases[key] = make(map[int64]*deletionSample), make(map[int64]bool)
		}
		base, _ := series.Split(s.T)
		w.bases[key][base] = true
		sample := &deletionSample{value: valueText(s.V, s.Value), step: w.steps}
		for id, d := range known {
			sample.doubtful = sample.doubtful || d.Done == 0 && a.knows[id] != d.Stamp && w.isIn(d, key, s.T)
		}
		w.want[key][s.T] = sample
	}
}

func (a *deletionAdapter) delete() {
	w := a.w
	start, end := w.time(), w.time()
	switch w.rng.IntN(4) {
	case 0:
		end = series.MaxTime
	case 1:
		start, end = 0, series.MaxTime
	}
	if start > end {
		start, end = end, start
	}
	ms := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", fmt.Sprint("m", w.rng.IntN(2)))}
	if w.rng.IntN(2) == 0 {
		ms = append(ms, labels.MustNewMatcher(labels.MatchRegexp, "n", fmt.Sprintf("%d|%d", w.rng.IntN(4), w.rng.IntN(4))))
	}
	before := w.deletions()
	if err := a.records.Delete(w.Context(), ms, start, end+1); err != nil {
		w.Fatal(err)
	}
	a.learn(before)
	for id, d := range w.deletions() {
		if _, ok := before[id]; !ok {
			w.eachIn(d, func(key string, at int64, _ *deletionSample) { delete(w.want[key], at) })
		}
	}
}

// check compares what a shows of its series, if it knows all deletions.
func (a *deletionAdapter) check(when string) {
	for id, d := range a.w.deletions() {
		if d.Done == 0 && a.knows[id] != d.Stamp {
			return
		}
	}
	a.w.compare(when, a.read(a.records.Filter(a.store)), func(key string) bool {
		return slices.ContainsFunc([]int{0, 1, 2, 3}, func(n int) bool { return string(a.keyOf(n)) == key })
	})
}

// compare compares what was found of some series.
func (w *deletionWorld) compare(when string, found map[string]map[int64]string, ours func(key string) bool) {
	w.Helper()
	for key, samples := range w.want {
		if !ours(key) {
			continue
		}
		for at, s := range samples {
			if got, ok := found[key][at]; (ok || !s.doubtful) && got != s.value {
				w.Errorf("%s: %s at %d is %q, want %q of step %d, doubtful %t", when, key, at, got, s.value, s.step, s.doubtful)
			}
		}
		for at, got := range found[key] {
			if samples[at] == nil {
				w.Errorf("%s: %s at %d is %q, want none", when, key, at, got)
			}
		}
	}
}

func (a *deletionAdapter) read(store bucketstore.Store) map[string]map[int64]string {
	found := make(map[string]map[int64]string)
	err := store.Scan(a.w.Context(), bucketstore.ScanRequest{
		Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: sampleFamilies(),
	}, func(row bucketstore.Row) error {
		key, base, err := a.schema.ParseRowKey(nil, row.Key)
		if err != nil {
			return nil // of another tenant
		}
		if found[string(key)] == nil {
			found[string(key)] = make(map[int64]string)
		}
		return readRow(found[string(key)], base, row.Cells)
	})
	if err != nil {
		a.w.Fatal(err)
	}
	return found
}

// finish lets the executors end. Then the store alone has what is wanted, and META no deletion.
func (w *deletionWorld) finish() {
	for range 4 { // a deletion waits for what all know, and then for time
		for _, a := range w.adapters {
			a.advance()
		}
		w.clock.ms.Add(11 * 60_000)
	}
	w.clock.ms.Add(6 * series.Window)
	for _, a := range w.adapters {
		a.advance()
	}
	if left := w.deletions(); len(left) > 0 {
		w.Errorf("META has %v", left)
	}
	for _, a := range w.adapters {
		a.close()
	}
	schemas := []series.Schema{{}}
	for _, a := range w.adapters {
		schemas = append(schemas, a.schema)
		w.compare("at the end", a.read(w.store), func(key string) bool {
			_, err := a.schema.ParseSeriesKey([]byte(key), new(labels.ScratchBuilder))
			return err == nil
		})
	}
	storetest.CheckMeta(w, w.store, schemas...)
}
