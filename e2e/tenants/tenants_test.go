package tenants

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/e2e/harness"
)

// header names the tenant of a request.
const header = "X-Scope-OrgID"

// A tenant is one of the test, with a word that is in all that it writes.
type tenant struct {
	name, word string
	value      float64
}

// as returns headers with those of the tenant.
func (n tenant) as(h map[string]string) map[string]string {
	if h == nil {
		h = map[string]string{}
	}
	h[header] = n.name
	return h
}

// write writes the same series as every other tenant, and some of its own.
func (n tenant) write(t testing.TB, a *harness.Adapter, p harness.Protocol, at int64) {
	t.Helper()
	point := harness.PointAt(at, n.value)
	series := []harness.SentSeries{
		harness.SeriesOf(labels.FromStrings("__name__", "same", "job", "x"), point),
		harness.SeriesOf(labels.FromStrings("__name__", "own_total", "word", n.word), point),
		harness.SeriesOf(labels.FromStrings("__name__", "metric_"+n.word, "job", "x"), point),
	}
	resp, err := harness.Post(context.Background(), a.URL("/api/v1/write"), n.as(p.Header()), p.Encode(series))
	if err != nil || resp.Status != http.StatusNoContent {
		t.Fatalf("%s writes: %v, %v", n.name, resp, err)
	}
}

// metadata writes metadata and an exemplar.
func (n tenant) metadata(t testing.TB, a *harness.Adapter, at int64) {
	t.Helper()
	req := prompb.WriteRequest{
		Timeseries: []prompb.TimeSeries{{
			Labels:    []prompb.Label{{Name: "__name__", Value: "same"}, {Name: "job", Value: "x"}},
			Samples:   []prompb.Sample{{Timestamp: at, Value: n.value}},
			Exemplars: []prompb.Exemplar{{Labels: []prompb.Label{{Name: "trace_id", Value: n.word}}, Timestamp: at, Value: 1}},
		}},
		Metadata: []prompb.MetricMetadata{{MetricFamilyName: "same", Type: prompb.MetricMetadata_GAUGE, Help: "help of " + n.word}},
	}
	body, err := req.Marshal()
	if err == nil {
		var resp harness.Response
		if resp, err = harness.Post(context.Background(), a.URL("/api/v1/write"), n.as(harness.ProtobufHeader()), harness.Compress(body)); err == nil && resp.Status != http.StatusNoContent {
			err = fmt.Errorf("%v", resp)
		}
	}
	if err != nil {
		t.Fatalf("%s writes metadata: %v", n.name, err)
	}
}

