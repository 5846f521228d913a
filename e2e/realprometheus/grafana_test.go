package realprometheus

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"

	"github.com/promtable/promtable/e2e/harness"
)

// A call is a request of Grafana's Prometheus data source. An adapter and a
// Prometheus that hold the same must answer it alike, word for word.
type call struct {
	name   string
	path   string
	params url.Values
	want   int // status, 200 if it is 0
	// empty says that the answer holds nothing.
	empty bool
	// ordered says that the order of a vector counts: mostly it is not promised.
	ordered bool
	// getOnly says that the call has no form for POST.
	getOnly bool
}

// The data of the test: one sample of every series each grafanaStep, from
// grafanaSpan ago up to now, all in milliseconds. Grafana's queries fall between
// the samples.
const (
	grafanaSpan = 30 * 60_000
	grafanaStep = 15_000
)

// TestGrafana replays what Grafana sends against adapters and against a
// Prometheus.
func TestGrafana(t *testing.T) {
	p := harness.StartPrometheus(t, "--web.enable-remote-write-receiver", "--enable-feature=exemplar-storage")
	now := harness.NowMillis()
	body := snappy.Encode(nil, grafanaData(t, now))
	adapters := make(map[string]*harness.Adapter)
	urls := []string{p.URL("/api/v1/write")}
	for _, b := range []harness.Backend{harness.Embedded(t), harness.Emulator(t)} {
		a := harness.StartAdapter(t, b, "--write.max-future=0")
		adapters[b.Name], urls = a, append(urls, a.URL("/api/v1/write"))
	}
	for _, write := range urls {
		resp, err := harness.Post(context.Background(), write, harness.ProtobufHeader("Content-Type", harness.RemoteWrite2().ContentType), body)
		if err != nil || resp.Status != http.StatusNoContent {
			t.Fatalf("%s: %v, %v", write, resp, err)
		}
	}
	w := grafanaWindow{now}
	calls := slices.Concat(w.instants(), w.ranges(), w.variables(), w.exemplars(), w.others(), w.queryErrors(), w.otherErrors())
	for name, a := range adapters {
		for _, c := range calls {
			for _, method := range c.methods() {
				t.Run(name+"/"+c.name+"/"+method, func(t *testing.T) { c.compare(t, method, a, p) })
			}
		}
		t.Run(name+"/shapes", func(t *testing.T) { grafanaShapes(t, a) })
	}
}

func (c call) methods() []string {
	if c.getOnly {
		return []string{http.MethodGet}
	}
	return []string{http.MethodGet, http.MethodPost}
}

// compare sends the call to both.
func (c call) compare(t *testing.T, method string, a *harness.Adapter, p *harness.Prometheus) {
	got, want := c.ask(t, method, a.URL(c.path)), c.ask(t, method, p.URL(c.path))
	if got.Status != want.Status || want.Status != cmp.Or(c.want, http.StatusOK) {
		t.Fatalf("status is %d, of Prometheus %d, want %d\ngot  %.500s\nwant %.500s", got.Status, want.Status, cmp.Or(c.want, http.StatusOK), got.Body, want.Body)
	}
	if g, w := got.Header.Get("Content-Type"), want.Header.Get("Content-Type"); g != w {
		t.Errorf("Content-Type is %q, of Prometheus %q", g, w)
	}
	theirs := c.decode(t, want)
	if c.empty != isEmpty(theirs["data"]) && want.Status == http.StatusOK {
		t.Errorf("Prometheus holds something: %t: the test compares too little\n%.500s", c.empty, want.Body)
	}
	if ours := c.decode(t, got); !reflect.DeepEqual(ours, theirs) {
		t.Errorf("got  %s\nwant %s", aroundDifference(ours, theirs), aroundDifference(theirs, ours))
	}
}

