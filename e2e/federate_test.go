package e2e

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/value"
)

// TestFederate lets a real Prometheus scrape /federate in both formats. What
// it then holds must be the newest samples, with their own times.
func TestFederate(t *testing.T) {
	a := startAdapter(t, embedded(t))
	now := nowMillis()
	sendFederated(t, a, now)
	p := startPrometheus(t)
	var jobs []job
	for _, f := range federationFormats() {
		jobs = append(jobs, f.job(a))
	}
	p.configure(t, scrapeConfig(jobs...))
	for _, f := range federationFormats() {
		t.Run(f.name, func(t *testing.T) {
			want := f.elements(now)
			eventually(t, "Prometheus has scraped them", func() error {
				got, err := p.instant(fmt.Sprintf(`{job="federated", format=%q}[1h]`, f.name), nowMillis())
				return same(got, want, err)
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
func sendFederated(t testing.TB, a *adapter, now int64) {
	series := func(name string, points ...point) sentSeries {
		return sentSeries{labels: []string{"__name__", name, "job", "federated", "instance", "i"}, points: points}
	}
	const second, minute = 1000, 60_000
	remoteWrite2().mustSend(t, a.url("/api/v1/write"),
		series("fed_number", at(now-2*second, 1), at(now-second, 1.5)),
		series("fed_total", at(now-second, 2)),
		series("fed_infinite", at(now-minute, 3), at(now-second-1, math.Inf(-1))),
		series("fed nam.ed/utf-8", at(now-second, 4)),
		series("fed_stale", at(now-2*second, 5), point{t: now - second, bits: value.StaleNaN}),
		series("fed_old", at(now-6*minute, 6)),
		series("other", at(now-second, 7)),
	)
	// Older than what is there: the newest sample stays.
	remoteWrite1().mustSend(t, a.url("/api/v1/write"), series("fed_number", at(now-3*second, 9)))
}

// elements is what Prometheus must hold, as its API prints it.
func (f federationFormat) elements(now int64) []string {
	const second = 1000
	element := func(name string, t int64, v string) string {
		labels := fmt.Sprintf(`"__name__":%q,"format":%q,"instance":"i","job":"federated"`, name, f.name)
		return fmt.Sprintf(`{"metric":{%s},"values":[[%s,%q]]}`, labels, jsonSeconds(t), v)
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

// jsonSeconds prints milliseconds as the API prints times: without a fraction
// of zero.
func jsonSeconds(t int64) string { return strings.TrimSuffix(seconds(t), ".000") }

// job scrapes /federate in this format, and labels what it finds with it.
func (f federationFormat) job(a *adapter) job {
	return job{name: f.name, targets: []string{a.addr}, extra: fmt.Sprintf(`    honor_labels: true
    metrics_path: /federate
    params: {'match[]': ['{__name__=~"fed.*"}']}
    scrape_protocols: [%s]
    metric_relabel_configs: [{target_label: format, replacement: %s}]
`, f.protocol, f.name)}
}
