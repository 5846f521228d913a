package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	kit "github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/deletion"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/remote/jobs/retention"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// A ruled is a store whose processes have rules, and one with the same samples that keeps all of them.
type ruled struct {
	testing.TB
	clock  *clock
	store  *spy
	schema series.Schema
	meta   *meta.Store
	days   *downsample.Days
	all    *fixture
	shared bool
	// metaErr, if set, is the answer of META to rules.
	metaErr error
}

// metaRows is the store as META is read.
type metaRows struct {
	bucketstore.Store
	w *ruled
}

// Scan implements bucketstore.Store.
func (m metaRows) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	if m.w.metaErr != nil {
		return m.w.metaErr
	}
	return m.Store.Scan(ctx, req, fn)
}

// A ruledProcess is an adapter.
type ruledProcess struct {
	*ruled
	rules  *retention.Rules
	walker *retention.Walker
	// config is that of walker, without a registry.
	config retention.WalkerConfig
	maker  *downsample.Maker
	engine *engine.Engine
	reg    *prometheus.Registry
}

// firstDay is the day in which the samples of the tests of rules begin, and ruledDays how many days they are. A base begins among them.
const (
	firstDay  = rollupStart - 8*rollup.Day
	ruledDays = 12
	// samplesPerDay is how many samples a series has in each day, ruledInterval the time between them.
	samplesPerDay = 96
	ruledInterval = rollup.Day / samplesPerDay
)

// someRules are the rules of most tests.
const someRules = `
rules:
  - match: '{job="debug"}'
    raw: 3d
    5m: 6d
  - match: '{job=~"debug|slow"}'
    raw: 7d
    5m: forever
`

func newRuled(t testing.TB, store bucketstore.Store, shared bool) *ruled {
	t.Helper()
	w := &ruled{TB: t, clock: newClock(firstDay + ruledDays*rollup.Day + 10*3_600_000), store: &spy{Store: store}, schema: newSchema(t), shared: shared}
	var err error
	if w.meta, err = meta.Open(t.Context(), metaRows{storetest.Shared(store, shared), w}, w.schema, w.clock.now); err == nil {
		err = w.meta.Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	// The locks of one process: how makers of several wait is tested in package rollups.
	if w.days, err = downsample.Open(t.Context(), downsample.Config{Store: storetest.Shared(w.store, false), Schema: w.schema, Now: w.clock.now}); err != nil {
		t.Fatal(err)
	}
	w.all = openOn(t, openEmbedded(t, w.clock), w.clock)
	return w
}

// start starts a process with the rules in a file, or none. rollups says whether there are any.
func (w *ruled) start(text string, rollups bool) *ruledProcess {
	w.Helper()
	var flags bucketstore.Retention
	if !rollups {
		flags = bucketstore.Retention{0, timeline.Off, timeline.Off}
	}
	cfg := retention.RulesConfig{Meta: w.meta, Schema: w.schema, Now: w.clock.now, Rollups: rollups}
	p := &ruledProcess{ruled: w, reg: prometheus.NewRegistry()}
	if text != "" {
		rules, err := retention.ParseRules("rules.yml", []byte(text), flags)
		if err != nil {
			w.Fatal(err)
		}
		cfg.FileRules, cfg.Longest = retention.WithRest(rules, flags), retention.Longest(flags, rules)
	}
	var err error
	if p.rules, err = retention.OpenRules(w.Context(), cfg); err != nil {
		w.Fatal(err)
	}
	p.maker = downsample.NewMaker(w.days, downsample.MakerConfig{
		Resolutions: rollup.Downsampled, RowsPerSecond: 1e9, Timeline: timelinetest.Bounds{Rules: p.rules.Resolve},
	})
	counted := w.days.Counted(w.store)
	ecfg := engine.Config{
		Store: counted, Appender: w.days.Appender(bucketstore.NewDirect(counted, w.schema, w.clock.now, nil)), Schema: w.schema, Now: w.clock.now,
		MaxFuture: engine.Unbounded, Registerer: p.reg, CurrentInterval: time.Hour,
		Timeline: func(now time.Time) *timeline.View {
			v := timeline.Unbounded(now)
			if rollups {
				v = &timeline.View{Now: now, HasRollups: true, Made: w.days.Made()}
			}
			v.Ruled = p.rules
			return v
		},
	}
	wcfg := retention.WalkerConfig{Rules: p.rules, Store: w.store, Timeline: timelinetest.Bounds{MadeTo: w.days.Made}, Holder: "test", RowsPerSecond: 1e12, Registerer: p.reg}
	if rollups {
		wcfg.Make = p.maker.MakeSeries
	}
	if p.engine, err = engine.New(ecfg); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := p.engine.Close(context.Background()); err != nil {
			w.Error(err)
		}
	})
	p.walker = retention.NewWalker(wcfg)
	p.config = wcfg
	p.config.Registerer = nil
	return p
}

func jobSeries(job string) labels.Labels {
	return labels.FromStrings("__name__", "x_total", "job", job)
}

var jobs = []string{"debug", "other", "slow"}

// fill writes a sample each 5 minutes of each job, in both stores, with an exemplar a day, and makes the rollups.
func (p *ruledProcess) fill() {
	p.Helper()
	for n, job := range jobs {
		var s ingest.Series
		s.Labels = jobSeries(job)
		for i := range ruledDays * samplesPerDay {
			s.Samples = append(s.Samples, ingest.Sample{T: firstDay + int64(i)*ruledInterval + 7, V: float64(i * (n + 1))})
		}
		for i := range ruledDays {
			s.Exemplars = append(s.Exemplars, exemplar.Exemplar{Labels: labels.FromStrings("id", "x"), Value: 1, Ts: firstDay + int64(i)*rollup.Day + 7, HasTs: true})
		}
		for _, e := range []*engine.Engine{p.engine, p.all.Engine} {
			var rejected ingest.Rejected
			if _, err := e.Append(p.Context(), []ingest.Series{s}, &rejected); err != nil || rejected.Err() != nil {
				p.Fatal(err, rejected.Err())
			}
		}
	}
	p.make()
}

