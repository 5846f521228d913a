package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// A testFleet is adapters on one Bigtable, none of which works by itself: the test moves their clock.
type testFleet struct {
	*testing.T
	clock    atomic.Int64
	adapters []*fleetAdapter
	// isMetaAway says that no row of META can be read or written.
	isMetaAway atomic.Bool
}

type fleetAdapter struct {
	*adapter
	f        *testFleet
	engine   *engine.Engine
	appender bucketstore.Appender
	rows     bucketstore.Store
}

func newFleet(t *testing.T) *testFleet {
	f := &testFleet{T: t}
	t.Setenv("BIGTABLE_EMULATOR_HOST", bigtabletest.Serve(t, bigtabletest.WithFaults(func(req proto.Message) bigtabletest.Fault {
		if r, ok := req.(interface{ GetTableName() string }); ok && f.isMetaAway.Load() && strings.HasSuffix(r.GetTableName(), "/META") {
			return bigtabletest.Fault{Err: status.Error(codes.FailedPrecondition, "META is away")}
		}
		return bigtabletest.Fault{}
	})))
	f.clock.Store(time.Now().UnixMilli())
	return f
}

func (f *testFleet) now() time.Time { return time.UnixMilli(f.clock.Load()) }

// start starts an adapter, and wants an error with the text refused, unless that is empty.
func (f *testFleet) start(refused string, args ...string) *fleetAdapter {
	f.Helper()
	o, err := parseFlags(append(args, "--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"))
	if err != nil {
		f.Fatal(err)
	}
	o.now = f.now
	a := &fleetAdapter{f: f}
	if a.adapter, err = newAdapter(o, log.NewNopLogger()); err != nil {
		f.Fatal(err)
	}
	rows, err := openStore(f.Context(), o, a.logger, a.reg, nil)
	if err != nil {
		f.Fatal(err)
	}
	store, appender, err := a.openAppender(f.Context(), rows)
	a.onClose("close the store", store.Close)
	if refused != "" {
		if err == nil {
			err = errors.New("it starts")
		}
		wantContains(f.T, err.Error(), refused)
		if err := a.close(); err != nil {
			f.Error(err)
		}
		return nil
	}
	if err != nil {
		f.Fatal(err)
	}
	if a.engine, err = newEngine(a.adapter, store, appender, a.schema); err != nil {
		f.Fatal(err)
	}
	a.onClose("flush", func() error { return a.engine.Close(context.Background()) })
	a.openMaker(store)
	a.appender, a.rows = appender, rows
	f.adapters = append(f.adapters, a)
	f.Cleanup(a.stop)
	return a
}

// stop stops an adapter.
func (a *fleetAdapter) stop() {
	if err := a.close(); err != nil {
		a.f.Error(err)
	}
	a.closers = nil
}

// minutes lets time pass, in which adapters compare their clocks, and read what others have written.
func (f *testFleet) minutes(n int, adapters ...*fleetAdapter) {
	f.Helper()
	for range n {
		f.clock.Add(time.Minute.Milliseconds())
		for _, a := range adapters {
			if err := a.clock.Compare(f.Context()); err != nil {
				f.Fatal(err)
			}
		}
	}
}

// until calls do, which waits for time to pass, until it succeeds.
func (f *testFleet) until(what string, do func(ctx context.Context) error, adapters ...*fleetAdapter) {
	f.Helper()
	for i := range 90 {
		timeout := 50 * time.Millisecond << (i / 10) // longer and longer: the machine may be busy
		ctx, cancel := context.WithTimeout(f.Context(), timeout)
		err := do(ctx)
		isOver := ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || // an attempt of a call ends before its context does
			status.Code(err) == codes.DeadlineExceeded || status.Code(err) == codes.Unavailable
		cancel()
		if err == nil {
			return
		}
		if !isOver {
			f.Fatalf("%s: %v", what, err)
		}
		f.minutes(1, adapters...)
	}
	f.Fatalf("%s: it takes for ever", what)
}

// send writes n samples of a series, a minute apart, from a time on.
func (a *fleetAdapter) send(name string, from int64, n int) error {
	s := ingest.Series{Labels: labels.FromStrings("__name__", name)}
	for i := range n {
		s.Samples = append(s.Samples, ingest.Sample{T: from + int64(i)*time.Minute.Milliseconds(), V: float64(i)})
	}
	if _, err := a.days.Closed(a.f.Context()); err != nil { // it reads META, as an adapter does every few minutes
		return err
	}
	var rejected ingest.Rejected
	if _, err := a.engine.Append(a.f.Context(), []ingest.Series{s}, &rejected); err != nil {
		return err
	}
	return rejected.Err()
}

