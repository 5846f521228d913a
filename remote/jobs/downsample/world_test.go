package downsample_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/remote/jobs/jobstest"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

const (
	second = int64(time.Second / time.Millisecond)
	minute = 60 * second
	hour   = 60 * minute
	// worldBase is a base that begins inside a day, and inside a bucket of each resolution.
	worldBase = 1640677507072
	// maxSkew is how far clocks are from the time of the world, half of what two of them may differ.
	maxSkew = 5 * minute / 2
	// never is a time after the end of the world.
	never = math.MaxInt64
)

// rules are the rules that are broken in a world, to see that it finds it.
type rules struct {
	// noCounts leaves out what is added to counts, noWait the wait of makers, noWalk what the last walk writes.
	noCounts, noWait, noWalk bool
	// lowerBegun writes begun a day too low, dropClosed writes closed never.
	lowerBegun, dropClosed bool
	// openClosed appends to days that are closed.
	openClosed bool
	// flatTimes gives all rollups of a day one time, so that the one that arrives last wins.
	flatTimes bool
	// ignoreLogs releases days whatever is in the buffers of other processes, emptyLogs lets these say that nothing is.
	ignoreLogs, emptyLogs bool
	// ignoreMemory reads the rollups of days of which samples are in memory.
	ignoreMemory bool
	// noLocks leaves out the locks of a process that has the store for itself.
	noLocks bool
}

// A world is a store with processes that write, make rollups and read. It has one event after the other, and the same ones for the
// same seed: of its actors one runs at a time.
type world struct {
	rand  *rand.Rand
	ctx   context.Context
	rules rules
	// now is the time, in milliseconds. Buffers read it at any time.
	now       atomic.Int64
	store     storetest.Memory
	schema    series.Schema
	series    []*testSeries
	processes []*process
	actors    []*actor
	// current is the actor that runs. It is nil while the world itself does something at once.
	current *actor
	// later are mutations in flight.
	later []inFlight
	// stored has for what a process believes to have written to META/rollup what it is, where rules are broken.
	stored map[string][]byte
	// horizon is the time before which samples may have been deleted.
	horizon int64
	// version counts changes of samples.
	version int
	// dirty are rows that have changed.
	dirty []rowName
	// ended says that nothing fails or takes time any more.
	ended bool
	err   error

	used, unused, final, lates, stalls, lost, refused, unknown, releases, collected int
}

type rowName struct {
	series *testSeries
	base   int64
}

// A testSeries is a series and what was written to it.
type testSeries struct {
	schema series.Schema
	name   string
	key    []byte
	// buffered is the process whose buffer has it, or nil.
	buffered *process
	// acked are the values that were acknowledged, as bits; doubts counts the requests for a time that are not, or may arrive again.
	acked  map[int64]uint64
	doubts map[int64]int
	// times are those that were sent.
	times []int64
	// touched is the version in which a time was last changed.
	touched map[int64]int
	indexed map[int64]bool
}

// An inFlight is something that arrives at the store later.
type inFlight struct {
	at   int64
	land func()
}

// A process is an adapter, on a machine of its own.
type process struct {
	w *world
	// offset is how far its clock is ahead; readings has the monotonic time of each time that it has shown.
	offset   atomic.Int64
	readings map[int64]int64
	// suspended is how long its machine was suspended, awake when that ends.
	suspended, awake int64
	// cutOff is until when it cannot reach META, horizon the one it knows.
	cutOff, horizon int64

	days     *downsample.Days
	maker    *downsample.Maker
	appender bucketstore.Appender
	// reads is the store with what is in memory.
	reads  bucketstore.Store
	buffer *buffer.Buffer
	gate   *gate
	// log is what META says of the log of the buffer.
	log meta.Log
	// appends counts requests to the buffer. A flush of the buffer itself lets others send while the actor that flushes reads it.
	appends atomic.Int64
	locks   [2]*turnLock
}

