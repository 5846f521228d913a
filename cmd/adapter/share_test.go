package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/go-kit/log"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// apply runs schema apply with these flags, and returns what it prints. It wants an error with the text refused, unless that is empty.
func (f *testFleet) apply(refused string, args ...string) string {
	f.Helper()
	o := parseOrRefuse(f.T, append([]string{"schema", "apply", "--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}, args...), "")
	var out bytes.Buffer
	o.out, o.now = &out, f.now
	s := schemaApply{o: o}
	if len(o.resolutions()) > 0 {
		s.unrolled = s.unreleased
	}
	err := s.run(f.Context())
	if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
		f.Fatalf("schema apply %v: error %v, want %q; the output is\n%s", args, err, refused, &out)
	}
	return out.String()
}

// advance lets an adapter do what it does at an interval.
func (a *fleetAdapter) advance() {
	a.f.Helper()
	if err := a.retention.Advance(a.f.Context()); err != nil {
		a.f.Fatal(err)
	}
}

// TestSharedRetention: an adapter that would keep samples for less long than others of the store does not start. The refusal names the flag,
// both times and the command.
func TestSharedRetention(t *testing.T) {
	const r, m, h = "--retention.resolution-raw=", "--retention.resolution-5m=", "--retention.resolution-1h="
	for _, tt := range []struct {
		name          string
		first, second []string
		refused       string
	}{
		{"the same", []string{r + "30d"}, []string{r + "30d"}, ""},
		{"for ever, and shorter", nil, []string{r + "3d"}, r[:len(r)-1] + ": this adapter would keep 3d, and META/schema says that all adapters of the store keep for ever"},
		{"shorter", []string{r + "30d"}, []string{r + "29d"}, "would keep 29d, and META/schema says that all adapters of the store keep 30d"},
		{"longer", []string{r + "30d"}, []string{r + "31d"}, ""},
		{"longer, for ever", []string{r + "30d"}, nil, ""},
		{"rollups for less long", []string{r + "3d"}, []string{r + "3d", m + "90d", h + "1y"}, m[:len(m)-1] + ": this adapter would keep 90d,"},
		{"no rollups", nil, []string{m + "off"}, m[:len(m)-1] + ": this adapter would keep off,"},
		{"rollups where there were none", []string{m + "off", h + "off"}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t)
			f.start("", tt.first...).stop()
			second := f.start(tt.refused, tt.second...)
			if tt.refused == "" {
				second.stop()
			} else {
				f.start("run adapter schema apply with the flags of this one", tt.second...)
			}
			f.start("", tt.first...)
		})
	}
}

// TestRetentionOfUnsharedStore: after a first start that died early META does not say how long samples are kept. Then the policies do.
func TestRetentionOfUnsharedStore(t *testing.T) {
	f := newFleet(t)
	o := parseOrRefuse(t, []string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}, "")
	rows, err := openStore(t.Context(), o, log.NewNopLogger(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := newSchema(o)
	if err != nil {
		t.Fatal(err)
	}
	about, err := meta.Open(t.Context(), rows, schema, f.now)
	if err == nil {
		err = about.Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	f.start("would keep 3d, and the garbage collection of the tables says that all adapters of the store keep for ever", "--retention.resolution-raw=3d")
	f.start("")
}

// TestShowAgain: what a shorter retention has hidden is shown again, by all adapters, as far as Bigtable cannot have deleted it.
func TestShowAgain(t *testing.T) {
	f := newFleet(t)
	const raw = "--retention.resolution-raw=3d"
	// There may be samples of each day from the start of an index period on: the first one here is days after it, whatever day it is.
	first := series.PeriodOf(f.clock.Load()) + 3*series.IndexPeriod/2
	f.clock.Store(first)
	const samples, days = 24 * 60, 8
	a := f.start("")
	for day := range int64(days) {
		f.clock.Add(rollup.Day)
		if err := a.send("m", first+day*rollup.Day, samples); err != nil {
			t.Fatal(err)
		}
	}
	f.clock.Add(rollup.Day)
	f.minutes(4, a)
	a.make(a)

	// The flags are shared first: adapters with them make what may go, and then Bigtable may delete it.
	before := f.apply("have no rollup yet", "--dry-run", raw)
	wantContains(t, before, "resolution raw: each adapter keeps for ever now, and will keep 3d")
	f.start("would keep 3d", raw)
	wantContains(t, f.apply("adapters with these flags may start now", "--yes", raw), "changed what all adapters keep")
	b := f.start("", raw)
	a.maker.Leave(t.Context())
	f.minutes(4, a, b)
	b.make(a, b)
	f.until("release", func(ctx context.Context) error {
		_, err := b.maker.Release(ctx, f.clock.Load()-3*rollup.Day)
		return err
	}, a, b)
	b.advance()
	a.advance()
	horizon := a.retention.Horizon(rollup.Raw)
	if want := rollup.DayOf(f.clock.Load() - 3*rollup.Day); horizon != want {
		t.Fatalf("the horizon of the other adapter is %s, want %s", timeOf(horizon), timeOf(want))
	}
	hidden, err := a.count("m")
	if err != nil || hidden >= 4*samples {
		t.Errorf("%d samples are shown, %v", hidden, err)
	}
	f.apply("", "--dry-run", raw)

	// Back: nothing was deleted.
	output := f.apply("", "--yes")
	wantContains(t, output, "resolution raw: each adapter keeps 3d now, and will keep for ever", "all that is stored will be shown again", "changed the horizons")
	for range 2 {
		b.advance() // its flags ask for less, and META for more
		a.advance()
		a.wantSamples("taken back", "m", days*samples)
	}
	wantContains(t, f.apply("", "--yes"), "nothing to apply")
	b.stop()
	f.start("would keep 3d", raw)

	// Back after Bigtable may have deleted: what it may have deleted stays hidden.
	f.apply("", "--yes", raw)
	b = f.start("", raw)
	b.advance()
	f.clock.Add(4 * rollup.Day)
	f.apply("", "--yes", "--retention.resolution-raw=60d")
	b.advance()
	a.advance()
	cut := a.retention.Horizon(rollup.Raw)
	if want := f.clock.Load() - 10*rollup.Day; cut < want || cut > want+2*3600_000 {
		t.Errorf("the horizon is %s, want about %s", timeOf(cut), timeOf(want))
	}
	if n, err := a.count("m"); err != nil || n <= hidden || n >= days*samples {
		t.Errorf("%d samples are shown, %v, before %d, of %d", n, err, hidden, days*samples)
	}
	f.apply("", "--yes")
	a.advance()
	if got := a.retention.Horizon(rollup.Raw); got != cut {
		t.Errorf("what Bigtable may have deleted by an earlier policy is shown: from %s on, not %s", timeOf(got), timeOf(cut))
	}
}
