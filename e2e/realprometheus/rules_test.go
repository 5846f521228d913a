package realprometheus

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtable/promtable/e2e/harness"
)

// liveRules are evaluated by both at the same times: 5 s late, so that what is written has come by then. One series comes and goes, and so does what is recorded of it.
const liveRules = `
groups:
- name: live
  interval: 1s
  query_offset: 5s
  labels: {team: a}
  rules:
  - {record: "job:awkward:sum", expr: 'sum by (job) (awkward{kind="counter"})'}
  - {record: "job:modern:rate10s", expr: 'sum by (job) (rate(modern_total[10s]))'}
  - {record: "job:modern:q90", expr: 'histogram_quantile(0.9, sum(rate(modern_seconds[10s])))'}
  - {record: "sign:modern_seconds:rate10s", expr: 'sum by (sign) (rate(modern_seconds[10s]))'}
  - {record: "job:awkward:max10s", expr: 'max_over_time(job:awkward:sum[10s]) - job:awkward:sum', labels: {kind: chain}}
  - {record: "some:awkward:times", expr: 'awkward_sometimes * 2'}
  - {record: "none:awkward:absent", expr: 'absent(awkward_sometimes)'}
  - {record: "some:awkward:many", expr: 'awkward{kind="counter"} * on (job) awkward'}
  - {record: "prom:up:count", expr: 'count(up) + scalar(job:awkward:sum) * 0.1'}
  - alert: Sometimes
    expr: job:awkward:sum % 20 >= 10
    for: 2s
    keep_firing_for: 2s
    labels: {severity: "{{ $labels.job }}"}
`

// TestRecorded: a Prometheus and adapters evaluate the same rules over what that Prometheus scrapes, and record the same, to the bit: values, native histograms, markers of
// staleness, and the series of alerts. Then the adapters are killed, and nothing that Prometheus records meanwhile is missing.
func TestRecorded(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yml")
	writeFile(t, file, liveRules)
	p := harness.StartPrometheus(t)
	var receivers []harness.Receiver
	for _, b := range []harness.Backend{harness.Embedded(t), harness.WithBuffer(harness.Embedded(t), t.TempDir()), harness.Emulator(t)} {
		b.Name += fmt.Sprint(len(receivers))
		receivers = append(receivers, harness.Receiver{Adapter: harness.StartAdapter(t, b, "--rules.file="+file, "--rules.reevaluate=1m"), Backend: b.Name, Protocol: harness.RemoteWrite2()})
	}
	writes := strings.ReplaceAll(harness.WriteConfig(receivers), "    send_exemplars: true\n", "    write_relabel_configs: [{source_labels: [__name__], regex: '.*:.*|ALERTS.*', action: drop}]\n")
	p.Configure(t, strings.Replace(harness.ScrapeConfig(
		harness.Job{Name: "awkward", Targets: []string{startAwkward(t)}},
		harness.Job{Name: "modern", Targets: []string{startModern(t)}, Extra: "    scrape_native_histograms: true\n"},
	), "scrape_timeout: 1s\n", "scrape_timeout: 1s\n  evaluation_interval: 1s\nrule_files: ['"+file+"']\n", 1)+writes)
	p.AwaitScrapes(t, 2, harness.NowMillis())

	recorded := func(from, to int64, alerts bool) harness.Query {
		names := `.*:.*`
		if alerts {
			names += "|ALERTS.*"
		}
		return harness.Query{Mint: from, Maxt: to, Matchers: harness.MustMatchers(t, "__name__", "=~", names)}
	}
	const as = prompb.ReadRequest_STREAMED_XOR_CHUNKS
	compare := func(when string, q harness.Query, series int) {
		t.Helper()
		p.AwaitScrapes(t, 2, q.Maxt+10_000)
		want := harness.MustRead(t, p.URL("/api/v1/read"), as, q)
		if n := harness.CountPoints(want); len(want) < series || n < 5*int(q.Maxt-q.Mint)/1000 {
			t.Fatalf("%s: Prometheus has recorded %d samples of %d series", when, n, len(want))
		}
		for _, r := range receivers {
			harness.Eventually(t, when+": "+r.ID()+" has recorded the same", func() error { // late samples count later
				if diff := harness.DiffSeries(harness.MustRead(t, r.URL("/api/v1/read"), as, q), want); diff != "" {
					return errors.New(diff)
				}
				return nil
			})
		}
	}
	// What begins before has a marker of staleness in one of them alone, or an alert is pending since another time.
	begin := harness.NowMillis() + 18_000
	compare("live", recorded(begin, begin+16_000, true), 10)
	for _, r := range receivers {
		r.Kill(t)
	}
	killed := harness.NowMillis()
	p.AwaitScrapes(t, 2, killed+8000)
	for _, r := range receivers {
		r.Rerun(t)
	}
	compare("after a restart", recorded(begin, harness.NowMillis()+5000, false), 8)
}

// dayRules are by name. What they record is labelled with over="day".
var dayRules = map[string]string{
	"job:requests:rate5m":     `sum by (job) (rate(requests_total[5m]))`,
	"job:requests:increase1h": `increase(requests_total[1h])`,
	"job:temperature:avg1h":   `avg_over_time(temperature[1h])`,
	"job:temperature:stddev":  `stddev by (job) (temperature)`,
	"job:temperature:top":     `topk(2, temperature offset 10m)`,
	"job:temperature:trend":   `predict_linear(temperature[30m], 3600)`,
	"job:duration:q99":        `histogram_quantile(0.99, sum by (job) (rate(duration_seconds[10m])))`,
	"job:duration:rate10m":    `sum by (job) (rate(duration_seconds[10m]))`,
	"job:requests:resets":     `resets(requests_total[2h:5m])`,
}

