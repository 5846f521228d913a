//go:build !race

package buffer_test

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/rowfiles"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/indexrows"
	"github.com/promtable/promtable/remote/fleet"
	"github.com/promtable/promtable/series"
)

// A fleetWorld is a store and processes on it. One thing happens at a time, also in the middle of a read.
type fleetWorld struct {
	*testing.T
	rng   *rand.Rand
	clock *clock
	store bucketstore.Store
	procs []*fleetProc
	// acked are the samples of each series that were acknowledged, tried those that may be there.
	acked, tried map[string]map[int64]*fleetSample
	names        int
	value        float64
	// nested says that a read is going on, and cuts that answers to it are cut.
	nested, cuts bool
	log          []string

	reads, partial, adopted int
}

type fleetSample struct {
	value string
	by    *fleetProc
	// log is the ID of the log that had it first.
	log string
	// isLost says that its log was forgotten.
	isLost bool
}

// A fleetProc is a process, or the place where one runs after the other. One without a directory only reads.
type fleetProc struct {
	w      *fleetWorld
	number int
	dir    string
	// inRows says that its log is in rows: each start has another one, and others take that of one that has died.
	inRows  bool
	adopter *buffer.Adopter
	// skew is how far its clock is ahead, in milliseconds.
	skew int64

	isUp, hasDied, isPaused bool
	// isCut says that others cannot reach it, metaAway that it cannot reach META, and unclear that its changes of META fail after they have happened.
	isCut, metaAway, unclear bool

	buffer *buffer.Buffer
	fleet  *fleet.Fleet
	served http.Handler
	index  *index.Index
	view   bucketstore.Store
	id     string
}

func (p *fleetProc) now() time.Time  { return time.UnixMilli(p.w.clock.ms.Load() + p.skew) }
func (p *fleetProc) address() string { return fmt.Sprint("http://m", p.number) }

// fleetStore is the store as one process sees it.
type fleetStore struct {
	bucketstore.Store
	p *fleetProc
	// interrupt, if set, is called before rows of METRIC are read, and after.
	interrupt func()
}

func (s *fleetStore) Close() error { return nil }

func (s *fleetStore) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	if req.Table == bucketstore.Meta && s.p.metaAway {
		return errStore
	}
	if req.Table != bucketstore.Metric || s.interrupt == nil {
		return s.Store.Scan(ctx, req, fn)
	}
	s.interrupt()
	err := s.Store.Scan(ctx, req, fn)
	s.interrupt()
	return err
}

func (s *fleetStore) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	if s.p.metaAway {
		return false, errStore
	}
	applied, err := s.Store.CheckAndApply(ctx, table, cond, mut)
	if err == nil && s.p.unclear {
		return false, errStore
	}
	return applied, err
}

// RoundTrip implements http.RoundTripper: requests of one process to another.
func (w *fleetWorld) RoundTrip(r *http.Request) (*http.Response, error) {
	i := slices.IndexFunc(w.procs, func(p *fleetProc) bool { return p.address() == "http://"+r.URL.Host })
	p := w.procs[i]
	if !p.isUp || p.isPaused || p.isCut || p.served == nil {
		return nil, errors.New("connection refused")
	}
	recorder := httptest.NewRecorder()
	p.served.ServeHTTP(recorder, r)
	resp := recorder.Result()
	body, err := io.ReadAll(resp.Body)
	if w.cuts { // in the middle
		body = body[:len(body)/2]
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, err
}

func (w *fleetWorld) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%.3f ", float64(w.clock.ms.Load()-someTime)/1000)+fmt.Sprintf(format, args...))
}

