//go:build browser

package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/e2e/harness"
)

// storedRate is a rate above 0 in the text of the small graph of what is stored.
var storedRate = regexp.MustCompile(`^Samples stored\s+Stored\s+0*\.?0*[1-9][\d.]*/s\s+min `)

// TestPageStatus: what the adapter is, its sizes, and small graphs of what it does.
func TestPageStatus(t *testing.T) {
	t.Parallel()
	a := startPaged(t, "--self-scrape-interval=1s", "--heal.from=http://127.0.0.1:1")
	p := newPage(t, a)
	p.open("tab", "status")
	p.checkAdapter(a)
	if got := p.texts("pre"); len(got) != 1 || !strings.Contains(got[0], "url: http://"+a.Addr+"/api/v1/write\n") {
		t.Errorf("for prometheus.yml: %q", got)
	}
	harness.Eventually(t, "there is a rate of what is stored", func() error {
		p.open("tab", "status")
		for _, text := range p.texts(".panel") {
			if storedRate.MatchString(text) {
				return nil
			}
		}
		return fmt.Errorf("the graphs are %q", p.texts(".panel"))
	})
	p.eachLook(func(look string) {
		p.open("tab", "status")
		for _, name := range []string{"Database on disk", "Log on disk"} {
			if size := p.tiles()[name]; !strings.HasSuffix(size, "iB") {
				t.Errorf("%s: %q", name, size)
			}
		}
		if got := p.texts(".well"); !slices.Equal(got, []string{"No problems found."}) {
			t.Errorf("the page says %q, and finds %q", got, p.texts(".finding"))
		}
		titles := p.texts(".panel h3")
		for _, want := range []string{"Samples stored", "Latency of writes", "Healed gaps", "Open chunks", "Free space", "Compactions", "Rollup lag", "Query memory"} {
			if !slices.Contains(titles, want) {
				t.Errorf("there is no graph %s among %q", want, titles)
			}
		}
		if slices.Contains(titles, "Latency of Bigtable") {
			t.Error("an embedded store has graphs of Bigtable")
		}
		if got := p.texts("[aria-label=Retention] li"); !slices.Contains(got, "Samples are kept forever.") {
			t.Errorf("of retention the page says %q", got)
		}
		p.checkContrast(look)
		p.shoot("status-" + look)
	})
	p.click(`#status input[value="86400"]`)
	p.wantParameters("tab", "status", "span", "86400")
	asked := p.asked("/api/v1/status/adapter")
	harness.Eventually(t, "the page looks again", func() error {
		if n := len(p.asked("/api/v1/status/adapter")); n <= len(asked) {
			return fmt.Errorf("it has asked %d times", n)
		}
		return nil
	})
}

// rowsOf returns the cells of the table with a caption.
func (p *browserPage) rowsOf(caption string) [][]string {
	p.Helper()
	return evaluate[[][]string](p, fmt.Sprintf(`(() => {
		const found = [...%s.querySelectorAll("table")].find((t) => t.caption?.innerText === %q);
		return found ? [...found.tBodies[0].rows].map((r) => [...r.cells].map((c) => c.innerText.trim())) : [];
	})()`, shown, caption))
}

// TestPageStatusWithout: without its own metrics an adapter has no graphs, but rates, and what it is.
func TestPageStatusWithout(t *testing.T) {
	t.Parallel()
	a := startPaged(t) // whose harness turns self-scrape off
	p := newPage(t, a)
	p.open("tab", "status")
	p.checkAdapter(a)
	if got := p.texts("[role=status]"); len(got) != 2 || !strings.Contains(got[1], "does not store its own metrics") || len(p.texts(".panel")) > 0 {
		t.Errorf("the page says %q", got)
	}
	harness.Eventually(t, "the rates are numbers", func() error {
		harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), harness.SomeSeries())
		tiles := p.tiles()
		for _, name := range []string{"Samples stored", "Write and read requests"} {
			per, ok := strings.CutSuffix(tiles[name], "/s")
			if !ok || plain(t, per) <= 0 {
				return fmt.Errorf("%s: %q", name, tiles[name])
			}
		}
		return nil
	})
}