// wantSamples wants so many samples of a series.
func (a *fleetAdapter) wantSamples(when, name string, want int) {
	a.f.Helper()
	n, err := a.count(name)
	if err != nil || n != want {
		a.f.Errorf("%s: %d samples of %s, %v, want %d", when, n, name, err, want)
	}
}

func (a *fleetAdapter) metric(name, label string) float64 {
	a.f.Helper()
	families, err := a.reg.Gather()
	if err != nil {
		a.f.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	a.f.Fatalf("no metric %s", name)
	return 0
}

// count returns how many samples of a series are shown.
func (a *fleetAdapter) count(name string) (n int, err error) {
	set, err := a.engine.Select(a.f.Context(), reader.Query{Maxt: a.f.clock.Load(), Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", name)}})
	if err != nil {
		return 0, err
	}
	for set.Next() {
		chunks := set.At().Iterator(nil)
		for chunks.Next() {
			n += chunks.At().Chunk.NumSamples()
		}
		if chunks.Err() != nil {
			return 0, chunks.Err()
		}
	}
	return n, set.Err()
}

// wantRolled wants a PromQL query over whole days to count so many samples of a series.
func (a *fleetAdapter) wantRolled(name string, want int) {
	a.f.Helper()
	opts := promql.EngineOpts{MaxSamples: math.MaxInt, Timeout: time.Hour, Parser: parser.NewParser(parser.Options{})}
	end := rollup.DayOf(a.f.clock.Load())
	q, err := eval.New(opts, eval.NewMemory(0, 0)).NewInstantQuery(a.f.Context(), a.engine, nil, fmt.Sprintf("count_over_time(%s[20d])", name), time.UnixMilli(end))
	if err != nil {
		a.f.Fatal(err)
	}
	defer q.Close()
	res := q.Exec(a.f.Context())
	if v, err := res.Vector(); err != nil || len(v) != 1 || v[0].F != float64(want) {
		a.f.Errorf("rollups of %s: %v, %v, want %d samples", name, v, err, want)
	}
}

// make makes the rollups of all days that are due.
func (a *fleetAdapter) make(adapters ...*fleetAdapter) {
	a.f.Helper()
	a.f.until("make rollups", a.maker.Once, adapters...)
}

// TestMetaAway: while META cannot be read a store without rules answers queries of any time. Old samples are sent again later.
func TestMetaAway(t *testing.T) {
	f := newFleet(t)
	a := f.start("", "--retention.resolution-5m=off", "--retention.resolution-1h=off")
	first := f.clock.Load()
	if err := a.send("m", first, 1); err != nil {
		t.Fatal(err)
	}
	f.clock.Add(8 * rollup.Day)
	if err := a.send("m", f.clock.Load(), 1); err != nil {
		t.Fatal(err)
	}
	f.isMetaAway.Store(true)
	for range 3 {
		f.clock.Add(time.Hour.Milliseconds())
		a.wantSamples("META is away", "m", 2)
		s := ingest.Series{Labels: labels.FromStrings("__name__", "m"), Samples: []ingest.Sample{{T: first + 1}}}
		if _, err := a.engine.Append(t.Context(), []ingest.Series{s}, new(ingest.Rejected)); err == nil {
			t.Error("a sample of a time that a rule may have closed was taken")
		}
	}
	f.isMetaAway.Store(false)
	f.clock.Add(time.Minute.Milliseconds()) // requests share the error for some seconds
	if err := a.send("m", first+1, 1); err != nil {
		t.Error(err)
	}
	a.wantSamples("META is back", "m", 3)
}

// TestNoRollupsOfDeleted: neither an adapter nor compact makes rollups of days of which Bigtable may have deleted a part by age, and only of these.
func TestNoRollupsOfDeleted(t *testing.T) {
	for _, tt := range []struct {
		name string
		days int64 // since the samples
		made bool
	}{
		{"old enough to go", 8, true},
		{"Bigtable may have deleted them", 12, false},
	} {
		for _, byCompact := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, byCompact), func(t *testing.T) {
				f := newFleet(t)
				a := f.start("", "--retention.resolution-raw=3d")
				if err := a.send("m", f.clock.Load(), 1); err != nil {
					t.Fatal(err)
				}
				f.clock.Add(tt.days * rollup.Day)
				a.wantSamples("no rollup is made", "m", 1)
				f.minutes(4, a)
				if byCompact {
					var err error
					if a.maker, err = a.compactRollups(t.Context(), a.rows); err != nil {
						t.Fatal(err)
					}
				}
				a.make(a)
				cells := 0
				err := a.rows.Scan(t.Context(), bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: rollup.FiveMinutes.Family()}}},
					func(row bucketstore.Row) error { cells += len(row.Cells); return nil })
				if err != nil || (cells > 0) != tt.made {
					t.Errorf("%d rollups are made, %v", cells, err)
				}
			})
		}
	}
}

