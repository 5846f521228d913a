package durability

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// logBackends are a store that belongs to one adapter, and one that belongs to
// several.
func logBackends() []func(testing.TB) harness.Backend {
	return []func(testing.TB) harness.Backend{harness.Embedded, harness.InProcess}
}

const boundSeries = 25

// leaveSamples writes samples to an adapter and kills it.
func leaveSamples(t *testing.T, b harness.Backend, args ...string) {
	t.Helper()
	a := harness.StartAdapter(t, b, args...)
	var batch []harness.SentSeries
	for n := range boundSeries {
		batch = append(batch, harness.SeriesOf(labels.FromStrings("__name__", "bound", "host", fmt.Sprint(n)), harness.PointAt(harness.NowMillis(), float64(n))))
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), batch...)
	a.Kill(t)
}

// wantSamples starts an adapter and wants so many series of leaveSamples.
func wantSamples(t *testing.T, want int, b harness.Backend, args ...string) *harness.Adapter {
	t.Helper()
	a := harness.StartAdapter(t, b, args...)
	got := harness.MustRead(t, a.URL("/read"), harness.Streamed, harness.Query{Mint: 0, Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "__name__", "=", "bound")})
	if len(got) != want {
		t.Errorf("%d of %d series", len(got), want)
	}
	return a
}

// TestLogOfAnotherSchema: a start with other resource labels is refused before the log is
// replayed, and changes nothing.
func TestLogOfAnotherSchema(t *testing.T) {
	for _, open := range logBackends() {
		b := harness.WithBuffer(open(t), t.TempDir())
		t.Run(b.Name, func(t *testing.T) {
			leaveSamples(t, b)
			code, output := harness.RunAdapter(t, b, "--schema.resource-label=host")
			if code == 0 || !strings.Contains(output, "no --schema.resource-label") {
				t.Errorf("code %d:\n%s", code, output)
			}
			wantSamples(t, boundSeries, b)
		})
	}
}

// TestLogOfAnotherStore: a log is not replayed into another store.
func TestLogOfAnotherStore(t *testing.T) {
	for _, open := range logBackends() {
		dir := t.TempDir()
		b := harness.WithBuffer(open(t), dir)
		t.Run(b.Name, func(t *testing.T) {
			leaveSamples(t, b)
			other := harness.WithBuffer(harness.Embedded(t), dir)
			harness.CheckRefused(t, other, "not one of this store", dir, strings.TrimPrefix(other.Args[0], "--storage.path="), "--buffer.path")
			wantSamples(t, boundSeries, b)
		})
	}
}

// TestLostLog: an embedded store whose log is missing does not serve until it is told that
// the log is lost.
func TestLostLog(t *testing.T) {
	b := harness.Embedded(t)
	dir := filepath.Join(t.TempDir(), "log")
	leaveSamples(t, harness.WithBuffer(b, dir))

	elsewhere := harness.WithBuffer(b, t.TempDir())
	direct := harness.Backend{Name: b.Name, Args: append(b.Args[:1:1], "--no-buffer.enabled"), Env: b.Env}
	for _, wrong := range []harness.Backend{b, elsewhere, direct} {
		harness.CheckRefused(t, wrong, "waits for the samples", dir, "--buffer.path="+dir, "--buffer.discard-lost-log=")
	}
	wantSamples(t, boundSeries, harness.WithBuffer(b, dir)).Terminate(t)
	wantSamples(t, boundSeries, direct).Terminate(t) // there is nothing in the log any more

	leaveSamples(t, harness.WithBuffer(b, dir))
	_, output := harness.RunAdapter(t, elsewhere)
	id := regexp.MustCompile(`--buffer\.discard-lost-log=(\w+)`).FindStringSubmatch(output)
	if id == nil {
		t.Fatalf("no ID in\n%s", output)
	}
	a := harness.StartAdapter(t, elsewhere, id[0])
	a.WaitLine(t, "level=error", "a lost log is discarded", id[1], dir)
}