// wantFinding opens the tab Status and wants a finding that has these texts.
func (p *browserPage) wantFinding(texts ...string) {
	p.Helper()
	harness.Eventually(p, "a finding", func() error {
		p.open("tab", "status")
		for _, text := range p.texts(".finding") {
			if harness.ContainsAll(text, texts) {
				return nil
			}
		}
		return fmt.Errorf("the findings are %q, want %q", p.texts(".finding"), texts)
	})
}

// TestPageFindings makes real faults, and wants the page to say them and what to do.
func TestPageFindings(t *testing.T) {
	t.Parallel()
	t.Run("queries refused", func(t *testing.T) {
		a := startPaged(t, "--read.max-series=100")
		p := newPage(t, a)
		if resp := harness.MustGet(t, a.URL("/api/v1/query")+"?query=page_many", nil); resp.Status != http.StatusUnprocessableEntity {
			t.Fatal(resp)
		}
		p.wantFinding("Warning 1 query was refused since the start. It exceeded a limit or waited too long.", "Explain shows which selector reads too much.", "docs/configuration.md")
	})
	t.Run("refused samples", func(t *testing.T) {
		a := harness.StartAdapter(t, harness.Embedded(t), "--self-scrape-interval=1s")
		p := newPage(t, a)
		late := harness.SentSeries{Labels: []string{"__name__", "ahead"}, Points: []harness.Point{harness.PointAt(harness.NowMillis()+365*86_400_000, 1)}}
		resp, err := harness.RemoteWrite2().Send(t.Context(), a.URL("/api/v1/write"), []harness.SentSeries{late})
		if err != nil || resp.Status != http.StatusBadRequest {
			t.Fatal(resp, err)
		}
		p.eachLook(func(look string) {
			p.wantFinding("Warning 1 sample was rejected (1 too_far_in_future) since the start.", "docs/monitoring.md#metrics-to-watch")
			p.checkContrast(look)
			p.shoot("findings-" + look)
		})
	})
	t.Run("damaged file", func(t *testing.T) {
		dir := t.TempDir()
		a := startPagedIn(t, dir)
		a.Terminate(t)
		damageTables(t, dir)
		a = harness.StartAdapter(t, harness.Backend{Name: "embedded", Args: []string{"--storage.path=" + dir}})
		harness.MustGet(t, a.URL("/api/v1/query")+"?"+url.Values{"query": {"count_over_time(page_gauge[1h])"}}.Encode(), nil)
		newPage(t, a).wantFinding("Error", " of the store ", " damaged.", "docs/trouble.md#damaged-files-of-the-embedded-store")
	})
}

// startPagedIn starts an adapter on a directory, and writes what fills a table of it.
func startPagedIn(t *testing.T, dir string) *harness.Adapter {
	t.Helper()
	a := harness.StartAdapter(t, harness.Backend{Name: "embedded", Args: []string{"--storage.path=" + dir}})
	var series []harness.SentSeries
	for i := range 2000 {
		series = append(series, harness.SentSeries{Labels: []string{"__name__", "page_gauge", "i", fmt.Sprint(i)}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), float64(i))}})
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), series...)
	return a
}