// TestRulesWaitForLogs: rules cut nothing while another log may have samples, also when the mark of its adapter has gone.
func TestRulesWaitForLogs(t *testing.T) {
	f := newFleet(t)
	a := f.start("", "--retention.resolution-5m=off", "--retention.resolution-1h=off", "--retention.rules="+writeRules(t, "rules: [{match: m, raw: 3d}]"))
	if err := a.send("m", f.clock.Load(), 1); err != nil {
		t.Fatal(err)
	}
	f.clock.Add(8 * rollup.Day)
	f.minutes(4, a)
	walker := a.newWalker(a.rows, a.appender)
	want := func(when string, lists int) {
		t.Helper()
		if err := walker.Advance(t.Context()); err != nil {
			t.Fatal(err)
		}
		if found, err := a.meta.RuleLists(t.Context()); err != nil || len(found) != lists {
			t.Errorf("%s: META has %d lists of rules that cut something, %v, want %d", when, len(found), err, lists)
		}
	}
	if err := a.meta.PutLog(t.Context(), meta.Log{ID: "dead"}); err != nil {
		t.Fatal(err)
	}
	want("beside the log of an adapter that has died", 0)
	if err := a.meta.RemoveLog(t.Context(), "dead"); err != nil {
		t.Fatal(err)
	}
	want("its samples are in the store", 1)
}