func (p *ruledProcess) make() {
	p.Helper()
	if err := p.maker.Once(p.Context()); err != nil {
		p.Fatal(err)
	}
}

// advance lets the walker work, and then the time pass for which it waits.
func (p *ruledProcess) advance() {
	p.Helper()
	if err := p.walker.Advance(p.Context()); err != nil {
		p.Fatal(err)
	}
	p.clock.ms.Add(20 * 60_000)
}

// send sends a sample, and returns what is wrong with it.
func (p *ruledProcess) send(job string, t int64) error {
	p.Helper()
	var rejected ingest.Rejected
	if _, err := p.engine.Append(p.Context(), []ingest.Series{one(jobSeries(job), t)}, &rejected); err != nil {
		p.Fatal(err)
	}
	return rejected.Err()
}

// wantShown wants the samples of a job from so many days on, and none before.
func (p *ruledProcess) wantShown(job string, days int64) {
	p.Helper()
	q := everything()
	q.Matchers = []*labels.Matcher{match("job", job)}
	set, err := p.engine.Select(p.Context(), q)
	if err != nil {
		p.Fatal(err)
	}
	samples := 0
	first := int64(math.MaxInt64)
	for _, s := range collectChunks(p, set, q) {
		samples += len(s.Samples)
		first = s.Samples[0].T
	}
	if want := int(ruledDays-days) * samplesPerDay; samples != want || first != firstDay+days*rollup.Day+7 {
		p.Errorf("%s: %d samples, the first %d days in, want %d and %d", job, samples, (first-firstDay)/rollup.Day, want, days)
	}
	found, err := p.engine.ExemplarQuerier(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	results, err := found.Select(0, math.MaxInt64, q.Matchers)
	if err != nil || len(results) != 1 || len(results[0].Exemplars) != int(ruledDays-days) {
		p.Errorf("%s: exemplars %v, %v, want those of %d days", job, results, err, ruledDays-days)
	}
}

// key returns the key of a series.
func (w *ruled) key(job string) []byte {
	w.Helper()
	key, err := w.schema.AppendSeriesKey(nil, jobSeries(job))
	if err != nil {
		w.Fatal(err)
	}
	return key
}

// stored returns the days of which a job has cells of a family.
func (w *ruled) stored(job, family string) (days []int64) {
	w.Helper()
	key := w.key(job)
	for _, base := range []int64{firstDay &^ (series.Period - 1), firstDay&^(series.Period-1) + series.Period} {
		err := w.store.Scan(w.Context(), bucketstore.ScanRequest{
			Table: bucketstore.Metric, Rows: []series.RowRange{series.SingleRow(w.schema.AppendRowKey(nil, key, base))}, Families: []bucketstore.FamilyRange{{Family: family}},
		}, func(row bucketstore.Row) error {
			for _, c := range row.Cells {
				days = append(days, (rollup.DayOfCell(base, c.Qualifier)-firstDay)/rollup.Day)
			}
			return nil
		})
		if err != nil {
			w.Fatal(err)
		}
	}
	slices.Sort(days)
	return slices.Compact(days)
}

// wantStored wants cells of a family of exactly the days from first on.
func (w *ruled) wantStored(job, family string, first int64) {
	w.Helper()
	var want []int64
	for day := first; day < ruledDays; day++ {
		want = append(want, day)
	}
	if got := w.stored(job, family); !slices.Equal(got, want) {
		w.Errorf("%s has %s of days %v, want %v", job, family, got, want)
	}
}

// ask evaluates an expression each hour of all days.
func (p *ruledProcess) ask(e *engine.Engine, expr string) (found promql.Matrix, warnings []string) {
	p.Helper()
	found, notes := (&rolled{}).askWith(p.TB.(*testing.T), e, expr, time.UnixMilli(firstDay+rollup.Day), time.UnixMilli(firstDay+ruledDays*rollup.Day), time.Hour)
	for _, err := range notes.AsErrors() {
		warnings = append(warnings, err.Error())
	}
	return found, warnings
}

// wantSame wants the answer of all samples.
func (p *ruledProcess) wantSame(expr string) {
	p.Helper()
	got, warnings := p.ask(p.engine, expr)
	want, _ := p.ask(p.all.Engine, expr)
	if got.String() != want.String() || len(warnings) > 0 {
		p.Errorf("%s: %v, %.300s\nwant %.300s", expr, warnings, got, want)
	}
}

// wantKept wants the samples that rollups keep from the first day on, true ones, and all from so many days on.
func (p *ruledProcess) wantKept(job string, days int64) {
	p.Helper()
	q := everything()
	q.Matchers, q.Kept = []*labels.Matcher{match("job", job)}, true
	kept, err := p.engine.Select(p.Context(), q)
	if err != nil {
		p.Fatal(err)
	}
	all, err := p.all.Select(p.Context(), q)
	if err != nil {
		p.Fatal(err)
	}
	got, want := collectChunks(p, kept, q)[0].Samples, collectChunks(p, all, q)[0].Samples
	if got[0] != want[0] {
		p.Errorf("%s begins with %v, want %v", job, got[0], want[0])
	}
	from := firstDay + days*rollup.Day
	isTrue, after := make(map[ingest.Sample]bool), 0
	for _, s := range want {
		isTrue[s] = true
		if s.T >= from {
			after++
		}
	}
	for _, s := range got {
		if !isTrue[s] {
			p.Errorf("%s has no sample %v", job, s)
		}
		if s.T >= from {
			after--
		}
	}
	if after != 0 {
		p.Errorf("%s lacks %d samples that are there", job, after)
	}
}

// eachRuled runs a test on both stores.
func eachRuled(t *testing.T, test func(t *testing.T, w *ruled)) {
	for _, backend := range backends()[:2] {
		t.Run(backend.name, func(t *testing.T) {
			test(t, newRuled(t, backend.open(t, newClock(someTime)), backend.name == "bigtable"))
		})
	}
}

const hourly = "sum by (job) (increase(x_total[1h]))"

// TestRules: what rules cut is refused, hidden and then deleted, series by series, and answers from rollups are as they were.
func TestRules(t *testing.T) {
	eachRuled(t, func(t *testing.T, w *ruled) {
		p := w.start(someRules, true)
		p.fill()
		p.wantSame(hourly)

		p.advance() // Closed is raised.
		for _, job := range jobs {
			p.wantShown(job, 0)
		}
		const debug, slow = ruledDays - 3, ruledDays - 7
		for _, tt := range []struct {
			job  string
			days int64
			rule string
		}{{"debug", debug, `rule 1 {job="debug"}`}, {"slow", slow, `rule 2 {job=~"debug|slow"}`}} {
			err := p.send(tt.job, firstDay+tt.days*rollup.Day)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("samples are kept from %d on, see --retention.rules, %s", firstDay+tt.days*rollup.Day+1, tt.rule)) {
				t.Errorf("an old sample of %s: %v", tt.job, err)
			}
			if err := p.send(tt.job, firstDay+tt.days*rollup.Day+7); err != nil { // with the value of that day
				t.Error(err)
			}
		}
		if err := p.send("other", firstDay+7); err != nil {
			t.Error(err)
		}
		p.sendAgain()

		p.advance() // The last rollups are made, and the cuts raised.
		p.wantStored("debug", "l", 0)
		shown := func(p *ruledProcess) {
			t.Helper()
			p.wantShown("debug", debug)
			p.wantShown("slow", slow)
			p.wantShown("other", 0)
			p.wantSame(hourly)
			p.wantKept("debug", debug)
			p.wantKept("slow", slow)
			_, warnings := p.ask(p.engine, "irate(x_total[1h])")
			if want := time.UnixMilli(firstDay + debug*rollup.Day).UTC().Format(time.RFC3339); len(warnings) != 1 || !strings.Contains(warnings[0], "what is before "+want+" is only kept as rollups") {
				t.Errorf("irate: %q", warnings)
			}
		}
		shown(p)

		p.advance()
		deleted := func() {
			t.Helper()
			for _, family := range []string{"l", "e"} {
				p.wantStored("debug", family, debug)
				p.wantStored("slow", family, slow)
				p.wantStored("other", family, 0)
			}
			p.wantStored("debug", "5m", ruledDays-6)
			p.wantStored("slow", "5m", 0)
			for _, job := range jobs {
				p.wantStored(job, "1h", 0)
			}
		}
		deleted()
		shown(p)
		if got := gathered(t, p.reg, "adapter_retention_rule_cells_total"); got < (debug+slow)*(samplesPerDay+1) {
			t.Errorf("%v cells removed", got)
		}
		if got := gathered(t, p.reg, "adapter_retention_rule_rows_total"); got < 3 {
			t.Errorf("%v rows", got)
		}

		// A write that comes all the same, from a process that does not know the rules, makes nothing anew.
		before := w.stored("debug", "5m")
		key := w.key("debug")
		counted := w.days.Counted(w.store)
		direct := bucketstore.NewDirect(counted, w.schema, w.clock.now, nil)
		if err := direct.Append(t.Context(), []bucketstore.Sample{{Ref: direct.Ref(key), T: firstDay + 3*rollup.Day + 9, V: 1e9}}); err != nil {
			t.Fatal(err)
		}
		if err := p.maker.MakeSeries(t.Context(), firstDay+3*rollup.Day, []kit.Posting{{Series: key}}); err != nil {
			t.Fatal(err)
		}
		if got := w.stored("debug", "5m"); !slices.Equal(got, before) {
			t.Errorf("rollups of days %v, want %v", got, before)
		}
		shown(p)

		// Rules that keep more, or none, show nothing of what was cut.
		for _, text := range []string{"", strings.Replace(someRules, "raw: 3d", "raw: 11d", 1), "rules: [{match: '{job=\"other\"}', raw: 20d}]"} {
			p = w.start(strings.Replace(text, "5m: 6d", "5m: 12d", 1), true)
			for range 4 {
				shown(p)
				p.advance()
			}
			if err := p.send("debug", firstDay+3*rollup.Day); err == nil || !strings.Contains(err.Error(), "--retention.rules") {
				t.Errorf("an old sample: %v", err)
			}
		}
		if lists, err := w.meta.RuleLists(t.Context()); err != nil || len(lists) != 2 { // with the same selectors, one
			t.Errorf("%d lists, %v", len(lists), err)
		}
	})
}

