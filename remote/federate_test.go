package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine"
)

func TestFederate(t *testing.T) {
	current := []engine.CurrentSample{
		{Labels: lset("job", "nameless"), T: 1, V: 1},
		{Labels: lset("__name__", "a_total", "instance", "i", "job", "x"), T: 1_700_000_000_123, V: 42},
		{Labels: lset("__name__", "a_total", "job", "y\n\"\\"), T: 1_700_000_000_456, V: math.Inf(-1)},
		{Labels: lset("__name__", "b.c", "d e", "f"), T: 1_700_000_000_789, V: math.NaN()},
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
			eng := &fakeEngine{current: current, onCurrent: func(_ context.Context, m int64) error {
				mint = m
				return nil
			}}
			base, _ := serve(t, eng, func(cfg *remote.Config) { cfg.Now = func() time.Time { return time.UnixMilli(1_000_000) } })
			got := send(t, http.MethodGet, base+"/federate?"+url.Values{"match[]": test.match}.Encode(), http.Header{"Accept": {test.accept}}, nil)
			got.wantStatus(t, test.status)
			if test.status == 200 && got.body != test.want || !strings.HasPrefix(got.body, test.want) {
				t.Errorf("body\n%s\nwant\n%s", got.body, test.want)
			}
			if have := strings.TrimSuffix(got.header.Get("Content-Type"), "; escaping=underscores"); have != test.contentType {
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
	eng := &fakeEngine{
		current: []engine.CurrentSample{
			{Labels: lset("__name__", "a_total"), T: 1, V: 1},
			{Labels: lset("__name__", "counts"), T: 1, V: 2},
			{Labels: lset("__name__", "custom"), T: 1, H: custom},
			{Labels: lset("__name__", "gauge"), T: 1, V: 3},
			{Labels: lset("__name__", "h"), T: 1, V: 4},
			{Labels: lset("__name__", "h"), T: 1, H: h},
			{Labels: lset("__name__", "h", "x", "y"), T: 1, FH: h.ToFloat(nil)},
			{Labels: lset("__name__", "old_bucket", "le", "1"), T: 1, V: 5},
			{Labels: lset("__name__", "old_sum"), T: 1, V: 6},
			{Labels: lset("__name__", "unknown"), T: 1, V: 7},
		},
		metadata: []engine.Metadata{
			newMetadata("a_total", "counter", "", "Help of\na."), newMetadata("counts", "counter", "", ""),
			newMetadata("gauge", "gauge", "s", ""), newMetadata("h", "histogram", "", "Native."), newMetadata("old", "histogram", "", "Classic."),
		},
	}
	base, _ := serve(t, eng, nil)
	const query = "/federate?match[]={job=~'.*'}"
	text := send(t, http.MethodGet, base+query, nil, nil)
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
	if got := strings.Replace(text.body, "# HELP h Native.\n", "", 1); got != want {
		t.Errorf("text is\n%s\nwant\n%s", got, want)
	}
	for accept, floats := range map[string]int{
		"text/plain;version=0.0.4":                   7,
		"application/openmetrics-text;version=1.0.0": 7,
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited": 7,
	} {
		got := send(t, http.MethodGet, base+query, http.Header{"Accept": {accept}}, nil)
		got.wantStatus(t, 200)
		parser, err := textparse.New([]byte(got.body), got.header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
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
				t.Fatalf("%s: %v\n%s", accept, err, got.body)
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
			t.Errorf("%s: %d floats, %d histograms, want %d and %d\n%q", accept, n, histograms, floats, wantHistograms, got.body)
		}
		if names["gauge"] != model.MetricTypeGauge {
			t.Errorf("%s: types %v", accept, names)
		}
	}
	eng.metadataErr = errStore
	send(t, http.MethodGet, base+query, nil, nil).wantStatus(t, 503)
}

func TestFederateFails(t *testing.T) {
	eng := &fakeEngine{onCurrent: func(context.Context, int64) error { return errStore }}
	base, reg := serve(t, eng, nil)
	send(t, http.MethodGet, base+"/federate?match[]=up", nil, nil).wantStatus(t, http.StatusServiceUnavailable)
	wantCounter(t, reg, 1, "adapter_http_requests_total", "handler", "federate", "code", "503")
}

// explained is the envelope of an answer.
type explained struct {
	Status, ErrorType, Error string
	Data                     []engine.Explanation
}

func TestExplain(t *testing.T) {
	const now = 1_700_000_000_000
	params := func(pairs ...string) url.Values {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Add(pairs[i], pairs[i+1])
		}
		return v
	}
	for _, test := range []struct {
		name       string
		params     url.Values
		err        error
		status     int
		errorType  string
		text       string
		n          int
		mint, maxt int64
	}{
		{name: "defaults", params: params("match[]", "up"), status: 200, n: 1, mint: now - 3_600_000, maxt: now},
		{name: "two selectors", params: params("match[]", "up", "match[]", `{job="a"}`), status: 200, n: 2, mint: now - 3_600_000, maxt: now},
		{name: "seconds", params: params("match[]", "up", "start", "1.5", "end", "2.0005"), status: 200, n: 1, mint: 1500, maxt: 2001},
		{name: "negative", params: params("match[]", "up", "start", "-1e9", "end", "0"), status: 200, n: 1, mint: -1e12, maxt: 0},
		{name: "RFC 3339", params: params("match[]", "up", "start", "2023-11-14T22:13:20Z", "end", "2023-11-14T23:13:20.001+00:00"), status: 200, n: 1, mint: now, maxt: now + 3_600_001},
		{name: "start before an end given", params: params("match[]", "up", "end", "7200"), status: 200, n: 1, mint: 3_600_000, maxt: 7_200_000},
		{name: "no match[]", params: params("start", "1"), status: 400, errorType: "bad_data", text: "no match[] parameter"},
		{name: "bad match[]", params: params("match[]", "{"), status: 400, errorType: "bad_data", text: `invalid parameter "match[]"`},
		{name: "bad start", params: params("match[]", "up", "start", "yesterday"), status: 400, errorType: "bad_data", text: `invalid parameter "start"`},
		{name: "NaN", params: params("match[]", "up", "end", "NaN"), status: 400, errorType: "bad_data", text: `invalid parameter "end"`},
		{name: "too far", params: params("match[]", "up", "end", "1e300"), status: 400, errorType: "bad_data", text: `invalid parameter "end"`},
		{name: "start after end", params: params("match[]", "up", "start", "2", "end", "1"), status: 400, errorType: "bad_data", text: "before the start"},
		{name: "limit", params: params("match[]", "up"), err: engine.ErrLimit, status: 400, errorType: "bad_data", text: engine.ErrLimit.Error()},
		{name: "store", params: params("match[]", "up"), err: errStore, status: 503, errorType: "unavailable", text: errStore.Error()},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(test.name+"/"+method, func(t *testing.T) {
				eng := &fakeEngine{onExplain: func(context.Context, engine.Query) error { return test.err }}
				base, _ := serve(t, eng, func(cfg *remote.Config) { cfg.Now = func() time.Time { return time.UnixMilli(now) } })
				target, header, body := base+"/api/v1/explain?"+test.params.Encode(), http.Header{}, ""
				if method == http.MethodPost {
					target, body = base+"/api/v1/explain", test.params.Encode()
					header.Set("Content-Type", "application/x-www-form-urlencoded")
				}
				got := send(t, method, target, header, []byte(body))
				got.wantStatus(t, test.status)
				var e explained
				if err := json.Unmarshal([]byte(got.body), &e); err != nil {
					t.Fatalf("%v: %s", err, got.body)
				}
				if e.ErrorType != test.errorType || !strings.Contains(e.Error, test.text) || len(e.Data) != test.n || (e.Status == "success") != (test.status == 200) {
					t.Errorf("answer %s", got.body)
				}
				for _, x := range e.Data {
					if x.Mint != test.mint || x.Maxt != test.maxt {
						t.Errorf("range [%d, %d], want [%d, %d]", x.Mint, x.Maxt, test.mint, test.maxt)
					}
				}
				if contentType := got.header.Get("Content-Type"); contentType != "application/json" {
					t.Errorf("content type %q", contentType)
				}
			})
		}
	}
}

// TestExplainSelector: the engine gets the matchers of the selector.
func TestExplainSelector(t *testing.T) {
	var got string
	eng := &fakeEngine{onExplain: func(_ context.Context, q engine.Query) error {
		for _, m := range q.Matchers {
			got += m.String() + ";"
		}
		return nil
	}}
	base, _ := serve(t, eng, nil)
	send(t, http.MethodGet, base+"/api/v1/explain?"+url.Values{"match[]": {`up{job!~"a|b"}`}}.Encode(), nil, nil).wantStatus(t, 200)
	if want := `job!~"a|b";` + labels.MustNewMatcher(labels.MatchEqual, "__name__", "up").String() + ";"; got != want {
		t.Errorf("matchers %s, want %s", got, want)
	}
}