// start starts a process as an adapter does. It may fail.
func (p *fleetProc) start() {
	w, ctx := p.w, p.w.Context()
	store := &fleetStore{Store: w.store, p: p}
	about, err := meta.Open(ctx, store, series.Schema{}, p.now)
	if err != nil {
		w.note("%d does not start: %v", p.number, err)
		return
	}
	cfg := fleet.Config{Meta: about, Now: p.now, Joins: true, Client: &http.Client{Transport: w}}
	p.buffer, p.served, p.view = nil, nil, store
	p.hasDied = false
	if p.dir != "" {
		dir, err := p.openLog(store)
		if err != nil {
			w.note("%d does not start: %v", p.number, err)
			return
		}
		terms := buffer.Terms{Store: about, Location: "here", Now: p.now}
		if err := dir.Bind(ctx, terms); err != nil {
			w.note("%d does not start: %v", p.number, err)
			if err := dir.Close(); err != nil {
				w.Fatal(err)
			}
			return
		}
		config := buffer.Config{
			Store: store, Now: p.now, SweepInterval: time.Hour, Address: p.address(),
			PartSamples: 3, MaxOpenBytes: 4 << 10, SegmentBytes: 1000, MaxLogBytes: 8000,
			Die: func(error) { p.hasDied = true },
		}
		p.buffer, err = buffer.Open(ctx, dir, config)
		if err != nil {
			w.note("%d does not start: %v", p.number, err)
			return
		}
		cfg.Own, p.id, p.view = p.buffer.ID(), p.buffer.ID(), p.buffer
		p.adopter = &buffer.Adopter{Terms: terms, Rows: store, Own: p.id, Config: func(context.Context) (buffer.Config, error) { return config, nil }}
	} else if err := about.Init(ctx); err != nil {
		w.note("%d does not start: %v", p.number, err)
		return
	}
	p.isUp = true
	p.fleet = fleet.New(cfg)
	if p.buffer != nil {
		p.served = p.fleet.Serve(p.buffer)
	}
	p.view = p.fleet.Wrap(p.view)
	p.index = index.New(index.Config{Refresh: time.Minute, Now: p.now, Indexed: p.fleet.Indexed, Sync: p.fleet.Sync, Told: p.fleet.Told}, indexrows.New(store))
	p.fleet.Join("", p.index, func([]series.RowRange) []bucketstore.Row { return nil })
	w.note("%d starts, log %s", p.number, p.id)
	store.interrupt = w.interrupt
}

// openLog opens the log of a process.
func (p *fleetProc) openLog(store bucketstore.Store) (*buffer.Dir, error) {
	if p.inRows {
		return buffer.OpenRows(rowfiles.New(store, crand.Text(), p.now), p.now())
	}
	dir, err := buffer.OpenDir(p.dir, p.now())
	if err != nil {
		p.w.Fatal(err)
	}
	return dir, nil
}

// watch takes the logs of others, as it does every 15 s.
func (p *fleetProc) watch() {
	adopted, err := p.adopter.Watch(p.w.Context())
	if p.w.adopted += len(adopted); len(adopted) > 0 || err != nil {
		p.w.note("%d takes the logs %q: %v", p.number, adopted, err)
	}
}

// interrupt lets something happen in the middle of a read.
func (w *fleetWorld) interrupt() {
	if w.nested || w.rng.IntN(3) > 0 {
		return
	}
	w.nested = true
	defer func() { w.nested = false }()
	w.happen()
}

// end ends a process: by a kill, or a clean stop.
func (p *fleetProc) end(kill bool) {
	w := p.w
	if p.buffer != nil && (kill || p.hasDied || p.metaAway || p.inRows && p.unclear) {
		w.note("%d is killed", p.number)
		p.buffer.Kill()
	} else if p.buffer != nil {
		w.note("%d leaves", p.number)
		if err := p.buffer.Close(); err != nil && !p.hasDied && !p.unclear {
			w.Errorf("%d: close: %v", p.number, err)
		}
	}
	p.isUp = false
	if err := p.fleet.Close(); err != nil {
		w.Error(err)
	}
}

// send writes a sample.
func (p *fleetProc) send(name string, t int64) {
	w := p.w
	w.value++
	ls := labels.FromStrings("__name__", name)
	key, err := series.Schema{}.AppendSeriesKey(nil, ls)
	if err != nil {
		w.Fatal(err)
	}
	s := &fleetSample{value: valueText(w.value, nil), by: p, log: p.id}
	if w.tried[name][t] != nil {
		return
	}
	if w.tried[name] == nil {
		w.tried[name], w.acked[name] = make(map[int64]*fleetSample), make(map[int64]*fleetSample)
	}
	err = p.index.Write(w.Context(), []index.Entry{{Key: key, Labels: ls, T: t}})
	if err == nil {
		w.tried[name][t] = s
		err = p.buffer.Append(w.Context(), []bucketstore.Sample{{Ref: p.buffer.Ref(key), T: t, V: w.value}})
	}
	w.note("%d takes %s at %d: %v", p.number, name, t-someTime, err)
	if err == nil && !p.hasDied {
		w.acked[name][t] = s
	}
}