// TestRecordedDay: what adapter rules backfill records of a day is what a Prometheus that has the same day evaluates at these times. (promtool's backfill is no reference:
// it leaves out native histograms, the last fraction of a second of each two hours, and rounds times.)
func TestRecordedDay(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]harness.Backend{"1m": harness.Embedded(t), "47s": harness.WithBuffer(harness.Embedded(t), t.TempDir())} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "groups:\n- name: day\n  interval: " + name + "\n  labels: {over: day}\n  rules:\n"
			for record, expr := range dayRules {
				text += fmt.Sprintf("  - {record: %q, expr: %q}\n", record, expr)
			}
			file := filepath.Join(t.TempDir(), "rules.yml")
			writeFile(t, file, text)
			p := harness.StartPrometheus(t, "--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=10y")
			a := harness.StartAdapter(t, b, "--rules.file="+file, "--web.enable-admin-api", "--rules.reevaluate=0s")
			end := harness.NowMillis()/60_000*60_000 - 10*60_000
			start := end - 24*time.Hour.Milliseconds()
			sendDay(t, start, end, p.URL("/api/v1/write"), a.URL("/api/v1/write"))

			from, to := start+2*time.Hour.Milliseconds(), end-time.Hour.Milliseconds()
			code, output := harness.RunCommand(t, harness.Backend{}, "rules", "backfill", "--url="+a.URL(""), "--group=day", "--start="+harness.FormatSeconds(from), "--end="+harness.FormatSeconds(to), "--yes")
			if code != 0 || !strings.Contains(output, "done: ") {
				t.Fatalf("%d, %s", code, output)
			}
			q := harness.Query{Mint: from, Maxt: to, Matchers: harness.MustMatchers(t, "__name__", "=", "job:requests:rate5m")}
			found := harness.MustRead(t, a.URL("/api/v1/read"), prompb.ReadRequest_STREAMED_XOR_CHUNKS, q)
			if len(found) != 3 {
				t.Fatalf("%d series", len(found))
			}
			n, first := len(found[0].Points), found[0].Points[0].T
			interval, err := time.ParseDuration(name)
			if err != nil || n < int((to-first)/interval.Milliseconds()) || first-from > interval.Milliseconds() {
				t.Fatalf("%d samples from %d on, of %d to %d: %v", n, first, from, to, err)
			}
			ask := func(base, expr string) []string {
				t.Helper()
				return harness.MustElements(t, base, url.Values{"query": {expr}, "start": {harness.FormatSeconds(first)}, "end": {harness.FormatSeconds(to)}, "step": {fmt.Sprint(interval.Seconds())}})
			}
			for record, expr := range dayRules {
				want := ask(p.URL("/api/v1/query_range"), fmt.Sprintf(`label_replace(label_replace(%s, "over", "day", "", ""), "__name__", %q, "", "")`, expr, record))
				got := ask(a.URL("/api/v1/query_range"), fmt.Sprintf(`last_over_time({__name__=%q}[1ms])`, record)) // nothing but what is there at a step
				if err := harness.SameElements(got, want, nil); err != nil {
					t.Errorf("%s: %v", record, err)
				}
			}
		})
	}
}

// sendDay writes series with a sample each 15 s, or few, with counter resets, gaps, NaN and native histograms.
func sendDay(t *testing.T, start, end int64, urls ...string) {
	t.Helper()
	const step = 15_000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	counters, level := make([]float64, 12), make([]float64, 12)
	observed := make([]int, 4)
	for from := start; from < end; from += 20 * 60_000 {
		var batch []harness.SentSeries
		for i := range counters {
			// Prometheus adds series in the order in which it has met them, as long as all are in its head: let that be the order of their labels.
			job, number := fmt.Sprint(i%3), fmt.Sprintf("%02d", i)
			requests := harness.SeriesOf(labels.FromStrings("__name__", "requests_total", "job", job, "i", number))
			temperature := harness.SeriesOf(labels.FromStrings("__name__", "temperature", "job", job, "i", number))
			gap := r.IntN(6) == 0
			for at := from; at < from+20*60_000; at += step {
				if r.IntN(2000) == 0 {
					counters[i] = 0
				}
				counters[i] += float64(r.IntN(100)) / 7
				level[i] += r.NormFloat64()
				v := level[i]
				if r.IntN(3000) == 0 {
					v = math.NaN()
				}
				requests.Points = append(requests.Points, harness.PointAt(at, counters[i]))
				if !gap || at < from+7*60_000 {
					temperature.Points = append(temperature.Points, harness.PointAt(at+int64(i), v))
				}
			}
			batch = append(batch, requests, temperature)
		}
		for i := range observed {
			for at := from; at < from+20*60_000; at += 4 * step {
				if observed[i]++; r.IntN(200) == 0 {
					observed[i] = 0
				}
				h, err := harness.RemoteWrite2().Histogram(0, at, tsdbutil.GenerateTestHistogram(int64(observed[i])), nil)
				if err != nil {
					t.Fatal(err)
				}
				s := harness.SeriesOf(labels.FromStrings("__name__", "duration_seconds", "job", fmt.Sprint(i%2), "i", fmt.Sprint(i)))
				s.Histograms = [][]byte{h}
				batch = append(batch, s)
			}
		}
		for _, url := range urls {
			harness.RemoteWrite2().MustSend(t, url, batch...)
		}
	}
}