// TestRollupsBesideBuffers: of adapters with buffers, and one without, one makes the rollups. The lag is true before. Samples that are
// older than their retention are shown until their rollups are final, and those of days of which another log may have samples are not
// released until that is stored.
func TestRollupsBesideBuffers(t *testing.T) {
	f := newFleet(t)
	const raw = "--retention.resolution-raw=3d"
	start := func() *fleetAdapter { return f.start("", raw, "--buffer.enabled", "--buffer.path="+t.TempDir()) }
	a, b, direct := start(), start(), f.start("", raw)
	all := []*fleetAdapter{a, b, direct}
	const samples = 100
	first := f.clock.Load()
	day := rollup.DayOf(first)
	for i, p := range all {
		if err := p.send(fmt.Sprint("m", i), first-samples*60_000, samples); err != nil {
			t.Fatal(err)
		}
	}
	flush := func(p *fleetAdapter) {
		t.Helper()
		if err := p.appender.(*buffer.Buffer).Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	flush(a)
	f.clock.Add(8 * rollup.Day) // the samples of b are in its log alone
	want := func(what string, waitsForClock, waitsForLogs float64) {
		t.Helper()
		for i, p := range all[:2] {
			if n := p.metric("adapter_rollup_failures_total", ""); n != 0 {
				t.Errorf("%s: adapter %d counts %v failures", what, i, n)
			}
		}
		if c, l := a.metric("adapter_rollup_waiting", "clock"), a.metric("adapter_rollup_waiting", "logs"); c != waitsForClock || l != waitsForLogs {
			t.Errorf("%s: a waits for clocks: %v, for logs: %v", what, c, l)
		}
	}
	shown := func(what string, of ...int) {
		t.Helper()
		for _, i := range of {
			a.wantSamples(what, fmt.Sprint("m", i), samples)
		}
	}

	if err := a.maker.Once(t.Context()); !errors.Is(err, downsample.ErrClock) {
		t.Errorf("clocks are not compared: %v", err)
	}
	want("clocks are not compared", 1, 0)
	if lag := a.metric("adapter_rollup_lag_seconds", ""); lag < 6*24*3600 || lag > 10*24*3600 {
		t.Errorf("the lag is %v s, want about 7 days, or some more: the index knows of periods", lag)
	}
	shown("no rollup is made", 0, 2)
	if err := a.send("old", first-3*rollup.Day, 1); err == nil {
		t.Error("a sample that Bigtable may delete at once was taken")
	}

	f.minutes(4, all...)
	a.make(all...)
	want("rollups are made", 0, 0)
	if lag, made := a.metric("adapter_rollup_lag_seconds", ""), a.days.Made(); lag != 0 || made < day+7*rollup.Day {
		t.Errorf("the lag is %v s, days up to %s are made", lag, time.UnixMilli(made).UTC())
	}

	release := func() int64 {
		t.Helper()
		f.until("release", func(ctx context.Context) error {
			_, err := a.maker.Release(ctx, f.clock.Load()-3*rollup.Day)
			return err
		}, all...)
		if err := a.retention.Advance(t.Context()); err != nil {
			t.Error(err)
		}
		return a.days.Released()
	}
	if released := release(); released != 0 {
		t.Errorf("days up to %s are released beside a log that holds samples of them", time.UnixMilli(released).UTC())
	}
	want("beside a log with samples", 0, 1)
	b.stop() // which stores them
	all = []*fleetAdapter{a, direct}
	if released, asked := release(), rollup.DayOf(f.clock.Load()-3*rollup.Day); released != asked {
		t.Errorf("days up to %s are released, want %s", time.UnixMilli(released).UTC(), time.UnixMilli(asked).UTC())
	}
	if horizon := a.retention.Horizon(rollup.Raw); horizon != a.days.Released() || a.retention.View(f.now()).Raw() != horizon {
		t.Errorf("the horizon is %d, days up to %d are released", horizon, a.days.Released())
	}
	for i := range 3 {
		a.wantSamples("released", fmt.Sprint("m", i), 0)
		a.wantRolled(fmt.Sprint("m", i), samples)
	}

	// A clean stop gives up the lease: the next goes on at once.
	f.clock.Add(rollup.Day)
	f.minutes(4, all...)
	a.maker.Leave(t.Context())
	made := direct.days.Made()
	direct.make(all...)
	if got := direct.days.Made(); got <= made {
		t.Errorf("the next maker has made up to %d, before %d", got, made)
	}
}

// TestOtherLogs: what is known of the logs of other adapters is in metrics, and a read of samples that they may have is warned about, by
// the row of the log: none for times before its oldest sample. A log that was in the own directory is lost.
func TestOtherLogs(t *testing.T) {
	f := newFleet(t)
	start := func() *fleetAdapter { return f.start("", "--buffer.enabled", "--buffer.path="+t.TempDir()) }
	a, b, direct := start(), start(), f.start("")
	oldest := f.clock.Load() - 600_000
	if err := a.send("m", oldest, 5); err != nil {
		t.Fatal(err)
	}
	log := a.appender.(*buffer.Buffer).Log()
	log.Closed = 1
	put := func(l meta.Log) {
		t.Helper()
		if err := a.meta.PutLog(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	put(log)
	own := b.appender.(*buffer.Buffer).Log() // without samples
	own.Closed = 1
	put(own)
	for p, others := range map[*fleetAdapter]float64{b: 1, direct: 2} {
		w := p.newLogWatch(p.appender)
		read := func() {
			t.Helper()
			if err := w.read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.missing(math.MaxInt64); got != nil {
			t.Errorf("before a read: %v", got)
		}
		read()
		// of returns a metric of a log, or -1.
		of := func(name, id string) float64 {
			families, err := p.reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, family := range families {
				for _, m := range family.GetMetric() {
					if family.GetName() == "adapter_buffer_other_log_"+name && m.GetLabel()[1].GetValue() == id {
						return m.GetGauge().GetValue()
					}
				}
			}
			return -1
		}
		if n, bytes, from := p.metric("adapter_buffer_other_logs", ""), of("bytes", log.ID), of("oldest_sample_timestamp_seconds", log.ID); n != others || bytes < 50 || from > float64(oldest)/1000 || from < float64(oldest)/1000-10_000 {
			t.Errorf("%v logs, of %v bytes, from %v s on, want %v, from %v s on", n, bytes, from, others, oldest/1000)
		}
		if seen := of("last_seen_timestamp_seconds", log.ID); seen != float64(log.Seen)/1000 {
			t.Errorf("last seen at %v s", seen)
		}
		if got := w.missing(oldest); len(got) != 1 || !strings.Contains(got[0].Error(), log.ID) || !strings.Contains(got[0].Error(), log.Host) || !errors.Is(got[0], annotations.PromQLWarning) {
			t.Errorf("a read of what the log has is warned about by %q", got)
		}
		if got := w.missing(log.Oldest - 1); got != nil {
			t.Errorf("a read of what it has not: %q", got)
		}
		lost := meta.Log{ID: "lost", Host: own.Host, Path: own.Path, Seen: log.Seen}
		put(lost)
		read()
		if got := w.missing(0); len(got) != 1 || !strings.Contains(got[0].Error(), "lost") {
			t.Errorf("a read beside a log whose samples are unknown: %q", got)
		}
		if isLost, want := of("lost", "lost") == 1, p == b; isLost != want {
			t.Errorf("a log of the directory of b is lost: %t, want %t", isLost, want)
		}
		if err := a.meta.RemoveLog(t.Context(), "lost"); err != nil {
			t.Fatal(err)
		}
	}
}
