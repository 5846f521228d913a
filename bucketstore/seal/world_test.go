package seal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/seal"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

const (
	minute = int64(time.Minute / time.Millisecond)
	hour   = 60 * minute
	// worldBase is a base in whose neighbourhood the world lives.
	worldBase = 30 * series.Period
	// maxOffset is how far the clocks of a world are from its time, either way.
	maxOffset = 5 * minute
)

// A world is a store with writers and sealers, in which one thing happens after
// the other, and the same things for the same seed.
type world struct {
	rand   *rand.Rand
	now    int64
	store  *memory
	schema series.Schema
	series []testSeries
	// samples is what was written of each row.
	samples map[rowName]map[int64]*sample
	writers []*writer
	// recent are series and times of some samples that were written lately.
	recent [8]struct {
		series int
		t      int64
	}
	// flying are writes that have not arrived.
	flying  []flight
	sealers []*actor
	// maxStall is how long sealers stall at most, maxFlight how long a write is under
	// way.
	maxStall, maxFlight int64
	// unleased says that each sealer has a META of its own, so that nothing keeps
	// them from working at once.
	unleased bool
	// isTight says that mutations and batches are much smaller than usual.
	isTight bool
	// lax says that deadlines of requests do not count.
	lax bool
	err error

	stalls, deaths, late, sealed, dropped int
}

type rowName struct {
	series int
	base   int64
}

// A sample is what was written at a time: one value that went to l, and one that
// did not. Where there are both that in l counts.
type sample struct {
	late, raw string
	label     int64
	// last is what arrived last, and whether that counts is promised if everything
	// came from one writer, one after the other, and nothing too early.
	last       string
	writer     *writer
	unpromised bool
	flying     int
}

func (s *sample) value() string {
	if s.late != "" {
		return s.late
	}
	return s.raw
}

type writer struct {
	offset int64
	direct *bucketstore.Direct
	// caught is what direct has just sent.
	caught []bucketstore.Mutation
}

// A flight is a write under way.
type flight struct {
	arrival int64
	mut     bucketstore.Mutation
	land    func() error
}

