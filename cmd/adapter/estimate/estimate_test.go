package estimate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// workload is what the benchmark's series are: see docs/benchmarks.md. Payload was measured with
// dense.Append on 559 samples of each of 5,000 of them, the other averages on their labels.
func workload(series float64) Measured {
	return Measured{Series: series, SamplesPerSecond: series / 15, Labels: 10.16, KeyBytes: 180.1, PostingBytes: 2218, Payload: 1.327}
}

func config() Config {
	return Config{Keep: [rollup.NumResolutions]time.Duration{0, Off, Off}, DirectCurrent: time.Minute, BufferedCurrent: 15 * time.Minute, BufferMemory: 512 << 20, BufferLog: 512 << 20,
		Adapters: 1, BigtableMemory: 2 << 30, BigtableLog: 12 << 30, WrittenSeries: 1e7, CachedSeries: 2e6, Prices: DefaultPrices}
}

// near wants that a figure is within 15 % of what was measured.
func near(t *testing.T, what string, got, measured float64) {
	t.Helper()
	if !(math.Abs(got-measured) <= 0.15*measured) {
		t.Errorf("%s: the estimate is %.4g, measured was %.4g", what, got, measured)
	}
	t.Logf("%s: estimate %.4g, measured %.4g", what, got, measured)
}

// TestBenchmarks compares estimates with the tables of docs/benchmarks.md and docs/bigtable.md.
func TestBenchmarks(t *testing.T) {
	onDisk := func(m Measured) float64 {
		e := New(m, config()).Embedded
		return (e.Kept[0].PerDay + e.Kept[3].PerDay) * 1e9 / (m.SamplesPerSecond * 86400)
	}
	near(t, "disk, twelve hours of 10,000 series, B a sample", onDisk(workload(10_000)), 1.46)
	churning := workload(20_000)
	churning.ChurnPerDay = 20_000
	near(t, "disk, churn, B a sample", onDisk(churning), 1.43)
	index := New(churning, config()).Embedded.Kept[3]
	near(t, "disk, churn, INDEX in 30 days, MB", index.PerDay*30*1000, 91)
	single := workload(1000)
	single.Payload = 0.510 // of node_cpu_seconds_total
	near(t, "disk, a month of one metric, B a sample", onDisk(single), 0.561)

	near(t, "memory, twelve hours of 10,000 series, GB", New(workload(10_000), config()).Embedded.Memory, 0.172)
	fewSamples := config()
	fewSamples.BufferMemory = 0
	for series, gb := range map[float64]float64{300_000: 0.61, 1e6: 1.61, 1e7: 12.6} {
		near(t, fmt.Sprintf("memory, creation of %g series, GB", series), New(workload(series), fewSamples).Embedded.Memory, gb)
	}

	for series, gb := range map[float64][2]float64{60_000: {0.360, 0.273}, 200_000: {0.572, 0.557}} {
		e := New(workload(series), Config{Adapters: 1, BigtableLog: 1, DirectCurrent: time.Minute, BufferedCurrent: time.Minute})
		near(t, fmt.Sprintf("memory in direct mode, creation of %g series, GB", series), e.Direct.Memory, gb[0])
		near(t, fmt.Sprintf("memory with the buffer on Bigtable, creation of %g series, GB", series), e.Buffered.Memory, gb[1])
	}
	three := config()
	three.Adapters = 3
	near(t, "row mutations a sample of CURRENT, three adapters in direct mode", New(workload(1e6), three).Direct.Mutations.Current/(1e6*5760), 0.71)

	fleet := three
	fleet.BufferedCurrent = windowTime
	near(t, "row mutations a sample, a fleet whose members get every series", New(workload(1e6), fleet).Buffered.Mutations.PerSample, 6./559)
	fleet.BySeries = true
	near(t, "row mutations a sample, a fleet whose members get series of their own", New(workload(1e6), fleet).Buffered.Mutations.PerSample, 2./559)

	e := New(workload(1e6), config())
	near(t, "row mutations a sample, direct", e.Direct.Mutations.PerSample, 1.25)
	near(t, "row mutations a sample, buffer", e.Buffered.Mutations.PerSample, 0.019)
	near(t, "samples in a chunk", e.SamplesPerChunk, 559)
	near(t, "row mutations a second, direct", e.Direct.Mutations.PerSecond, 83_500)
	near(t, "row mutations a second, buffer", e.Buffered.Mutations.PerSecond, 1250)
	near(t, "nodes, direct, at 70 %", e.Direct.SSD.Nodes, 12)
	near(t, "samples, GB a month", e.Direct.Kept[0].Monthly, 290)
	near(t, "INDEX, GB a month", e.Direct.Kept[3].Monthly, 12)
	near(t, "raw cells, GB", e.Direct.RawCells, 20)
}

