package realprometheus

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/e2e/harness"
)

// TestPrometheus lets one Prometheus scrape and write to several adapters at
// once, and compares what they answer with
// what Prometheus holds itself: directly, and through the PromQL of a second,
// empty Prometheus that reads from the adapter. Then the adapters are restarted
// while Prometheus goes on.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	receivers := startReceivers(t)
	writer := harness.StartPrometheus(t, "--enable-feature=exemplar-storage,metadata-wal-records,st-storage")
	c := &comparison{writer: writer, reader: harness.StartPrometheus(t), mint: harness.NowMillis()}
	jobs := []harness.Job{
		{Name: "prometheus", Targets: []string{c.writer.Addr}},
		{Name: "adapter", Targets: []string{receivers[0].Addr, receivers[1].Addr}},
		{Name: "awkward", Targets: []string{startAwkward(t)}},
		{Name: "modern", Targets: []string{startModern(t)}, Extra: "    scrape_native_histograms: true\n"},
		{Name: "converted", Targets: []string{c.writer.Addr}, Extra: "    convert_classic_histograms_to_nhcb: true\n    metric_relabel_configs: [{source_labels: [__name__], regex: 'prometheus_http_.*', action: keep}]\n"},
	}
	const targets = 6
	c.writer.Configure(t, harness.ScrapeConfig(jobs...)+harness.WriteConfig(receivers))

	c.maxt = harness.NowMillis() + 10_000
	c.writer.AwaitScrapes(t, targets, c.maxt)
	c.run(t, "before", receivers)

	first, stopped := c.mint, harness.NowMillis()
	for _, r := range receivers {
		r.Terminate(t)
	}
	c.writer.AwaitScrapes(t, targets, harness.NowMillis()+2_000) // what the adapters miss
	for _, r := range receivers {
		r.Rerun(t)
	}
	c.mint, c.maxt = stopped-5_000, harness.NowMillis()+3_000
	c.writer.AwaitScrapes(t, targets, c.maxt)
	c.run(t, "after a restart", receivers)
	c.queues(t, receivers)
	c.mint = first
	c.run(t, "from the beginning", receivers[:2])
	c.kinds(t)
}

// queues checks that Prometheus has retried what a stopped adapter did not accept, and has
// dropped nothing.
func (c *comparison) queues(t *testing.T, receivers []harness.Receiver) {
	const prefix = "prometheus_remote_storage_"
	now := harness.NowMillis()
	lost, err := c.writer.Instant(`{__name__=~"`+prefix+`(samples|metadata)_(failed|dropped)_total"} > 0`, now)
	if err != nil || len(lost) > 0 {
		t.Errorf("Prometheus has lost samples: %v %v", lost, err)
	}
	retried, err := c.writer.Instant(prefix+"samples_retried_total > 0", now)
	if err != nil || len(retried) != len(receivers) {
		t.Errorf("Prometheus has retried for %d receivers, want %d: %v %v", len(retried), len(receivers), retried, err)
	}
}

// startReceivers starts adapters: on the embedded store one for each protocol,
// and one on each kind of Bigtable. There the path to the store is the same
// for both protocols, and the fake is slow.
func startReceivers(t testing.TB) []harness.Receiver {
	start := func(open func(testing.TB) harness.Backend, p harness.Protocol) harness.Receiver {
		b := open(t)
		return harness.Receiver{Adapter: harness.StartAdapter(t, b), Backend: b.Name, Protocol: p}
	}
	return []harness.Receiver{
		start(harness.Embedded, harness.RemoteWrite1()),
		start(harness.Embedded, harness.RemoteWrite2()),
		start(harness.InProcess, harness.RemoteWrite1()),
		start(harness.Emulator, harness.RemoteWrite2()),
	}
}