func newWorld(t testing.TB, seed uint64) *world {
	schema, err := series.NewSchema([]string{"host"}, false)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		rand:     rand.New(rand.NewPCG(seed, 0)),
		store:    newMemory(),
		schema:   schema,
		samples:  make(map[rowName]map[int64]*sample),
		maxStall: 20 * hour, maxFlight: minute,
	}
	w.now = worldBase + w.rand.Int64N(int64(3*series.IndexPeriod)) - 10*series.Window
	if w.rand.IntN(2) == 0 {
		w.now = worldBase - 10*series.Window + w.rand.Int64N(series.Window)
	}
	for _, ls := range []labels.Labels{
		labels.FromStrings("__name__", "up", "host", "a"),
		labels.FromStrings("__name__", "up", "host", "b"),
		labels.FromStrings("__name__", "up!", "x", `y,z=\`),
		labels.FromStrings("nameless", "yes"),
	} {
		w.series = append(w.series, newTestSeries(t, schema, ls))
	}
	for range 2 {
		w.writers = append(w.writers, w.newWriter())
	}
	return w
}

func (w *world) newWriter() *writer {
	wr := &writer{offset: w.rand.Int64N(2*maxOffset+1) - maxOffset}
	wr.direct = bucketstore.NewDirect(catcher{w.store, wr}, w.schema, func() time.Time { return time.UnixMilli(w.now + wr.offset) })
	return wr
}

// A catcher keeps what is applied.
type catcher struct {
	bucketstore.Store
	writer *writer
}

func (c catcher) Apply(_ context.Context, _ bucketstore.Table, muts []bucketstore.Mutation) error {
	for _, m := range muts { // their memory is used again
		caught := bucketstore.Mutation{Key: bytes.Clone(m.Key)}
		for _, op := range m.Ops {
			op.Qualifier, op.Value = bytes.Clone(op.Qualifier), bytes.Clone(op.Value)
			caught.Ops = append(caught.Ops, op)
		}
		c.writer.caught = append(c.writer.caught, caught)
	}
	return nil
}

// write sends a few samples of one series, by one writer.
func (w *world) write() error {
	wr := w.writers[w.rand.IntN(len(w.writers))]
	n := w.rand.IntN(len(w.series))
	if w.rand.IntN(4) > 0 {
		n = w.rand.IntN(2) // so that the others have gaps
	}
	for range 1 + w.rand.IntN(4) {
		t := w.time(n, w.now+wr.offset)
		if i := w.rand.IntN(5 * len(w.recent)); i < len(w.recent) { // once more, soon after
			n, t = w.recent[i].series, w.recent[i].t
		}
		recent := &w.recent[w.rand.IntN(len(w.recent))]
		recent.series, recent.t = n, t
		if err := w.send(wr, n, t, w.value()); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) send(wr *writer, n int, t int64, v cell.Value) error {
	if t < 0 {
		return nil
	}
	if err := w.series[n].index(w.store, w.schema, t); err != nil {
		return err
	}
	wr.caught = nil
	s := bucketstore.Sample{Ref: wr.direct.Ref(w.series[n].key), T: t, Value: cell.Append(nil, v)}
	if err := wr.direct.Append(context.Background(), []bucketstore.Sample{s}); err != nil {
		return err
	}
	f := flight{arrival: w.now, mut: wr.caught[0]}
	if w.rand.IntN(3) == 0 {
		f.arrival += w.rand.Int64N(w.maxFlight)
	}
	base, _ := series.Split(t)
	row, label := rowName{n, base}, w.now+wr.offset
	held := w.sample(row, t)
	held.unpromised = held.unpromised || held.flying > 0 || held.writer != nil && held.writer != wr || t/series.Window > label/series.Window+1
	held.writer = wr
	held.flying++
	f.land = func() error {
		held.flying--
		held.put(t, label, canonical(v))
		return w.check(row)
	}
	w.flying = append(w.flying, f)
	if f.arrival == w.now {
		return w.land(len(w.flying) - 1)
	}
	return nil
}

func (w *world) sample(row rowName, t int64) *sample {
	if w.samples[row] == nil {
		w.samples[row] = make(map[int64]*sample)
	}
	s := w.samples[row][t]
	if s == nil {
		s = new(sample)
		w.samples[row][t] = s
	}
	return s
}

// put takes a value that was sent when the clock of its writer said label.
func (s *sample) put(t, label int64, v string) {
	s.last = v
	if away := t/series.Window - label/series.Window; away >= -1 && away <= 1 {
		s.raw = v
	} else if s.late == "" || label >= s.label {
		s.late, s.label = v, label
	}
}

// land lets a write arrive.
func (w *world) land(i int) error {
	f := w.flying[i]
	w.flying = append(w.flying[:i], w.flying[i+1:]...)
	w.store.apply(bucketstore.Metric, f.mut)
	return f.land()
}

// time returns a time for a sample of series n, when the clock says now.
func (w *world) time(n int, now int64) int64 {
	window := now / series.Window
	switch w.rand.IntN(12) {
	case 0: // the edges of a window
		return (window+w.rand.Int64N(7)-4)*series.Window + w.rand.Int64N(3) - 1
	case 1: // late
		return (now - w.rand.Int64N(20*series.Window)) / (20 * minute) * (20 * minute)
	case 2: // a backfill
		return (now - w.rand.Int64N(2*series.Period)) / hour * hour
	case 3: // early
		return now + w.rand.Int64N(5*series.Window)
	case 4, 5, 6: // once more
		base, _ := series.Split(now)
		written := w.samples[rowName{n, base}]
		for try := 0; try < 30 && len(written) > 0; try++ {
			t := now - w.rand.Int64N(6*series.Window)/90_000*90_000
			t -= t % 90_000
			if written[t] != nil {
				return t
			}
		}
	}
	return now - now%90_000 - w.rand.Int64N(60)*90_000
}

func (w *world) value() cell.Value {
	switch w.rand.IntN(13) {
	case 0:
		return cell.Value{Float: math.Float64frombits(w.rand.Uint64())}
	case 4:
		return cell.Value{Float: math.Float64frombits(value.StaleNaN)}
	case 1:
		return cell.Value{Start: 1 + w.rand.Int64N(1_000_000), Float: float64(w.rand.IntN(100))}
	case 2:
		h := tsdbutil.GenerateTestHistogram(w.rand.Int64N(5))
		return cell.Value{Histogram: h}
	case 3:
		h := tsdbutil.GenerateTestFloatHistogram(w.rand.Int64N(5))
		h.CounterResetHint = histogram.GaugeType
		return cell.Value{FloatHistogram: h}
	}
	return cell.Value{Float: float64(w.rand.IntN(1000)) / 8}
}

// check compares what is read of a row with what was written.
func (w *world) check(row rowName) error {
	key := w.schema.AppendRowKey(nil, w.series[row.series].key, row.base)
	got, err := samplesOf(w.store, key, row.base)
	if err != nil {
		return err
	}
	want := make(map[int64]string)
	for t, s := range w.samples[row] {
		if s.last == "" {
			continue // it has not arrived yet
		}
		want[t] = s.value()
		if !s.unpromised && want[t] != s.last {
			return fmt.Errorf("row %q: the model is wrong: sample at %d, written last: %x, is %x", key, t, s.last, want[t])
		}
	}
	if what := differ(got, want); what != "" {
		return fmt.Errorf("at %d, row %q: %s", w.now, key, what)
	}
	return nil
}

func (w *world) checkAll() error {
	for row := range w.samples {
		if err := w.check(row); err != nil {
			return err
		}
	}
	return nil
}

// advance lets time pass, and what is due in it happen.
func (w *world) advance(d int64) error {
	for target := w.now + d; ; {
		next, act := target, func() error { return nil }
		for i, f := range w.flying {
			if f.arrival < next {
				next, act = f.arrival, func() error { return w.land(i) }
			}
		}
		for _, a := range w.sealers {
			if a.due < next {
				next, act = a.due, a.step
			}
		}
		w.now = max(w.now, next)
		if err := act(); err != nil || next == target {
			return err
		}
	}
}

// errDead is what a sealer that dies is told by all it asks.
var errDead = errors.New("dead")

// An actor is a sealer at work. It and its world take turns: while one runs the
// other waits.
type actor struct {
	w      *world
	offset int64
	sealer *seal.Sealer
	// dead says that it gets nothing but errors from now on.
	dead bool
	// wake is until when it stalls or sleeps, by the time of the world; due is when
	// it must go on, because a request is under way.
	wake, due int64
	// parked and resume hand over the turn; finished says that there is nothing
	// left to run.
	parked, resume chan struct{}
	finished       bool
	// meta is what it has of its own if the world is unleased.
	meta *memory
}

// store returns the store that holds a table.
func (a *actor) store(table bucketstore.Table) *memory {
	if table == bucketstore.Meta && a.w.unleased {
		return a.meta
	}
	return a.w.store
}

const never = math.MaxInt64

func (w *world) newActor(t testing.TB) *actor {
	a := &actor{
		w: w, offset: w.rand.Int64N(2*maxOffset+1) - maxOffset, wake: w.now, due: never,
		parked: make(chan struct{}), resume: make(chan struct{}), finished: true, meta: newMemory(),
	}
	var err error
	a.sealer, err = seal.New(seal.Config{
		Store: slowStore{a}, Schema: w.schema, Now: a.now, Holder: fmt.Sprint(len(w.sealers)), RowsPerSecond: 1 + w.rand.Float64(),
	})
	if err != nil {
		t.Fatal(err)
	}
	a.sealer.SetHooks(a.sleep, a.withDeadline)
	if w.isTight {
		a.sealer.SetBounds(3, 100)
	}
	return a
}

// step lets the sealer run up to its next stop.
func (a *actor) step() error {
	a.due = never
	if a.finished {
		a.finished = false
		go func() {
			<-a.resume
			_ = a.sealer.Once(context.Background())
			a.finished = true
			a.wake = a.w.now + a.w.rand.Int64N(10*minute)
			a.parked <- struct{}{}
		}()
	}
	a.resume <- struct{}{}
	<-a.parked
	return a.w.err
}

// stop hands over to the world until it is time to go on.
func (a *actor) stop() {
	a.parked <- struct{}{}
	<-a.resume
}

// between is called between any two steps of the sealer: it may stall there, or
// die.
func (a *actor) between() error {
	w := a.w
	a.wake = w.now
	switch n := w.rand.IntN(2000); {
	case a.dead:
		return errDead
	case n < 2:
		a.dead = true
		w.deaths++
		return errDead
	case n < 5:
		a.stall(w.maxStall)
	case n < 9:
		a.stall(hour)
	case n < 60:
		a.stall(2 * minute)
	case n > 1900:
		a.stop()
	}
	if a.dead {
		return errDead
	}
	return nil
}

// stall lets up to so much time pass.
func (a *actor) stall(limit int64) {
	a.w.stalls++
	a.wake = a.w.now + a.w.rand.Int64N(limit)
	a.stop()
}

func (a *actor) clock() int64 { return a.w.now + a.offset }

func (a *actor) now() time.Time {
	_ = a.between()
	now := time.UnixMilli(a.clock())
	_ = a.between()
	return now
}

func (a *actor) sleep(_ context.Context, d time.Duration) error {
	if err := a.between(); err != nil {
		return err
	}
	if a.wake = a.w.now + d.Milliseconds(); d > 0 {
		a.stop()
	}
	return a.between()
}

// A deadline is a context that ends by the clock of an actor.
type deadline struct {
	context.Context
	a *actor
	t time.Time
}

func (a *actor) withDeadline(ctx context.Context, t time.Time) (context.Context, context.CancelFunc) {
	return deadline{ctx, a, t}, func() {}
}

func (d deadline) Deadline() (time.Time, bool) { return d.t, true }

func (d deadline) Err() error {
	if !d.a.w.lax && d.a.clock() >= d.t.UnixMilli() {
		return context.DeadlineExceeded
	}
	return nil
}

// A slowStore is the store as a sealer sees it: between any two steps time
// passes, requests to write METRIC take theirs but keep their deadlines, and
// answers get lost.
type slowStore struct{ a *actor }

func (s slowStore) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	if err := s.a.between(); err != nil {
		return err
	}
	err := s.a.store(req.Table).Scan(ctx, req, func(row bucketstore.Row) error {
		if err := s.a.between(); err != nil {
			return err
		}
		return fn(row)
	})
	if err != nil {
		return err
	}
	return s.a.between()
}

func (s slowStore) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	if err := s.a.between(); err != nil {
		return false, err
	}
	applied, err := s.a.store(table).CheckAndApply(ctx, table, cond, mut)
	if err != nil {
		return false, err
	}
	return applied, s.a.between()
}

func (s slowStore) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	a := s.a
	for _, mut := range muts {
		if a.w.rand.IntN(20) == 0 {
			a.stall(a.w.maxStall)
		}
		if err := a.between(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			a.w.late++
			return err
		}
		// It arrives before its deadline, at once or later, and when it is sent once
		// more, twice.
		for range 1 + a.w.rand.IntN(6)/5 {
			if d, ok := ctx.Deadline(); ok && !a.w.lax && a.w.rand.IntN(4) == 0 && a.clock() < d.UnixMilli() {
				a.wake = a.w.now + a.w.rand.Int64N(d.UnixMilli()-a.clock())
				a.due = a.wake
				a.stop()
			}
			a.w.store.apply(table, mut)
			if a.w.sealed++; a.w.err == nil {
				a.w.err = a.w.checkKey(mut.Key)
			}
		}
	}
	if a.w.rand.IntN(30) == 0 {
		a.w.dropped++
		return errors.New("answer lost")
	}
	return a.between()
}

func (slowStore) Drop(context.Context, bucketstore.Table, series.RowRange) error { panic("not used") }

func (slowStore) Close() error { return nil }

// checkKey checks the row with this key.
func (w *world) checkKey(key []byte) error {
	seriesKey, base, err := w.schema.ParseRowKey(nil, key)
	if err != nil {
		return err
	}
	for n := range w.series {
		if string(w.series[n].key) == string(seriesKey) {
			return w.check(rowName{n, base})
		}
	}
	return fmt.Errorf("a row %q was sealed, which nobody wrote", key)
}