// TestNew checks what no benchmark has measured.
func TestNew(t *testing.T) {
	m := workload(1e6)
	cfg := config()
	cfg.Keep = [rollup.NumResolutions]time.Duration{30 * day, 365 * day, 0}
	e := New(m, cfg)
	samples := 1e6 / 15 * 86400
	for _, tt := range []struct {
		what      string
		got, want float64
	}{
		{"raw on Bigtable, with a week of grace", e.Direct.Kept[0].Total, samples * e.BytesPerSample * 37 / 1e9},
		{"5m", e.Direct.Kept[1].Total, samples * 0.376 * 372 / 1e9},
		{"1h, for ever, after a year", e.Direct.Kept[2].Total, samples * 0.05 * 365 / 1e9},
		{"raw, embedded", e.Embedded.Kept[0].Total, e.Embedded.Kept[0].PerDay * 30},
		{"INDEX is kept as 1h", e.Embedded.Kept[3].Days, 0},
		{"nodes with SSD are for the bytes", e.Buffered.SSD.Nodes, math.Ceil(e.Buffered.Total * 1e9 / 5e12 / 0.7)},
		{"nodes with HDD", e.Buffered.HDD.Nodes, math.Ceil(e.Buffered.Total * 1e9 / 16e12 / 0.7)},
		{"money", e.Direct.HDD.Money, e.Direct.HDD.Nodes*730.5*0.65 + e.Direct.Total*1e9/(1<<30)*0.026},
		{"the log has a limit", e.Embedded.Log, float64(512<<20) / 1e9},
	} {
		if math.Abs(tt.got-tt.want) > 1e-9*tt.want {
			t.Errorf("%s: %v, want %v", tt.what, tt.got, tt.want)
		}
	}
	m.HistogramShare = 0.25
	if got, want := New(m, cfg).Direct.Kept[2].Total, samples*(0.75*0.05+0.25*0.44*38/21)*365/1e9; math.Abs(got-want) > 1e-9*want {
		t.Errorf("1h with histograms: %v, want %v", got, want)
	}
	if got := longest(30*day, Off, Off); got != 30*day {
		t.Errorf("the longest age is %s", got)
	}
	m.HistogramShare = 1
	if got := New(m, cfg).BytesPerSample - e.BytesPerSample; math.Abs(got-(histogramBytes-m.Payload)) > 1e-9 {
		t.Errorf("native histograms take %v more bytes", got)
	}
	m.SamplesPerSecond = m.Series / 86400 // A sample a day is a chunk each, and a row of CURRENT each.
	if e := New(m, cfg); e.SamplesPerChunk != 1 || e.Direct.Mutations.Current != e.Direct.Mutations.Metric {
		t.Errorf("%v samples in a chunk, %+v", e.SamplesPerChunk, e.Direct.Mutations)
	}
}

