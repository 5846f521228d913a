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
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/jobstest"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

const (
	minute = int64(time.Minute / time.Millisecond)
	hour   = 60 * minute
	// worldBase is a base near the times of the world.
	worldBase = 30 * series.Period
	// maxOffset is how far right clocks differ from the time of the world.
	maxOffset = 5 * minute
)

// A world is a store with writers and sealers. It has one event after another, and the same
// events for the same seed.
type world struct {
	rand   *rand.Rand
	now    int64
	store  *memory
	schema series.Schema
	series []testSeries
	// samples is what was written of each row.
	samples map[rowName]map[int64]*sample
	writers []*writer
	// recent are series and times of some recent samples.
	recent [8]struct {
		series int
		t      int64
	}
	// inFlight are writes that have not arrived.
	inFlight []request
	sealers  []*actor
	// maxStall bounds a stall of a sealer, maxDelay the delay of a write.
	maxStall, maxDelay int64
	// unleased says that each sealer has a META of its own, so that all work at once.
	unleased bool
	// isTight says that mutations and batches are much smaller than usual.
	isTight bool
	// lax says that deadlines of requests do not count.
	lax bool
	err error

	// compares says that processes compare their clocks, some of which are wrong.
	compares  bool
	processes []*process
	// started and ids number processes, and writers by their clocks.
	started, ids int
	// One of calm steps is a failure of a process. In one of peace reads of a sealer a
	// writer with a wrong clock starts.
	calm, peace int
	// cutOff is the time until which no process can reach META/clock.
	cutOff int64
	// noMonotonic says that processes have no monotonic clock, only the wall clock.
	noMonotonic bool
	// maxFuture is how far ahead of their clocks writers accept samples. 0 is no bound.
	maxFuture time.Duration
	// heed, if not nil, replaces the RawFrom of writers.
	heed func(rawFrom int64) int64

	stalls, deaths, late, sealed, dropped int
	// raws counts samples in raw families, doubted those that went to l only because the
	// clock of their writer was in doubt.
	comparisons, raws, doubted int
}

type rowName struct {
	series int
	base   int64
}

// A sample is what was written at a time: one value that went to l, and one that did not.
// If there are both, the value in l counts.
type sample struct {
	late, raw string
	lateTime  int64
	// last is the last arrival. It is promised to count if everything came from writers
	// with one id, one after another, and nothing too early.
	last       string
	id         int
	unpromised bool
	inFlight   int
	// values are all arrivals. If isLoose one of them is promised, but not which: the clock
	// of a writer was wrong.
	values  map[string]bool
	isLoose bool
}

func (s *sample) value() string {
	if s.late != "" {
		return s.late
	}
	return s.raw
}

// A writer is a process that writes.
type writer struct {
	*process
	// id is shared with earlier writers on its machine. It changes when the clock is set.
	id     int
	direct *bucketstore.Direct
	// caught is what direct has just sent.
	caught []bucketstore.Mutation
}

// A request is a write in flight.
type request struct {
	arrival int64
	land    func() error
}

func newWorld(t testing.TB, seed uint64) *world {
	schema, err := series.NewSchema([]string{"host"})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		rand:     rand.New(rand.NewPCG(seed, 0)),
		store:    newMemory(),
		schema:   schema,
		samples:  make(map[rowName]map[int64]*sample),
		maxStall: 20 * hour, maxDelay: minute, calm: 20, peace: 30,
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
	return w
}

// addWriters starts two writers.
func (w *world) addWriters() {
	for range 2 {
		w.writers = append(w.writers, w.newWriter(w.offset(), w.newID()))
	}
}

func (w *world) newID() int {
	w.ids++
	return w.ids
}

// offset returns how far ahead the clock of a process is.
func (w *world) offset() int64 {
	if w.compares && w.rand.IntN(8) == 0 {
		return w.wrongOffset()
	}
	return w.rightOffset()
}

func (w *world) rightOffset() int64 { return w.rand.Int64N(2*maxOffset+1) - maxOffset }

// wrongOffset returns an offset that is most likely wrong: by minutes, by some windows and
// minutes, or by any time.
func (w *world) wrongOffset() int64 {
	minutes := 4 * w.rightOffset()
	switch w.rand.IntN(3) {
	case 0:
		return w.rand.Int64N(60*hour+1) - 30*hour
	case 1:
		return minutes + (w.rand.Int64N(13)-6)*series.Window
	}
	return minutes
}