// sendAgain stores what send was called with in TestRules with the values of fill, in both stores: also a late sample of a day that is closed for other series.
func (p *ruledProcess) sendAgain() {
	p.Helper()
	for _, e := range []*engine.Engine{p.engine, p.all.Engine} {
		var rejected ingest.Rejected
		s := ingest.Series{Labels: jobSeries("other"), Samples: []ingest.Sample{{T: firstDay + 7, V: 0}}}
		if _, err := e.Append(p.Context(), []ingest.Series{s}, &rejected); err != nil || rejected.Err() != nil {
			p.Fatal(err, rejected.Err())
		}
		for job, day := range map[string]int64{"debug": ruledDays - 3, "slow": ruledDays - 7} {
			n := slices.Index(jobs, job) + 1
			s := ingest.Series{Labels: jobSeries(job), Samples: []ingest.Sample{{T: firstDay + day*rollup.Day + 7, V: float64(day * samplesPerDay * int64(n))}}}
			if _, err := e.Append(p.Context(), []ingest.Series{s}, &rejected); err != nil || rejected.Err() != nil {
				p.Fatal(err, rejected.Err())
			}
		}
	}
}

func gathered(t testing.TB, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	return (&fixture{reg: reg}).counter(t, name)
}

// TestRulesLastRollups: a sample that comes before its day is closed is in the rollups that are left of it.
func TestRulesLastRollups(t *testing.T) {
	eachRuled(t, func(t *testing.T, w *ruled) {
		p := w.start(someRules, true)
		p.fill()
		late := firstDay + 2*rollup.Day + 11
		for _, e := range []*engine.Engine{p.engine, p.all.Engine} {
			var rejected ingest.Rejected
			if _, err := e.Append(t.Context(), []ingest.Series{{Labels: jobSeries("debug"), Samples: []ingest.Sample{{T: late, V: 1e6}}}}, &rejected); err != nil || rejected.Err() != nil {
				t.Fatal(err, rejected.Err())
			}
		}
		for range 3 {
			p.advance()
		}
		p.wantStored("debug", "l", ruledDays-3)
		p.wantSame(hourly)
	})
}