// ask sends the call as Grafana does, with headers about the dashboard.
func (c call) ask(t *testing.T, method, url string) harness.Response {
	t.Helper()
	header := map[string]string{
		"Accept": "application/json", "User-Agent": "Grafana/12.1.0",
		"X-Dashboard-Uid": "graf", "X-Panel-Id": "7", "X-Datasource-Uid": "prom", "X-Grafana-Org-Id": "1",
	}
	var body []byte
	if method == http.MethodPost {
		header["Content-Type"] = "application/x-www-form-urlencoded"
		body = []byte(c.params.Encode())
	} else {
		url += "?" + c.params.Encode()
	}
	resp, err := harness.RoundTrip(context.Background(), method, url, header, body)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// decode returns the envelope, with what has no order sorted.
func (c call) decode(t *testing.T, r harness.Response) map[string]any {
	t.Helper()
	var envelope map[string]any
	d := json.NewDecoder(strings.NewReader(r.Body))
	d.UseNumber()
	if err := d.Decode(&envelope); err != nil {
		t.Fatalf("%v: %v", err, r)
	}
	if data, ok := envelope["data"].(map[string]any); ok && data["resultType"] == "vector" && !c.ordered {
		sortElements(data["result"])
	}
	if strings.HasSuffix(c.path, "/series") {
		sortElements(envelope["data"])
	}
	return envelope
}

// sortElements sorts a decoded list by its elements as text.
func sortElements(list any) {
	if elements, ok := list.([]any); ok {
		slices.SortFunc(elements, func(a, b any) int { return cmp.Compare(jsonText(a), jsonText(b)) })
	}
}

// jsonText is v as JSON, with the names of objects sorted.
func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // v was decoded from JSON
	}
	return string(text)
}

// isEmpty says whether data, of a query or of anything else, holds nothing.
func isEmpty(data any) bool {
	if object, ok := data.(map[string]any); ok && object["resultType"] != nil {
		data = object["result"]
	}
	return data == nil || jsonText(data) == "[]" || jsonText(data) == "{}"
}

// aroundDifference returns the part of v, as text, where it begins to differ
// from other.
func aroundDifference(v, other any) string {
	const before, after = 150, 250
	a, b := jsonText(v), jsonText(other)
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return fmt.Sprintf("…%s… (of %d bytes)", a[max(0, i-before):min(len(a), i+after)], len(a))
}

// A grafanaWindow makes calls for a dashboard that shows the time up to now,
// and all of the data.
type grafanaWindow struct{ now int64 }

// times returns start and end so that all the data is between them, and more
// parameters by name and value in turn.
func (w grafanaWindow) times(more ...string) url.Values {
	params := url.Values{"start": {harness.FormatSeconds(w.now - grafanaSpan - 60_000)}, "end": {harness.FormatSeconds(w.now + 60_000)}}
	for c := range slices.Chunk(more, 2) {
		params[c[0]] = append(params[c[0]], c[1])
	}
	return params
}

// rfc3339 prints milliseconds.
func rfc3339(t int64) string { return time.UnixMilli(t).UTC().Format("2006-01-02T15:04:05.000Z") }

// instants are the queries of tables, stats and alert rules.
func (w grafanaWindow) instants() []call {
	instant := func(name, expr string, more ...string) call {
		params := url.Values{"query": {expr}, "time": {harness.FormatSeconds(w.now)}, "step": {"15"}}
		for c := range slices.Chunk(more, 2) {
			params[c[0]] = []string{c[1]}
		}
		return call{name: "instant/" + name, path: "/api/v1/query", params: params}
	}
	nothing := instant("nothing found", "graf_absent")
	nothing.empty = true
	sorted := instant("sorted", "sort_desc(sum by (instance) (graf_requests_total))")
	sorted.ordered = true
	top := instant("topk", `topk(2, sum by (instance, job) (rate(graf_requests_total[1m0s])))`)
	top.ordered = true
	return []call{
		nothing, sorted, top,
		instant("health check", "1+1"),
		instant("string", `"text"`),
		instant("selector", "graf_requests_total"),
		instant("several values of a variable", `graf_requests_total{instance=~"(a:9090|c:9090)",code!="500"}`),
		instant("awkward values", "graf_special"),
		instant("rate", "sum by (job) (rate(graf_requests_total[1m0s]))"),
		instant("rate of what is no counter", "rate(graf_temperature[1m0s])"),
		instant("range vector", `graf_requests_total{job="api",code="500"}[2m]`),
		instant("all of it", `count({__name__=~"graf_.+"})`),
		instant("cardinality", `count by (__name__) ({__name__=~"graf_.+"})`),
		instant("past", "graf_temperature", "time", harness.FormatSeconds(w.now-grafanaSpan/2-7_123)),
		instant("quiet past", "graf_temperature", "time", harness.FormatSeconds(w.now-grafanaSpan/2+60_000)),
		instant("rfc 3339", "graf_temperature", "time", rfc3339(w.now-60_000)),
		instant("whole seconds", "graf_temperature", "time", fmt.Sprint(w.now/1000)),
		instant("exponent", "graf_temperature", "time", fmt.Sprintf("%.13e", float64(w.now)/1000)),
		instant("timeout", "graf_temperature", "timeout", "30s"),
		instant("short lookback", "graf_temperature", "time", harness.FormatSeconds(w.now+20_000), "lookback_delta", "30s"),
		instant("native histogram", "graf_latency_seconds"),
		instant("native quantile", "histogram_quantile(0.9, sum by (kind) (rate(graf_latency_seconds[2m])))"),
		instant("UTF-8", `{"graf_utf8.power/total","dot.ted label"="x y"}`),
		instant("join", `graf_requests_total{code="500"} / on (job, instance) graf_requests_total{code="200"}`),
		instant("absent", `absent(graf_absent{job="api"})`),
		instant("label_replace", `label_replace(graf_deploys, "minor", "$1", "version", "1\\.(.*)")`),
	}
}

