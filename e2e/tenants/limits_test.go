package tenants

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// TestLimits: of two tenants the one over its limit is refused, in both protocols, with what it needs to know; the other one writes on. The sender
// that waits as long as it is told loses nothing.
func TestLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yml")
	text := "defaults: {max_label_value_length: 10}\noverrides: {small: {ingestion_rate: 20}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a := harness.StartAdapter(t, harness.Embedded(t), "--tenancy", "--tenancy.create", "--limits.file="+path)
	at := harness.NowMillis()
	small, other := tenant{"small", "wsmall", 1}, tenant{"other", "wother", 2}
	write := func(n tenant, p harness.Protocol, first, last int) harness.Response {
		t.Helper()
		var sent []harness.SentSeries
		for i := first; i < last; i++ {
			sent = append(sent, harness.SeriesOf(labels.FromStrings("__name__", "m", "i", strconv.Itoa(i)), harness.PointAt(at, n.value)))
		}
		resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), n.as(p.Header()), p.Encode(sent))
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	const writes, size = 6, 20
	for i := range writes {
		p := []harness.Protocol{harness.RemoteWrite1(), harness.RemoteWrite2()}[i%2]
		refused := 0
		for {
			resp := write(small, p, i*size, (i+1)*size)
			if resp.Status == http.StatusNoContent {
				break
			}
			after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
			if resp.Status != http.StatusServiceUnavailable || err != nil || after < 1 || after > 60 {
				t.Fatalf("%v, Retry-After %q", resp, resp.Header.Get("Retry-After"))
			}
			for _, part := range []string{"tenant small: more than 20 samples a second", "ingestion_rate", `20 are of "m"`} {
				if !strings.Contains(resp.Body, part) {
					t.Errorf("%s lacks %q", resp.Body, part)
				}
			}
			refused++
			if resp := write(other, p, 0, 100); resp.Status != http.StatusNoContent {
				t.Errorf("the other tenant: %v", resp)
			}
			time.Sleep(time.Duration(after) * time.Second)
		}
		if refused > 3 {
			t.Errorf("write %d was refused %d times by one that waits", i, refused)
		}
	}
	resp := small.get(t, a, "/api/v1/query", url.Values{"query": {"count(m)"}, "time": {strconv.FormatFloat(float64(at)/1000, 'f', 3, 64)}})
	if want := fmt.Sprintf(`"%d"]`, writes*size); !strings.Contains(resp.Body, want) {
		t.Errorf("%v, want %s", resp, want)
	}
	if n := a.Metric(t, `adapter_limit_exceeded_total{limit="ingestion_rate",result="refused",tenant="small"}`); n == 0 {
		t.Error("nothing was refused")
	}

	p := harness.RemoteWrite2()
	resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), other.as(p.Header()), p.Encode([]harness.SentSeries{
		harness.SeriesOf(labels.FromStrings("__name__", "good", "job", "x"), harness.PointAt(at, 1)),
		harness.SeriesOf(labels.FromStrings("__name__", "bad", "job", "eleven bytes"), harness.PointAt(at, 1)),
	}))
	if err != nil || resp.Status != http.StatusBadRequest || !strings.Contains(resp.Body, `tenant other: series {__name__="bad"`) ||
		!strings.Contains(resp.Body, "12 bytes, the limit max_label_value_length is 10") {
		t.Errorf("%v, %v", resp, err)
	}
	resp = other.get(t, a, "/api/v1/series", url.Values{"match[]": {`{__name__=~"good|bad"}`}})
	if body := resp.Body; !strings.Contains(body, "good") || strings.Contains(body, "bad") {
		t.Errorf("stored is %s", body)
	}
}