// TestRulesWithoutRollups: the clock cuts.
func TestRulesWithoutRollups(t *testing.T) {
	eachRuled(t, func(t *testing.T, w *ruled) {
		p := w.start("rules: [{match: '{job=\"debug\"}', raw: 3d}]", false)
		cut := w.clock.ms.Load() - 3*rollup.Day
		for at, want := range map[int64]string{cut - 1: "--retention.rules, rule 1", cut: ""} {
			err := p.send("debug", at)
			if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("a sample %d ms after the cut: %v", at-cut, err)
			}
		}
		q := everything()
		n := func() (n int) {
			set, err := p.engine.Select(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for range collectChunks(t, set, q) {
				n++
			}
			return n
		}
		if got := n(); got != 1 {
			t.Errorf("%d series", got)
		}
		current := func() int {
			t.Helper()
			found, err := p.engine.Current(t.Context(), [][]*labels.Matcher{{match("job", "debug")}}, 0)
			if err != nil {
				t.Fatal(err)
			}
			inventory := 0
			if _, err := p.engine.Inventory(t.Context(), nil, 10, func(current.Sample) error { inventory++; return nil }); err != nil || inventory != len(found) {
				t.Errorf("%d in the inventory, %v", inventory, err)
			}
			return len(found)
		}
		if got := current(); got != 1 {
			t.Errorf("%d current samples", got)
		}
		w.clock.ms.Add(1)
		if got := n(); got != 0 {
			t.Errorf("%d series after the cut", got)
		}
		if got := current(); got != 0 {
			t.Errorf("%d current samples after the cut", got)
		}
		w.clock.ms.Add(rollup.Day)
		p.advance()
		p.advance()
		if got := w.stored("debug", "l"); got != nil {
			t.Errorf("cells of days %v are left", got)
		}
	})
}

// TestRulesInterrupted: a walk that ends half-way is taken up where it was, by the next process.
func TestRulesInterrupted(t *testing.T) {
	eachRuled(t, func(t *testing.T, w *ruled) {
		p := w.start(someRules, true)
		p.fill()
		var more []ingest.Series
		for i := range 250 {
			more = append(more, one(labels.FromStrings("__name__", "more", "job", "debug", "n", fmt.Sprintf("%03d", i)), firstDay+7, firstDay+rollup.Day+7))
		}
		var rejected ingest.Rejected
		if _, err := p.engine.Append(t.Context(), more, &rejected); err != nil || rejected.Err() != nil {
			t.Fatal(err, rejected.Err())
		}
		p.advance()
		p.advance()
		down := errors.New("the store is down")
		writes := 0
		w.store.onApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
			if writes++; table == bucketstore.Metric && writes > 1 {
				return down
			}
			return nil
		}
		if err := p.walker.Advance(t.Context()); !errors.Is(err, down) {
			t.Fatal(err)
		}
		w.store.onApply = nil
		left := func() (n int) {
			if err := w.store.Scan(t.Context(), bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{w.schema.SeriesRange("more")}, Families: []bucketstore.FamilyRange{{Family: "l"}}},
				func(bucketstore.Row) error { n++; return nil }); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if got := left(); got != 50 { // it walks 200 at once
			t.Errorf("%d series are left, want 50", got)
		}
		w.store.reset()
		p = w.start(someRules, true)
		w.clock.ms.Add(20 * 60_000)
		p.advance()
		if got := left(); got != 0 {
			t.Errorf("%d series are left", got)
		}
		for _, scan := range w.store.scans(bucketstore.Metric) {
			for _, key := range scan.keys {
				if strings.Contains(key, "n=000") && scan.req.Families[0].Family == "c" {
					t.Errorf("the walk has read %q again", key)
				}
			}
		}
		p.wantStored("debug", "l", ruledDays-3)
	})
}

