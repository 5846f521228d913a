package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/remotetest"
)

// rangeAnswer returns the series of a range query, how many there are by the header, and the warnings.
func rangeAnswer(t *testing.T, f *fixture, query, limit string) (series []any, found string, warnings []string) {
	t.Helper()
	resp, err := http.Get(f.url + "/api/v1/query_range?" + params("query", query, "limit", limit, "start", at(-300), "end", at(0), "step", "60").Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Data     struct{ Result []any }
		Warnings []string
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v: %s", query, resp.StatusCode, err, text)
	}
	return answer.Data.Result, resp.Header.Get("X-Promtable-Series"), answer.Warnings
}

// TestLimit: a range query with a limit has the first series of the one without, a warning if there
// are more, and the number of all. It is so whether it is evaluated while series are read or not.
func TestLimit(t *testing.T) {
	f := serve(t, nil)
	f.fill(t)
	for _, query := range []string{`up`, `rate(up[5m])`, `up > 5`, `-up`, `sum by (n) (up)`, `label_replace(up, "x", "$1", "n", "(.*)")`, `up * on (n) up`, `vector(1)`, `none`} {
		all, none, _ := rangeAnswer(t, f, query, "0")
		if none != "" {
			t.Errorf("%s without a limit has the header %s", query, none)
		}
		for _, limit := range []int{1, 3, 9, 10, 11, 1 << 62} {
			got, found, warnings := rangeAnswer(t, f, query, strconv.Itoa(limit))
			if want := all[:min(limit, len(all))]; !reflect.DeepEqual(got, want) {
				t.Errorf("%s with limit %d:\n%v, want\n%v", query, limit, got, want)
			}
			if found != strconv.Itoa(len(all)) || (len(warnings) > 0) != (limit < len(all)) {
				t.Errorf("%s with limit %d: %s found, want %d; warnings %q", query, limit, found, len(all), warnings)
			}
		}
	}
}

// TestLimitMemory: a limit bounds what a query of many series holds.
func TestLimitMemory(t *testing.T) {
	f := serve(t, func(c *api.Config, _ *engine.Config) { c.MaxMemory = found + 3*6*(9+16) }) // three series of six steps
	f.fill(t)
	ask := func(limit string) int {
		return f.ask(t, http.MethodPost, "/api/v1/query_range", params("query", "-up", "limit", limit, "start", at(-300), "end", at(0), "step", "60")).status
	}
	if got := ask("0"); got != http.StatusUnprocessableEntity {
		t.Errorf("without a limit the status is %d", got)
	}
	if got := ask("2"); got != http.StatusOK {
		t.Errorf("with a limit the status is %d", got)
	}
}

// TestLimitedRequests: requests that a limit refuses are counted by it, and mistakes in expressions are not.
func TestLimitedRequests(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := serve(t, func(a *api.Config, e *engine.Config) {
		a.Registerer, a.MaxSamples, e.Limits.MaxSeries = reg, 50, 8
	})
	f.fill(t)
	want := map[string]float64{}
	for _, tt := range []struct {
		path, query, limit string
		status             int
	}{
		{"query", `up{n=~"1|2"} * on () up{n=~"1|2"}`, "", 422},
		{"query", "up{", "", 400},
		{"query", "none", "", 200},
		{"query", `up{n=~"1|2"}`, "", 200},
		{"query_range", `sort(up{n=~"[0-6]"})`, "samples", 422},
		{"query", "up", "read", 422},
	} {
		got := f.ask(t, http.MethodGet, "/api/v1/"+tt.path, params("query", tt.query, "time", at(0), "start", at(-3000), "end", at(0), "step", "60"))
		if got.status != tt.status {
			t.Errorf("%s %s: %+v, want %d", tt.path, tt.query, got, tt.status)
		}
		if tt.limit != "" {
			want[tt.limit]++
		}
		for _, kind := range []string{"read", "samples", "memory", "total_memory", "time"} {
			if n := remotetest.Counter(t, reg, "adapter_api_limited_requests_total", "limit", kind); n != want[kind] {
				t.Errorf("after %s %s: %g by %s, want %g", tt.path, tt.query, n, kind, want[kind])
			}
		}
	}
}

// TestExemplarLimit: a limit of exemplars is obeyed, and the header says how many there are.
func TestExemplarLimit(t *testing.T) {
	f := serve(t, nil)
	var exemplars []exemplar.Exemplar
	for i := range int64(100) {
		exemplars = append(exemplars, exemplar.Exemplar{Labels: labels.FromStrings("trace_id", strconv.FormatInt(i, 10)), Value: float64(i % 10), Ts: someTime - 100_000 + i*1000, HasTs: true})
	}
	if _, err := f.engine.Append(t.Context(), []ingest.Series{{Labels: labels.FromStrings("__name__", "seen"), Exemplars: exemplars}}, nil); err != nil {
		t.Fatal(err)
	}
	ask := func(limit string) (n int, found string) {
		t.Helper()
		resp, err := http.Get(f.url + "/api/v1/query_exemplars?" + params("query", "seen", "limit", limit, "start", at(-100), "end", at(0)).Encode())
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer struct {
			Data []struct{ Exemplars []struct{ Value string } }
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d, %v", resp.StatusCode, err)
		}
		for _, s := range answer.Data {
			for _, x := range s.Exemplars {
				if n++; limit == "10" && x.Value != "9" {
					t.Errorf("an exemplar has the value %s, and its part of the time one of 9", x.Value)
				}
			}
		}
		return n, resp.Header.Get("X-Promtable-Exemplars")
	}
	for _, tt := range []struct {
		limit string
		n     int
		found string
	}{{"10", 10, "100"}, {"1000", 100, "100"}, {"", 100, ""}, {"0", 100, ""}} {
		if n, found := ask(tt.limit); n != tt.n || found != tt.found {
			t.Errorf("limit %q: %d, of %q", tt.limit, n, found)
		}
	}
	resp, err := http.Get(f.url + "/api/v1/query_exemplars?query=seen&limit=many")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a limit that is no number is answered with %d", resp.StatusCode)
	}
}