// ranges are the queries of graphs, and those of annotations.
func (w grafanaWindow) ranges() []call {
	in := func(name, expr string, more ...string) call {
		params := url.Values{"query": {expr}, "start": {harness.FormatSeconds(w.now - grafanaSpan + 7_500)}, "end": {harness.FormatSeconds(w.now)}, "step": {"15s"}}
		for c := range slices.Chunk(more, 2) {
			params[c[0]] = []string{c[1]}
		}
		return call{name: "range/" + name, path: "/api/v1/query_range", params: params}
	}
	alerts := in("annotation, alerts", `ALERTS{alertstate="firing"}`, "step", "60s")
	alerts.empty = true
	const requests = `sum by (instance) (rate(graf_requests_total{job=~"api|web"}[1m0s]))`
	return []call{
		alerts,
		in("step with a unit", requests),
		in("step without", requests, "step", "15"),
		in("step with a fraction", requests, "step", "7.5"),
		in("step longer than samples are apart", requests, "step", "5m"),
		in("selector", "graf_requests_total"),
		in("stale series", "graf_temperature"),
		in("awkward values", "graf_special"),
		in("whole seconds", requests, "start", fmt.Sprint(w.now/1000-900), "end", fmt.Sprint(w.now/1000)),
		in("rfc 3339", requests, "start", rfc3339(w.now-grafanaSpan), "end", rfc3339(w.now)),
		in("before and after the data", requests, "start", harness.FormatSeconds(w.now-2*grafanaSpan), "end", harness.FormatSeconds(w.now+grafanaSpan), "step", "30"),
		in("one point", requests, "start", harness.FormatSeconds(w.now), "end", harness.FormatSeconds(w.now)),
		in("classic quantile", "histogram_quantile(0.95, sum by (le) (rate(graf_seconds_bucket[1m])))"),
		in("native quantile", "histogram_quantile(0.95, sum(rate(graf_latency_seconds[1m])) by (kind))"),
		in("heat map", "sum(rate(graf_latency_seconds{kind=\"float\"}[1m0s]))", "step", "60"),
		in("native histograms", "graf_latency_seconds", "step", "60"),
		in("offset", "graf_requests_total - graf_requests_total offset 5m", "step", "60"),
		in("end", "graf_temperature @ end()", "step", "60"),
		in("subquery", "max_over_time(rate(graf_requests_total[1m0s])[5m:15s])", "step", "60"),
		in("constant", "vector(1)", "step", "60"),
		in("annotation, changes", "changes(graf_deploys[60s]) > 0", "step", "60s"),
		in("annotation, selector", `graf_deploys{app="shop"} == 2`, "step", "60s"),
	}
}