// TestManySeries: an estimate says which limits of an adapter are too low, and which value would do.
func TestManySeries(t *testing.T) {
	m := workload(3e6)
	m.ChurnPerDay = 1.5e6
	for _, tt := range []struct {
		written, cached float64
		want            []string
	}{
		{2e7, 3e6, nil},
		{2e6, 3e6, []string{"--index.written-series=12"}},
		{2e6, 2e6, []string{"--index.written-series=12", "--write.cached-series=3000000"}},
	} {
		cfg := config()
		cfg.WrittenSeries, cfg.CachedSeries = tt.written, tt.cached
		notes := New(m, cfg).Measured.Notes
		if len(notes) != len(tt.want) {
			t.Fatalf("notes %q, want %q", notes, tt.want)
		}
		for i, want := range tt.want {
			if !strings.Contains(notes[i], want) {
				t.Errorf("note %q has no %s", notes[i], want)
			}
		}
	}
	cfg := config()
	cfg.Adapters = 4
	one, four := New(m, config()), New(m, cfg)
	if four.Direct.Memory != one.Direct.Memory || four.Buffered.Memory >= one.Buffered.Memory || four.Buffered.Log >= one.Buffered.Log {
		t.Errorf("of four adapters: direct %v GB, buffered %v GB, log %v GB; of one %v, %v, %v", four.Direct.Memory, four.Buffered.Memory, four.Buffered.Log, one.Direct.Memory, one.Buffered.Memory, one.Buffered.Log)
	}
}

// A fakePrometheus answers as Prometheus does.
type fakePrometheus struct {
	mu      sync.Mutex
	reads   int
	metrics func(read int) string
	status  string
	sets    map[string][]map[string]string
	// floats is how many samples a series has, queries what was asked.
	floats  int
	queries []string
}

func (f *fakePrometheus) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data := func(v any) { json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": v}) }
	switch r.URL.Path {
	case "/prefix/metrics":
		f.reads++
		fmt.Fprint(w, f.metrics(f.reads))
	case "/prefix/api/v1/status/tsdb":
		fmt.Fprint(w, f.status)
	case "/prefix/api/v1/series": // as early versions, it knows no limit
		name := strings.TrimSuffix(strings.TrimPrefix(r.FormValue("match[]"), `{__name__="`), `"}`)
		data(append([]map[string]string{}, f.sets[name]...))
	case "/prefix/api/v1/query":
		f.queries = append(f.queries, r.FormValue("query"))
		var values [][2]any
		for i := range f.floats {
			values = append(values, [2]any{1700000000.25 + 15*float64(i), "1"})
		}
		data(map[string]any{"resultType": "matrix", "result": []any{map[string]any{"metric": map[string]string{}, "values": values}}})
	default:
		http.NotFound(w, r)
	}
}

const (
	buildInfo = "prometheus_build_info{version=\"2.55.1\"} 1\n"
	headStats = "prometheus_tsdb_head_series 40\nprometheus_tsdb_head_series_created_total 140\n"
	started   = "process_start_time_seconds "
	appended  = "prometheus_tsdb_head_samples_appended_total"
)

// newFake returns a Prometheus with 30 series of up and 10 of a metric with a name of UTF-8.
func newFake() *fakePrometheus {
	f := &fakePrometheus{sets: make(map[string][]map[string]string), floats: 100}
	f.status = `{"status":"success","data":{"headStats":{"numSeries":40,"numLabelPairs":43},"seriesCountByMetricName":[{"name":"up","value":30},{"name":"a.b","value":10}],"labelValueCountByLabelName":[{"name":"n","value":30},{"name":"x y","value":10},{"name":"__name__","value":2}]}}`
	for i := range 30 {
		f.sets["up"] = append(f.sets["up"], map[string]string{"__name__": "up", "n": fmt.Sprint(10 + i)})
	}
	for i := range 10 {
		f.sets["a.b"] = append(f.sets["a.b"], map[string]string{"__name__": "a.b", "n": fmt.Sprint(10 + i), "x y": "\"1\""})
	}
	ended := time.Now().Add(-48 * time.Hour).Unix()
	f.metrics = func(read int) string {
		return buildInfo + headStats + fmt.Sprintf("%s%d\n%s{type=\"float\"} %d\n%s{type=\"histogram\"} %d\n", started, ended, appended, 1000*read, appended, 250*read)
	}
	return f
}