// get asks as the tenant.
func (n tenant) get(t testing.TB, a *harness.Adapter, path string, params url.Values) harness.Response {
	t.Helper()
	resp, err := harness.RoundTrip(context.Background(), http.MethodGet, a.URL(path)+"?"+params.Encode(), n.as(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// asked are requests that show what is stored: paths and parameters, and whether the answer has the word of the tenant.
func asked(at int64) map[string]struct {
	params url.Values
	tells  bool
} {
	type request = struct {
		params url.Values
		tells  bool
	}
	now, before := harness.FormatSeconds(at), harness.FormatSeconds(at-3_600_000)
	span := func(more ...string) url.Values {
		v := url.Values{"start": {before}, "end": {now}}
		for i := 0; i < len(more); i += 2 {
			v.Add(more[i], more[i+1])
		}
		return v
	}
	return map[string]request{
		"/api/v1/query":                 {url.Values{"query": {`{__name__=~".+"}`}, "time": {now}}, true},
		"/api/v1/query_range":           {span("query", `count by (word, __name__) ({__name__=~".+"})`, "step", "60"), true},
		"/api/v1/changes":               {span("query", `{__name__=~".+"}`), true},
		"/api/v1/query_exemplars":       {span("query", "same"), true},
		"/api/v1/series":                {span("match[]", `{__name__=~".+"}`), true},
		"/api/v1/labels":                {span(), false},
		"/api/v1/label/word/values":     {span(), true},
		"/api/v1/label/__name__/values": {span(), true},
		"/api/v1/metadata":              {nil, true},
		"/api/v1/metric_names":          {span(), true},
		"/api/v1/current":               {nil, true},
		"/api/v1/status/tsdb":           {nil, true},
		"/api/v1/status/store":          {nil, false},
		"/api/v1/status/adapter":        {nil, false},
		"/api/v1/status/active_queries": {nil, false},
		"/api/v1/status/usage":          {nil, false},
		"/api/v1/status/tenants":        {nil, false},
		"/api/v1/explain":               {span("match[]", `{__name__=~".+"}`), true},
		"/federate":                     {url.Values{"match[]": {`{__name__=~".+"}`}}, true},
		"/api/v1/rules":                 {nil, false},
		"/api/v1/alerts":                {nil, false},
	}
}

// check asks for all that is stored, and wants nothing of another tenant in any answer.
// In those of silent requests there may be nothing at all.
func check(t testing.TB, a *harness.Adapter, n tenant, others []tenant, at int64, silent ...string) {
	t.Helper()
	for path, r := range asked(at) {
		resp := n.get(t, a, path, r.params)
		if resp.Status != http.StatusOK || r.tells && !strings.Contains(resp.Body, n.word) && !slices.Contains(silent, path) {
			t.Errorf("%s asks %s: %d, without %s: %.500s", n.name, path, resp.Status, n.word, resp.Body)
		}
		for _, o := range others {
			if o.name != n.name && strings.Contains(resp.Body, o.word) {
				t.Errorf("%s asks %s and is told %s, which is of %s: %.500s", n.name, path, o.word, o.name, resp.Body)
			}
		}
	}
	for _, of := range []string{"samples", "rollups", "current"} {
		params := url.Values{"match[]": {`{__name__=~".+"}`}, "start": {strconv.FormatInt(at-3_600_000, 10)}, "limit": {strconv.FormatInt(at+3_600_000, 10)}, "of": {of}}
		resp, err := harness.Post(context.Background(), a.URL("/api/v1/read/rows")+"?"+params.Encode(), n.as(nil), nil)
		if err != nil || resp.Status != http.StatusOK || of != "rollups" && !strings.Contains(resp.Body, n.word) && !slices.Contains(silent, "/api/v1/"+of) {
			t.Errorf("%s asks for rows of %s: %v, %.500s", n.name, of, err, resp)
		}
		for _, o := range others {
			if o.name != n.name && strings.Contains(resp.Body, o.word) {
				t.Errorf("%s asks for rows of %s and is told %s, which is of %s", n.name, of, o.word, o.name)
			}
		}
	}
	want := strconv.FormatFloat(n.value, 'f', -1, 64)
	if resp := n.get(t, a, "/api/v1/query", url.Values{"query": {"same"}, "time": {harness.FormatSeconds(at)}}); !strings.Contains(resp.Body, `,"`+want+`"]`) {
		t.Errorf("%s: same is %s, want %s", n.name, resp.Body, want)
	}
	for _, as := range harness.AnswerTypes() {
		query := harness.Query{Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", "same")}, Mint: at - 60_000, Maxt: at}
		req, err := harness.NewRead(context.Background(), a.URL("/api/v1/read"), as, query)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(header, n.name)
		resp, err := harness.Do(http.DefaultClient, req)
		if err != nil {
			t.Fatal(err)
		}
		found, err := harness.DecodeRead(as, resp.Body, query)
		resp.Body.Close()
		if err != nil || len(found) != 1 || len(found[0]) != 1 || found[0][0].Points[len(found[0][0].Points)-1].Bits != math.Float64bits(n.value) {
			t.Errorf("%s reads %v as %s, %v, want %g", n.name, found, as, err, n.value)
		}
	}
}

// TestApart: random tenants with equal series see nothing of each other, by no request: while all write, after a kill and a replay, after a
// deletion, and after a restart.
func TestApart(t *testing.T) {
	for _, backend := range []func(testing.TB) harness.Backend{harness.Embedded, harness.Emulator} {
		b := backend(t)
		t.Run(b.Name, func(t *testing.T) { testApart(t, b) })
	}
}

func testApart(t *testing.T, b harness.Backend) {
	a := harness.StartAdapter(t, b, "--tenancy", "--tenancy.create", "--web.enable-admin-api")
	// In direct mode CURRENT lags after a kill. A deletion without an end takes exemplars that come while it is not finished.
	afterKill, afterDeletion := []string(nil), []string{"/api/v1/query_exemplars"}
	if b.Name != harness.Embedded(t).Name {
		afterKill = []string{"/federate", "/api/v1/current"}
	}
	var all []tenant
	for i, name := range []string{"a", "b", "A", "a.b", "a'b", "team-1", strings.Repeat("x", 150), "0"} {
		all = append(all, tenant{name, fmt.Sprintf("w%08x", rand.Uint32()), float64(i + 1)})
	}
	at := harness.NowMillis()
	together := func(do func(n tenant)) {
		var running sync.WaitGroup
		for _, n := range all {
			running.Go(func() { do(n) })
		}
		running.Wait()
	}
	together(func(n tenant) {
		for i, p := range harness.RemoteWrites() {
			n.write(t, a, p, at-30_000+int64(i)*15_000)
		}
		n.metadata(t, a, at)
	})
	together(func(n tenant) { check(t, a, n, all, at) })

	a.Kill(t)
	a.Rerun(t)
	together(func(n tenant) { check(t, a, n, all, at, afterKill...) })

	// What one deletes stays with the others. A query twice: the second comes from a cache.
	first := all[0]
	resp, err := harness.RoundTrip(t.Context(), http.MethodPost, a.URL("/api/v1/admin/tsdb/delete_series")+"?"+url.Values{"match[]": {`{__name__=~".+"}`}}.Encode(), first.as(nil), nil)
	if err != nil || resp.Status != http.StatusNoContent {
		t.Fatal(resp, err)
	}
	for range 2 {
		if resp := first.get(t, a, "/api/v1/query", url.Values{"query": {`{__name__=~".+"}`}, "time": {harness.FormatSeconds(at)}}); strings.Contains(resp.Body, first.word) {
			t.Errorf("after its deletion: %s", resp.Body)
		}
		for _, n := range all[1:] {
			check(t, a, n, all, at, afterKill...)
		}
	}
	later := harness.NowMillis() // a current value that is earlier than the request for a deletion is hidden until that is done
	first.write(t, a, harness.RemoteWrite2(), later)
	first.metadata(t, a, later)
	a.Terminate(t)
	a.Rerun(t)
	together(func(n tenant) { check(t, a, n, all, later, slices.Concat(afterKill, afterDeletion)...) })
}

// TestNames: who names no tenant, or one that is none, is told so.
func TestNames(t *testing.T) {
	for _, create := range []bool{false, true} {
		args := []string{"--tenancy"}
		if create {
			args = append(args, "--tenancy.create")
		}
		a := harness.StartAdapter(t, harness.Embedded(t), args...)
		p := harness.RemoteWrite2()
		body := p.Encode([]harness.SentSeries{harness.SomeSeries()})
		status := func(name string) (read, write int) {
			h := map[string]string{header: name}
			got, err := harness.RoundTrip(t.Context(), http.MethodGet, a.URL("/api/v1/labels"), h, nil)
			if err != nil {
				t.Fatal(err)
			}
			sent := p.Header()
			sent[header] = name
			put, err := harness.Post(t.Context(), a.URL("/api/v1/write"), sent, body)
			if err != nil {
				t.Fatal(err)
			}
			return got.Status, put.Status
		}
		unknown := [2]int{http.StatusForbidden, http.StatusForbidden}
		if create {
			unknown = [2]int{http.StatusOK, http.StatusNoContent}
		}
		for name, want := range map[string][2]int{
			"":        {http.StatusUnauthorized, http.StatusUnauthorized},
			"new":     unknown,
			"../etc":  {http.StatusBadRequest, http.StatusBadRequest},
			"..":      {http.StatusBadRequest, http.StatusBadRequest},
			"a/b":     {http.StatusBadRequest, http.StatusBadRequest},
			"delete":  {http.StatusBadRequest, http.StatusBadRequest},
			"a,b":     {http.StatusBadRequest, http.StatusBadRequest},
			"\u00e9":  {http.StatusBadRequest, http.StatusBadRequest},
			"new|":    {http.StatusBadRequest, http.StatusBadRequest},
			"new|a b": {http.StatusBadRequest, http.StatusBadRequest},
		} {
			if read, write := status(name); read != want[0] || write != want[1] {
				t.Errorf("create %t, tenant %q: reads are answered %d, writes %d, want %d", create, name, read, write, want)
			}
		}
	}
}

// TestSeveral: a query over several tenants finds the series of each, with its name.
func TestSeveral(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t), "--tenancy", "--tenancy.create")
	at := harness.NowMillis()
	x, y, z := tenant{"x", "wx", 1}, tenant{"y", "wy", 2}, tenant{"z", "wz", 4}
	for _, n := range []tenant{x, y, z} {
		n.write(t, a, harness.RemoteWrite1(), at)
	}
	both := tenant{name: "y|x"}
	now := harness.FormatSeconds(at)
	for query, want := range map[string]string{
		"sum(same)":                      `"3"`,
		"same":                           `{"__name__":"same","__tenant_id__":"x","job":"x"},"value":[` + harness.JSONSeconds(at) + `,"1"]},{"metric":{"__name__":"same","__tenant_id__":"y","job":"x"}`,
		`sum(same{__tenant_id__="y"})`:   `"2"`,
		"sum by (__tenant_id__) (same)":  `{"__tenant_id__":"y"}`,
		"count(max_over_time(same[1m]))": `"2"`,
	} {
		resp := both.get(t, a, "/api/v1/query", url.Values{"query": {query}, "time": {now}})
		if !strings.Contains(resp.Body, want) || strings.Contains(resp.Body, `"z"`) {
			t.Errorf("%s: %s, want %s", query, resp.Body, want)
		}
	}
	if resp := both.get(t, a, "/api/v1/label/__tenant_id__/values", nil); !strings.Contains(resp.Body, `["x","y"]`) {
		t.Errorf("tenants: %s", resp.Body)
	}
	if resp := both.get(t, a, "/api/v1/series", url.Values{"match[]": {"own_total"}}); !strings.Contains(resp.Body, "wx") || !strings.Contains(resp.Body, "wy") || strings.Contains(resp.Body, "wz") {
		t.Errorf("series: %s", resp.Body)
	}
	p := harness.RemoteWrite2()
	resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), both.as(p.Header()), p.Encode([]harness.SentSeries{harness.SomeSeries()}))
	if err != nil || resp.Status != http.StatusUnprocessableEntity {
		t.Errorf("a write to two: %v, %v", resp, err)
	}
}