// variables are the queries that fill variables of dashboards, and the
// suggestions of the editor.
func (w grafanaWindow) variables() []call {
	ask := func(name, path string, params url.Values) call {
		return call{name: "variable/" + name, path: "/api/v1/" + path, params: params, getOnly: strings.HasPrefix(path, "label/")}
	}
	const all, api = `{__name__=~"graf_.+"}`, `graf_requests_total{job="api"}`
	nothing := ask("no series", "series", w.times("match[]", "graf_absent"))
	nothing.empty = true
	// Within the data Prometheus finds series although the range is empty.
	backward := ask("series, end before start", "series", url.Values{"match[]": {all}, "start": {"2"}, "end": {"1"}})
	backward.empty = true
	noValues := ask("values of a label that nothing has", "label/absent/values", w.times("match[]", all))
	noValues.empty = true
	return []call{
		nothing, backward, noValues,
		ask("series", "series", w.times("match[]", all)),
		ask("series of a selector", "series", w.times("match[]", api, "limit", "40000")),
		ask("series of two selectors", "series", w.times("match[]", api, "match[]", `{code="500"}`)),
		ask("series, UTF-8", "series", w.times("match[]", `{"graf_utf8.power/total"}`)),
		ask("series, rfc 3339", "series", url.Values{"match[]": {all}, "start": {rfc3339(w.now - grafanaSpan)}, "end": {rfc3339(w.now)}}),
		ask("series of all time", "series", url.Values{"match[]": {all}}),
		ask("labels", "labels", w.times()),
		ask("labels of a selector", "labels", w.times("match[]", api)),
		ask("labels of two selectors", "labels", w.times("match[]", "graf_deploys", "match[]", "graf_special")),
		ask("labels, limited", "labels", w.times("limit", "3")),
		ask("labels of all time", "labels", nil),
		ask("metrics", "label/__name__/values", w.times("match[]", all, "limit", "40000")),
		ask("metrics by a part of the name", "label/__name__/values", w.times("match[]", `{__name__=~".*seco.*"}`)),
		ask("metrics of all time", "label/__name__/values", nil),
		ask("values", "label/instance/values", w.times()),
		ask("values of a selector", "label/instance/values", w.times("match[]", api)),
		ask("values of a metric", "label/room/values", w.times("match[]", "graf_temperature")),
		ask("values, limited", "label/instance/values", w.times("limit", "2")),
		ask("values of a label in capitals", "label/Upper/values", w.times()),
		ask("values of a label as U__", "label/U__dot_2e_ted_20_label/values", w.times()),
		ask("values of a label as U__, of a selector", "label/U__dot_2e_ted_20_label/values", w.times("match[]", `{"dot.ted label"!=""}`)),
		ask("values of a label, escaped", "label/dot.ted%20label/values", w.times()),
	}
}

// exemplars are asked for by graphs with exemplars switched on.
func (w grafanaWindow) exemplars() []call {
	of := func(name, expr string) call {
		return call{name: "exemplars/" + name, path: "/api/v1/query_exemplars", params: w.times("query", expr, "step", "15")}
	}
	nothing := of("none", "graf_requests_total")
	nothing.empty = true
	early := of("a part of the time", "graf_seconds_bucket")
	early.params.Set("end", harness.FormatSeconds(w.now-grafanaSpan/2))
	return []call{
		nothing, early,
		of("selector", `graf_seconds_bucket{le!="1.0"}`),
		of("quantile", "histogram_quantile(0.95, sum by (le) (rate(graf_seconds_bucket[1m0s])))"),
		of("native histogram", "graf_latency_seconds"),
		of("two selectors", `graf_seconds_bucket{le="0.1"} + on (le) graf_latency_seconds`),
	}
}

// others need no data.
func (w grafanaWindow) others() []call {
	const expr = `sum by (job)(rate(graf_requests_total{code=~"5.."}[5m]))/2`
	return []call{
		{name: "format", path: "/api/v1/format_query", params: url.Values{"query": {expr}}},
		{name: "parse", path: "/api/v1/parse_query", params: url.Values{"query": {expr}}},
	}
}

// queryErrors are queries that are refused.
func (w grafanaWindow) queryErrors() []call {
	refused := func(name, path string, want int, params url.Values) call {
		return call{name: "refused/" + name, path: "/api/v1/" + path, params: params, want: want}
	}
	const up = "graf_deploys"
	// The error names the first two series: here there are no others, and both
	// find them in the order in which they were written.
	const pair = `graf_requests_total{job="api",instance="a:9090"}`
	at := harness.FormatSeconds(w.now)
	return []call{
		refused("bad expression", "query", 400, url.Values{"query": {"sum(graf_deploys"}, "time": {at}}),
		refused("no expression", "query", 400, url.Values{"time": {at}}),
		refused("variable left in", "query", 400, url.Values{"query": {"rate(graf_deploys[$__rate_interval])"}, "time": {at}}),
		refused("unknown function", "query", 400, url.Values{"query": {"frobnicate(graf_deploys)"}, "time": {at}}),
		refused("bad type", "query", 400, url.Values{"query": {"rate(graf_deploys)"}, "time": {at}}),
		refused("bad time", "query", 400, url.Values{"query": {up}, "time": {"now"}}),
		refused("bad timeout", "query", 400, url.Values{"query": {up}, "time": {at}, "timeout": {"soon"}}),
		refused("many to many", "query", 422, url.Values{"query": {pair + " + on (job) " + pair}, "time": {at}}),
		refused("range of a range vector", "query_range", 400, w.times("query", "graf_deploys[1m]", "step", "15s")),
		refused("range, bad expression", "query_range", 400, w.times("query", "graf_deploys{", "step", "15s")),
		refused("range without a step", "query_range", 400, w.times("query", up)),
		refused("range, step 0", "query_range", 400, w.times("query", up, "step", "0")),
		refused("range, negative step", "query_range", 400, w.times("query", up, "step", "-15")),
		refused("range, too many points", "query_range", 400, w.times("query", up, "step", "0.01")),
		refused("range without a start", "query_range", 400, url.Values{"query": {up}, "end": {at}, "step": {"15"}}),
		refused("range, end before start", "query_range", 400, url.Values{"query": {up}, "start": {at}, "end": {harness.FormatSeconds(w.now - 1000)}, "step": {"15"}}),
	}
}