// startAwkward serves metrics that are easily damaged on their way. One series
// comes and goes, so that there are staleness markers. No value is -0:
// Prometheus' own remote write turns it into 0.
func startAwkward(t testing.TB) string {
	var scrapes atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := scrapes.Add(1)
		w.Header().Set("Content-Type", "text/plain; version=1.0.0; escaping=allow-utf-8")
		fmt.Fprintf(w, `awkward{kind="nan"} NaN
awkward{kind="+inf"} +Inf
awkward{kind="-inf"} -Inf
awkward{kind="counter"} %d
awkward{kind="fraction"} %g
awkward{Upper="sorts before the name"} 1
awkward{kind="a,b=c\\d\"e\nf",other="1297080123392"} 1
{"a name.with/utf-8 \\ , = signs","dot.ted"="ä €"} %d
`, n, 1/float64(n), -n)
		if n%2 == 0 {
			fmt.Fprintf(w, "awkward_sometimes %d\n", n)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// A comparison is between what writer holds and what adapters answer, in
// [mint, maxt].
type comparison struct {
	writer, reader *harness.Prometheus
	mint, maxt     int64
}

// run compares all receivers.
func (c *comparison) run(t *testing.T, when string, receivers []harness.Receiver) {
	for _, r := range receivers {
		t.Run(when+"/"+r.ID(), func(t *testing.T) {
			c.awaitAll(t, r)
			t.Run("names", func(t *testing.T) { c.names(t, r) })
			t.Run("exemplars", func(t *testing.T) { c.exemplars(t, r) })
			if r.Protocol.Name == harness.RemoteWrite1().Name { // see TestPrometheusMetadata
				t.Run("metadata", func(t *testing.T) { c.metadata(t, r) })
			}
			for _, s := range selections() {
				t.Run(s.name, func(t *testing.T) { c.selection(t, r, s) })
			}
			t.Run("one instant", func(t *testing.T) { c.boundaries(t, r) })
			t.Run("promql", func(t *testing.T) { c.promql(t, r) })
		})
	}
}

// query selects by matchers from everything there is to compare.
func (c *comparison) query(ms []*labels.Matcher) harness.Query {
	return harness.Query{Mint: c.mint, Maxt: c.maxt, Matchers: ms}
}

// awaitAll waits until the adapter answers with everything that Prometheus
// holds: it delivers with a delay.
func (c *comparison) awaitAll(t *testing.T, r harness.Receiver) {
	q := c.query(harness.MustMatchers(t, "__name__", "=~", ".+"))
	want := harness.MustRead(t, c.writer.URL("/api/v1/read"), harness.Streamed, q)
	if len(want) < 100 {
		t.Fatalf("Prometheus holds %d series only", len(want))
	}
	harness.Eventually(t, r.ID()+" holds what Prometheus holds", func() error {
		got, err := harness.Read(r.URL("/api/v1/read"), harness.Streamed, q)
		if err != nil {
			return err
		}
		if d := harness.DiffSeries(transmitted(r.Protocol, got[0]), transmitted(r.Protocol, want)); d != "" {
			return errors.New(d)
		}
		return nil
	})
	harness.CheckStream(t, r.URL("/api/v1/read"), q)
	t.Logf("%d series, %d samples", len(want), harness.CountPoints(want))
}

// transmitted returns the part of series that the protocol can transmit. 1.0 has no start
// timestamps, and Prometheus does not send it histograms with custom buckets. Prometheus
// sends the staleness marker of a histogram as that of a float.
func transmitted(p harness.Protocol, series []harness.TimeSeries) []harness.TimeSeries {
	var got []harness.TimeSeries
	for _, s := range series {
		c := harness.TimeSeries{Labels: s.Labels}
		for _, point := range s.Points {
			switch {
			case isStale(point):
				point = harness.PointAt(point.T, math.Float64frombits(value.StaleNaN))
			case p.Name == harness.RemoteWrite1().Name && hasCustomBuckets(point):
				continue
			case p.Name == harness.RemoteWrite1().Name:
				point.Start = 0
			}
			c.Points = append(c.Points, point)
		}
		got = append(got, c)
	}
	return harness.WithoutEmpty(got)
}

// isStale says whether p is a staleness marker.
func isStale(p harness.Point) bool {
	return p.Bits == value.StaleNaN || (p.Histogram != "" && strings.Contains(p.Histogram, fmt.Sprintf(" %x] spans", value.StaleNaN)))
}

// hasCustomBuckets says whether p is a histogram with custom buckets.
func hasCustomBuckets(p harness.Point) bool { return strings.Contains(p.Histogram, "schema -53 ") }

// kinds wants the comparison to have been one of everything there is.
func (c *comparison) kinds(t *testing.T) {
	found := map[string]bool{}
	for _, s := range harness.MustRead(t, c.writer.URL("/api/v1/read"), harness.Streamed, c.query(harness.MustMatchers(t, "__name__", "=~", ".+"))) {
		for _, p := range s.Points {
			switch {
			case hasCustomBuckets(p):
				found["custom buckets"] = true
			case isStale(p) && p.Histogram != "":
				found["a staleness marker of a histogram"] = true
			case p.Histogram != "":
				found["a native histogram"] = true
			case isStale(p):
				found["a staleness marker"] = true
			}
			if p.Start != 0 && p.Histogram != "" {
				found["a start timestamp of a histogram"] = true
			} else if p.Start != 0 {
				found["a start timestamp"] = true
			}
		}
	}
	if len(found) != 6 {
		t.Errorf("Prometheus holds no more than %v", found)
	}
}

// exemplars asks both for exemplars, at their own APIs.
func (c *comparison) exemplars(t *testing.T, r harness.Receiver) {
	for _, expr := range []string{`modern_total`, `{__name__=~"modern_.+"}`, `rate(modern_seconds[1m])`} {
		params := url.Values{"query": {expr}, "start": {harness.FormatSeconds(c.mint)}, "end": {harness.FormatSeconds(c.maxt)}}
		want, err := harness.GetAPI(c.writer.URL("/api/v1/query_exemplars"), params)
		if err != nil || len(want) < 100 {
			t.Fatalf("%s: Prometheus has %s, %v", expr, want, err)
		}
		harness.Eventually(t, "exemplars of "+expr, func() error {
			got, err := harness.GetAPI(r.URL("/api/v1/query_exemplars"), params)
			if err == nil && !bytes.Equal(got, want) {
				err = fmt.Errorf("got  %s\nwant %s", got, want)
			}
			return err
		})
	}
}

// metadata compares the metadata of both. The adapter has one text for each metric.
func (c *comparison) metadata(t *testing.T, r harness.Receiver) {
	for _, metric := range []string{"modern_seconds", "modern_total", "modern_bytes", "go_goroutines"} {
		params := url.Values{"metric": {metric}}
		want, err := harness.GetAPI(c.writer.URL("/api/v1/metadata"), params)
		if err != nil || len(want) < 10 {
			t.Fatalf("%s: Prometheus has %s, %v", metric, want, err)
		}
		harness.Eventually(t, "metadata of "+metric, func() error {
			got, err := harness.GetAPI(r.URL("/api/v1/metadata"), params)
			if err == nil && !bytes.Equal(got, want) {
				err = fmt.Errorf("got  %s\nwant %s", got, want)
			}
			return err
		})
	}
}

// names finds every metric by its name.
func (c *comparison) names(t *testing.T, r harness.Receiver) {
	var queries []harness.Query
	for _, name := range c.writer.Names(t) {
		queries = append(queries, c.query(harness.MustMatchers(t, "__name__", "=", name)))
	}
	for _, as := range harness.AnswerTypes() {
		c.equal(t, r, as, queries...)
	}
}

// equal compares answers to queries, which must not all be empty.
func (c *comparison) equal(t *testing.T, r harness.Receiver, as prompb.ReadRequest_ResponseType, queries ...harness.Query) {
	t.Helper()
	want, err := harness.Read(c.writer.URL("/api/v1/read"), as, queries...)
	if err != nil {
		t.Fatal(err)
	}
	got, err := harness.Read(r.URL("/api/v1/read"), as, queries...)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i := range queries {
		found += len(want[i])
		if d := harness.DiffSeries(transmitted(r.Protocol, got[i]), transmitted(r.Protocol, want[i])); d != "" {
			t.Errorf("%v %v:\n%s", as, queries[i].Matchers, d)
		}
	}
	if found == 0 {
		t.Errorf("%v: Prometheus has nothing for %v", as, queries[0].Matchers)
	}
}

// A selection is a way to find series.
type selection struct {
	name     string
	matchers []string
}

func selections() []selection {
	return []selection{
		{"name", []string{"__name__", "=", "up"}},
		{"label without a name", []string{"job", "=", "prometheus"}},
		{"two labels", []string{"job", "=", "awkward", "kind", "=", "counter"}},
		{"absent label equals empty", []string{"__name__", "=", "awkward", "kind", "=", ""}},
		{"label before the name", []string{"Upper", "=", "sorts before the name"}},
		{"label value with separators", []string{"kind", "=", "a,b=c\\d\"e\nf"}},
		{"label name in utf-8", []string{"dot.ted", "=", "ä €"}},
		{"not equal", []string{"job", "!=", "prometheus"}},
		{"not equal, absent counts", []string{"handler", "!=", "/metrics", "job", "=", "prometheus"}},
		{"not empty", []string{"handler", "!=", ""}},
		{"regex", []string{"__name__", "=~", "prometheus_.*"}},
		{"regex of literals", []string{"__name__", "=~", "up|scrape_duration_seconds|awkward"}},
		{"regex with a prefix", []string{"handler", "=~", "/api/.+"}},
		{"regex that accepts empty", []string{"handler", "=~", "|/metrics", "job", "=", "prometheus"}},
		{"regex of everything", []string{"job", "=~", ".*"}},
		{"regex, dot matches newline", []string{"kind", "=~", "a.*f"}},
		{"not regex", []string{"__name__", "!~", "go_.*|prometheus_.*"}},
		{"not regex, absent counts", []string{"kind", "!~", "nan|.*inf", "job", "=", "awkward"}},
		{"not regex of anything", []string{"handler", "!~", ".+", "job", "=", "prometheus"}},
		{"all four", []string{"__name__", "=~", ".*_total", "job", "=", "prometheus", "handler", "!=", "/", "code", "!~", "5.."}},
	}
}

func (c *comparison) selection(t *testing.T, r harness.Receiver, s selection) {
	q := c.query(harness.MustMatchers(t, s.matchers...))
	for _, as := range harness.AnswerTypes() {
		c.equal(t, r, as, q)
	}
}

// boundaries asks for ranges that begin and end on a sample, and for one
// between two.
func (c *comparison) boundaries(t *testing.T, r harness.Receiver) {
	ms := harness.MustMatchers(t, "__name__", "=", "up", "job", "=", "prometheus")
	all := harness.MustRead(t, c.writer.URL("/api/v1/read"), harness.Streamed, c.query(ms))[0].Points
	a, b := all[len(all)/2].T, all[len(all)/2+1].T
	for _, as := range harness.AnswerTypes() {
		c.equal(t, r, as, harness.Query{Mint: a, Maxt: a, Matchers: ms}, harness.Query{Mint: a, Maxt: b, Matchers: ms}, harness.Query{Mint: a + 1, Maxt: b, Matchers: ms}, harness.Query{Mint: a, Maxt: b - 1, Matchers: ms}, harness.Query{Mint: a + 1, Maxt: b - 1, Matchers: ms})
	}
}

// promql asks both Prometheus the same.
func (c *comparison) promql(t *testing.T, r harness.Receiver) {
	c.reader.Configure(t, harness.ReadConfig(r.Adapter))
	ranged := expressions()
	if r.Protocol.Name == harness.RemoteWrite2().Name {
		ranged = append(ranged, customBuckets()...)
	}
	for _, expr := range ranged {
		want, err := c.writer.Ranged(expr, c.mint, c.maxt)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.reader.Ranged(expr, c.mint, c.maxt)
		if err := harness.SameElements(got, want, err); err != nil {
			t.Errorf("range query %s: %v", expr, err)
		}
	}
	c.seriesAPI(t)
	for _, expr := range append(expressions(), rawVectors()...) {
		want, err := c.writer.Instant(expr, c.maxt)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.reader.Instant(expr, c.maxt)
		if err := harness.SameElements(got, want, err); err != nil {
			t.Errorf("instant query %s: %v", expr, err)
		}
	}
}

// seriesAPI asks for series without samples.
func (c *comparison) seriesAPI(t *testing.T) {
	params := url.Values{"match[]": {`{job="awkward"}`, "up"}, "start": {harness.FormatSeconds(c.mint)}, "end": {harness.FormatSeconds(c.maxt)}}
	want, err := c.writer.API("/api/v1/series", params)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.reader.API("/api/v1/series", params)
	if err != nil || !bytes.Equal(got, want) || len(want) < 100 {
		t.Errorf("series: %v\ngot  %s\nwant %s", err, got, want)
	}
}

func expressions() []string {
	return []string{
		`up`,
		`timestamp(up)`,
		`{job="prometheus"}`,
		`{__name__=~"scrape_.*|awkward.*"}`,
		`{"a name.with/utf-8 \\ , = signs"}`,
		`awkward{kind!~"nan|.*inf"}`,
		`count({__name__!="",job!="converted"})`,
		`count by (__name__, job) ({__name__=~".+",job!="converted"})`,
		`sum by (job) (scrape_samples_scraped)`,
		`rate(prometheus_http_requests_total[10s])`,
		`sum without (le) (increase(prometheus_http_request_duration_seconds_bucket[10s]))`,
		`histogram_quantile(0.9, sum by (le) (prometheus_http_request_duration_seconds_bucket))`,
		`max_over_time(awkward{kind="counter"}[5s]) - min_over_time(awkward{kind="counter"}[5s])`,
		`avg_over_time(go_goroutines[5s] offset 2s)`,
		`count_over_time(awkward_sometimes[5s])`,
		`present_over_time(awkward_sometimes[3s])`,
		`topk(3, go_memstats_alloc_bytes)`,
		`absent(nothing_has_this_name)`,
		`max_over_time(rate(process_cpu_seconds_total[5s])[5s:1s])`,
		`scrape_samples_scraped * on (instance, job) group_left up`,
		`histogram_quantile(0.9, rate(modern_seconds[5s]))`,
		`histogram_count(modern_seconds) / histogram_sum(modern_seconds)`,
	}
}

// customBuckets are expressions over histograms with custom buckets.
func customBuckets() []string {
	return []string{
		`sum by (handler) (rate(prometheus_http_request_duration_seconds{job="converted"}[5s]))`,
		`{job="converted"}`,
	}
}

// rawVectors are answered with samples as they are stored, staleness markers
// apart.
func rawVectors() []string {
	return []string{
		`{job="awkward"}[5m]`,
		`{job="prometheus"}[5m]`,
		`{__name__="up"}[5m]`,
		`{__name__=~"go_.*"}[5m]`,
		`{job="modern"}[5m]`,
	}
}
