package realprometheus

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/e2e/harness"
)

// TestFederate lets a real Prometheus scrape /federate in both formats. What
// it then holds must be the current samples, with their own times.
func TestFederate(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t))
	now := harness.NowMillis()
	sendFederated(t, a, now)
	p := harness.StartPrometheus(t)
	var jobs []harness.Job
	for _, f := range federationFormats() {
		jobs = append(jobs, f.job(a))
	}
	p.Configure(t, harness.ScrapeConfig(jobs...))
	for _, f := range federationFormats() {
		t.Run(f.name, func(t *testing.T) {
			want := f.elements(now)
			harness.Eventually(t, "Prometheus has scraped them", func() error {
				got, err := p.Instant(fmt.Sprintf(`{job="federated", format=%q}[1h]`, f.name), harness.NowMillis())
				return harness.SameElements(got, want, err)
			})
		})
	}
}

// A federationFormat is one that Prometheus asks for.
type federationFormat struct {
	name     string
	protocol string
	utf8     string // how it names what is not a classic name
}

func federationFormats() []federationFormat {
	return []federationFormat{
		{"text", "PrometheusText1.0.0", "fed nam.ed/utf-8"},
		{"old text", "PrometheusText0.0.4", "fed_nam_ed_utf_8"},
		{"openmetrics", "OpenMetricsText1.0.0", "fed nam.ed/utf-8"},
	}
}

// sendFederated writes series of which some must not be federated.
func sendFederated(t testing.TB, a *harness.Adapter, now int64) {
	series := func(name string, points ...harness.Point) harness.SentSeries {
		return harness.SentSeries{Labels: []string{"__name__", name, "job", "federated", "instance", "i"}, Points: points}
	}
	const second, minute = 1000, 60_000
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"),
		series("fed_number", harness.PointAt(now-2*second, 1), harness.PointAt(now-second, 1.5)),
		series("fed_total", harness.PointAt(now-second, 2)),
		series("fed_infinite", harness.PointAt(now-minute, 3), harness.PointAt(now-second-1, math.Inf(-1))),
		series("fed nam.ed/utf-8", harness.PointAt(now-second, 4)),
		series("fed_stale", harness.PointAt(now-2*second, 5), harness.Point{T: now - second, Bits: value.StaleNaN}),
		series("fed_old", harness.PointAt(now-6*minute, 6)),
		series("other", harness.PointAt(now-second, 7)),
	)
	// Older than what is there: the current sample stays.
	harness.RemoteWrite1().MustSend(t, a.URL("/api/v1/write"), series("fed_number", harness.PointAt(now-3*second, 9)))
}

// elements is what Prometheus must hold, as its API prints it.
func (f federationFormat) elements(now int64) []string {
	const second = 1000
	element := func(name string, t int64, v string) string {
		labels := fmt.Sprintf(`"__name__":%q,"format":%q,"instance":"i","job":"federated"`, name, f.name)
		return fmt.Sprintf(`{"metric":{%s},"values":[[%s,%q]]}`, labels, harness.JSONSeconds(t), v)
	}
	elements := []string{
		element("fed_number", now-second, "1.5"),
		element("fed_total", now-second, "2"),
		element("fed_infinite", now-second-1, "-Inf"),
		element(f.utf8, now-second, "4"),
	}
	slices.Sort(elements)
	return elements
}

// job scrapes /federate in this format, and labels what it finds with it.
func (f federationFormat) job(a *harness.Adapter) harness.Job {
	return harness.Job{Name: f.name, Targets: []string{a.Addr}, Extra: fmt.Sprintf(`    honor_labels: true
    metrics_path: /federate
    params: {'match[]': ['{__name__=~"fed.*"}']}
    scrape_protocols: [%s]
    metric_relabel_configs: [{target_label: format, replacement: %s}]
`, f.protocol, f.name)}
}