// newWorld returns a world of these processes. If it is exclusive there is one, which has the store for itself.
func newWorld(t testing.TB, seed uint64, exclusive bool, broken rules) *world {
	t.Helper()
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 0)), ctx: context.Background(), rules: broken, stored: make(map[string][]byte),
	}
	var err error
	if w.schema, err = series.NewSchema(nil); err != nil {
		t.Fatal(err)
	}
	w.now.Store(rollup.DayOf(worldBase) - rollup.Day + 12*hour)
	isBuffered := []bool{false, false, true}
	if exclusive {
		isBuffered = []bool{seed%2 == 0}
	}
	for _, b := range isBuffered {
		w.processes = append(w.processes, w.newProcess(t, exclusive, b))
	}
	for i, tenant := range []string{"one", "one", "other", "one", "other"} {
		s := &testSeries{
			name: fmt.Sprint("m", i), acked: make(map[int64]uint64), doubts: make(map[int64]int),
			touched: make(map[int64]int), indexed: make(map[int64]bool),
		}
		if s.schema, err = w.schema.ForTenant(tenant); err != nil {
			t.Fatal(err)
		}
		if s.key, err = s.schema.AppendSeriesKey(nil, labels.FromStrings("__name__", s.name, "x", "y")); err != nil {
			t.Fatal(err)
		}
		if p := w.processes[len(w.processes)-1]; p.buffer != nil && (exclusive || i >= 3) {
			s.buffered = p
		}
		w.series = append(w.series, s)
	}
	for _, p := range w.processes {
		w.spawn(p, p.tick)
		w.spawn(p, p.make)
		w.spawn(p, p.send)
		w.spawn(p, p.send)
		w.spawn(p, p.read)
		if p.buffer != nil {
			w.spawn(p, p.flushOften)
			w.spawn(p, p.registerOften)
		}
	}
	w.spawn(w.processes[0], func(a *actor) { w.collect(a) })
	return w
}