// otherErrors are calls for something else that are refused.
func (w grafanaWindow) otherErrors() []call {
	refused := func(name, path string, params url.Values) call {
		return call{name: "refused/" + name, path: "/api/v1/" + path, params: params, want: 400, getOnly: strings.HasPrefix(path, "label/")}
	}
	return []call{
		refused("series without a selector", "series", w.times()),
		refused("series, empty selector", "series", w.times("match[]", "{}")),
		refused("series, bad selector", "series", w.times("match[]", "graf_deploys{app=")),
		refused("series, an expression", "series", w.times("match[]", "sum(graf_deploys)")),
		refused("series, bad expression in a matcher", "series", w.times("match[]", `graf_deploys{app=~"("}`)),
		refused("series, bad start", "series", url.Values{"match[]": {"graf_deploys"}, "start": {"now-1h"}}),
		refused("series, bad limit", "series", w.times("match[]", "graf_deploys", "limit", "-1")),
		refused("labels, bad selector", "labels", w.times("match[]", "{app=}")),
		refused("labels, bad limit", "labels", w.times("limit", "many")),
		refused("values, bad selector", "label/app/values", w.times("match[]", "}{")),
		refused("values, bad end", "label/app/values", url.Values{"end": {"tomorrow"}}),
		refused("exemplars, bad expression", "query_exemplars", w.times("query", "rate(")),
		refused("exemplars, end before start", "query_exemplars", url.Values{"query": {"graf_deploys"}, "start": {"2"}, "end": {"1"}}),
		refused("format, bad expression", "format_query", url.Values{"query": {"1 +"}}),
		refused("parse, bad expression", "parse_query", url.Values{"query": {"1 +"}}),
	}
}

// grafanaShapes looks at what is not the same in both: Prometheus takes
// metadata from its targets alone, and each has a version and flags of its own.
func grafanaShapes(t *testing.T, a *harness.Adapter) {
	answers := []struct {
		path string
		want map[string]string // regular expressions of texts in data, by name
	}{
		{"status/buildinfo", map[string]string{"version": `^"[2-9]\.\d+\.\d+"$`, "goVersion": `^"go1\.\d+`}},
		{"status/config", map[string]string{"yaml": `^"`}},
		{"status/flags", map[string]string{"write.max-future": `^"0s"$`}},
		{"status/runtimeinfo", map[string]string{"storageRetention": `^"`, "startTime": `^"\d{4}-`}},
		{"status/tsdb", map[string]string{"seriesCountByMetricName": `^\[.*\{"name":"graf_requests_total","value":12\}`}},
		{"metadata", map[string]string{
			"graf_requests_total":  `^\[\{"help":"Help for graf_requests_total\.","type":"counter","unit":""\}\]$`,
			"graf_latency_seconds": `"type":"histogram"`,
		}},
	}
	for _, c := range answers {
		t.Run(c.path, func(t *testing.T) {
			text, err := harness.GetAPI(a.URL("/api/v1/"+c.path), nil)
			if err != nil {
				t.Fatal(err)
			}
			var data map[string]any
			if err := json.NewDecoder(bytes.NewReader(text)).Decode(&data); err != nil {
				t.Fatalf("%v: %.500s", err, text)
			}
			for name, expr := range c.want {
				if got := jsonText(data[name]); !regexp.MustCompile(expr).MatchString(got) {
					t.Errorf("%s is %s, want %s", name, got, expr)
				}
			}
		})
	}
}