// TestRulesOfTwo: of two adapters one walks, and the other hides and refuses what it cuts.
func TestRulesOfTwo(t *testing.T) {
	w := newRuled(t, bigtabletest.Open(t), true)
	a, b := w.start(someRules, true), w.start("", true)
	a.fill()
	for range 3 {
		a.advance()
	}
	a.wantStored("debug", "l", ruledDays-3)
	// It has read META an hour ago, so it reads it again.
	b.wantShown("debug", ruledDays-3)
	if err := b.send("debug", firstDay+rollup.Day); err == nil || !strings.Contains(err.Error(), "a rule that was there before") {
		t.Error(err)
	}
	w.clock.ms.Add(rollup.Day)
	a.make()
	a.advance()
	b.advance() // It waits itself, and has no rules that would raise the cut.
	a.advance()
	b.advance()
	b.wantStored("debug", "l", ruledDays-3)
	b.advance()
	b.wantStored("debug", "l", ruledDays-2)
	b.wantShown("debug", ruledDays-2)
	// While META cannot be read, an answer needs what was read not long ago.
	w.metaErr = errors.New("META is down")
	if _, err := b.engine.Select(t.Context(), everything()); err != nil {
		t.Error(err)
	}
	w.clock.ms.Add(11 * 60_000)
	if _, err := b.engine.Select(t.Context(), everything()); !errors.Is(err, w.metaErr) {
		t.Errorf("a read: %v", err)
	}
	now := w.clock.ms.Load()
	for _, at := range []int64{now - 3*rollup.Day + 1, now - 3*rollup.Day - 1} {
		isOld := at < now-3*rollup.Day
		var rejected ingest.Rejected
		if _, err := b.engine.Append(t.Context(), []ingest.Series{one(jobSeries("debug"), at)}, &rejected); errors.Is(err, w.metaErr) != isOld {
			t.Errorf("a write at %d ms before: %v", now-at, err)
		}
		if _, err := b.engine.Select(t.Context(), reader.Query{Mint: at + rollup.Day, Maxt: now}); errors.Is(err, w.metaErr) != isOld {
			t.Errorf("a read from %d ms before: %v", now-at, err)
		}
	}
	if err := b.maker.MakeSeries(t.Context(), firstDay, []kit.Posting{{Series: b.key("other")}}); err != nil {
		t.Errorf("nothing to make: %v", err)
	}
}

