package move

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// mustRun runs a subcommand to its end, and returns what it printed.
func mustRun(t *testing.T, b harness.Backend, words ...string) string {
	t.Helper()
	code, output := harness.RunCommand(t, b, words...)
	if code != 0 {
		t.Fatalf("%q: %d\n%s", words, code, output)
	}
	return output
}

// onBlocks starts a Prometheus that has the blocks in a directory, and nothing else.
func onBlocks(t *testing.T, dir string) *harness.Prometheus {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(data, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return startSourceOn(t, data)
}

// A currentSample is a series with a sample, as the API writes both.
type currentSample struct {
	Metric    json.RawMessage
	Value     []any
	Histogram []any
}

// value returns the sample without its time.
func (s currentSample) value() string { return fmt.Sprint(append(s.Value, s.Histogram...)[1:]) }

// wantCurrent wants the last sample of each series that Prometheus has at a time to be among the current ones.
func wantCurrent(t *testing.T, a *harness.Adapter, p *harness.Prometheus, at int64) {
	t.Helper()
	want := harness.MustElements(t, p.URL("/api/v1/query"), url.Values{"query": {`last_over_time({__name__=~"requests_total|duration_seconds"}[10m])`}, "time": {harness.FormatSeconds(at)}})
	var answer struct{ Samples []currentSample }
	data, err := harness.GetAPI(a.URL("/api/v1/current"), nil)
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, s := range answer.Samples {
		got[string(s.Metric)] = s.value()
	}
	for _, text := range want {
		var s currentSample
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if got[string(s.Metric)] != s.value() {
			t.Errorf("the current sample of %s is %s, want %s", s.Metric, got[string(s.Metric)], s.value())
		}
	}
	if len(want) < 10 {
		t.Errorf("%d series", len(want))
	}
}

// digests returns the lines of a digest.
func digests(t *testing.T, b harness.Backend, words ...string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(mustRun(t, b, append([]string{"digest"}, words...)...)) {
		if strings.HasPrefix(line, "20") {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestExport: what Prometheus has goes in, comes out as blocks that a Prometheus opens, and goes in again: each has the same samples, bit for bit.
func TestExport(t *testing.T) {
	source := startSource(t)
	first := fill(t, source)
	last := harness.NowMillis()
	dir := snapshot(t, source)
	span := []string{"--start=" + harness.FormatSeconds(first), "--end=" + harness.FormatSeconds(last)}
	want := digests(t, harness.Backend{}, slices.Concat(span, []string{"--url=" + source.URL("/api/v1/read")})...)
	wantDigests := func(b harness.Backend, more ...string) {
		t.Helper()
		if got := digests(t, b, slices.Concat(span, more)...); strings.Join(got, "") != strings.Join(want, "") || len(want) == 0 {
			t.Errorf("digests are\n%s, want\n%s", got, want)
		}
	}
	for _, open := range harness.Backends() {
		b := open(t)
		t.Run(b.Name, func(t *testing.T) {
			mustRun(t, b, "import", "blocks", dir)
			wantDigests(b)
			closed, running := filepath.Join(t.TempDir(), "made"), t.TempDir()
			mustRun(t, b, slices.Concat([]string{"export", "blocks", "--block-duration=1d", closed}, span)...)
			a := harness.StartAdapter(t, b)
			wantCurrent(t, a, source, last)
			wantDigests(harness.Backend{}, "--url="+a.URL("/api/v1/read"))
			mustRun(t, harness.Backend{}, slices.Concat([]string{"export", "blocks", "--url=" + a.URL("/api/v1/read"), running}, span)...)
			for _, dir := range []string{closed, running} {
				p := onBlocks(t, dir)
				wantSame(t, a, p, first, last)
				snapshot(t, p)
				p.Terminate(t)
			}
			a.Terminate(t)
			again := harness.Embedded(t)
			mustRun(t, again, "import", "blocks", running)
			wantDigests(again)
		})
	}
}

// TestExportText: promtool makes blocks of exported text, which have the floats.
func TestExportText(t *testing.T) {
	dir, _, _, first, last := openMetrics(t, 3)
	b := harness.Embedded(t)
	mustRun(t, b, "import", "blocks", dir)
	text := filepath.Join(t.TempDir(), "text")
	words := []string{"export", "openmetrics", "--match=requests_total", "--start=" + harness.FormatSeconds(first), "--end=" + harness.FormatSeconds(last), text}
	mustRun(t, b, words...)
	if code, output := harness.RunCommand(t, b, words...); code == 0 || !strings.Contains(output, "file exists") {
		t.Errorf("over a file: %d\n%s", code, output)
	}
	data := filepath.Join(t.TempDir(), "data")
	createBlocks(t, text, data)
	p := startSourceOn(t, data)
	a := harness.StartAdapter(t, b)
	wantSame(t, a, p, first, last)
	a.Terminate(t)

	for _, c := range []struct{ words, want string }{
		{"export blocks --start=2 --end=1 " + t.TempDir(), "--start is after --end"},
		{"export blocks --start=1 --end=2 --block-duration=1s " + t.TempDir(), "--block-duration=1s"},
		{"export blocks --start=1 --end=2 --url=x " + t.TempDir(), "--url=x"},
		{"export blocks --start=1 --end=2 --url=http://127.0.0.1:1/read " + t.TempDir(), "connection refused"},
		{"export blocks --start=1 --end=2 " + t.TempDir(), "no samples match"},
		{"export blocks --start=1 --match={ " + t.TempDir(), "--match={"},
	} {
		if code, output := harness.RunCommand(t, b, strings.Fields(c.words)...); code == 0 || !strings.Contains(output, c.want) {
			t.Errorf("%s: %d\n%s", c.words, code, output)
		}
	}
}