// TestSeriesLimit: over a limit of series the new ones of a write are refused with a 400, and nothing of them is stored or cached. The known ones go on, with histograms and exemplars,
// also after a restart; the count does not begin again.
func TestSeriesLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yml")
	if err := os.WriteFile(path, []byte("overrides: {small: {max_global_series_per_user: 5}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := harness.StartAdapter(t, harness.Embedded(t), "--tenancy", "--tenancy.create", "--limits.file="+path)
	at := harness.NowMillis()
	small, other := tenant{"small", "wsmall", 1}, tenant{"other", "wother", 2}
	write := func(n tenant, p harness.Protocol, last int) harness.Response {
		t.Helper()
		var sent []harness.SentSeries
		for i := range last {
			sent = append(sent, harness.SeriesOf(labels.FromStrings("__name__", "m", "i", strconv.Itoa(i)), harness.PointAt(at, n.value)))
		}
		at++
		resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), n.as(p.Header()), p.Encode(sent))
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	count := func(n tenant, want, samples int) {
		t.Helper()
		at := strconv.FormatFloat(float64(at)/1000, 'f', 3, 64)
		resp := n.get(t, a, "/api/v1/query", url.Values{"query": {"count(m)"}, "time": {at}})
		if !strings.Contains(resp.Body, fmt.Sprintf(`"%d"]`, want)) {
			t.Errorf("%s has %v, want %d", n.name, resp, want)
		}
		resp = n.get(t, a, "/api/v1/query", url.Values{"query": {"sum(count_over_time(m[1h]))"}, "time": {at}})
		if !strings.Contains(resp.Body, fmt.Sprintf(`"%d"]`, samples)) {
			t.Errorf("%s has %v, want %d samples", n.name, resp, samples)
		}
	}
	for restart := range 2 {
		for i, p := range []harness.Protocol{harness.RemoteWrite1(), harness.RemoteWrite2(), harness.RemoteWrite1()} {
			if resp := write(small, p, 5); resp.Status != http.StatusNoContent {
				t.Errorf("restart %d, write %d: %v", restart, i, resp)
			}
			resp := write(small, p, 50)
			if resp.Status != http.StatusBadRequest {
				t.Errorf("restart %d, write %d: %v", restart, i, resp)
			}
			for _, part := range []string{"tenant small: series", "there are 5 series since", "max_global_series_per_user is 5", `"m" there are most: 5`} {
				if !strings.Contains(resp.Body, part) {
					t.Errorf("%s lacks %q", resp.Body, part)
				}
			}
			if resp := write(other, p, 50); resp.Status != http.StatusNoContent {
				t.Errorf("the other tenant: %v", resp)
			}
		}
		count(small, 5, (restart+1)*30)
		count(other, 50, (restart+1)*150)
		if n := a.Metric(t, `adapter_limit_used_ratio{limit="max_global_series_per_user",tenant="small"}`); n != 1 {
			t.Errorf("used is %g", n)
		}
		if n := a.Metric(t, `adapter_write_rejected_total{reason="over_limit"}`); n != 3*45 {
			t.Errorf("%g samples are rejected", n)
		}
		a.Terminate(t)
		a.Rerun(t)
	}
}

// TestQueryLimits: of two tenants with the same samples one may ask for less. Each of its queries that asks for more says which limit it exceeds, in PromQL
// and in remote read, and a query of both tenants has the limits of both.
func TestQueryLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yml")
	text := "overrides: {small: {max_total_query_length: 1h, max_fetched_series_per_query: 3, max_held_bytes_per_query: 100000, max_query_age: 2h, max_answer_bytes_per_query: 20000}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a := harness.StartAdapter(t, harness.Embedded(t), "--tenancy", "--tenancy.create", "--limits.file="+path)
	at := harness.NowMillis()
	small, other := tenant{"small", "wsmall", 1}, tenant{"other", "wother", 2}
	p := harness.RemoteWrite1()
	var sent []harness.SentSeries
	for i := range 4 {
		sent = append(sent, harness.SeriesOf(labels.FromStrings("__name__", "m", "i", strconv.Itoa(i)), harness.PointAt(at, 1)))
	}
	for i := range 2000 {
		sent[0].Points = append(sent[0].Points, harness.PointAt(at-2000+int64(i), 1))
	}
	for _, n := range []tenant{small, other} {
		if resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), n.as(p.Header()), p.Encode(sent)); err != nil || resp.Status != http.StatusNoContent {
			t.Fatal(resp, err)
		}
	}
	now := at / 1000
	seconds := func(t int64) string { return strconv.FormatInt(t, 10) }
	for _, tt := range []struct {
		path, want string
		query      url.Values
	}{
		{"/api/v1/query", "more than 3 series are read, the limit max_fetched_series_per_query", url.Values{"query": {"m"}, "time": {seconds(now + 1)}}},
		{"/api/v1/query", "max_fetched_series_per_query", url.Values{"query": {`m{i=~"[01]"} + on(i) m{i=~"[01]"}`}, "time": {seconds(now + 1)}}},
		{"/api/v1/query", "", url.Values{"query": {`m{i="1"}`}, "time": {seconds(now + 1)}}},
		{"/api/v1/query", "more than 20000 bytes are in the answer, the limit max_answer_bytes_per_query", url.Values{"query": {`m{i="0"}[1h]`}, "time": {seconds(now + 1)}}},
		{"/api/v1/query", "", url.Values{"query": {`count_over_time(m{i="0"}[1h])`}, "time": {seconds(now + 1)}}},
		{"/api/v1/query", "the limit max_query_age of --limits.file is 2h", url.Values{"query": {`m{i="0"}`}, "time": {seconds(now - 3*3600)}}},
		{"/api/v1/query", "", url.Values{"query": {`m{i="0"}`}, "time": {seconds(now - 3600)}}},
		{"/api/v1/query_range", "the query asks for 1h1m, the limit max_total_query_length", url.Values{"query": {"m"}, "start": {seconds(now - 3660)}, "end": {seconds(now)}, "step": {"60"}}},
		{"/api/v1/query_range", "", url.Values{"query": {`m{i="1"}`}, "start": {seconds(now - 3600)}, "end": {seconds(now)}, "step": {"60"}}},
	} {
		for _, n := range []tenant{small, other, {name: "other|small"}} {
			resp := n.get(t, a, tt.path, tt.query)
			if refused := tt.want != "" && n.name != "other"; !refused && resp.Status != http.StatusOK {
				t.Errorf("%s of %s: %v", tt.query, n.name, resp)
			} else if refused && (resp.Status != http.StatusUnprocessableEntity || !strings.Contains(resp.Body, "tenant small: ") || !strings.Contains(resp.Body, tt.want)) {
				t.Errorf("%s of %s: %v, want %q", tt.query, n.name, resp, tt.want)
			}
		}
	}
	if n := a.Metric(t, `adapter_limit_exceeded_total{limit="max_fetched_series_per_query",result="refused",tenant="small"}`); n < 4 {
		t.Errorf("%v queries that read too many series were counted", n)
	}
}