func measure(t *testing.T, f http.Handler) (Measured, error) {
	t.Helper()
	server := httptest.NewServer(f)
	defer server.Close()
	at, err := url.Parse(server.URL + "/prefix/")
	if err != nil {
		t.Fatal(err)
	}
	return Source{URL: at, Between: 10 * time.Millisecond}.Measure(t.Context())
}

func TestMeasure(t *testing.T) {
	f := newFake()
	m, err := measure(t, f)
	if err != nil {
		t.Fatal(err)
	}
	if m.Version != "2.55.1" || m.Series != 40 || m.HistogramShare != 0.2 || m.LabelTexts != 46 || m.Labels != 2.25 || m.SampledSeries != 30 || m.SampledFloats != 200 || len(m.Notes) > 0 {
		t.Errorf("%+v", m)
	}
	if m.ChurnPerDay < 49.9 || m.ChurnPerDay > 50 { // (140 - 40) in two days
		t.Errorf("%v series end in a day", m.ChurnPerDay)
	}
	if m.SamplesPerSecond <= 0 || m.SamplesPerSecond > 1250/0.01 {
		t.Errorf("%v samples a second", m.SamplesPerSecond)
	}
	if m.Payload <= 0 || m.Payload > 0.5 { // it is a constant at a regular interval
		t.Errorf("%v bytes a float", m.Payload)
	}
	const up, ab = "up,n=10", `a.b,n=10,x y="1"`
	if want := float64(3*len(up)+len(ab)) / 4; m.KeyBytes != want {
		t.Errorf("a key has %v bytes, want %v", m.KeyBytes, want)
	}
	posting := func(pair string, key string) int { return len("p,,0000000000000,") + len(pair) + len(key) }
	upRows := posting("__name__=up", up) + posting("n=10", up)
	abRows := posting("__name__=a.b", ab) + posting("n=10", ab) + posting(`x y="1"`, ab)
	if want := float64(3*upRows+abRows) / 4; m.PostingBytes != want {
		t.Errorf("rows of INDEX have %v bytes, want %v", m.PostingBytes, want)
	}
	if len(f.queries) != 2 || f.queries[1] != `{"x y"="\"1\"",__name__="a.b",n="15"}[8388608ms]` {
		t.Errorf("asked for %v", f.queries)
	}
	var printed bytes.Buffer
	if err := New(m, config()).Print(&printed); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"Prometheus 2.55.1 has", "series      40", "native histograms among them, %      20", "5m, off", "raw, GB after a year, kept for ever", "money a month with HDD"} {
		if !strings.Contains(strings.Join(strings.Fields(printed.String()), " "), strings.Join(strings.Fields(part), " ")) {
			t.Errorf("%q is not in\n%s", part, &printed)
		}
	}
}

// TestMeasureNotes: an estimate that is less sure says so.
func TestMeasureNotes(t *testing.T) {
	f := newFake()
	f.floats = minFloats - 1
	f.status = strings.Replace(f.status, `{"name":"up","value":30},`, "", 1)
	f.sets["a.b"][0]["n"] = strings.Repeat("n", 4000)
	metrics := f.metrics
	f.metrics = func(read int) string {
		text := metrics(read)
		return text[:strings.Index(text, started)] + fmt.Sprintf("%s%d\n%s %d\n", started, time.Now().Add(-time.Hour).Unix(), appended, 1000*read)
	}
	m, err := measure(t, f)
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(m.Notes, "\n")
	for _, part := range []string{"has run for 1h0m0s only", "which have 25 %", "would be refused", "counted with 1.33 bytes"} {
		if !strings.Contains(notes, part) {
			t.Errorf("no note has %q:\n%s", part, notes)
		}
	}
	if m.ChurnPerDay != 0 || m.HistogramShare != 0 || m.Payload != defaultPayload || m.SampledSeries != 9 {
		t.Errorf("%+v", m)
	}
}