func (w *world) newProcess(t testing.TB, exclusive, buffered bool) *process {
	t.Helper()
	p := &process{w: w, readings: make(map[int64]int64), locks: [2]*turnLock{{w: w}, {w: w}}}
	p.offset.Store(w.skew())
	if err := p.open(exclusive); err != nil {
		t.Fatal(err)
	}
	store := p.days.Counted(&slowStore{p})
	if !buffered {
		p.reads = store
		p.appender = bucketstore.NewDirect(store, w.schema, p.wall, nil)
		return p
	}
	dir, err := buffer.OpenDir(filepath.Join(t.TempDir(), "log"), p.wall())
	if err != nil {
		t.Fatal(err)
	}
	p.gate = &gate{Store: store, opened: make(chan struct{})}
	p.buffer, err = buffer.Open(w.ctx, dir, buffer.Config{
		Store: p.gate, Schema: w.schema, Now: p.wall, FsyncInterval: time.Hour, SweepInterval: time.Hour,
		Die: func(err error) { t.Errorf("Die: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer p.gate.open()()
		if err := p.buffer.Close(); err != nil {
			t.Error(err)
		}
	})
	p.reads, p.appender = p.buffer, bufferAppender{p}
	return p
}

// open opens what the process knows of days, and its maker.
func (p *process) open(exclusive bool) (err error) {
	p.days, err = downsample.Open(p.w.ctx, downsample.Config{Store: storetest.Shared(&slowStore{p}, !exclusive), Schema: p.w.schema, Tenants: jobs.NamedTenants(p.w.schema, "one", "other"), Now: p.now})
	if err != nil {
		return err
	}
	p.days.SetElapsed(p.elapsed)
	if exclusive && !p.w.rules.noLocks {
		p.days.SetLocks(p.locks[0], p.locks[1])
	} else {
		p.days.SetLocks(noLock{}, noLock{})
	}
	p.maker = downsample.NewMaker(p.days, downsample.MakerConfig{
		Resolutions: rollup.Downsampled, RowsPerSecond: 1e9, Timeline: timelinetest.From(func() int64 { return p.horizon }),
		Flush: p.flush, Logs: p.otherLogs, Holder: "a process",
	})
	p.maker.SetSleep(func(_ context.Context, d time.Duration) error { return p.sleep(d.Milliseconds()) })
	if p.w.rules.noWait {
		p.maker.SetPropagationTime(0)
	}
	return nil
}

// flush stores what is in the buffer of the process.
func (p *process) flush(ctx context.Context) error {
	if p.buffer == nil {
		return nil
	}
	return p.w.flush(ctx)
}

// otherLogs returns the logs of other processes in META.
func (p *process) otherLogs(context.Context) (logs []meta.Log, err error) {
	if err := (&slowStore{p}).request(bucketstore.Meta); err != nil {
		return nil, err
	}
	for _, o := range p.w.processes {
		if o != p && o.buffer != nil && !p.w.rules.ignoreLogs {
			logs = append(logs, o.log)
		}
	}
	return logs, p.between()
}

// registerOften writes what META says of the log of the process, now and then.
func (p *process) registerOften(*actor) {
	_ = p.sleep(minute/4 + p.w.rand.Int64N(time.Hour.Milliseconds()))
	p.register()
}

// register writes what META says of the log of the process, if it has one.
func (p *process) register() {
	if p.buffer == nil {
		return
	}
	l := meta.Log{ID: "log", Closed: p.days.Refused()}
	_ = p.between()
	if !p.w.rules.emptyLogs {
		l.Oldest = p.buffer.Oldest()
	}
	if err := (&slowStore{p}).request(bucketstore.Meta); err == nil && p.between() == nil {
		p.log = l
	}
}

func (w *world) skew() int64 { return w.rand.Int64N(2*maxSkew+1) - maxSkew }

// wall is the time of its clock.
func (p *process) wall() time.Time { return time.UnixMilli(p.w.now.Load() + p.offset.Load()) }

// now is wall with nanoseconds of its own, and may take its time.
func (p *process) now() time.Time {
	_ = p.between()
	t := p.wall().Add(time.Duration(len(p.readings) % 1_000_000))
	p.readings[t.UnixNano()] = p.w.now.Load() - p.suspended
	_ = p.between()
	return t
}

// elapsed is the Elapsed of Days. A monotonic clock stands still while the machine is suspended.
func (p *process) elapsed(from, to time.Time) (monotonic, wall time.Duration) {
	if from.IsZero() { // it was never seen, where closed is not written
		return math.MaxInt64, math.MaxInt64
	}
	begin, ok := p.readings[from.UnixNano()]
	end, ok2 := p.readings[to.UnixNano()]
	if !ok || !ok2 {
		panic("a time of no clock")
	}
	return time.Duration(end-begin) * time.Millisecond, to.Sub(from)
}

// suspend suspends the machine.
func (p *process) suspend(d int64) {
	now := p.w.now.Load()
	if now < p.awake {
		return
	}
	p.awake = now + d
	p.suspended += d // which shows when it is awake
	for _, a := range p.w.actors {
		if a.p == p && a.wake > now {
			a.wake += d
		}
	}
}

// An actor is a part of a process. It runs until it passes the turn.
type actor struct {
	p *process
	// wake is when it goes on, in milliseconds.
	wake    int64
	routine *jobstest.Routine
	// dead says that its requests fail, releasing that it runs Release.
	dead, releasing bool
}

// spawn starts an actor that does something again and again.
func (w *world) spawn(p *process, do func(a *actor)) {
	a := &actor{p: p, wake: w.now.Load() + w.rand.Int64N(hour)}
	w.actors = append(w.actors, a)
	a.routine = jobstest.Start(func() {
		for !w.ended {
			a.dead = false
			do(a)
		}
	})
}

// isDead says whether requests of a process fail because it has ended. The actor of another one may flush its buffer.
func (a *actor) isDead(p *process) bool { return a.dead && a.p == p }

// pass lets others run until a time, at least.
func (a *actor) pass(until int64) {
	a.wake = until
	if a.p.w.now.Load() < a.p.awake { // a timer stands still, too
		a.wake = max(a.p.awake, until)
	}
	a.routine.Pass()
}

func (w *world) run(a *actor) {
	w.current = a
	a.routine.Run()
	w.current = nil
}

// sleep lets time pass.
func (p *process) sleep(ms int64) error {
	if ms > 0 {
		if a := p.w.current; a != nil && !p.w.ended {
			a.pass(p.w.now.Load() + ms)
		} else {
			p.w.now.Add(ms)
		}
	}
	return p.between()
}

var (
	errDead    = errors.New("the process has ended")
	errRefused = errors.New("the store is down")
	errLost    = errors.New("the answer is lost")
)

// between is called between two steps of an actor: it may stall there, and its machine may be suspended.
func (p *process) between() error {
	w, a := p.w, p.w.current
	switch {
	case a == nil || w.ended:
		return nil
	case a.isDead(p):
		return errDead
	}
	switch n := w.rand.IntN(2000); {
	case n < 1:
		w.stalls++
		p.suspend(w.rand.Int64N(12 * hour))
		a.pass(w.now.Load())
	case n < 4:
		w.stalls++
		a.pass(w.now.Load() + w.rand.Int64N(40*hour))
	case n < 10:
		w.stalls++
		a.pass(w.now.Load() + w.rand.Int64N(hour))
	case n < 30:
		a.pass(w.now.Load() + w.rand.Int64N(2*minute))
	case n < 300:
		a.pass(w.now.Load())
	}
	if a.isDead(p) && !w.ended {
		return errDead
	}
	return nil
}

// A turnLock is a lock whose waiters let others run.
type turnLock struct {
	w       *world
	readers int
	writing bool
}

func (l *turnLock) wait(isFree func() bool) {
	for !isFree() {
		l.w.current.pass(l.w.now.Load() + minute)
	}
}

func (l *turnLock) Lock() {
	l.wait(func() bool { return l.readers == 0 && !l.writing })
	l.writing = true
}

func (l *turnLock) Unlock() { l.writing = false }

func (l *turnLock) RLock() {
	l.wait(func() bool { return !l.writing })
	l.readers++
}

func (l *turnLock) RUnlock() { l.readers-- }

type noLock struct{}

func (noLock) Lock()    {}
func (noLock) Unlock()  {}
func (noLock) RLock()   {}
func (noLock) RUnlock() {}

// A bufferAppender counts the requests to a buffer.
type bufferAppender struct{ p *process }

func (a bufferAppender) Ref(key []byte) bucketstore.Ref { return a.p.buffer.Ref(key) }

func (a bufferAppender) Append(ctx context.Context, samples []bucketstore.Sample) error {
	err := a.p.buffer.Append(ctx, samples)
	a.p.appends.Add(1)
	return err
}

// A gate holds back what a buffer writes, unless it is flushed.
type gate struct {
	bucketstore.Store
	opened chan struct{}
	isOpen bool
}

// open lets requests through, until the returned function is called.
func (g *gate) open() (shut func()) {
	g.isOpen = true
	done := make(chan struct{})
	go func() {
		for {
			select {
			case g.opened <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
	return func() { g.isOpen = false; close(done) }
}

func (g *gate) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	select {
	case <-g.opened:
	case <-ctx.Done():
		return ctx.Err()
	}
	return g.Store.Apply(ctx, table, muts)
}

func (g *gate) Close() error { return nil }

// A slowStore is the store as a process sees it: requests take time, fail, are repeated and come late.
type slowStore struct{ p *process }

func (s *slowStore) Drop(context.Context, bucketstore.Table, series.RowRange) error {
	panic("not used")
}

func (s *slowStore) Close() error { return nil }

func (s *slowStore) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	w := s.p.w
	if err := s.request(req.Table); err != nil {
		return err
	}
	return w.store.Scan(ctx, req, func(row bucketstore.Row) error {
		if w.rules.flatTimes && req.Table == bucketstore.Metric {
			row.Cells = w.unflatten(row.Cells)
		}
		err := fn(row)
		if err == nil {
			err = s.p.between()
		}
		return err
	})
}

// isCalm says that nothing fails or takes time.
func (w *world) isCalm() bool { return w.current == nil || w.ended }

// request is the way of a request to the store.
func (s *slowStore) request(table bucketstore.Table) error {
	if err := s.p.between(); err != nil {
		return err
	}
	if w := s.p.w; !w.isCalm() && (table == bucketstore.Meta && w.now.Load() < s.p.cutOff || w.rand.IntN(s.p.patience()) == 0) {
		w.unknown++
		return errRefused
	}
	return nil
}

// patience is in how many requests one fails. A buffer waits for 100 ms after that.
func (p *process) patience() int {
	if p.buffer != nil {
		return 2000
	}
	return 200
}

func (s *slowStore) Apply(_ context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	w := s.p.w
	if err := s.request(table); err != nil {
		return err
	}
	isRollup := table == bucketstore.Metric && rollup.FiveMinutes.Family() == muts[0].Ops[0].Family
	muts = w.broken(muts, isRollup, w.current)
	late := minute
	if isRollup {
		late = 40 * hour // it has no condition, and no deadline
	}
	failed := &bucketstore.RowsError{Failed: make(map[int]error)}
	for i, m := range muts {
		kind := 9
		if !w.isCalm() {
			kind = w.rand.IntN(60)
		}
		if s.p.buffer != nil && kind < 3 {
			kind = 9 // it would set the row aside, for at least a second
		}
		switch kind {
		case 0: // it never arrives
			failed.Failed[i] = errRefused
			continue
		case 1: // it arrives later
			failed.Failed[i] = errLost
			w.send(late, table, m)
			continue
		case 2: // the answer is lost
			failed.Failed[i] = errLost
		case 3: // it was sent twice
			w.send(late, table, m)
		case 4: // it takes its time
			s.p.w.current.pass(w.now.Load() + w.rand.Int64N(minute))
		}
		w.apply(table, m)
		if err := s.p.between(); err != nil {
			return err
		}
	}
	if len(failed.Failed) > 0 {
		w.lost += len(failed.Failed)
		return failed
	}
	return s.p.between()
}

func (s *slowStore) Traits() bucketstore.Traits { return bucketstore.Traits{Shared: true} }

func (s *slowStore) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, m bucketstore.Mutation) (bool, error) {
	w := s.p.w
	if err := s.request(table); err != nil {
		return false, err
	}
	if string(m.Key) == series.MetaRollup {
		m = w.brokenState(m)
		if stored, ok := w.stored[string(cond.Value)]; ok {
			cond.Value = stored
		}
	}
	if !w.isCalm() && w.rand.IntN(30) == 0 {
		m, cond := cloneMutation(m), cond
		cond.Value = bytes.Clone(cond.Value)
		w.later = append(w.later, inFlight{w.now.Load() + w.rand.Int64N(minute/2), func() {
			if _, err := w.store.CheckAndApply(w.ctx, table, cond, m); err != nil {
				w.err = err
			}
		}})
		return false, errLost
	}
	applied, err := w.store.CheckAndApply(ctx, table, cond, m)
	if err == nil && !w.isCalm() && w.rand.IntN(30) == 0 {
		err = errLost
	}
	if err == nil {
		err = s.p.between()
	}
	return applied, err
}

// send lets a mutation arrive in the next time.
func (w *world) send(late int64, table bucketstore.Table, m bucketstore.Mutation) {
	m = cloneMutation(m)
	s, times := w.samplesIn(table, m)
	for _, t := range times {
		s.doubts[t]++
	}
	w.later = append(w.later, inFlight{w.now.Load() + w.rand.Int64N(late), func() {
		for _, t := range times {
			s.doubts[t]--
		}
		w.apply(table, m)
	}})
}

// samplesIn returns the series of a row of METRIC, and the times of samples in a mutation of it.
func (w *world) samplesIn(table bucketstore.Table, m bucketstore.Mutation) (s *testSeries, times []int64) {
	if table != bucketstore.Metric {
		return nil, nil
	}
	of := w.rowOf(m.Key)
	for _, op := range m.Ops {
		if op.Kind == bucketstore.SetCell && slices.Contains(series.RawFamilies[:], op.Family) {
			times = append(times, of.base+int64(binary.BigEndian.Uint32(op.Qualifier)))
		}
	}
	return of.series, times
}

func (w *world) rowOf(key []byte) rowName {
	key, base, err := w.schema.ParseRowKey(nil, key)
	if err != nil {
		panic(err)
	}
	i := slices.IndexFunc(w.series, func(s *testSeries) bool { return bytes.Equal(s.key, key) })
	return rowName{w.series[i], base}
}

// mark lets a row be checked.
func (w *world) mark(of rowName) {
	if !slices.Contains(w.dirty, of) {
		w.dirty = append(w.dirty, of)
	}
}

func cloneMutation(m bucketstore.Mutation) bucketstore.Mutation {
	m = bucketstore.Mutation{Key: bytes.Clone(m.Key), Ops: slices.Clone(m.Ops)}
	for i := range m.Ops {
		m.Ops[i].Qualifier, m.Ops[i].Value = bytes.Clone(m.Ops[i].Qualifier), bytes.Clone(m.Ops[i].Value)
	}
	return m
}

// apply lets a mutation arrive.
func (w *world) apply(table bucketstore.Table, m bucketstore.Mutation) {
	if err := w.store.Apply(w.ctx, table, []bucketstore.Mutation{m}); err != nil {
		w.err = err
	}
	if table != bucketstore.Metric {
		return
	}
	w.mark(w.rowOf(m.Key))
	w.changed(w.samplesIn(table, m))
}

// changed is called after samples of a series have changed.
func (w *world) changed(s *testSeries, times []int64) {
	if len(times) == 0 {
		return
	}
	w.version++
	for _, t := range times {
		s.touched[t] = w.version
		if _, ok := s.acked[t]; ok && !w.isCollected(rollup.DayOf(t)) {
			s.acked[t] = w.valueOf(s, t)
		}
	}
}

// isCollected says whether samples of a day may have been deleted.
func (w *world) isCollected(day int64) bool { return day < w.horizon }

// broken returns mutations as the rules that are broken make them.
func (w *world) broken(muts []bucketstore.Mutation, isRollup bool, a *actor) []bucketstore.Mutation {
	if isRollup && w.rules.noWalk && a != nil && a.releasing {
		return nil
	}
	if !w.rules.noCounts && (!isRollup || !w.rules.flatTimes) {
		return muts
	}
	muts = slices.Clone(muts)
	for i := range muts {
		muts[i] = cloneMutation(muts[i])
		if w.rules.noCounts {
			muts[i].Ops = slices.DeleteFunc(muts[i].Ops, func(op bucketstore.Op) bool { return op.Kind == bucketstore.Add })
		}
		for j := range muts[i].Ops {
			if op := &muts[i].Ops[j]; isRollup && w.rules.flatTimes {
				count := op.Time % minute
				op.Value = append(op.Value, byte(count>>8), byte(count))
				op.Time -= count
			}
		}
	}
	return muts
}

// unflatten gives the cells of rollups the times that they would have.
func (w *world) unflatten(cells []bucketstore.Cell) []bucketstore.Cell {
	cells = slices.Clone(cells)
	for i := range cells {
		if c := &cells[i]; c.Family == rollup.FiveMinutes.Family() || c.Family == rollup.OneHour.Family() {
			n := len(c.Value) - 2
			c.Time += int64(c.Value[n])<<8 + int64(c.Value[n+1])
			c.Value = c.Value[:n]
		}
	}
	return cells
}

// brokenState is broken for the row META/rollup.
func (w *world) brokenState(m bucketstore.Mutation) bucketstore.Mutation {
	if !w.rules.lowerBegun && !w.rules.dropClosed {
		return m
	}
	m = cloneMutation(m)
	for i := range m.Ops {
		op := &m.Ops[i]
		if len(op.Value) == 0 {
			continue
		}
		var state map[string]any
		d := json.NewDecoder(bytes.NewReader(op.Value))
		d.UseNumber()
		if err := d.Decode(&state); err != nil {
			w.err = err
		}
		if begun, err := state["begun"].(json.Number).Int64(); err == nil && w.rules.lowerBegun {
			state["begun"] = begun - rollup.Day
		}
		if w.rules.dropClosed {
			delete(state, "closed")
		}
		stored, err := json.Marshal(state)
		if err != nil {
			w.err = err
		}
		w.stored[string(op.Value)], op.Value = stored, stored
	}
	return m
}

// tick is what a process does every few minutes.
func (p *process) tick(a *actor) {
	p.days.Tick(p.w.ctx)
	p.horizon = p.w.horizon
	_ = p.sleep(minute + p.w.rand.Int64N(2*minute))
}

// make makes rollups, and releases days.
func (p *process) make(a *actor) {
	w := p.w
	_ = p.maker.Once(w.ctx)
	if !a.dead && w.rand.IntN(4) == 0 {
		a.releasing = true
		released, err := p.maker.Release(w.ctx, w.now.Load()-w.rand.Int64N(2*rollup.Day))
		a.releasing = false
		if err == nil && released > w.horizon && !a.dead {
			w.horizon, p.horizon = released, released
			w.releases++
			for s := range slices.Values(w.series) {
				for _, base := range bases {
					w.mark(rowName{s, base})
				}
			}
		}
	}
	_ = p.sleep(w.rand.Int64N(time.Hour.Milliseconds()))
}

// bases are those of the world.
var bases = []int64{worldBase - series.Period, worldBase}

// send writes a few samples, again and again until it is done.
func (p *process) send(a *actor) {
	w := p.w
	_ = p.sleep(w.rand.Int64N(40 * minute))
	var samples []bucketstore.Sample
	var of []*testSeries
	for range 1 + w.rand.IntN(4) {
		s := w.series[w.rand.IntN(len(w.series))]
		if s.buffered != nil && s.buffered != p || s.buffered == nil && p.buffer != nil {
			continue
		}
		t := w.time(s)
		if t < 0 || s.doubts[t] > 0 {
			continue
		}
		if w.isCollected(rollup.DayOf(t)) {
			w.lates++
		}
		s.doubts[t]++
		s.times = append(s.times, t)
		w.index(s, t)
		v := float64(w.rand.IntN(40))
		if w.rand.IntN(30) == 0 {
			v = seriestest.StaleNaN
		}
		samples, of = append(samples, bucketstore.Sample{Ref: p.appender.Ref(s.key), T: t, V: v}), append(of, s)
	}
	for len(samples) > 0 && !w.ended {
		a.dead = false
		samples, of = p.append(samples, of)
		_ = p.sleep(minute + w.rand.Int64N(10*minute))
	}
}

// append appends samples once, and returns those that are to be sent again.
func (p *process) append(samples []bucketstore.Sample, of []*testSeries) (againSamples []bucketstore.Sample, againOf []*testSeries) {
	w := p.w
	appender := p.days.Appender(p.appender)
	if w.rules.openClosed {
		appender = p.appender
	}
	err := appender.Append(w.ctx, samples)
	var part *bucketstore.SamplesError
	errors.As(err, &part)
	for i, s := range samples {
		isFailed := err != nil && (part == nil || slices.Contains(part.Failed, i))
		switch {
		case part != nil && part.Refused[i] != nil:
			w.refused++ // for ever, but an attempt before may have stored it
		case isFailed:
			againSamples, againOf = append(againSamples, s), append(againOf, of[i])
		default:
			w.acknowledge(of[i], s)
		}
	}
	return againSamples, againOf
}

// acknowledge notes that a sample was acknowledged.
func (w *world) acknowledge(s *testSeries, sample bucketstore.Sample) {
	s.doubts[sample.T]--
	s.acked[sample.T] = math.Float64bits(sample.V)
	w.changed(s, []int64{sample.T})
	base, _ := series.Split(sample.T)
	w.mark(rowName{s, base})
}

// time returns the time of a sample.
func (w *world) time(s *testSeries) (t int64) {
	now := w.now.Load()
	switch w.rand.IntN(8) {
	case 0: // about the end of a day
		t = rollup.DayOf(now) - w.rand.Int64N(3)*rollup.Day + w.rand.Int64N(3) - 1
	case 1: // of a day that was made, or not long ago
		t = now - 33*hour - w.rand.Int64N(24*hour)
	case 2:
		t = now - w.rand.Int64N(4*rollup.Day)
	case 3: // once more
		if n := len(s.times); n > 0 {
			return s.times[w.rand.IntN(n)]
		}
	case 4: // about the base
		t = worldBase + w.rand.Int64N(3) - 1
	default:
		t = now - w.rand.Int64N(10*minute)
	}
	if w.rand.IntN(2) == 0 {
		t -= t % (5 * minute)
	}
	if t > now+10*minute || t < bases[0] {
		return -1
	}
	return t
}

// index makes a series findable in the index period of t.
func (w *world) index(s *testSeries, t int64) {
	period := series.PeriodOf(t)
	if s.indexed[period] {
		return
	}
	s.indexed[period] = true
	if err := w.store.Apply(w.ctx, bucketstore.Index, indexRows(s.schema, s.key, s.name, period)); err != nil {
		w.err = err
	}
}

// indexRows returns the rows of INDEX of a series without labels of interest.
func indexRows(schema series.Schema, key []byte, name string, period int64) (muts []bucketstore.Mutation) {
	for _, row := range []struct {
		key  []byte
		text string
	}{
		{schema.AppendNameKey(nil, labels.MetricName, period), labels.MetricName},
		{schema.AppendValueKey(nil, labels.MetricName, name, period), name},
		{append(schema.AppendPostingPrefix(nil, labels.MetricName, name, period), key...), ""},
	} {
		muts = append(muts, bucketstore.Mutation{Key: row.key, Ops: []bucketstore.Op{{
			Kind: bucketstore.SetCell, Family: series.FamilyIndex, Qualifier: []byte(series.QualifierIndex),
			Time: period + series.IndexPeriod, Value: []byte(row.text),
		}}})
	}
	return muts
}

// flushOften flushes the buffer of a process now and then.
func (p *process) flushOften(a *actor) {
	_ = p.sleep(p.w.rand.Int64N(5 * hour))
	_ = p.w.flush(p.w.ctx)
}

// flush flushes the buffer, until nothing is in it.
func (w *world) flush(ctx context.Context) error {
	p := w.processes[len(w.processes)-1]
	for p.buffer != nil && p.gate.isOpen { // another actor flushes
		w.current.pass(w.now.Load() + minute)
	}
	if p.buffer == nil {
		return nil
	}
	defer p.gate.open()()
	for {
		before := p.appends.Load()
		if err := p.buffer.Flush(ctx); err != nil {
			return err
		}
		if p.appends.Load() == before {
			return nil
		}
	}
}

// collect deletes what is before the horizon, some now and some later.
func (w *world) collect(a *actor) {
	_ = a.p.sleep(w.rand.Int64N(3 * hour))
	for _, s := range w.series {
		for _, base := range bases {
			key := s.schema.AppendRowKey(nil, s.key, base)
			m := bucketstore.Mutation{Key: key}
			err := w.store.Scan(w.ctx, bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{series.SingleRow(key)}, Families: rawFamilies()},
				func(row bucketstore.Row) error {
					for _, c := range row.Cells {
						if c.Family == series.FamilyLate { // its time is that of the arrival
							c.Time = base + int64(binary.BigEndian.Uint32(c.Qualifier))
						}
						if c.Time < w.horizon && w.rand.IntN(3) == 0 {
							m.Ops = append(m.Ops, bucketstore.Op{Kind: bucketstore.DeleteColumn, Family: c.Family, Qualifier: c.Qualifier})
						}
					}
					return nil
				})
			if err == nil && len(m.Ops) > 0 {
				w.collected += len(m.Ops)
				err = w.store.Apply(w.ctx, bucketstore.Metric, []bucketstore.Mutation{m})
				w.mark(rowName{s, base})
			}
			if err != nil {
				w.err = err
			}
		}
	}
}

// rawFamilies are those that go with samples.
func rawFamilies() (families []bucketstore.FamilyRange) {
	for _, name := range slices.Sorted(slices.Values(append([]string{series.FamilyChunk, series.FamilyCount}, series.RawFamilies[:]...))) {
		families = append(families, bucketstore.FamilyRange{Family: name})
	}
	return families
}

// step is one event.
func (w *world) step() error {
	w.upset()
	now := w.now.Load()
	if i := slices.IndexFunc(w.later, func(f inFlight) bool { return f.at <= now }); i >= 0 {
		f := w.later[i]
		w.later = slices.Delete(w.later, i, i+1)
		f.land()
		return w.check()
	}
	var ready []*actor
	next := int64(never)
	for _, a := range w.actors {
		wake := max(a.wake, a.p.awake)
		if wake <= now {
			ready = append(ready, a)
		}
		next = min(next, wake)
	}
	for _, f := range w.later {
		next = min(next, f.at)
	}
	if len(ready) == 0 {
		w.now.Store(next)
		return nil
	}
	w.run(ready[w.rand.IntN(len(ready))])
	return w.check()
}

// upset makes something happen to a process.
func (w *world) upset() {
	p := w.processes[w.rand.IntN(len(w.processes))]
	switch w.rand.IntN(4000) {
	case 0:
		p.cutOff = w.now.Load() + w.rand.Int64N(40*hour)
	case 1, 2:
		p.cutOff = w.now.Load() + w.rand.Int64N(40*minute)
	case 3, 4:
		if w.now.Load() >= p.awake { // else it could not know
			p.offset.Store(w.skew())
		}
	case 5:
		if p.buffer != nil || len(w.processes) == 1 {
			return
		}
		for _, a := range w.actors { // it ends, and starts again
			a.dead = a.dead || a.p == p
		}
		if err := p.open(false); err != nil {
			w.err = err
		}
		p.appender = bucketstore.NewDirect(p.days.Counted(&slowStore{p}), w.schema, p.wall, nil)
	}
}

// end ends all actors.
func (w *world) end() {
	w.ended = true
	for len(w.actors) > 0 {
		for _, a := range w.actors {
			w.run(a)
		}
		w.actors = slices.DeleteFunc(w.actors, func(a *actor) bool { return a.routine.HasEnded() })
	}
	for _, p := range w.processes {
		p.awake, p.cutOff = 0, 0
	}
}