// read reads a series, or all, and checks the answer.
func (p *fleetProc) read(name string, mint, maxt int64) {
	w := p.w
	ctx, _ := fleet.AllowPartial(w.Context())
	m := labels.MustNewMatcher(labels.MatchRegexp, "__name__", "s.*")
	if name != "" {
		m = labels.MustNewMatcher(labels.MatchEqual, "__name__", name)
	}
	began := len(w.log)
	w.cuts = w.rng.IntN(30) == 0
	defer func() { w.cuts = false }()
	w.note("%d reads %q from %d to %d", p.number, name, mint-someTime, maxt-someTime)
	// What is acknowledged before the read begins must be in the answer.
	want := make(map[string]map[int64]*fleetSample)
	for of, samples := range w.acked {
		want[of] = make(map[int64]*fleetSample)
		for t, s := range samples {
			want[of][t] = s
		}
	}
	found, err := p.index.Select(ctx, index.Query{Matchers: []*labels.Matcher{m}, Start: mint, Limit: maxt + 1})
	if err != nil {
		w.Fatal(err)
	}
	got := make(map[string]map[int64]string)
	for some := range slices.Chunk(found.Series, 1+w.rng.IntN(4)) { // batches
		var rows []series.RowRange
		for _, s := range some {
			for _, base := range s.Bases {
				rows = append(rows, series.SingleRow(series.Schema{}.AppendRowKey(nil, []byte(s.Key), base)))
			}
		}
		slices.SortFunc(rows, func(a, b series.RowRange) int { return strings.Compare(string(a.Start), string(b.Start)) })
		families := sampleFamilies()
		err := p.view.Scan(ctx, bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: rows, Families: families}, func(row bucketstore.Row) error {
			key, base, err := series.Schema{}.ParseRowKey(nil, row.Key)
			if err != nil {
				return err
			}
			of := string(key)
			if got[of] == nil {
				got[of] = make(map[int64]string)
			}
			return readRow(got[of], base, row.Cells)
		})
		if err != nil {
			w.Fatal(err)
		}
	}
	w.reads++
	lacks := fleet.PartialOf(ctx)
	if len(lacks) > 0 {
		w.partial++
	}
	for of, samples := range want {
		if name != "" && of != name {
			continue
		}
		for t, s := range samples {
			if t < mint || t > maxt || s.isLost {
				continue
			}
			switch value, ok := got[of][t]; {
			case !ok && len(lacks) == 0:
				w.fail("%d read at line %d of %d lacks %s at %d, which %d took; %s", p.number, began, len(w.log), of, t-someTime, s.by.number, w.where(of, t, found))
			case ok && value != s.value:
				w.fail("%d read at line %d found %s for %s at %d, want %s", p.number, began, value, of, t-someTime, s.value)
			}
		}
	}
	for of, samples := range got {
		for t, value := range samples {
			if s := w.tried[of][t]; s == nil || s.value != value {
				w.fail("%d read %s for %s at %d, which was not written", p.number, value, of, t-someTime)
			}
		}
	}
}

func (w *fleetWorld) fail(format string, args ...any) {
	w.Helper()
	w.Fatalf(format+"\n%s", append(args, strings.Join(w.log[max(0, len(w.log)-60):], "\n"))...)
}