func TestMeasureErrors(t *testing.T) {
	without := func(name string) func(*fakePrometheus) {
		return func(f *fakePrometheus) {
			metrics := f.metrics
			f.metrics = func(read int) string { return strings.ReplaceAll(metrics(read), name, "other_"+name) }
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*fakePrometheus)
		want   string
	}{
		{"a page", func(f *fakePrometheus) { f.metrics = func(int) string { return "<html>\n" } }, "/prefix/metrics is not a Prometheus"},
		{"another exporter", without("prometheus_build_info"), "is not that of a Prometheus: it has no metric prometheus_build_info"},
		{"no head", without(appended), "has no metric " + appended},
		{"no series", without("prometheus_tsdb_head_series "), "has no metric prometheus_tsdb_head_series"},
		{"nothing created", without("prometheus_tsdb_head_series_created_total"), "has no metric prometheus_tsdb_head_series_created_total"},
		{"no start", without(started), "has no metric process_start_time_seconds"},
		{"no samples", func(f *fakePrometheus) {
			metrics := f.metrics
			f.metrics = func(int) string { return metrics(1) }
		}, "has appended no sample in 0 s: give --measure-for"},
		{"a restart", func(f *fakePrometheus) {
			metrics := f.metrics
			f.metrics = func(read int) string { return metrics(3 - read) }
		}, "was restarted"},
		{"0 series", func(f *fakePrometheus) {
			metrics := f.metrics
			f.metrics = func(read int) string { return strings.Replace(metrics(read), "head_series 40", "head_series 0", 1) }
		}, "has no series"},
		{"no statistics", func(f *fakePrometheus) { f.status = `{"status":"success","data":{}}` }, "has no statistics of labels"},
		{"another API", func(f *fakePrometheus) { f.status = "<html>" }, "status/tsdb is not that of a Prometheus"},
		{"all series have ended", func(f *fakePrometheus) { f.sets = nil }, "no series was found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			tt.change(f)
			if _, err := measure(t, f); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
	if _, err := measure(t, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), "/prefix/metrics answers 404 Not Found") {
		t.Errorf("another server: %v", err)
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	at, err := url.Parse("http://user:secret@" + strings.TrimPrefix(closed.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Source{URL: at}.Measure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "cannot be reached") || !strings.Contains(err.Error(), at.Host) || strings.Contains(err.Error(), "secret") {
		t.Errorf("nothing listens: %v", err)
	}
}

// TestChoose: of many names those of evenly spaced series are chosen.
func TestChoose(t *testing.T) {
	var names []stat
	for i := range 1000 {
		names = append(names, stat{fmt.Sprint(i), 1})
	}
	names = append([]stat{{"large", 1000}}, names...)
	if got := choose(names[:200], 200); len(got) != 200 || got[0].Value != 1000 {
		t.Errorf("of 200 names %d are chosen", len(got))
	}
	got := choose(names, 200)
	picks := 0.
	for _, name := range got {
		picks += name.Value
	}
	if picks != 200 || got[0] != (stat{"large", 100}) || len(got) != 101 {
		t.Errorf("%v picks of %d names, the first is %v", picks, len(got), got[0])
	}
}

// TestSchema: a schema with resource labels makes other keys of the same size.
func TestSchema(t *testing.T) {
	schema, err := series.NewSchema([]string{"host"})
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := Source{Schema: schema}.rowBytes(labels.FromStrings("__name__", "up", "host", "h1", "job", "j"))
	if want, _ := schema.AppendSeriesKey(nil, labels.FromStrings("__name__", "up", "host", "h1", "job", "j")); err != nil || key != len(want) {
		t.Errorf("%d bytes, %v", key, err)
	}
}