func (w *world) newWriter(offset int64, id int) *writer {
	wr := &writer{process: w.newProcess(offset), id: id}
	wr.direct = bucketstore.NewDirect(catcher{w.store, wr}, w.schema, wr.now, func(time.Time) int64 { return w.rawFrom(wr.process) })
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
	if wr.isAsleep() {
		return nil
	}
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
	now := wr.wall()
	if t < 0 || w.maxFuture > 0 && t > now+w.maxFuture.Milliseconds() {
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
	mut := wr.caught[0]
	f := request{arrival: w.now}
	if w.rand.IntN(3) == 0 {
		f.arrival += w.rand.Int64N(w.maxDelay)
	}
	base, _ := series.Split(t)
	row := rowName{n, base}
	held := w.sample(row, t)
	held.unpromised = held.unpromised || held.inFlight > 0 || held.id != 0 && held.id != wr.id || t/series.Window > now/series.Window+1
	held.isLoose = held.isLoose || wr.isWrong()
	held.id = wr.id
	held.inFlight++
	switch op := mut.Ops[0]; {
	case op.Family != series.FamilyLate:
		w.raws++
	case series.RawFamily(now, t) != series.FamilyLate:
		w.doubted++
	}
	f.land = func() error {
		w.store.apply(bucketstore.Metric, mut)
		held.inFlight--
		held.put(mut.Ops[0], canonical(v))
		if !held.unpromised && !held.isLoose && held.value() != held.last {
			return fmt.Errorf("at %d, row %q: sample at %d, written last: %x, is %x", w.now, mut.Key, t, held.last, held.value())
		}
		if w.rand.IntN(4) > 0 {
			return nil // it takes time
		}
		return w.check(row)
	}
	w.inFlight = append(w.inFlight, f)
	if f.arrival == w.now {
		return w.land(len(w.inFlight) - 1)
	}
	return nil
}

func (w *world) sample(row rowName, t int64) *sample {
	if w.samples[row] == nil {
		w.samples[row] = make(map[int64]*sample)
	}
	s := w.samples[row][t]
	if s == nil {
		s = &sample{values: make(map[string]bool)}
		w.samples[row][t] = s
	}
	return s
}

// put stores an arrived value as the cell of op.
func (s *sample) put(op bucketstore.Op, v string) {
	s.last = v
	s.values[v] = true
	if op.Family != series.FamilyLate {
		s.raw = v
	} else if s.late == "" || op.Time >= s.lateTime {
		s.late, s.lateTime = v, op.Time
	}
}

// land makes a request arrive.
func (w *world) land(i int) error {
	f := w.inFlight[i]
	w.inFlight = append(w.inFlight[:i], w.inFlight[i+1:]...)
	return f.land()
}

// time returns a time for a sample of series n, when the clock says now.
func (w *world) time(n int, now int64) int64 {
	window := now / series.Window
	switch w.rand.IntN(12) {
	case 0: // the ends of a window
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
		if v, ok := got[t]; s.isLoose && ok && s.values[v] {
			want[t] = v
			continue
		}
		want[t] = s.value()
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

// advance lets time pass, with the events that are due.
func (w *world) advance(d int64) error {
	for target := w.now + d; ; {
		next, act := target, func() error { return nil }
		for i, f := range w.inFlight {
			if f.arrival < next {
				next, act = f.arrival, func() error { return w.land(i) }
			}
		}
		for _, a := range w.sealers {
			if a.due < next {
				next, act = a.due, a.step
			}
		}
		for _, p := range w.processes {
			if p.compareAt < next {
				next, act = p.compareAt, p.goOn
			}
		}
		w.now = max(w.now, next)
		if err := act(); err != nil || next == target {
			return err
		}
	}
}

// errDead is the error of all requests of a sealer that dies.
var errDead = errors.New("dead")

// An actor is a running sealer, in turn with its world.
type actor struct {
	*process
	sealer *seal.Sealer
	// lastRead is when it last read its clocks, wall and monotonic.
	lastRead struct {
		wall time.Time
		up   time.Duration
	}
	// dead says that all its requests fail from now on.
	dead bool
	// wake is until when it stalls or sleeps, by the time of the world; due is when it must
	// continue, because a request is in flight.
	wake, due int64
	// routine is the run of the sealer, or nil before the first.
	routine *jobstest.Routine
	// meta is its own META if the world is unleased.
	meta *memory
}

// store returns the store that holds a table.
func (a *actor) store(table bucketstore.Table) *memory {
	if table == bucketstore.Meta && a.w.unleased {
		return a.meta
	}
	return a.w.store
}

func (w *world) newActor(t testing.TB) *actor {
	a := &actor{
		process: w.newProcess(w.offset()), wake: w.now, due: never, meta: newMemory(),
	}
	a.sealer = seal.New(seal.Config{
		Store: slowStore{a}, Tenants: jobs.NamedTenants(w.schema), Now: a.now, Holder: fmt.Sprint(len(w.sealers)), RowsPerSecond: 1 + w.rand.Float64(), Workers: 1, Clock: a.clock,
	})
	if a.clock != nil {
		a.clock.SetUptime(a.uptimeOf)
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
	if a.routine.HasEnded() {
		a.routine = jobstest.Start(func() {
			_ = a.sealer.Once(context.Background())
			a.wake = a.w.now + a.w.rand.Int64N(10*minute)
		})
	}
	a.routine.Run()
	return a.w.err
}

// between is called between two steps of the sealer: it may stall there, or die.
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
		a.routine.Pass()
	}
	if a.dead {
		return errDead
	}
	return nil
}

// stall lets up to so much time pass. The machine is suspended, or the process stands
// still, or only the sealer does.
func (a *actor) stall(limit int64) {
	a.w.stalls++
	d := a.w.rand.Int64N(limit)
	a.wake = a.w.now + d
	switch a.w.rand.IntN(3) {
	case 0:
		a.suspend(d)
	case 1:
		a.hold(d)
	}
	a.routine.Pass()
}

func (a *actor) now() time.Time {
	_ = a.between()
	a.lastRead.wall, a.lastRead.up = a.process.now(), a.uptime()
	now := a.lastRead.wall
	_ = a.between()
	return now
}

// uptimeOf returns the monotonic time at which t was read, which is now or when the sealer
// last read its clock.
func (a *actor) uptimeOf(t time.Time) time.Duration {
	if t.Equal(a.lastRead.wall) {
		return a.lastRead.up
	}
	return a.uptime()
}

func (a *actor) sleep(_ context.Context, d time.Duration) error {
	if err := a.between(); err != nil {
		return err
	}
	if a.wake = a.w.now + d.Milliseconds(); d > 0 {
		a.routine.Pass()
	}
	return a.between()
}

// A deadline is a context that ends by the clocks of an actor.
type deadline struct {
	context.Context
	a  *actor
	t  time.Time
	up time.Duration
}

func (a *actor) withDeadline(ctx context.Context, t time.Time) (context.Context, context.CancelFunc) {
	return deadline{ctx, a, t, a.lastRead.up + t.Sub(a.lastRead.wall)}, func() {}
}

func (d deadline) Deadline() (time.Time, bool) { return d.t, true }

// left is the remaining time, in milliseconds.
func (d deadline) left() int64 {
	return min(d.t.UnixMilli()-d.a.wall(), (d.up - d.a.uptime()).Milliseconds())
}

func (d deadline) Err() error {
	if !d.a.w.lax && d.left() <= 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// A slowStore is the store as a sealer sees it: time passes between two steps, writes to
// METRIC take longer but keep their deadlines, and answers get lost.
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
	if req.Table == bucketstore.Metric {
		s.a.w.surprise(s.a)
	}
	return s.a.between()
}

func (s slowStore) Traits() bucketstore.Traits { return bucketstore.Traits{Shared: true} }

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
		// It arrives before its deadline, at once or later, and twice if it is retried.
		for range 1 + a.w.rand.IntN(6)/5 {
			if d, ok := ctx.(deadline); ok && !a.w.lax && a.w.rand.IntN(4) == 0 && d.left() > 0 {
				a.wake = a.w.now + a.w.rand.Int64N(d.left())
				a.due = a.wake
				a.routine.Pass()
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
	return fmt.Errorf("a row %q was sealed that was never written", key)
}
