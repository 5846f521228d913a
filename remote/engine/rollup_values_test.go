//go:build !race

package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// TestRollups compares answers from rollups with those from samples, over random series and windows, with late samples between.
func TestRollups(t *testing.T) {
	evaluations := storetest.Rounds(t, 20_000)
	r := seriestest.NewRand(t)
	compared, differ, used := 0, 0, 0
	for world := 0; compared < evaluations && !t.Failed(); world++ {
		t.Run(strconv.Itoa(world), func(t *testing.T) { // which closes its store
			n, d, u := compareWorld(t, r)
			compared, differ, used = compared+n, differ+d, used+u
		})
	}
	t.Logf("%d values compared, %d sums differ in the last bits, %d queries used rollups", compared, differ, used)
	if used == 0 {
		t.Error("no query used rollups")
	}
}

// TestLostWarnings: what rollups cannot tell has no value where samples are gone, and the answer says so.
func TestLostWarnings(t *testing.T) {
	s := newRolled(t, seriestest.NewRand(t))
	samples := make(map[int64]float64)
	for at := int64(rollupStart + 7_000); at < rollupStart+rollupDays*rollup.Day; at += 15_000 {
		samples[at] = float64(at)
	}
	s.append(t, labels.FromStrings("__name__", "x_total"), samples)
	histograms, source := make(map[int64]ingest.Histogram), seriestest.HistogramSource{Rand: s.r, Steady: true}
	for at := range samples {
		histograms[at] = ingest.Histogram{}
	}
	for _, at := range slices.Sorted(maps.Keys(histograms)) {
		histograms[at] = nextHistogram(&source)
	}
	s.appendHistograms(t, labels.FromStrings("__name__", "native"), histograms)
	if err := s.maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.sources.From[rollup.Raw] = rollupStart + 5*rollup.Day
	at := time.UnixMilli(rollupStart + 2*rollup.Day + 3600_000)
	for _, tt := range []struct {
		expr     string
		at       time.Time
		hasValue bool
		warning  string
	}{
		{"increase(x_total[1h])", at, true, ""},
		{"increase(x_total[1h])", at.Add(time.Second), true, `windows of "increase(x_total[1h])" are widened`},
		{"increase(x_total[100m])", at.Add(time.Minute), true, "widened"},
		{"x_total", at, true, ""},
		{"x_total", at.Add(7 * time.Second), true, "widened"},
		{"irate(x_total[1h])", at, false, "only kept as rollups"},
		{"quantile_over_time(0.5, x_total[1h])", at, false, "only kept as rollups"},
		{"quantile_over_time(0.5, x_total[1h])", at.Add(4 * 24 * time.Hour), true, ""},
		{"histogram_quantile(0.9, sum(rate(native[1h])))", at, true, ""},
		{"increase(native[1h])", at.Add(time.Second), true, `windows of "increase(native[1h])" are widened`},
		{"histogram_count(native)", at, true, ""},
		{"native", at.Add(7 * time.Second), true, "widened"},
		{"sum_over_time(native[1h])", at, false, "rollups do not tell"},
		{"irate(native[1h])", at, false, "only kept as rollups"},
	} {
		found, warnings := s.askWith(t, s.engine, tt.expr, tt.at, tt.at, time.Hour)
		if (len(found) > 0) != tt.hasValue {
			t.Errorf("%s at %v: %v", tt.expr, tt.at, found)
		}
		if text := fmt.Sprint(warnings.AsErrors()); (tt.warning == "") != (len(warnings) == 0) || !strings.Contains(text, tt.warning) {
			t.Errorf("%s at %v: warnings %s, want %q", tt.expr, tt.at, text, tt.warning)
		}
	}
}
