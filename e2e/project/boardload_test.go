package project

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// loadLimits let one tenant exceed a limit, and another one exceed a limit that is only tracked.
const loadLimits = `
defaults: {ingestion_rate: 1000000}
overrides:
  small: {ingestion_rate: 20}
  long: {max_label_value_length: 3, track: [max_label_value_length]}
`

// loadRules are those of tenant small. One fails, and alerts go to an Alertmanager that refuses them.
const loadRules = `
groups:
- name: load
  interval: 1s
  query_offset: 0s
  rules:
  - {record: "load:count", expr: count(load)}
  - {record: "load:wrong", expr: "load * on () load"}
  - {alert: Load, expr: "load > 0"}
`

// startLoaded starts an adapter that stores its own metrics each second. If b is for Bigtable it is one on Google's fake, otherwise one on an
// embedded store with tenants, limits and HA pairs.
func startLoaded(t testing.TB, onBigtable bool, args ...string) *harness.Adapter {
	t.Helper()
	args = append(args, "--self-scrape-interval=1s")
	if onBigtable {
		return harness.StartAdapter(t, harness.InProcess(t), args...)
	}
	path := filepath.Join(t.TempDir(), "limits.yml")
	if err := os.WriteFile(path, []byte(loadLimits), 0o600); err != nil {
		t.Fatal(err)
	}
	rules := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(rules, []byte(loadRules), 0o600); err != nil {
		t.Fatal(err)
	}
	alertmanager := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(alertmanager.Close)
	s3 := harness.StartObjects(t)
	b := harness.Embedded(t)
	b.Env = s3.Env()
	args = append(args, "--snapshot.bucket=s3://"+s3.Bucket, "--tenancy", "--tenancy.create", "--limits.file="+path, "--rules.file=small:"+rules, "--rules.reevaluate=5s", "--alertmanager.url="+alertmanager.URL, "--heal.from=small="+alertmanager.URL, "--retention.resolution-raw=90d",
		"--ha.cluster-label=cluster", "--ha.replica-label=__replica__")
	return harness.StartAdapter(t, b, args...)
}

// ofTenant are the headers of a request of a tenant.
func ofTenant(name string, header map[string]string) map[string]string {
	if header == nil {
		header = make(map[string]string)
	}
	header["X-Scope-OrgID"] = name
	return header
}

// putLoad writes and reads once, of each kind of request. The answers may be errors: those of limits are.
func putLoad(a *harness.Adapter) error {
	writes := map[string][]harness.SentSeries{}
	for i := range 40 {
		for _, name := range []string{"small", "long"} {
			ls := labels.FromStrings("__name__", "load", "i", strconv.Itoa(i), "long", strings.Repeat("x", 10))
			writes[name] = append(writes[name], harness.SeriesOf(ls, harness.PointAt(harness.NowMillis(), 1)))
		}
	}
	for _, replica := range []string{"a", "b"} {
		ls := labels.FromStrings("__name__", "load", "cluster", "c", "__replica__", replica)
		writes["pair-"+replica] = append(writes["pair-"+replica], harness.SeriesOf(ls, harness.PointAt(harness.NowMillis(), 1)))
	}
	for name, sent := range writes {
		for _, p := range harness.RemoteWrites() {
			name, _, _ = strings.Cut(name, "-") // both replicas are of one tenant
			if _, err := harness.Post(context.Background(), a.URL("/api/v1/write"), ofTenant(name, p.Header()), p.Encode(sent)); err != nil {
				return err
			}
		}
	}
	for _, path := range []string{"/api/v1/query?query=load", "/api/v1/labels", "/federate?match[]=load", "/api/v1/explain?match[]=load"} {
		if _, err := harness.RoundTrip(context.Background(), http.MethodGet, a.URL(path), ofTenant("small", nil), nil); err != nil {
			return err
		}
	}
	return nil
}

// instant returns the values that a query of the adapter's own metrics finds now.
func instant(a *harness.Adapter, query string) (values []float64, err error) {
	path := "/api/v1/query?" + url.Values{"query": {query}}.Encode()
	resp, err := harness.RoundTrip(context.Background(), http.MethodGet, a.URL(path), ofTenant("adapter", nil), nil)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error string
		Data  struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal([]byte(resp.Body), &answer); err != nil || answer.Error != "" {
		return nil, fmt.Errorf("%s: %v %w", query, resp, err)
	}
	for _, of := range answer.Data.Result {
		text, _ := of.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// TestBoardQueries: each query of each board finds something of an adapter that has something to do.
func TestBoardQueries(t *testing.T) {
	adapters := make(map[bool]*harness.Adapter)
	for _, onBigtable := range []bool{false, true} {
		adapters[onBigtable] = startLoaded(t, onBigtable)
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*", "$tenant", ".*")
	asked := 0
	for _, b := range boards() {
		a := adapters[b.bigtable]
		for title, query := range loadBoard(t, b.name).queries() {
			query := variables.Replace(query)
			asked++
			harness.Eventually(t, fmt.Sprintf("board %s, panel %s finds something: %s", b.name, title, query), func() error {
				if err := putLoad(a); err != nil {
					return err
				}
				values, err := instant(a, query)
				if err != nil {
					return err
				}
				for _, v := range values {
					if v == v {
						return nil
					}
				}
				return fmt.Errorf("%d values, all of them NaN", len(values))
			})
		}
	}
	if asked < 100 {
		t.Errorf("only %d queries", asked)
	}
	for _, a := range adapters {
		a.Terminate(t)
	}
}

// loadBoard reads a board from its file.
func loadBoard(t testing.TB, name string) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(mustReadFile(t, boardFile(name))), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestBoardMetrics: the metrics that dashboards ask for exist, and have variables for what is not the same everywhere.
func TestBoardMetrics(t *testing.T) {
	queries := make(map[string]string)
	for _, b := range boards() {
		d := loadBoard(t, b.name)
		for _, p := range d.Panels {
			if p.Type == "row" {
				continue
			}
			if p.Datasource.UID != "${datasource}" || p.Title == "" || len(p.Targets) == 0 {
				t.Errorf("%s: panel %q asks %q", b.name, p.Title, p.Datasource.UID)
			}
		}
		for title, query := range d.queries() {
			queries[b.name+" "+title] = query
			for _, matcher := range []string{`job=~"$job"`, `instance=~"$instance"`} {
				if strings.Count(query, matcher) != len(metricNames(t, query)) {
					t.Errorf("%s, panel %s: not every selector has %s: %s", b.name, title, matcher, query)
				}
			}
		}
	}
	for title, query := range loadComposition(t).loadDashboard(t).queries() {
		queries["adapter "+title] = query
	}
	checkMetrics(t, queries)
}
