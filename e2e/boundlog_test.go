package e2e

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

// logBackends are a store that belongs to one adapter, and one that belongs to
// several.
func logBackends() []func(testing.TB) backend {
	return []func(testing.TB) backend{embedded, inProcess}
}

const boundSeries = 25

// leaveSamples writes samples to an adapter and kills it.
func leaveSamples(t *testing.T, b backend, args ...string) {
	t.Helper()
	a := startAdapter(t, b, args...)
	var batch []sentSeries
	for n := range boundSeries {
		batch = append(batch, sent(labels.FromStrings("__name__", "bound", "host", fmt.Sprint(n)), at(nowMillis(), float64(n))))
	}
	remoteWrite2().mustSend(t, a.url("/write"), batch...)
	a.kill(t)
}

// wantSamples starts an adapter and wants so many series of leaveSamples.
func wantSamples(t *testing.T, want int, b backend, args ...string) *adapter {
	t.Helper()
	a := startAdapter(t, b, args...)
	got := mustRead(t, a.url("/read"), streamed, query{0, math.MaxInt64, mustMatchers(t, "__name__", "=", "bound")})
	if len(got) != want {
		t.Errorf("%d of %d series", len(got), want)
	}
	return a
}

// TestLogOfAnotherSchema: a start with other resource labels is refused before the
// log is replayed, and harms nothing.
func TestLogOfAnotherSchema(t *testing.T) {
	for _, open := range logBackends() {
		b := withBuffer(open(t), t.TempDir())
		t.Run(b.name, func(t *testing.T) {
			leaveSamples(t, b)
			code, output := runAdapter(t, b, "--schema.resource-label=host")
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
		b := withBuffer(open(t), dir)
		t.Run(b.name, func(t *testing.T) {
			leaveSamples(t, b)
			other := withBuffer(embedded(t), dir)
			refused(t, other, "not one of this store", dir, strings.TrimPrefix(other.args[0], "--storage.path="), "--buffer.path")
			wantSamples(t, boundSeries, b)
		})
	}
}

// TestLostLog: the embedded store does not serve without the samples of its log,
// until it is told that they are lost.
func TestLostLog(t *testing.T) {
	b := embedded(t)
	dir := filepath.Join(t.TempDir(), "log")
	leaveSamples(t, withBuffer(b, dir))

	elsewhere := withBuffer(b, t.TempDir())
	direct := backend{b.name, append(b.args[:1:1], "--no-buffer.enabled"), b.env}
	for _, wrong := range []backend{b, elsewhere, direct} {
		refused(t, wrong, "waits for the samples", dir, "--buffer.path="+dir, "--buffer.discard-lost-log=")
	}
	wantSamples(t, boundSeries, withBuffer(b, dir)).terminate(t)
	wantSamples(t, boundSeries, direct).terminate(t) // there is nothing in the log any more

	leaveSamples(t, withBuffer(b, dir))
	_, output := runAdapter(t, elsewhere)
	id := regexp.MustCompile(`--buffer\.discard-lost-log=(\w+)`).FindStringSubmatch(output)
	if id == nil {
		t.Fatalf("no ID in\n%s", output)
	}
	a := startAdapter(t, elsewhere, id[0])
	a.waitLine(t, "level=error", "a lost log is discarded", id[1], dir)
}

// TestOtherLogs: on Bigtable each adapter has a log of its own, and operators see
// which hold samples.
func TestOtherLogs(t *testing.T) {
	b := inProcess(t)
	dir := t.TempDir()
	leaveSamples(t, withBuffer(b, dir))
	a := startAdapter(t, withBuffer(b, t.TempDir()))
	line := a.waitLine(t, "another adapter has samples in its log", dir)
	id := regexp.MustCompile(`\blog=(\w+)`).FindStringSubmatch(line)[1]
	eventually(t, "the log is counted", func() error {
		if n := a.metric(t, "adapter_buffer_other_logs"); n != 1 {
			return fmt.Errorf("%g logs", n)
		}
		return nil
	})
	list := func() string {
		t.Helper()
		code, output := runCommand(t, b, "buffer", "list")
		if code != 0 {
			t.Fatalf("code %d:\n%s", code, output)
		}
		return output
	}
	if output := list(); strings.Count(output, "\n") < 2 || !regexp.MustCompile(id+`\s+\S+\s+`+dir).MatchString(output) {
		t.Errorf("listed:\n%s", output)
	}
	if code, output := runCommand(t, b, "buffer", "forget", "NOSUCHLOG"); code == 0 || !strings.Contains(output, "NOSUCHLOG") {
		t.Errorf("code %d:\n%s", code, output)
	}
	if code, output := runCommand(t, b, "buffer", "forget", id); code != 0 || !strings.Contains(output, dir) {
		t.Errorf("code %d:\n%s", code, output)
	}
	if output := list(); strings.Contains(output, id) {
		t.Errorf("listed after it was forgotten:\n%s", output)
	}
	wantSamples(t, boundSeries, withBuffer(b, dir)) // it is found again
}

// startCommand starts a subcommand of the adapter.
func startCommand(t testing.TB, b backend, words ...string) *process {
	t.Helper()
	return start(t, "adapter "+words[0], command{path: adapterProgram(t), args: append(words, b.args...), env: b.env})
}

// runCommand runs a subcommand of the adapter to its end, and returns its exit code and
// what it printed.
func runCommand(t testing.TB, b backend, words ...string) (code int, output string) {
	t.Helper()
	p := startCommand(t, b, words...)
	code = p.wait(t)
	return code, p.log.text()
}