// where says where a sample is.
func (w *fleetWorld) where(of string, t int64, found *index.Result) string {
	where := fmt.Sprint("the index has it: ", slices.ContainsFunc(found.Series, func(s index.Series) bool {
		return s.Key == of && slices.Contains(s.Bases, t-t%series.Period)
	}))
	has := func(scan func(fn func(bucketstore.Row) error) error) bool {
		got := make(map[int64]string)
		if err := scan(func(row bucketstore.Row) error {
			key, base, err := series.Schema{}.ParseRowKey(nil, row.Key)
			if err != nil || string(key) != of {
				return err
			}
			return readRow(got, base, row.Cells)
		}); err != nil {
			w.Fatal(err)
		}
		return got[t] != ""
	}
	for _, p := range w.procs {
		if p.isUp && p.buffer != nil && has(func(fn func(bucketstore.Row) error) error {
			return p.buffer.ScanOpen([]series.RowRange{{}}, bucketstore.FamilyRange{Family: "c"}, fn)
		}) {
			where += fmt.Sprint(", it is open in ", p.number)
		}
	}
	if has(func(fn func(bucketstore.Row) error) error {
		return w.store.Scan(w.Context(), bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: sampleFamilies()}, fn)
	}) {
		where += ", it is stored"
	}
	return where
}

