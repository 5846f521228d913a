//go:build !race

package main

import (
	"context"
	"testing"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

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
