package realprometheus

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// An estimated is what the test reads of adapter estimate --json.
type estimated struct {
	Measured struct {
		Series           float64 `json:"series"`
		SamplesPerSecond float64 `json:"samples_per_second"`
		HistogramShare   float64 `json:"native_histogram_share"`
		LabelTexts       float64 `json:"label_values_and_names"`
		KeyBytes         float64 `json:"key_bytes_per_series"`
		Payload          float64 `json:"payload_bytes_per_float"`
	} `json:"measured"`
	ChunkOverhead float64 `json:"chunk_overhead_bytes"`
	IndexRows     float64 `json:"index_rows_per_series"`
	Direct        struct {
		Mutations struct {
			Metric, Total float64
		} `json:"mutations_per_day"`
	} `json:"bigtable_direct"`
}

// TestEstimate compares what adapter estimate says of a Prometheus with what adapters count
// that the same Prometheus writes to: for each sample and each series, not for a time.
func TestEstimate(t *testing.T) {
	t.Parallel()
	const samples = 80 // of each series, before the estimate
	direct := harness.StartAdapter(t, harness.InProcess(t), "--current.flush-interval=24h", "--no-seal.enabled")
	b := harness.InProcess(t)
	buffered := harness.StartAdapter(t, harness.WithBuffer(b, t.TempDir()), "--current.flush-interval=24h")
	p := harness.StartPrometheus(t)
	var write strings.Builder
	write.WriteString("remote_write:\n")
	for _, a := range []*harness.Adapter{direct, buffered} {
		// A request is part of a scrape: it has each series once.
		fmt.Fprintf(&write, "  - url: %s\n    metadata_config: {send: false}\n    queue_config: {max_samples_per_send: 100, max_shards: 1, batch_send_deadline: 200ms}\n", a.URL("/api/v1/write"))
	}
	p.Configure(t, "scrape_configs:\n  - job_name: known\n    scrape_interval: 200ms\n    scrape_timeout: 200ms\n    static_configs: [{targets: ['"+startKnown(t)+"']}]\n"+write.String())
	harness.Eventually(t, "there are enough samples", func() error {
		found, err := p.Instant(fmt.Sprintf(`count_over_time(known_gauge{shelf="0"}[1h]) >= %d`, samples), harness.NowMillis())
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("fewer than %d", samples)
		}
		return err
	})
	code, output := harness.RunCommand(t, harness.Backend{}, "estimate", "--prometheus="+p.URL(""), "--json", "--measure-for=2s")
	var e estimated
	if err := json.Unmarshal([]byte(output[max(0, strings.Index(output, "\n{\n")):]), &e); code != 0 || err != nil {
		t.Fatalf("code %d, %v:\n%s", code, err, output)
	}

	p.Configure(t, write.String()) // No scrape any more.
	var count float64
	harness.Eventually(t, "all samples are written", func() error {
		count = metricOf(t, p.URL("/metrics"), `prometheus_tsdb_head_samples_appended_total{type="float"}`)
		for _, a := range []*harness.Adapter{direct, buffered} {
			if got := metricOf(t, a.URL("/metrics"), `adapter_engine_appended_samples_total{result="success"}`); got != count {
				return fmt.Errorf("%v, want %v", got, count)
			}
		}
		return nil
	})
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= 0.15*want) {
			t.Errorf("%s: the estimate is %v, counted were %v", what, got, want)
		}
		t.Logf("%s: estimate %.4g, counted %.4g", what, got, want)
	}
	mutations := func(table string) float64 {
		return metricOf(t, direct.URL("/metrics"), `adapter_bigtable_mutations_total{result="success",table="`+table+`"}`)
	}
	known := direct.Metric(t, "adapter_index_known_series") // in an index period, of which there may be two
	near("series", e.Measured.Series, direct.Metric(t, "adapter_engine_known_series"))
	near("rows of METRIC for a sample", e.Direct.Mutations.Metric/(e.Measured.SamplesPerSecond*86400), mutations("METRIC")/count)
	near("rows of INDEX for a series", e.IndexRows+e.Measured.LabelTexts/e.Measured.Series, mutations("INDEX")/known)

	buffered.Terminate(t) // All chunks are in the store.
	reader := harness.StartAdapter(t, b, "--no-buffer.enabled", "--no-seal.enabled", "--buffer.path="+t.TempDir())
	bytesRead := func() float64 {
		return metricOf(t, reader.URL("/metrics"), `adapter_bigtable_bytes_total{op="read",table="METRIC"}`)
	}
	rowsRead := func() float64 {
		return metricOf(t, reader.URL("/metrics"), `adapter_bigtable_rows_total{table="METRIC"}`)
	}
	bytes, rows := bytesRead(), rowsRead()
	// Without a range, a batch is expected to be larger than it is, and read twice.
	found := harness.MustRead(t, reader.URL("/api/v1/read"), harness.Streamed, harness.Query{Mint: harness.NowMillis() - 3_600_000, Maxt: harness.NowMillis(), Matchers: harness.MustMatchers(t, "__name__", "=~", ".+")})
	chunks := 0.
	for _, s := range found {
		window := int64(-1)
		for _, point := range s.Points {
			if w := point.T / harness.ChunkWindow; w != window {
				chunks, window = chunks+1, w
			}
		}
	}
	near("bytes of all chunks and keys", (rowsRead()-rows)*(e.Measured.KeyBytes+14)+chunks*e.ChunkOverhead+count*e.Measured.Payload, bytesRead()-bytes)
	if e.Measured.HistogramShare != 0 || chunks < 300 {
		t.Errorf("%v native histograms, %v chunks", e.Measured.HistogramShare, chunks)
	}
}

// metricOf returns the value of a series at the address of metrics.
func metricOf(t testing.TB, url, series string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(harness.MustGet(t, url, nil).Body)
	if m == nil {
		t.Fatalf("no metric %s", series)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// startKnown serves 300 series of three metrics.
func startKnown(t testing.TB) string {
	var scrapes atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := scrapes.Add(1)
		fmt.Fprintln(w, "# TYPE known_total counter\n# TYPE known_gauge gauge\n# TYPE known_constant gauge")
		for i := range int64(100) {
			fmt.Fprintf(w, "known_total{shelf=\"%d\",warehouse=\"north-%d\",zone=\"a\"} %d\n", i, i%7, n*i)
			fmt.Fprintf(w, "known_gauge{shelf=\"%d\"} %g\n", i, math.Round(100*math.Sin(float64(n*(i+1))))/4)
			fmt.Fprintf(w, "known_constant{shelf=\"%d\",kind=\"constant\"} 1\n", i)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