// TestLabel: the label of each series of a write names its tenant, in each protocol. Series without it, and of tenants that their sender may not use, are named in the answer,
// and the others are stored.
func TestLabel(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprint("keep ", keep), func(t *testing.T) {
			args := []string{"--tenancy", "--tenancy.create", "--tenancy.from=label", "--tenancy.label=team"}
			if keep {
				args = append(args, "--tenancy.keep-label")
			}
			a := harness.StartAdapter(t, harness.Embedded(t), args...)
			at := harness.NowMillis()
			for i, p := range harness.RemoteWrites() {
				send := func(more ...harness.SentSeries) harness.Response {
					t.Helper()
					at++
					sent := []harness.SentSeries{
						harness.SeriesOf(labels.FromStrings("__name__", "m", "i", strconv.Itoa(i), "team", "x"), harness.PointAt(at, 1)),
						harness.SeriesOf(labels.FromStrings("__name__", "m", "i", strconv.Itoa(i), "team", "y"), harness.PointAt(at, 2)),
					}
					resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), p.Header(), p.Encode(append(sent, more...)))
					if err != nil {
						t.Fatal(err)
					}
					return resp
				}
				if resp := send(); resp.Status != http.StatusNoContent {
					t.Errorf("%v", resp)
				}
				for label, part := range map[string]string{"": "it has no label team", "..": "..", "a|b": "a|b"} {
					resp := send(harness.SeriesOf(labels.FromStrings("__name__", "wrong", "team", label), harness.PointAt(at, 3)))
					if resp.Status != http.StatusBadRequest || !strings.Contains(resp.Body, "wrong") || !strings.Contains(resp.Body, part) {
						t.Errorf("tenant %q: %v", label, resp)
					}
				}
			}
			for name, value := range map[string]float64{"x": 1, "y": 2} {
				team := ""
				if keep {
					team = `,"team":"` + name + `"`
				}
				n := tenant{name: name}
				for query, want := range map[string]string{
					`m{i="0"}`: fmt.Sprintf(`"metric":{"__name__":"m","i":"0"%s},"value":[%s,"%g"]`, team, harness.JSONSeconds(at), value), "count(m)": `"2"]`, "sum(count_over_time(m[1h]))": `"8"]`, "wrong": `"result":[]`,
				} {
					if resp := n.get(t, a, "/api/v1/query", url.Values{"query": {query}, "time": {harness.FormatSeconds(at)}}); !strings.Contains(resp.Body, want) {
						t.Errorf("%s of %s: %s, want %s", query, name, resp.Body, want)
					}
				}
			}
		})
	}
}