// damageTables flips the first blocks of all tables in a directory.
func damageTables(t *testing.T, dir string) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	for _, path := range tables {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(content) < 10_000 {
			continue // META
		}
		for i := range 512 {
			content[i] ^= 0xff
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A ruleCase are metrics, as the text format has them, with which a rule holds. The values of before are those of an hour ago.
type ruleCase struct {
	now, before map[string]float64
	text        string
}

func ruleCases() map[string][]ruleCase {
	grows := func(key, text string) []ruleCase {
		return []ruleCase{{map[string]float64{key: 12}, map[string]float64{key: 5}, "7 " + text}, {map[string]float64{key: 3}, map[string]float64{key: 5}, "3 " + text}}
	}
	holds := func(text string, now map[string]float64) []ruleCase { return []ruleCase{{now: now, text: text}} }
	disk := func(free float64) map[string]float64 {
		return map[string]float64{`adapter_disk_free_bytes{path="/d"}`: free, `adapter_disk_min_free_bytes{path="/d"}`: 1 << 30}
	}
	return map[string][]ruleCase{
		"disk full":                         holds("Writes are refused: the disk of /d has 512 MiB free, and the floor is 1 GiB.", disk(1<<29)),
		"disk nearly full":                  holds("The disk of /d has 1.5 GiB free. Writes stop below 1 GiB.", disk(3<<29)),
		"damaged files":                     holds("2 files of the store are damaged", map[string]float64{"adapter_pebble_damaged_files": 2}),
		"log not writable":                  {{map[string]float64{"adapter_buffer_refused_commits_total": 4}, nil, "could not write to its log 4 times in the last hour."}},
		"clock in doubt":                    holds("The clock may be wrong", map[string]float64{"adapter_clock_in_doubt": 1}),
		"writes fail":                       grows(`adapter_http_requests_total{code="503",handler="write"}`, "write requests were answered with a 5xx in the last hour."),
		"samples not confirmed":             grows(`adapter_write_failed_samples_total{protocol="2.0"}`, "samples were not confirmed"),
		"samples refused":                   grows(`adapter_write_rejected_total{reason="labels"}`, "samples were rejected ("),
		"rows that the store does not take": holds("rejects 3 rows", map[string]float64{`adapter_buffer_failing_rows{state="retried"}`: 1, `adapter_buffer_failing_rows{state="refused"}`: 2}),
		"chunks not written":                grows("adapter_buffer_seal_failures_total", "writes of chunks"),
		"retention fails":                   {{map[string]float64{"adapter_retention_failures_total": 1}, nil, "could not be deleted, 1 time in the last hour."}},
		"rules fail":                        {{map[string]float64{"adapter_retention_rule_failures_total": 1}, nil, "could not be removed, 1 time "}},
		"deletion waits": {
			{map[string]float64{"adapter_deletion_pending": 1}, map[string]float64{"adapter_deletion_pending": 2}, "have not been removed from the store for an hour"},
			{map[string]float64{"adapter_deletion_failures_total": 2}, nil, "could not be removed from the store, 2 times"},
		},
		"rollups behind":          holds("Rollups are 2d behind", map[string]float64{"adapter_rollup_lag_seconds": 200_000}),
		"rollups fail":            grows("adapter_rollup_failures_total", "attempts to make rollups failed"),
		"sealing behind":          holds("began 27h ago", map[string]float64{"adapter_seal_lag_seconds": 100_000}),
		"sealing fails":           grows("adapter_seal_failures_total", "runs of the sealer"),
		"turns too short":         holds("covered only 40% of the rows", map[string]float64{"adapter_seal_walked_ratio": 0.4}),
		"clocks differ":           {{map[string]float64{"adapter_clock_skew_seconds": -30}, nil, "is 30s behind this one"}, {map[string]float64{"adapter_clock_skew_seconds": 300}, nil, "is 5m ahead of this one"}},
		"Bigtable fails":          grows(`adapter_bigtable_requests_total{method="ReadRows",result="failure"}`, "requests to Bigtable failed"),
		"HA fails":                grows("adapter_ha_failures_total", "requests of HA replicas were refused in the last hour. META failed."),
		"snapshots fail":          grows("adapter_snapshot_failures_total", "snapshots failed"),
		"background work fails":   grows("adapter_pebble_background_failures_total", "flushes or compactions"),
		"slow disk":               grows("adapter_pebble_write_stalls_total", "times writes waited for compactions"),
		"logs without an adapter": holds("waits for 1 log of", map[string]float64{"adapter_buffer_other_logs": 1}),
		"CURRENT dropped":         grows("adapter_current_dropped_total", "current values"),
		"queries refused":         grows(`adapter_api_limited_requests_total{limit="samples"}`, "queries were refused in the last hour. They exceeded a limit"),
		"index marks read":        holds("Index marks of 200,000 series", map[string]float64{`adapter_index_mark_lookups_total{result="found"}`: 200_000}),
		"slow queries":            grows(`adapter_slow_queries_total{kind="range"}`, "queries were slow"),
	}
}

// TestPageRefused: an expression that cannot be evaluated is a mistake of its author, and no finding; one above a limit is.
func TestPageRefused(t *testing.T) {
	t.Parallel()
	a := startPaged(t, "--query.max-samples=100")
	ask := func(query string) {
		t.Helper()
		if resp := harness.MustGet(t, a.URL("/api/v1/query")+"?"+url.Values{"query": {query}}.Encode(), nil); resp.Status != http.StatusUnprocessableEntity {
			t.Fatalf("%s: %v", query, resp)
		}
	}
	for range 3 {
		ask("page_gauge * on () page_gauge")
	}
	p := newPage(t, a)
	p.open("tab", "status")
	if got := p.texts(".findings, .well"); !slices.Equal(got, []string{"No problems found."}) {
		t.Errorf("after mistakes the findings are %q", got)
	}
	ask("page_many")
	p.load("tab", "status")
	p.wantFinding("1 query was refused since the start. It exceeded a limit")
}

// TestPageRules: each rule holds with the metrics that it is about, and says so, and none does with those of an adapter that is well.
func TestPageRules(t *testing.T) {
	t.Parallel()
	a := startPaged(t)
	p := newPage(t, a)
	p.open()
	evaluate[bool](p, `(() => {
		Promise.all([import("./ui/tabs/findings.js"), import("./ui/tabs/snapshot.js")]).then(([{ rules, findings }, { Snapshot, fromStatus }]) => {
			window.rules = rules;
			window.findingsOf = (now, before) => findings(new Snapshot(fromStatus(now), fromStatus(before)), "in the last hour");
		});
		return true;
	})()`)
	p.await("window.findingsOf !== undefined")
	type found struct{ Name, Level, Text, Todo string }
	findings := func(now, before any) []found {
		t.Helper()
		text := func(v any) string {
			encoded, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return string(encoded)
		}
		return evaluate[[]found](p, fmt.Sprintf(`window.findingsOf(%s, %s ?? {}).map((f) => ({ Name: f.name, Level: f.level, Text: f.text, Todo: f.todo }))`, text(now), text(before)))
	}
	cases := ruleCases()
	names := evaluate[[]string](p, "window.rules.map((r) => r.name)")
	if len(names) != len(cases) {
		t.Errorf("there are %d rules, and cases of %d", len(names), len(cases))
	}
	for _, name := range names {
		for _, c := range cases[name] {
			got := findings(c.now, c.before)
			if len(got) != 1 || got[0].Name != name || !strings.Contains(got[0].Text, c.text) || got[0].Level == "" || got[0].Todo == "" || strings.Contains(got[0].Text, "…") {
				t.Errorf("with %v after %v the findings are %+v, want %s: %s", c.now, c.before, got, name, c.text)
			}
			if same := findings(c.now, c.now); strings.Contains(c.text, " in the last hour.") && len(same) > 0 {
				t.Errorf("%s is found without growth: %+v", name, same)
			}
		}
		if len(cases[name]) == 0 {
			t.Errorf("no case of %s", name)
		}
	}
	var status struct{ Metrics map[string]float64 }
	p.mustAsk(a, "/api/v1/status/adapter", nil, &status)
	if got := findings(status.Metrics, nil); len(got) > 0 {
		t.Errorf("of an adapter that is well: %+v", got)
	}
	both := findings(map[string]float64{`adapter_slow_queries_total{kind="range"}`: 1, "adapter_rollup_failures_total": 1, "adapter_pebble_damaged_files": 1}, nil)
	if len(both) != 3 || both[0].Level != "error" || both[1].Level != "warning" || both[2].Level != "note" {
		t.Errorf("the findings are not in order: %+v", both)
	}
}

// TestPageStatusSenders: the page says which targets have sent, which are down, which replica is elected, and which adapters there are.
func TestPageStatusSenders(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t), "--self-scrape-interval=1s", "--ha.cluster-label=cluster", "--ha.replica-label=__replica__", "--retention.resolution-raw=30d")
	now := harness.NowMillis()
	up := func(job, instance string, ago time.Duration, v float64) harness.SentSeries {
		return harness.SentSeries{Labels: []string{"__name__", "up", "cluster", "eu", "__replica__", "a", "instance", instance, "job", job}, Points: []harness.Point{harness.PointAt(now-ago.Milliseconds(), v)}}
	}
	build := harness.SentSeries{Labels: []string{"__name__", "adapter_build_info", "instance", "other:9201", "job", "adapter"}, Points: []harness.Point{harness.PointAt(now, 1)}}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), up("api", "one", 0, 1), up("api", "two", 0, 0), up("db", "three", time.Hour, 1), build)
	p := newPage(t, a)
	var got [][]string
	harness.Eventually(t, "the elected replica", func() error {
		p.open("tab", "status")
		if got = p.rowsOf("Elected replicas"); len(got) != 1 {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	if !slices.Equal(got[0], []string{"eu", "a"}) {
		t.Errorf("elected is %q", got)
	}
	rows := p.rowsOf("Targets of the last day, from the metric up")
	if len(rows) != 2 || !slices.Equal(rows[0][:4], []string{"api", "2", "1: two", "–"}) || !slices.Equal(rows[1][:4], []string{"db", "1", "–", "1: three"}) {
		t.Errorf("the targets are %q", rows)
	}
	if got := p.texts("[aria-label=Retention] li"); len(got) != 3 || !strings.HasPrefix(got[0], "Samples are kept for 30d. The day up to ") {
		t.Errorf("of retention the page says %q", got)
	}
	p.choose("#status select[name=instance]", "other:9201")
	p.wantParameters("tab", "status", "instance", "other:9201")
	p.settle()
	if got := p.texts(".well"); len(got) != 1 {
		t.Errorf("of another adapter the page says %q", p.texts(".finding"))
	}
	p.eachLook(func(look string) {
		p.open("tab", "status")
		p.shoot("senders-" + look)
	})
}

// TestPageStatusSince: a finding says since when it holds, as the stored metrics tell, of another adapter, too.
func TestPageStatusSince(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t), "--self-scrape-interval=1h")
	const step = 300_000
	now := harness.NowMillis() / step * step
	behind := now - 12*step
	lag := harness.SentSeries{Labels: []string{"__name__", "adapter_rollup_lag_seconds", "instance", "other:9201", "job", "adapter"}}
	refused := harness.SentSeries{Labels: []string{"__name__", "adapter_write_rejected_total", "instance", "other:9201", "job", "adapter", "reason", "labels"}}
	for i := int64(40); i >= 0; i-- {
		at, v := now-i*step, 0.0
		if at >= behind {
			v = 100_000
		}
		lag.Points = append(lag.Points, harness.PointAt(at, v))
		refused.Points = append(refused.Points, harness.PointAt(at, 7))
	}
	// The newest may not be as old as a query looks back.
	lag.Points = append(lag.Points, harness.PointAt(harness.NowMillis()+1, 100_000))
	refused.Points = append(refused.Points, harness.PointAt(harness.NowMillis()+1, 7))
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), lag, refused)
	p := newPage(t, a)
	p.open("tab", "status", "instance", "other:9201")
	want := evaluate[string](p, fmt.Sprintf(`(() => { const d = new Date(%d), two = (n) => String(n).padStart(2, "0"); return two(d.getHours()) + ":" + two(d.getMinutes()) + ":00." })()`, behind))
	if got := p.texts(".finding"); len(got) != 1 || !harness.ContainsAll(got[0], []string{"Rollups are 27h behind", "Since about 2", want}) {
		t.Errorf("the findings are %q, want one since %s", got, want)
	}
}
