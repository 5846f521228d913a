package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
)

func TestCurrent(t *testing.T) {
	f := serve(t, nil)
	get := func(p url.Values) string { return string(f.ask(t, http.MethodGet, "/api/v1/current", p).Data) }
	if got, want := get(nil), `{"samples":[],"rowsRead":0,"truncated":false}`; got != want {
		t.Errorf("empty: %s, want %s", got, want)
	}
	f.fill(t)
	h := &histogram.Histogram{Count: 3, Sum: 4, Schema: 0, PositiveSpans: []histogram.Span{{Offset: 1, Length: 1}}, PositiveBuckets: []int64{3}}
	var rejected ingest.Rejected
	if _, err := f.engine.Append(t.Context(), []ingest.Series{{
		Labels: labels.FromStrings("__name__", "h"), Histograms: []ingest.Histogram{{T: someTime, H: h}},
	}}, &rejected); err != nil || rejected.Err() != nil {
		t.Fatal(err, rejected.Err())
	}
	stamp := strings.TrimRight(strings.TrimRight(at(0), "0"), ".")
	up := func(n int) string {
		return fmt.Sprintf(`{"metric":{"__name__":"up","dot.ted":"ä","job":"job%d","n":"%d"},"value":[%s,"%d"]}`, n%3, n, stamp, n)
	}
	for _, tt := range []struct {
		params url.Values
		want   string
	}{
		{params("match[]", `up{n=~"3|4"}`, "match[]", `{n="4"}`), `{"samples":[` + up(3) + "," + up(4) + `],"rowsRead":0,"truncated":false}`},
		{params("match[]", `up{n="3"}`), `{"samples":[` + up(3) + `],"rowsRead":0,"truncated":false}`},
		{params("match[]", `up{job="job0"}`, "limit", "1"), `{"samples":[` + up(0) + `],"rowsRead":0,"truncated":true}`},
		{params("match[]", `h`), `{"samples":[{"metric":{"__name__":"h"},"histogram":[` + stamp + `,{"count":"3","sum":"4","buckets":[[0,"1","2","3"]]}]}],"rowsRead":0,"truncated":false}`},
	} {
		if got := get(tt.params); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.params, got, tt.want)
		}
	}
	for _, bad := range []url.Values{params("limit", "0"), params("limit", "x"), params("limit", "10000001"), params("match[]", "up{")} {
		if got := f.ask(t, http.MethodGet, "/api/v1/current", bad); got.status != 400 || got.ErrorType != "bad_data" {
			t.Errorf("%s: %+v", bad, got)
		}
	}
	if n := f.store.samples.Load(); n != 0 {
		t.Errorf("%d scans of METRIC", n)
	}
}

// TestCurrentFails: an answer that has begun does not end as if it were whole.
func TestCurrentFails(t *testing.T) {
	f := serve(t, func(_ *api.Config, e *engine.Config) {
		e.Store = halfStore{e.Store}
		e.CurrentInterval = time.Millisecond
	})
	if got := f.ask(t, http.MethodGet, "/api/v1/current", nil); got.status != 503 || !strings.Contains(got.Error, errStore.Error()) {
		t.Errorf("before the first sample: %+v", got)
	}
	f.fill(t)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		resp, err := http.Get(f.url + "/api/v1/current")
		if err != nil {
			return // broken before the first bytes were sent
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return
		}
		if resp.StatusCode == 200 {
			t.Fatalf("the answer ended well: %s", text)
		} // else nothing is in CURRENT yet
	}
	t.Error("no answer was broken off")
}

// halfStore ends every scan of CURRENT with an error.
type halfStore struct{ bucketstore.Store }

func (s halfStore) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	err := s.Store.Scan(ctx, req, fn)
	if req.Table == bucketstore.Current {
		return errStore
	}
	return err
}

func TestStatus(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := serve(t, func(a *api.Config, e *engine.Config) {
		a.Registerer, a.Gatherer, e.Registerer = reg, reg, reg
		a.Status = api.Status{
			Version: "1.2.3", Backend: "embedded", Location: "./data", Format: 1, DirectoryFormat: "3", TablePrefix: "x_", SelfScrape: api.SelfScrape{Job: "adapter", Instance: "host:1", IntervalSeconds: 15},
			Tables: bucketstore.Tables(bucketstore.Retention{}), Wanted: bucketstore.Tables(bucketstore.KeepAll(60 * 24 * time.Hour)),
			FailingRows: func(context.Context) []bucketstore.FailingRow {
				return []bucketstore.FailingRow{{Table: bucketstore.Metric, Key: []byte("up,1297080123392"), Err: errors.New("too large"), Refused: true}}
			},
		}
	})
	f.fill(t)
	got := f.ask(t, http.MethodGet, "/api/v1/status/adapter", nil)
	const want = `{"version":"1.2.3","started":"1974-04-04T`
	const tables = `"backend":"embedded","location":"./data","format":1,"directoryFormat":"3","resourceLabels":[],"selfScrape":{"job":"adapter","instance":"host:1","intervalSeconds":15},"tables":[{"name":"x_METRIC","families":[{"name":"1h","maxAgeSeconds":0,"wantedMaxAgeSeconds":5184000},{"name":"5m","maxAgeSeconds":0,"wantedMaxAgeSeconds":5184000},`
	if text := string(got.Data); !strings.Contains(text, tables) {
		t.Errorf("got\n%s\nwant in it\n%s\n%s", text, want, tables)
	}
	const noDrift = `{"name":"x_META","families":[{"name":"m","maxAgeSeconds":0}]}`
	if text := string(got.Data); !strings.Contains(text, noDrift) {
		t.Errorf("got\n%s\nwant in it\n%s", text, noDrift)
	}
	const failing = `"failingRows":[{"table":"METRIC","key":"up,1297080123392","since":"0001-01-01T00:00:00Z","error":"too large","refused":true}]`
	if text := string(got.Data); !strings.Contains(text, failing) {
		t.Errorf("got\n%s\nwant in it\n%s", text, failing)
	}
	var status struct{ Metrics map[string]float64 }
	if err := json.Unmarshal(got.Data, &status); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		`adapter_engine_appended_samples_total{result="success"}`: 101, // an exemplar is one
		"adapter_index_known_series":                              10,
		"adapter_current_pending_series":                          10,
	} {
		if got, ok := status.Metrics[name]; !ok || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