// TestRelabelling: what a tenant's rules drop or change is stored so, in each protocol, from the moment on when the file has them, and of that tenant alone.
func TestRelabelling(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yml")
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("overrides: {ruled: {metric_relabel_configs: [{source_labels: [__name__], regex: \"debug_.*\", action: drop}, {regex: pod, action: labeldrop}]}}\n")
	a := harness.StartAdapter(t, harness.Embedded(t), "--tenancy", "--tenancy.create", "--limits.file="+path)
	ruled, other := tenant{"ruled", "wruled", 1}, tenant{"other", "wother", 2}
	at := harness.NowMillis()
	send := func(n tenant, p harness.Protocol) harness.Response {
		t.Helper()
		at += 1000
		resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), n.as(p.Header()), p.Encode([]harness.SentSeries{
			harness.SeriesOf(labels.FromStrings("__name__", "debug_x", "pod", "p"), harness.PointAt(at, 1)),
			harness.SeriesOf(labels.FromStrings("__name__", "m", "pod", "p1"), harness.PointAt(at, 1)),
			harness.SeriesOf(labels.FromStrings("__name__", "m", "pod", "p2"), harness.PointAt(at+1, 2)),
		}))
		if err != nil || resp.Status != http.StatusNoContent {
			t.Fatal(resp, err)
		}
		return resp
	}
	want := func(n tenant, query, want string) {
		t.Helper()
		resp := n.get(t, a, "/api/v1/query", url.Values{"query": {query}, "time": {harness.FormatSeconds(at + 1)}})
		if !strings.Contains(resp.Body, want) {
			t.Errorf("%s of %s: %s, want %s", query, n.name, resp.Body, want)
		}
	}
	for range 3 { // the series are cached in between
		for _, p := range harness.RemoteWrites() {
			if resp := send(ruled, p); p.Name == harness.RemoteWrite2().Name && resp.Header.Get("X-Prometheus-Remote-Write-Samples-Written") != "2" {
				t.Errorf("written are %q samples, want 2", resp.Header.Get("X-Prometheus-Remote-Write-Samples-Written"))
			}
			send(other, p)
		}
	}
	const none = `"result":[]`
	want(ruled, "debug_x", none)
	want(ruled, "m", `{"__name__":"m"}`)
	want(ruled, "count(m)", `"1"]`)
	want(ruled, "sum(count_over_time(m[1h]))", `"12"]`)
	want(other, "count(m)", `"2"]`)
	want(other, "sum(count_over_time(debug_x[1h]))", `"6"]`)
	if n := a.Metric(t, `adapter_relabel_dropped_samples_total{tenant="ruled"}`); n != 6 {
		t.Errorf("%v samples are dropped, want 6", n)
	}

	configure("overrides: {ruled: {metric_relabel_configs: [{target_label: new, replacement: yes}]}}\n")
	harness.Eventually(t, "series get the new label", func() error {
		for _, p := range harness.RemoteWrites() {
			send(ruled, p)
		}
		resp := ruled.get(t, a, "/api/v1/query", url.Values{"query": {`count({new="yes"})`}, "time": {harness.FormatSeconds(at + 1)}})
		if !strings.Contains(resp.Body, `"3"]`) {
			return errors.New(resp.Body)
		}
		return nil
	})
	want(ruled, `count(debug_x{new="yes"})`, `"1"]`)
	want(ruled, `count(debug_x{new=""})`, none)
}