// TestLostDisk: on Bigtable an adapter starts where a disk was lost, says which log was in its directory, and warns about answers until the
// log is forgotten.
func TestLostDisk(t *testing.T) {
	b := harness.InProcess(t)
	dir := filepath.Join(t.TempDir(), "log")
	leaveSamples(t, harness.WithBuffer(b, dir))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	a := harness.StartAdapter(t, harness.WithBuffer(b, dir))
	line := a.WaitLine(t, "level=error", "held another log before", dir)
	id := regexp.MustCompile(`\blog=(\w+)`).FindStringSubmatch(line)[1]
	const path = "/api/v1/query?query=count(up)%20or%20vector(0)"
	harness.Eventually(t, "answers are warned about", func() error {
		if resp := harness.MustGet(t, a.URL(path), nil); !harness.ContainsAll(resp.Body, []string{`"warnings"`, id, "may lack them"}) {
			return errors.New(resp.Body)
		}
		return nil
	})
	if code, output := harness.RunCommand(t, b, "buffer", "forget", id); code != 0 {
		t.Errorf("code %d:\n%s", code, output)
	}
	harness.Eventually(t, "answers are whole", func() error {
		if resp := harness.MustGet(t, a.URL(path), nil); strings.Contains(resp.Body, id) {
			return errors.New(resp.Body)
		}
		return nil
	})
}

// TestOtherLogs: on Bigtable each adapter has its own log, and operators can list the logs
// with samples.
func TestOtherLogs(t *testing.T) {
	b := harness.InProcess(t)
	dir := t.TempDir()
	leaveSamples(t, harness.WithBuffer(b, dir))
	a := harness.StartAdapter(t, harness.WithBuffer(b, t.TempDir()))
	line := a.WaitLine(t, "another adapter has samples in its log", dir)
	id := regexp.MustCompile(`\blog=(\w+)`).FindStringSubmatch(line)[1]
	harness.Eventually(t, "the log is counted", func() error {
		if n := a.Metric(t, "adapter_buffer_other_logs"); n != 1 {
			return fmt.Errorf("%g logs", n)
		}
		return nil
	})
	list := func() string {
		t.Helper()
		code, output := harness.RunCommand(t, b, "buffer", "list")
		if code != 0 {
			t.Fatalf("code %d:\n%s", code, output)
		}
		return output
	}
	if output := list(); strings.Count(output, "\n") < 2 || !regexp.MustCompile(id+`\s+\S+\s+`+dir).MatchString(output) {
		t.Errorf("listed:\n%s", output)
	}
	if code, output := harness.RunCommand(t, b, "buffer", "forget", "NOSUCHLOG"); code == 0 || !strings.Contains(output, "NOSUCHLOG") {
		t.Errorf("code %d:\n%s", code, output)
	}
	if code, output := harness.RunCommand(t, b, "buffer", "forget", id); code != 0 || !strings.Contains(output, dir) {
		t.Errorf("code %d:\n%s", code, output)
	}
	if output := list(); strings.Contains(output, id) {
		t.Errorf("listed after it was forgotten:\n%s", output)
	}

	// It comes back: it is set aside, and replayed from a directory of its own only.
	wantSamples(t, 0, harness.WithBuffer(b, dir)).Terminate(t)
	aside, err := filepath.Glob(filepath.Join(dir, "*."+id+".forgotten"))
	if err != nil || len(aside) == 0 {
		t.Fatalf("set aside are %v, %v", aside, err)
	}
	again := t.TempDir()
	for _, path := range aside {
		if err := os.Rename(path, filepath.Join(again, strings.TrimSuffix(filepath.Base(path), "."+id+".forgotten"))); err != nil {
			t.Fatal(err)
		}
	}
	wantSamples(t, boundSeries, harness.WithBuffer(b, again))
}
