package federate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
)

// BenchmarkFederate is the current samples of 10,000 series, from the engine to
// the bytes of the text.
func BenchmarkFederate(b *testing.B) {
	const series = 10_000
	eng := &remotetest.Engine{CurrentSamples: make([]current.Sample, series)}
	for i := range eng.CurrentSamples {
		ls := wiretest.LabelSet("__name__", fmt.Sprintf("node_metric_%03d", i/100), "instance", fmt.Sprintf("10.0.0.1:%06d", i%100), "job", "node", "cluster", "production", "device", "eth0")
		eng.CurrentSamples[i] = current.Sample{Labels: ls, T: 1_700_000_000_000, V: float64(i)}
	}
	h := remote.New(remote.Config{Engine: eng, Now: time.Now})
	target := "/federate?" + url.Values{"match[]": {`{job="node"}`}}.Encode()
	sent := 0
	b.ReportAllocs()
	for b.Loop() {
		w := &remotetest.Discard{Headers: http.Header{}}
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		sent += w.Bytes
	}
	b.ReportMetric(float64(b.N*series)/b.Elapsed().Seconds(), "samples/s")
	b.ReportMetric(float64(sent)/float64(b.N*series), "bytes/sample")
	if sent < b.N*series {
		b.Fatalf("%d bytes were sent in %d rounds", sent, b.N)
	}
}

func TestFederate(t *testing.T) {
	current := []current.Sample{
		{Labels: wiretest.LabelSet("job", "nameless"), T: 1, V: 1},
		{Labels: wiretest.LabelSet("__name__", "a_total", "instance", "i", "job", "x"), T: 1_700_000_000_123, V: 42},
		{Labels: wiretest.LabelSet("__name__", "a_total", "job", "y\n\"\\"), T: 1_700_000_000_456, V: math.Inf(-1)},
		{Labels: wiretest.LabelSet("__name__", "b.c", "d e", "f"), T: 1_700_000_000_789, V: math.NaN()},
	}
	for _, test := range []struct {
		name, accept, contentType string
		match                     []string
		status                    int
		want                      string
	}{
		{
			"text", "", "text/plain; version=0.0.4; charset=utf-8", []string{`{job=~".+"}`, `{__name__="b.c"}`}, 200,
			"# TYPE a_total untyped\n" +
				"a_total{instance=\"i\",job=\"x\"} 42 1700000000123\n" +
				"a_total{job=\"y\\n\\\"\\\\\",instance=\"\"} -Inf 1700000000456\n" +
				"# TYPE b_c untyped\n" +
				"b_c{d_e=\"f\",instance=\"\"} NaN 1700000000789\n",
		},
		{
			"text with UTF-8", "text/plain;version=0.0.4;escaping=allow-utf-8", "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8", []string{`{"b.c"}`}, 200,
			"# TYPE \"b.c\" untyped\n" +
				"{\"b.c\",\"d e\"=\"f\",instance=\"\"} NaN 1700000000789\n",
		},
		{
			"OpenMetrics", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text; version=1.0.0; charset=utf-8", []string{"a_total"}, 200,
			"# TYPE a_total unknown\n" +
				"a_total{instance=\"i\",job=\"x\"} 42.0 1.700000000123e+09\n" +
				"a_total{job=\"y\\n\\\"\\\\\",instance=\"\"} -Inf 1.700000000456e+09\n" +
				"# EOF\n",
		},
		{"nothing found", "", "text/plain; version=0.0.4; charset=utf-8", []string{"nothing"}, 200, ""},
		{"nothing found, OpenMetrics", "application/openmetrics-text;version=1.0.0", "application/openmetrics-text; version=1.0.0; charset=utf-8", []string{"nothing"}, 200, "# EOF\n"},
		{"no match[]", "", "text/plain; version=0.0.4; charset=utf-8", nil, 200, ""},
		{"bad match[]", "", "text/plain; charset=utf-8", []string{"a_total", "{"}, 400, "parse match[]: "},
		{"bad regex", "", "text/plain; charset=utf-8", []string{`{job=~"("}`}, 400, "parse match[]: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			var mint int64
			eng := &remotetest.Engine{CurrentSamples: current, OnCurrent: func(_ context.Context, m int64) error {
				mint = m
				return nil
			}}
			base, _ := remotetest.Serve(t, eng, func(cfg *remote.Config) { cfg.Now = func() time.Time { return time.UnixMilli(1_000_000) } })
			got := remotetest.Send(t, http.MethodGet, base+"/federate?"+url.Values{"match[]": test.match}.Encode(), http.Header{"Accept": {test.accept}}, nil)
			got.WantStatus(t, test.status)
			if test.status == 200 && got.Body != test.want || !strings.HasPrefix(got.Body, test.want) {
				t.Errorf("body\n%s\nwant\n%s", got.Body, test.want)
			}
			if have := strings.TrimSuffix(got.Header.Get("Content-Type"), "; escaping=underscores"); have != test.contentType {
				t.Errorf("content type %q, want %q", have, test.contentType)
			}
			if test.status == 200 && test.match != nil && mint != 700_000 {
				t.Errorf("looks back to %d", mint)
			}
		})
	}
}