// TestRulesModel moves the clock, writes, walks and starts with other rules, and compares what is shown with a map: all from the cut on, and nothing
// before, where the cut only goes up, never further than a rule asked for.
func TestRulesModel(t *testing.T) {
	r := seriestest.NewRand(t)
	for range storetest.Rounds(t, 4) {
		w := newRuled(t, openEmbedded(t, newClock(someTime)), r.IntN(2) == 0)
		written := make(map[string]map[int64]float64)
		cuts, asked := make(map[string]int64), make(map[string]int64)
		var ages map[string]int64
		rollups := r.IntN(3) > 0
		start := func() *ruledProcess {
			text, matched := "rules:\n", map[string]bool{}
			ages = make(map[string]int64)
			for range 1 + r.IntN(3) {
				some := jobs[r.IntN(3):]
				age := int64(3 + r.IntN(8))
				text += fmt.Sprintf("  - {match: '{job=~\"%s\"}', raw: %dd}\n", strings.Join(some, "|"), age)
				for _, job := range some {
					if !matched[job] {
						ages[job], matched[job] = age, true
					}
				}
			}
			return w.start(text, rollups)
		}
		w.start("", rollups).fill()
		p := start()
		for _, job := range jobs {
			written[job] = make(map[int64]float64)
			for i := range ruledDays * samplesPerDay {
				written[job][firstDay+int64(i)*ruledInterval+7] = 0
			}
		}
		for range 60 {
			now := w.clock.ms.Load()
			for job, age := range ages {
				asked[job] = max(asked[job], now-age*rollup.Day)
			}
			job := jobs[r.IntN(3)]
			switch r.IntN(6) {
			case 0:
				w.clock.ms.Add(r.Int64N(2 * rollup.Day))
			case 1, 2:
				p.make()
				p.advance()
			case 3:
				p = start()
			case 4:
				at := now - r.Int64N(12*rollup.Day)
				if p.send(job, at) == nil {
					written[job][at] = 0
				} else if at >= asked[job] {
					t.Fatalf("a sample of %s at %d is refused, rules asked up to %d", job, at, asked[job])
				}
			default:
				q := everything()
				q.Matchers = []*labels.Matcher{match("job", job)}
				set, err := p.engine.Select(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.rules.Resolve(t.Context()); err != nil {
					t.Fatal(err)
				}
				cut := p.rules.Known().Of(jobSeries(job))[rollup.Raw]
				if cut > max(asked[job], w.clock.ms.Load()-ages[job]*rollup.Day) || rollups && cut < cuts[job] {
					t.Fatalf("the cut of %s is %d, was %d, rules asked for %d", job, cut, cuts[job], asked[job])
				}
				cuts[job] = cut
				got := make(map[int64]bool)
				for _, s := range collectChunks(t, set, q) {
					for _, sample := range s.Samples {
						got[sample.T] = true
					}
				}
				want := 0
				for at := range written[job] {
					if at >= cut {
						want++
						if !got[at] {
							t.Fatalf("%s has no sample at %d, the cut is %d", job, at, cut)
						}
					}
				}
				if want != len(got) {
					t.Fatalf("%s has %d samples, want %d from %d on", job, len(got), want, cut)
				}
			}
		}
	}
}

// jobCuts are rules that cut series by their job.
type jobCuts map[string]int64

func (c jobCuts) LatestRefused() int64                      { return 0 }
func (c jobCuts) Refused(labels.Labels) (_ int64, _ string) { return 0, "" }
func (c jobCuts) For(string) timeline.Rules                 { return c }

func (c jobCuts) Latest() (latest int64) {
	for _, cut := range c {
		latest = max(latest, cut)
	}
	return latest
}

func (c jobCuts) Of(ls labels.Labels) (cuts [rollup.NumResolutions]int64) {
	cuts[rollup.Raw] = c[ls.Get("job")]
	return cuts
}

// TestRulePaths compares each way to read a store, of which rules cut some series at other times than others, with the same of a store
// that has none of that.
func TestRulePaths(t *testing.T) {
	for _, backend := range backends() {
		t.Run(backend.name, func(t *testing.T) {
			clock := newClock(someTime + 1000)
			cuts := jobCuts{}
			all := openOn(t, backend.open(t, clock), clock, func(cfg *engine.Config) {
				cfg.Timeline = timelinetest.Ruled(cuts)
			})
			all.append(t, cutBatch(math.MinInt64)...)
			cuts["a"], cuts["at"], cuts["ended"], cuts["just_ended"] = someTime, someTime-5, someTime-1, someTime
			kept := openOn(t, backend.open(t, clock), clock)
			kept.append(t, cutBatch(someTime)...)
			all.SetBatchBytes(1)
			paths := cutPaths()
			delete(paths, "explain") // it reads from the least cut on
			for name, read := range paths {
				for _, r := range [][2]int64{
					{math.MinInt64, math.MaxInt64}, {someTime - 10, someTime + 10}, {someTime, someTime}, {someTime - 1, someTime - 1}, {someTime + 1, someTime + 400},
				} {
					if got, want := read(t, all, r[0], r[1]), read(t, kept, max(r[0], someTime), r[1]); got != want {
						t.Errorf("%s, [%d, %d] from the cut:\n%.3000s\nwant\n%.3000s", name, r[0]-someTime, r[1]-someTime, got, want)
					}
				}
			}
			x, err := all.Measure(t.Context(), reader.Query{Maxt: someTime + 1000}, nil)
			if err != nil || x.Series != 6 {
				t.Errorf("measured %+v, %v", x, err)
			}
		})
	}
}

// TestRuleLimit: the limit on samples is that of all groups together.
func TestRuleLimit(t *testing.T) {
	cuts := jobCuts{"a": 1, "b": 2}
	f := openFixture(t, func(cfg *engine.Config) {
		cfg.Timeline = timelinetest.Ruled(cuts)
		cfg.Limits.MaxSamples = 150
	})
	for _, job := range []string{"a", "b"} {
		f.append(t, one(labels.FromStrings("__name__", "x", "job", job), regular(100, 1_000_000)...))
	}
	if _, err := f.Select(t.Context(), everything()); !errors.Is(err, reader.ErrLimit) {
		t.Errorf("200 samples: %v", err)
	}
	set, err := f.Select(t.Context(), reader.Query{Matchers: []*labels.Matcher{match("job", "a")}, Maxt: math.MaxInt64})
	if err != nil || !set.Next() || set.Next() || set.Err() != nil {
		t.Errorf("100 samples: %v", err)
	}
}

// TestRulesDelete: of days whose samples a rule has removed, a deletion removes the rollups.
func TestRulesDelete(t *testing.T) {
	w := newRuled(t, openEmbedded(t, newClock(someTime)), false)
	p := w.start(someRules, true)
	p.fill()
	for range 3 {
		p.advance()
	}
	records, err := deletion.Open(t.Context(), deletion.Config{Meta: w.meta, Schema: w.schema, Now: w.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	x := deletion.NewExecutor(deletion.ExecutorConfig{
		Records: records, Store: w.days.Counted(w.store), Find: deletion.FindIn(p.engine.SeriesBefore), RowsPerSecond: 1e12, Timeline: timelinetest.Bounds{Closes: func() int64 {
			closed, err := w.days.Closed(t.Context())
			if err != nil {
				t.Error(err)
			}
			return closed
		}, Rules: p.rules.Resolve},
	})
	start, limit := firstDay+7*rollup.Day, firstDay+8*rollup.Day
	for _, job := range jobs {
		if err := records.Delete(t.Context(), []*labels.Matcher{match("job", job)}, start, limit); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Advance(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, _ := p.ask(p.engine, "count_over_time(x_total[1h])")
	if len(got) != 3 {
		t.Fatalf("%d series", len(got))
	}
	for _, s := range got {
		for _, point := range s.Floats {
			if point.T > start+3_600_000 && point.T < limit {
				t.Errorf("%s has a value at %d", s.Metric, point.T)
			}
		}
	}
}

// TestRulesOvertaken: what an earlier list has cut is forgotten when the store has cut it, and other processes have had the time to see that.
// Where a horizon may be taken back, it goes back no further than to what the list has cut.
func TestRulesOvertaken(t *testing.T) {
	t.Run("one process", func(t *testing.T) { testRulesOvertaken(t, false) })
	t.Run("several", func(t *testing.T) { testRulesOvertaken(t, true) })
}

func testRulesOvertaken(t *testing.T, shared bool) {
	w := newRuled(t, openEmbedded(t, newClock(someTime)), shared)
	p := w.start(someRules, true)
	p.fill()
	for range 3 {
		p.advance()
	}
	var cuts, none meta.Horizons
	lists, err := w.meta.RuleLists(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lists {
		for _, rule := range l.Rules {
			for of, cut := range rule.Cuts {
				cuts[of] = max(cuts[of], cut)
			}
		}
	}
	if cuts == none {
		t.Fatal("nothing is cut")
	}
	if !shared {
		cuts = none
	}
	p = w.start("", true)
	horizon := firstDay
	cfg := retention.WalkerConfig{Rules: p.rules, Store: w.store, Timeline: timelinetest.From(func() int64 { return horizon })}
	walker := retention.NewWalker(cfg)
	for _, want := range []int{1, 1, 1, 1, 0} {
		if err := walker.Advance(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lists, err := w.meta.RuleLists(t.Context()); err != nil || len(lists) != want {
			t.Errorf("%d lists, %v, want %d", len(lists), err, want)
		}
		horizon += (ruledDays - 4) * rollup.Day
		w.clock.ms.Add(19 * 60_000)
	}
	if deleted, err := w.meta.Deleted(t.Context()); err != nil || deleted != cuts {
		t.Errorf("a horizon may go back to %v, %v, want %v", deleted, err, cuts)
	}
}

// TestRulesClock: a clock that is ahead, or in doubt, cuts nothing that is new.
func TestRulesClock(t *testing.T) {
	w := newRuled(t, openEmbedded(t, newClock(someTime)), false)
	w.start("", true).fill()
	p := w.start(someRules, true)
	w.clock.ms.Add(1000 * rollup.Day)
	p.make()
	doubt := errors.New("the clock is in doubt")
	cfg := retention.WalkerConfig{
		Rules: p.rules, Store: w.store, Timeline: timelinetest.Bounds{MadeTo: w.days.Made}, RowsPerSecond: 1e12,
		Make: p.maker.MakeSeries, Waits: func(context.Context) error { return doubt },
		Newest: func() (int64, error) { return firstDay + 5*rollup.Day, nil },
	}
	walker := retention.NewWalker(cfg)
	step := func() {
		t.Helper()
		if err := walker.Advance(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.clock.ms.Add(20 * 60_000)
	}
	step()
	if lists, err := w.meta.RuleLists(t.Context()); err != nil || len(lists) != 0 {
		t.Errorf("%d lists, %v", len(lists), err)
	}
	doubt = nil
	for range 4 {
		step()
	}
	w.wantStored("debug", "l", 5)
	w.wantStored("other", "l", 0)
}

// TestRulesPropagate: cuts settle while other things move: the horizon of the store, and the cuts of other rules.
func TestRulesPropagate(t *testing.T) {
	moving := func(w *ruled, of rollup.Resolution) int64 {
		if of != rollup.Raw {
			return 0
		}
		return w.clock.ms.Load() - ruledDays*rollup.Day
	}
	closeMore := func(w *ruled) {
		lists, err := w.meta.RuleLists(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lists {
			l.Rules[1].Closed++
			if ok, err := w.meta.PutRuleList(t.Context(), &l); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
	}
	for name, tt := range map[string]struct {
		horizon func(*ruled, rollup.Resolution) int64
		step    func(*ruled)
	}{
		"horizon":    {moving, func(*ruled) {}},
		"other rule": {func(*ruled, rollup.Resolution) int64 { return 0 }, closeMore},
	} {
		t.Run(name, func(t *testing.T) {
			eachRuled(t, func(t *testing.T, w *ruled) {
				p := w.start(someRules, true)
				p.fill()
				p.config.Timeline = timelinetest.Bounds{From: func(of rollup.Resolution) int64 { return tt.horizon(w, of) }, MadeTo: w.days.Made}
				p.walker = retention.NewWalker(p.config)
				for range 12 {
					if err := p.walker.Advance(t.Context()); err != nil {
						t.Fatal(err)
					}
					tt.step(w)
					w.clock.ms.Add(10 * 60_000)
				}
				p.wantStored("debug", "l", ruledDays-3)
			})
		})
	}
}

// TestRulesWalk: a walk of most series reads the index by pages, stops at any of them, and goes on from there.
func TestRulesWalk(t *testing.T) {
	eachRuled(t, func(t *testing.T, w *ruled) {
		p := w.start("rules: [{match: '{job=\"billing\"}', raw: 12d}, {match: '{job!=\"billing\"}', raw: 3d}]", false)
		var batch []ingest.Series
		for i := range 800 {
			name := "many"
			if i%2 == 0 {
				name = fmt.Sprintf("name%03d", i) // more than a page of names
			}
			job := "x"
			if i >= 700 {
				job = "billing"
			}
			ls := labels.FromStrings("__name__", name, "job", job, "n", fmt.Sprintf("%03d", i))
			batch = append(batch, one(ls, firstDay+7*rollup.Day+7, firstDay+8*rollup.Day+7)) // of two bases
		}
		w.clock.ms.Add(-6 * rollup.Day)
		var rejected ingest.Rejected
		if _, err := p.engine.Append(t.Context(), batch, &rejected); err != nil || rejected.Err() != nil {
			t.Fatal(err, rejected.Err())
		}
		w.clock.ms.Add(6 * rollup.Day)
		p.advance()
		w.store.reset()
		down := errors.New("the store is down")
		read := make(map[string]int)
		for failures := 0; ; failures++ {
			writes := 0
			w.store.onApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
				if table != bucketstore.Metric {
					return nil
				}
				if writes++; writes > 1 {
					return down
				}
				return nil
			}
			w.clock.ms.Add(20 * 60_000)
			err := p.walker.Advance(t.Context())
			if err == nil && failures < 5 {
				t.Fatalf("ended after %d failures", failures)
			}
			if err == nil {
				break
			}
			if !errors.Is(err, down) || failures > 100 {
				t.Fatal(failures, err)
			}
		}
		for _, scan := range w.store.scans(bucketstore.Index) {
			if scan.req.Limit == 0 || scan.req.Limit > 200 {
				t.Errorf("the walk reads %d rows of the index at once", scan.req.Limit)
			}
		}
		for _, scan := range w.store.scans(bucketstore.Metric) {
			for _, key := range scan.keys {
				read[key]++
			}
		}
		for key, n := range read {
			if n > 3 { // once for each failure and success of its part, and for the one before
				t.Errorf("%q was read %d times", key, n)
			}
		}
		w.store.onApply = nil
		left := make(map[bool]int)
		var families []bucketstore.FamilyRange
		for _, family := range series.RawFamilies {
			families = append(families, bucketstore.FamilyRange{Family: family})
		}
		if err := w.store.Scan(t.Context(), bucketstore.ScanRequest{
			Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: families,
		}, func(row bucketstore.Row) error {
			left[strings.Contains(string(row.Key), "billing")] += len(row.Cells)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if left[false] != 0 || left[true] != 200 {
			t.Errorf("%d samples are left of those that go, and %d of 200 others", left[false], left[true])
		}
	})
}

// TestRulesLongWalk: a walk that makes the last rollups for more than a day goes on where it was, in another process. The buffer is flushed once
// for all rules.
func TestRulesLongWalk(t *testing.T) {
	eachRuled(t, func(t *testing.T, w *ruled) {
		p := w.start(someRules, true)
		p.fill()
		var more []ingest.Series
		for i := range 250 {
			more = append(more, one(labels.FromStrings("__name__", "more", "job", "debug", "n", fmt.Sprintf("%03d", i)), firstDay+7))
		}
		var rejected ingest.Rejected
		if _, err := p.engine.Append(t.Context(), more, &rejected); err != nil || rejected.Err() != nil {
			t.Fatal(err, rejected.Err())
		}
		down, isDown := errors.New("the store is down"), true
		flushes, isMade := 0, make(map[string]bool)
		advance := func() error {
			p.make()
			p.config.Flush = func(context.Context) error { flushes++; return nil }
			p.config.Make = func(ctx context.Context, day int64, keys []kit.Posting) error {
				if isDown && !strings.Contains(string(keys[0].Series), "n=000") {
					return down
				}
				for _, p := range keys {
					key := p.Series
					if day == firstDay {
						if isMade[string(key)] {
							t.Fatalf("the rollups of %s are made again", key)
						}
						isMade[string(key)] = true
					}
				}
				return p.maker.MakeSeries(ctx, day, keys)
			}
			defer w.clock.ms.Add(20 * 60_000)
			return retention.NewWalker(p.config).Advance(t.Context())
		}
		if err := advance(); err != nil {
			t.Fatal(err)
		}
		w.clock.ms.Add(20 * 60_000)
		for range 3 {
			if err := advance(); !errors.Is(err, down) {
				t.Fatal(err)
			}
			w.clock.ms.Add(rollup.Day)
			p = w.start(someRules, true)
			if w.shared { // requests of the process before may run
				if err := advance(); err != nil {
					t.Fatal(err)
				}
			}
		}
		isDown, flushes = false, 0
		if err := advance(); err != nil {
			t.Fatal(err)
		}
		if len(isMade) != 253-1 || flushes != 1 {
			t.Errorf("rollups of %d series are made, after %d flushes", len(isMade), flushes)
		}
		for range 3 {
			if err := advance(); err != nil {
				t.Fatal(err)
			}
		}
		p.wantStored("debug", "l", ruledDays)
	})
}

// TestRulesOneFails: what fails for one rule stops no other.
func TestRulesOneFails(t *testing.T) {
	eachRuled(t, func(t *testing.T, w *ruled) {
		p := w.start(someRules, true)
		p.fill()
		down := errors.New("the maker is down")
		makeAll := p.config.Make
		p.config.Make = func(ctx context.Context, day int64, keys []kit.Posting) error {
			if strings.Contains(string(keys[0].Series), "debug") {
				return down
			}
			return makeAll(ctx, day, keys)
		}
		p.walker = retention.NewWalker(p.config)
		p.advance()
		for range 2 {
			if err := p.walker.Advance(t.Context()); !errors.Is(err, down) {
				t.Fatal(err)
			}
			w.clock.ms.Add(20 * 60_000)
		}
		p.wantStored("debug", "l", 0)
		p.wantStored("slow", "l", ruledDays-7)
	})
}

// TestRulesStall: a write that is so slow that another process closes its day meanwhile is not acknowledged.
func TestRulesStall(t *testing.T) {
	eachRuled(t, func(t *testing.T, w *ruled) {
		a := w.start(someRules, true)
		a.fill()
		b := w.start("", true)
		for _, tt := range []struct {
			job   string
			stall bool
			want  string
		}{{"debug", false, ""}, {"other", true, ""}, {"debug", true, "were closed while they were stored"}} {
			stalled := false
			w.store.onApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
				if table == bucketstore.Metric && tt.stall && !stalled {
					stalled = true
					if tt.job == "debug" {
						a.advance()
					} else {
						w.clock.ms.Add(5 * 60_000)
					}
					return b.rules.Poll(t.Context()) // as it does each minute
				}
				return nil
			}
			var rejected ingest.Rejected
			stored, err := b.engine.Append(t.Context(), []ingest.Series{one(jobSeries(tt.job), firstDay+rollup.Day+8)}, &rejected)
			if rejected.Err() != nil || (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) || (stored.Total() == 1) != (err == nil) {
				t.Errorf("%+v: stored %+v, %v, %v", tt, stored, err, rejected.Err())
			}
			if stalled != tt.stall {
				t.Errorf("%+v: stalled %t", tt, stalled)
			}
		}
	})
}

// TestRulesHistory: history before what a rule keeps of a series is left out, and counted.
func TestRulesHistory(t *testing.T) {
	eachRuled(t, func(t *testing.T, w *ruled) {
		p := w.start("rules: [{match: '{job=\"debug\"}', raw: 3d}]", false)
		history, err := p.engine.History(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		cut := w.clock.ms.Load() - 3*rollup.Day
		times := []int64{cut - 2, cut - 1, cut, cut + 1}
		for _, job := range []string{"debug", "other"} {
			s, err := history.Series(labels.FromStrings("__name__", "history", "job", job))
			if err == nil {
				err = s.Append(t.Context(), times, make([]float64, len(times)))
			}
			if err == nil {
				err = s.Close(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := history.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c := history.Counts(); c.Old != 2 || c.Samples != 6 {
			t.Errorf("%d samples are too old, %d are taken", c.Old, c.Samples)
		}
	})
}