// pick returns a process that is up and not paused, or nil.
func (w *fleetWorld) pick(member bool) *fleetProc {
	var all []*fleetProc
	for _, p := range w.procs {
		if p.isUp && !p.isPaused && (p.buffer != nil || !member) {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.rng.IntN(len(all))]
}

// happen lets one thing happen.
func (w *fleetWorld) happen() {
	someone := w.procs[w.rng.IntN(len(w.procs))]
	if w.rng.IntN(3) == 0 {
		someone.heal()
	}
	now := w.clock.ms.Load()
	switch n := w.rng.IntN(100); {
	case n < 30:
		if p := w.pick(true); p != nil && !p.hasDied {
			for range 1 + w.rng.IntN(3) {
				if w.rng.IntN(10) == 0 {
					w.names++
				}
				t := now - w.rng.Int64N(20_000)
				if w.rng.IntN(4) == 0 {
					t = now - w.rng.Int64N(4*series.Window)
				}
				p.send(fmt.Sprint("s", w.rng.IntN(w.names+1)), t)
			}
		}
	case n < 55:
		if w.nested {
			return
		}
		if p := w.pick(false); p != nil && !p.hasDied {
			name := ""
			if w.rng.IntN(2) == 0 {
				name = fmt.Sprint("s", w.rng.IntN(w.names+1))
			}
			mint, maxt := now-w.rng.Int64N(5*series.Window), now+1
			if w.rng.IntN(3) == 0 {
				maxt = mint + w.rng.Int64N(now+1-mint)
			}
			p.read(name, mint, maxt)
		}
	case n < 65:
		if p := w.pick(true); p != nil && !p.metaAway && !(p.inRows && (p.unclear || p.hasDied)) {
			w.note("%d flushes", p.number)
			if err := p.buffer.Flush(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
	case n < 78:
		if p := w.pick(true); p != nil && !p.hasDied {
			w.note("%d registers: %v", p.number, p.buffer.Register(w.Context()))
		}
	case n < 84:
		w.clock.ms.Add(w.rng.Int64N(30_000))
		if w.rng.IntN(8) == 0 {
			w.clock.ms.Add(w.rng.Int64N(20 * 60_000))
		}
		for _, p := range w.procs { // as it does every 15 s
			if p.isUp && !p.isPaused && p.buffer != nil && !p.hasDied && w.rng.IntN(4) > 0 {
				w.note("%d registers: %v", p.number, p.buffer.Register(w.Context()))
				p.watch()
			}
		}
	case n < 88:
		if someone.isUp && !(w.nested && someone.dir == "") && someone.dir != "" && w.ups() > 1 && !someone.isPaused {
			someone.end(w.rng.IntN(2) == 0)
		}
	case n < 93:
		if !someone.isUp {
			someone.metaAway, someone.unclear, someone.isCut, someone.isPaused = false, false, false, false
			someone.start()
		} else if someone.hasDied && someone.dir != "" && w.ups() > 1 {
			someone.end(true)
		}
	case n < 95:
		someone.isCut = !someone.isCut
		w.note("%d is cut off: %t", someone.number, someone.isCut)
	case n < 96:
		someone.metaAway = !someone.metaAway
		w.note("META is away for %d: %t", someone.number, someone.metaAway)
	case n < 97:
		someone.unclear = !someone.unclear
		w.note("writes of META by %d fail afterwards: %t", someone.number, someone.unclear)
	case n < 98:
		if someone.isUp && someone.dir != "" && w.ups() > 1 {
			someone.isPaused = !someone.isPaused
			w.note("%d is paused: %t", someone.number, someone.isPaused)
		}
	default:
		w.forget(someone)
	}
}

// heal ends what is wrong with a process.
func (p *fleetProc) heal() {
	if p.isCut || p.metaAway || p.unclear || p.isPaused && p.w.rng.IntN(4) == 0 {
		p.w.note("%d is well again", p.number)
		p.isCut, p.metaAway, p.unclear, p.isPaused = false, false, false, false
	}
	if !p.isUp && p.w.rng.IntN(2) == 0 {
		p.start()
	}
}

// ups counts the members that run.
func (w *fleetWorld) ups() (n int) {
	for _, p := range w.procs {
		if p.isUp && p.dir != "" && !p.isPaused {
			n++
		}
	}
	return n
}

// forget makes META forget the log of a process that was silent for long, as adapter buffer forget does. If it is not only paused, its disk is lost, or comes back.
func (w *fleetWorld) forget(p *fleetProc) {
	if p.dir == "" || p.isUp && !p.isPaused || p.id == "" {
		return
	}
	about, err := meta.Open(w.Context(), w.store, series.Schema{}, w.clock.now)
	if err != nil {
		w.Fatal(err)
	}
	l, c, err := about.ReadLog(w.Context(), p.id)
	if err != nil {
		w.Fatal(err)
	}
	if c.Value == nil || w.clock.ms.Load()-l.Seen < buffer.ForgetAfter.Milliseconds() {
		return
	}
	w.note("log %s of %d is forgotten", p.id, p.number)
	if err := about.ForgetLog(w.Context(), p.id); err != nil {
		w.Fatal(err)
	}
	for _, samples := range w.acked {
		for _, s := range samples {
			s.isLost = s.isLost || s.log == p.id
		}
	}
	if !p.isUp && w.rng.IntN(2) == 0 {
		p.dir = filepath.Join(w.TempDir(), "log")
	}
}

func runFleet(t *testing.T, seed uint64) *fleetWorld {
	w := &fleetWorld{
		T: t, rng: rand.New(rand.NewPCG(seed, 0)), clock: new(clock), store: openFake(t),
		acked: make(map[string]map[int64]*fleetSample), tried: make(map[string]map[int64]*fleetSample), names: 3,
	}
	w.clock.ms.Store(someTime)
	for i := range 5 {
		p := &fleetProc{w: w, number: i, skew: w.rng.Int64N(6000) - 3000}
		if i < 3 {
			p.dir, p.inRows = filepath.Join(t.TempDir(), "log"), seed%4 == 0
		}
		w.procs = append(w.procs, p)
		p.start()
	}
	defer func() {
		for _, p := range w.procs {
			if p.isUp {
				p.end(true)
			}
		}
	}()
	w.clock.ms.Add(2 * buffer.JoinTime.Milliseconds())
	for range 400 {
		w.happen()
	}
	for _, p := range w.procs {
		if p.isUp && !p.isPaused && !p.hasDied {
			p.read("", 0, w.clock.ms.Load())
		}
	}
	return w
}

// TestFleetModel: processes take samples, read, flush, die, come back, leave, are cut off, paused and forgotten, and each answer has all that was acknowledged
// before it, or says that it lacks something.
func TestFleetModel(t *testing.T) {
	reads, partial, adopted := 0, 0, 0
	for seed := range storetest.Seeds(t, 12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := runFleet(t, seed)
			reads, partial, adopted = reads+w.reads, partial+w.partial, adopted+w.adopted
		})
	}
	if partial == 0 || partial > reads*3/4 {
		t.Errorf("of %d reads %d are partial: the model shows little", reads, partial)
	}
	if t.Logf("%d reads, %d partial, %d logs adopted", reads, partial, adopted); adopted == 0 {
		t.Error("no log was adopted: the model shows little")
	}
}