// TestFederateMetadata parses what is written as a scraper does.
func TestFederateMetadata(t *testing.T) {
	h := &histogram.Histogram{Count: 5, Sum: 7, Schema: 1, PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}}, PositiveBuckets: []int64{2, 1}}
	custom := &histogram.Histogram{Count: 1, Schema: histogram.CustomBucketsSchema, CustomValues: []float64{1}, PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []int64{1}}
	eng := &remotetest.Engine{
		CurrentSamples: []current.Sample{
			{Labels: wiretest.LabelSet("__name__", "a_total"), T: 1, V: 1},
			{Labels: wiretest.LabelSet("__name__", "counts"), T: 1, V: 2},
			{Labels: wiretest.LabelSet("__name__", "custom"), T: 1, H: custom},
			{Labels: wiretest.LabelSet("__name__", "gauge"), T: 1, V: 3},
			{Labels: wiretest.LabelSet("__name__", "h"), T: 1, V: 4},
			{Labels: wiretest.LabelSet("__name__", "h"), T: 1, H: h},
			{Labels: wiretest.LabelSet("__name__", "h", "x", "y"), T: 1, FH: h.ToFloat(nil)},
			{Labels: wiretest.LabelSet("__name__", "old_bucket", "le", "1"), T: 1, V: 5},
			{Labels: wiretest.LabelSet("__name__", "old_sum"), T: 1, V: 6},
			{Labels: wiretest.LabelSet("__name__", "unknown"), T: 1, V: 7},
		},
		Families: []ingest.Metadata{
			wiretest.NewMetadata("a_total", "counter", "", "Help of\na."), wiretest.NewMetadata("counts", "counter", "", ""),
			wiretest.NewMetadata("gauge", "gauge", "s", ""), wiretest.NewMetadata("h", "histogram", "", "Native."), wiretest.NewMetadata("old", "histogram", "", "Classic."),
		},
	}
	base, _ := remotetest.Serve(t, eng, nil)
	const query = "/federate?match[]={job=~'.*'}"
	text := remotetest.Send(t, http.MethodGet, base+query, nil, nil)
	const want = `# HELP a_total Help of\na.
# TYPE a_total counter
a_total{instance=""} 1 1
# TYPE counts counter
counts{instance=""} 2 1
# TYPE gauge gauge
gauge{instance=""} 3 1
# TYPE h untyped
h{instance=""} 4 1
# HELP old_bucket Classic.
# TYPE old_bucket untyped
old_bucket{le="1",instance=""} 5 1
# HELP old_sum Classic.
# TYPE old_sum untyped
old_sum{instance=""} 6 1
# TYPE unknown untyped
unknown{instance=""} 7 1
`
	if got := strings.Replace(text.Body, "# HELP h Native.\n", "", 1); got != want {
		t.Errorf("text is\n%s\nwant\n%s", got, want)
	}
	for accept, floats := range map[string]int{
		"text/plain;version=0.0.4":                   7,
		"application/openmetrics-text;version=1.0.0": 7,
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited": 7,
	} {
		got := remotetest.Send(t, http.MethodGet, base+query, http.Header{"Accept": {accept}}, nil)
		got.WantStatus(t, 200)
		parser, err := textparse.New([]byte(got.Body), got.Header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
		if err != nil {
			t.Fatal(err)
		}
		names, histograms := map[string]model.MetricType{}, 0
		n := 0
		for {
			entry, err := parser.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", accept, err, got.Body)
			}
			switch entry {
			case textparse.EntryType:
				name, kind := parser.Type()
				names[string(name)] = kind
			case textparse.EntrySeries:
				n++
			case textparse.EntryHistogram:
				histograms++
			}
		}
		wantHistograms := 0
		if strings.Contains(accept, "protobuf") {
			wantHistograms = 2
		}
		if n != floats || histograms != wantHistograms {
			t.Errorf("%s: %d floats, %d histograms, want %d and %d\n%q", accept, n, histograms, floats, wantHistograms, got.Body)
		}
		if names["gauge"] != model.MetricTypeGauge {
			t.Errorf("%s: types %v", accept, names)
		}
	}
	eng.MetadataErr = remotetest.ErrStore
	remotetest.Send(t, http.MethodGet, base+query, nil, nil).WantStatus(t, 503)
}

func TestFederateFails(t *testing.T) {
	eng := &remotetest.Engine{OnCurrent: func(context.Context, int64) error { return remotetest.ErrStore }}
	base, reg := remotetest.Serve(t, eng, nil)
	remotetest.Send(t, http.MethodGet, base+"/federate?match[]=up", nil, nil).WantStatus(t, http.StatusServiceUnavailable)
	remotetest.WantCounter(t, reg, 1, "adapter_http_requests_total", "handler", "federate", "code", "503")
}

// TestFederateMaxMatches: the number of match[] is bounded.
func TestFederateMaxMatches(t *testing.T) {
	base, _ := remotetest.Serve(t, &remotetest.Engine{}, func(cfg *remote.Config) { cfg.MaxQueries = 3 })
	get := func(n int) remotetest.Answer {
		params := url.Values{}
		for i := range n {
			params.Add("match[]", fmt.Sprint("up", i))
		}
		return remotetest.Send(t, http.MethodGet, base+"/federate?"+params.Encode(), nil, nil)
	}
	get(3).WantStatus(t, http.StatusOK)
	got := get(4)
	got.WantStatus(t, http.StatusBadRequest)
	if !strings.Contains(got.Body, "4 match[] parameters, the limit is 3") {
		t.Errorf("text %q", got.Body)
	}
}

// TestFederateLongSelector: a selector beyond a limit is not parsed.
func TestFederateLongSelector(t *testing.T) {
	base, _ := remotetest.Serve(t, &remotetest.Engine{}, nil)
	params := url.Values{"match[]": {"{" + strings.Repeat("a='b',", 10_001) + "}"}}
	got := remotetest.Send(t, http.MethodGet, base+"/federate?"+params.Encode(), nil, nil)
	got.WantStatus(t, http.StatusBadRequest)
	if !strings.Contains(got.Body, "10000 matchers") {
		t.Errorf("text %q", got.Body)
	}
}
