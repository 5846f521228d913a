//go:build !race

package rules

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore/storetest"
)

// TestGaps: however often a process ends, the store fails and nothing is evaluated for hours, what is recorded in the end is what Prometheus records that is
// never interrupted, and to which no sample comes late, to the bit.
func TestGaps(t *testing.T) {
	const hours = 5
	// Each rule begins with the first sample.
	file := writeRules(t, strings.ReplaceAll(ruleFile, "- name: ", "- # begin: "+time.UnixMilli(begin).UTC().Format(time.RFC3339Nano)+"\n  name: "))
	want := newWorld(t, file)
	want.fill(hours, 0)
	end := begin + hours*60*minute
	want.now.Store(end)
	want.upstream()
	for seed := range storetest.Seeds(t, 6) {
		got := newWorld(t, file)
		got.cfg.Reevaluate = time.Hour
		got.fill(hours, []float64{0, 0.02}[seed%2])
		got.store.random = rand.New(rand.NewPCG(seed, 5))
		r := rand.New(rand.NewPCG(seed, 6))
		var groups []*group
		restart := func() {
			groups = got.groups()
			for _, g := range groups {
				for g.begin(t.Context()) != nil {
				}
			}
		}
		got.now.Add(7 * minute)
		restart()
		for got.now.Load() < end {
			got.now.Store(min(end, got.now.Load()+r.Int64N(40*minute)))
			got.store.part = 0
			got.arrive()
			got.store.part = 0.05
			for _, g := range groups {
				for i := 0; !got.catchUp(g) && i < 3; i++ {
					if r.IntN(2) == 0 {
						restart()
						break
					}
				}
			}
		}
		got.store.part = 0
		restart()
		for _, g := range groups {
			if !got.catchUp(g) {
				t.Error("not all is recorded")
			}
		}
		got.now.Store(end + mostLate) // nothing is recorded from here on
		got.arrive()
		for corrected := true; corrected; {
			corrected = false
			got.now.Add(10 * minute)
			for _, g := range groups {
				corrected = corrected || g.late.mint <= g.late.maxt
				if err := g.correctLate(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		for _, name := range recorded {
			if g, w := ends(got.samples(name)), ends(want.samples(name)); g != w {
				t.Errorf("seed %d: %s:\n%s", seed, name, difference(g, w))
			}
		}
	}
	if want.samples("same") != "" {
		t.Error("series that are the same with the labels of their rule are recorded")
	}
	for _, name := range recorded {
		if want.samples(name) == "" && name != "same" {
			t.Errorf("of %s there is nothing", name)
		}
	}
}
