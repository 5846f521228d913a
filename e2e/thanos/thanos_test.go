// Package thanos imports blocks that Thanos has downsampled, and compares the answers with those of Thanos from the same blocks, and with the truth: those of
// Prometheus from the samples.
package thanos

import (
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A claim is what the documentation promises of a function over downsampled blocks.
type claim struct {
	function, metric string
	// isExact says that the value is the true one. Else there is a warning, and Thanos is at least as far from the truth in the mean.
	isExact bool
}

var claims = []claim{
	{"count_over_time", "", true}, {"sum_over_time", "", true}, {"avg_over_time", "", true}, {"min_over_time", "", true}, {"max_over_time", "", true},
	{"rate", "requests_total", false}, {"increase", "requests_total", false}, {"last_over_time", "requests_total", false},
	{"last_over_time", "temperature", false}, {"delta", "temperature", false},
}

// TestDownsampled: blocks of 5 minutes and of an hour are imported as rollups, by a running adapter and into a closed store. What they tell is true, to the rounding of
// sums; what they do not is an estimate, which is said, and nearer to the truth than what Thanos answers, or no value.
func TestDownsampled(t *testing.T) {
	program, dir, begin := buildAdapter(t), t.TempDir(), time.Now().UnixMilli()/day*day-60*day
	end := begin + days*day
	raw, fine, coarse := writeBlocks(t, dir, begin)
	truth := samplesOf(t, raw)
	for _, of := range []struct {
		name, block string
		resolution  int64
		isRunning   bool
	}{{"5m", fine, 5 * minute, true}, {"1h", coarse, hour, false}} {
		t.Run(of.name, func(t *testing.T) {
			theirs, ours := thanosOf(t, of.block, of.resolution), open(t, program, end)
			target := "--url=" + ours.url
			if !of.isRunning {
				ours.stop()
				target = ours.storage
			}
			output := run(t, program, "import", "blocks", target, of.block)
			if !strings.Contains(output, "they are there as rollups") || !strings.Contains(output, fmt.Sprintf("%d samples are before what is kept (--retention), or are histograms", days*day/histogramEvery)) {
				t.Errorf("import says %s", output)
			}
			if !of.isRunning {
				ours.serve(t)
			}
			// Windows of whole buckets, of one to many.
			for _, window := range []int64{of.resolution, 2 * of.resolution, 6 * hour} {
				for _, c := range claims {
					selector := fmt.Sprintf("{kind=~\".+\",kind!=\"histogram\",__name__=~\"%s.*\"}", c.metric)
					expr := fmt.Sprintf("%s(%s[%s])", c.function, selector, time.Duration(window)*time.Millisecond)
					from := begin + day/2
					for _, step := range []int64{hour, 7 * hour} {
						// Over one bucket or two nothing is known of how a gauge changed.
						isShort := c.function == "delta" && window < 6*hour
						c.check(t, expr, isShort, ask(t, truth, expr, from, end, step), ours.ask(t, expr, from, end, step), ask(t, theirs, expr, from, end, step))
					}
				}
			}
			unknown := ours.ask(t, "changes(temperature[6h])", begin+day, end, hour)
			if len(unknown.of) > 0 || !strings.Contains(fmt.Sprint(unknown.warnings), "it has no value") {
				t.Errorf("changes are %v, %q", unknown.of, unknown.warnings)
			}
			ours.stop()
			run(t, program, "check", ours.storage)
		})
	}
}

// check compares an answer with the truth, and with that of Thanos unless the windows are short.
func (c claim) check(t *testing.T, expr string, isShort bool, want, ours, theirs matrix) {
	t.Helper()
	if len(want.of) == 0 {
		t.Errorf("%s: there is nothing to compare", expr)
	}
	if isSaid := strings.Contains(fmt.Sprint(ours.warnings), "is an estimate"); isSaid == c.isExact {
		t.Errorf("%s: it is said to be an estimate: %t", expr, isSaid)
	}
	for _, name := range slices.Sorted(maps.Keys(want.of)) {
		mine, other := errorsOf(want.of[name], ours.of[name]), errorsOf(want.of[name], theirs.of[name])
		t.Logf("%s %s: %v; Thanos: %v", expr, name, mine, other)
		switch isCrashing := strings.Contains(name, "crashes"); {
		case c.isExact && (mine.worst > 1e-12 || mine.missing > 0):
			t.Errorf("%s %s: %v", expr, name, mine)
		case !c.isExact && mine.missing > 0 && !isCrashing: // too many resets in a bucket
			t.Errorf("%s %s has no value at %d times", expr, name, mine.missing)
		case !c.isExact && !isShort && mine.mean > 1.2*other.mean+0.002:
			t.Errorf("%s %s: %v, which is more than that of Thanos: %v", expr, name, mine, other)
		case c.metric == "requests_total" && !isCrashing && mine.mean > 0.01:
			t.Errorf("%s %s: %v", expr, name, mine)
		}
	}
}

// An errorsFrom is how far an answer is from the truth, in parts of the greatest true value. The mean is 1 if there is no value.
type errorsFrom struct {
	missing     int
	worst, mean float64
}

func (e errorsFrom) String() string {
	return fmt.Sprintf("%d missing, worst %.2g, mean %.2g", e.missing, e.worst, e.mean)
}

func errorsOf(want, got map[int64]float64) (e errorsFrom) {
	scale, n := 0.0, 0
	for _, v := range want {
		scale = max(scale, math.Abs(v))
	}
	for at, v := range want {
		found, ok := got[at]
		if !ok {
			e.missing++
			continue
		}
		d := math.Abs(found - v)
		if scale > 0 {
			d /= scale
		}
		e.worst, e.mean, n = max(e.worst, d), e.mean+d, n+1
	}
	if n == 0 {
		e.mean = 1
		return e
	}
	e.mean /= float64(n)
	return e
}

// TestBoth: where a bucket has the samples of a time, too, the rollups are made of these. What was imported stays, and days whose samples are kept are left out,
// which is said.
func TestBoth(t *testing.T) {
	program, dir, begin := buildAdapter(t), t.TempDir(), time.Now().UnixMilli()/day*day-60*day
	end := begin + days*day
	raw, fine, coarse := writeBlocks(t, dir, begin)
	all := t.TempDir()
	for _, block := range []string{raw, fine, coarse} {
		if err := os.CopyFS(filepath.Join(all, filepath.Base(block)), os.DirFS(block)); err != nil {
			t.Fatal(err)
		}
	}
	truth, ours := samplesOf(t, raw), open(t, program, end)
	run(t, program, "import", "blocks", "--url="+ours.url, all)
	const expr = "rate(requests_total[6h])"
	got, want := ours.ask(t, expr, begin+day, end, hour), ask(t, truth, expr, begin+day, end, hour)
	if len(want.of) == 0 || !maps.EqualFunc(got.of, want.of, maps.Equal) || len(got.warnings) > 0 {
		t.Errorf("%s is not that of the samples: %q", expr, got.warnings)
	}
	if output := run(t, program, "import", "blocks", "--url="+ours.url, fine); !strings.Contains(output, "had rollups already, which stay") {
		t.Errorf("import again says %s", output)
	}
	if again := ours.ask(t, expr, begin+day, end, hour); !maps.EqualFunc(again.of, want.of, maps.Equal) {
		t.Error("another import has changed rollups")
	}
	kept := "--storage.path=" + filepath.Join(t.TempDir(), "data")
	output, err := exec.CommandContext(t.Context(), program, "import", "blocks", kept, fine).CombinedOutput()
	if err == nil || !strings.Contains(string(output), "is downsampled by Thanos, and the samples of its time are kept here") {
		t.Errorf("import to a store that keeps samples: %v: %s", err, output)
	}
}
