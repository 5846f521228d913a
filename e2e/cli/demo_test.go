package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/e2e/harness"
)

// startDemo starts a demonstration on a free port, with its temporary files in dir, and waits for its links.
func startDemo(t *testing.T, dir string, args ...string) (p *harness.Process, rollups, samples *url.URL) {
	t.Helper()
	p = demoProcess(t, dir, args...)
	p.WaitLine(t, "Ctrl-C ends it")
	link := func(from string) *url.URL {
		line := p.WaitLine(t, "from "+from+"  http://127.0.0.1:")
		u, err := url.Parse(regexp.MustCompile(`http://\S+`).FindString(line))
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	return p, link("rollups"), link("samples")
}

func demoProcess(t *testing.T, dir string, args ...string) *harness.Process {
	t.Helper()
	flags := append(args, "--web.listen-address=127.0.0.1:0", "--self-scrape-interval=0s")
	return harness.StartCommand(t, harness.Backend{Args: flags, Env: []string{"TMPDIR=" + dir}}, "demo")
}

// A panel is the answer to what a link of a demonstration shows, and what was read for it.
type panel struct {
	Result []struct {
		Metric map[string]string
		Values [][2]any
	}
	Stats struct {
		Storage struct{ Series, Cells, Bytes int }
	}
}

// mustAskPanel asks for an expression at hours over the range of a link up to now, with its resolution.
func mustAskPanel(t *testing.T, link *url.URL, expr string, now time.Time) (answer panel) {
	t.Helper()
	parameters := link.Query()
	long, err := strconv.ParseInt(parameters.Get("range"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	const hour = 3600
	end := now.Unix() / hour * hour
	text, err := harness.GetAPI("http://"+link.Host+"/api/v1/query_range", url.Values{
		"query": {expr}, "start": {fmt.Sprint(end - long/hour*hour + hour)}, "end": {fmt.Sprint(end)}, "step": {fmt.Sprint(4 * hour)},
		"stats": {"all"}, "max_source_resolution": {parameters.Get("res")},
	})
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestDemo looks at what a demonstration serves, and ends it by Ctrl-C.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	p, rollups, samples := startDemo(t, dir, "--years=0.1")
	if rollups.Query().Get("res") != "" || samples.Query().Get("res") != "0s" || rollups.Query().Get("expr") != samples.Query().Get("expr") {
		t.Errorf("the links are %s and %s", rollups, samples)
	}
	if printed := p.Printed(); strings.Contains(printed, "not measured") || !strings.Contains(printed, "s, read raw,1h: ") || !strings.Contains(printed, "s, read raw: ") {
		t.Errorf("what a panel costs is not measured:\n%s", printed)
	}
	for _, link := range []*url.URL{rollups, samples} {
		if resp := harness.MustGet(t, link.String(), nil); resp.Status != http.StatusOK || !strings.Contains(resp.Body, "Resolution") {
			t.Errorf("%s is %v", link, resp)
		}
	}
	now := time.Now()
	for _, expr := range []string{rollups.Query().Get("expr"), "rate(http_requests_total[1h])", "rate(node_cpu_seconds_total[1d])", "max_over_time(process_resident_memory_bytes[2h])"} {
		auto, raw := mustAskPanel(t, rollups, expr, now), mustAskPanel(t, samples, expr, now)
		if len(auto.Result) < 2 || len(auto.Result[0].Values) < 200 {
			t.Errorf("%s has %d series", expr, len(auto.Result))
		}
		if fmt.Sprint(auto.Result) != fmt.Sprint(raw.Result) {
			t.Errorf("%s: from rollups\n%v\nfrom samples\n%v", expr, auto.Result, raw.Result)
		}
		if expr == rollups.Query().Get("expr") {
			continue // the demonstration has asked for it, so results are cached
		}
		if a, r := auto.Stats.Storage, raw.Stats.Storage; a.Bytes == 0 || a.Bytes > r.Bytes/4 || a.Cells > r.Cells/2 {
			t.Errorf("%s: %+v are read for it, %+v from samples", expr, a, r)
		}
	}
	// Cached results say what they are from.
	day := now.Unix()/86400*86400 - 86400
	again := url.Values{"query": {"sum(rate(http_requests_total[1d]))"}, "start": {fmt.Sprint(day - 20*86400)}, "end": {fmt.Sprint(day)}, "step": {"86400"}, "stats": {"all"}}
	for i := range 2 {
		resp := harness.MustGet(t, "http://"+rollups.Host+"/api/v1/query_range?"+again.Encode(), nil)
		if got := resp.Header.Get("X-Promtable-Resolution"); got != "1h" || strings.Contains(resp.Body, `"rollupDays1h":0`) != (i == 1) {
			t.Errorf("query %d is from %q: %v", i, got, resp)
		}
	}
	data, err := harness.GetAPI("http://"+rollups.Host+"/api/v1/current", nil)
	var found struct {
		Samples []struct{ Metric map[string]string }
	}
	if err := errors.Join(err, json.Unmarshal(data, &found)); err != nil || len(found.Samples) < 20 {
		t.Errorf("%d series have a current sample, %v", len(found.Samples), err)
	}
	for _, s := range found.Samples {
		name := s.Metric["__name__"]
		kind := "gauge"
		if strings.HasSuffix(name, "_total") {
			kind = "counter"
		}
		if err := hasType("http://"+rollups.Host+"/api/v1/metadata", name, kind); err != nil {
			t.Error(err)
		}
	}
	p.Interrupt(t)
	wantEmpty(t, dir)

	// While it still writes.
	p = demoProcess(t, dir, "--years=20")
	harness.Eventually(t, "it begins to write", func() error {
		found, err := filepath.Glob(filepath.Join(dir, "promtable-demo-*", "data", "*"))
		if err == nil && len(found) == 0 {
			err = errors.New("nothing is there yet")
		}
		return err
	})
	p.Interrupt(t)
	wantEmpty(t, dir)
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestDemoDirectory keeps a demonstration and serves it again, and refuses what is none.
func TestDemoDirectory(t *testing.T) {
	temporary, dir := t.TempDir(), filepath.Join(t.TempDir(), "new")
	p, rollups, _ := startDemo(t, temporary, "--years=0.05", "--dir="+dir)
	const expr = "increase(http_requests_total[1d])"
	now := time.Now()
	first := mustAskPanel(t, rollups, expr, now)
	p.Interrupt(t)
	p, again, _ := startDemo(t, temporary, "--dir="+dir)
	if strings.Contains(p.Printed(), "writing") || len(first.Result) < 10 {
		t.Errorf("%d series at first. It printed again:\n%s", len(first.Result), p.Printed())
	}
	if second := mustAskPanel(t, again, expr, now); fmt.Sprint(second.Result) != fmt.Sprint(first.Result) {
		t.Errorf("at first\n%v\nserved again\n%v", first.Result, second.Result)
	}
	p.Interrupt(t)
	wantEmpty(t, temporary)

	b := harness.Embedded(t)
	harness.StartAdapter(t, b).Terminate(t)
	store := strings.TrimPrefix(b.Args[0], "--storage.path=")
	unfinished := t.TempDir()
	if err := os.WriteFile(filepath.Join(unfinished, "DEMO"), []byte("{}\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	for refused, want := range map[string]string{store: "is not empty", unfinished: "not finished"} {
		before, err := os.ReadDir(refused)
		if err != nil {
			t.Fatal(err)
		}
		if code, output := harness.RunCommand(t, harness.Backend{Args: []string{"--dir=" + refused}}, "demo"); code != 1 || !strings.Contains(output, want) {
			t.Errorf("code %d, want %q in:\n%s", code, want, output)
		}
		if after, err := os.ReadDir(refused); err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("%s has %v, and had %v: %v", refused, after, before, err)
		}
	}
}
