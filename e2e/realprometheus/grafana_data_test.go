package realprometheus

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
)

// A grafanaRequest is a remote write 2.0 request in the making.
type grafanaRequest struct {
	symbols writev2.SymbolsTable
	series  []writev2.TimeSeries
	now     int64
}

// add adds a series and calls fill for each of its times.
func (r *grafanaRequest) add(kind writev2.Metadata_MetricType, ls labels.Labels, fill func(ts *writev2.TimeSeries, i int, t int64)) {
	ts := writev2.TimeSeries{LabelsRefs: r.symbols.SymbolizeLabels(ls, nil)}
	ts.Metadata = writev2.Metadata{Type: kind, HelpRef: r.symbols.Symbolize("Help for " + ls.Get("__name__") + ".")}
	for i := range grafanaSpan/grafanaStep + 1 {
		fill(&ts, i, r.now-grafanaSpan+int64(i)*grafanaStep)
	}
	r.series = append(r.series, ts)
}

// floats adds a series of floats; f returns the value of the i-th sample.
func (r *grafanaRequest) floats(kind writev2.Metadata_MetricType, f func(i int) float64, nameValues ...string) {
	r.add(kind, labels.FromStrings(nameValues...), func(ts *writev2.TimeSeries, i int, t int64) {
		ts.Samples = append(ts.Samples, writev2.Sample{Timestamp: t, Value: f(i)})
	})
}

// exemplar gives the series that was added last an exemplar of t.
func (r *grafanaRequest) exemplar(t int64, v float64, trace string) {
	ts := &r.series[len(r.series)-1]
	refs := r.symbols.SymbolizeLabels(labels.FromStrings("trace_id", trace), nil)
	ts.Exemplars = append(ts.Exemplars, writev2.Exemplar{LabelsRefs: refs, Value: v, Timestamp: t})
}

// grafanaData encodes all that both hold.
func grafanaData(t testing.TB, now int64) []byte {
	t.Helper()
	r := &grafanaRequest{symbols: writev2.NewSymbolTable(), now: now}
	r.addCounters()
	r.addGauges()
	r.addClassicHistogram()
	r.addNativeHistograms()
	body, err := (&writev2.Request{Symbols: r.symbols.Symbols(), Timeseries: r.series}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// addCounters adds counters; those of one instance begin again in the middle.
func (r *grafanaRequest) addCounters() {
	for k, job := range []string{"api", "web"} {
		for j, instance := range []string{"a:9090", "b:9090", "c:9090"} {
			for n, code := range []string{"200", "500"} {
				count := func(i int) float64 {
					if instance == "b:9090" {
						i %= 50
					}
					return float64(i * (1 + k + 3*j + 7*n))
				}
				r.floats(writev2.Metadata_METRIC_TYPE_COUNTER, count, "__name__", "graf_requests_total", "job", job, "instance", instance, "code", code)
			}
		}
	}
}

// addGauges adds gauges with values and names that are awkward.
func (r *grafanaRequest) addGauges() {
	wave := func(i int) float64 { return 20 + 5*math.Sin(float64(i)/7) }
	gone := func(i int) float64 {
		if i == 60 {
			return math.Float64frombits(value.StaleNaN)
		}
		return wave(i)
	}
	special := func(i int) float64 { return []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e-300, 0.1}[i%5] }
	const gauge = writev2.Metadata_METRIC_TYPE_GAUGE
	r.floats(gauge, wave, "__name__", "graf_temperature", "room", "kitchen ä €")
	r.floats(gauge, gone, "__name__", "graf_temperature", "room", `a "quoted" \ name`)
	r.floats(gauge, special, "__name__", "graf_special", "Upper", "before the name")
	r.floats(gauge, func(i int) float64 { return float64(i / 40) }, "__name__", "graf_deploys", "app", "shop", "version", "1.2.3")
	r.floats(gauge, wave, "__name__", "graf_utf8.power/total", "dot.ted label", "x y")
}

func (r *grafanaRequest) addClassicHistogram() {
	const kind = writev2.Metadata_METRIC_TYPE_HISTOGRAM
	for n, le := range []string{"0.1", "1.0", "+Inf"} {
		r.floats(kind, func(i int) float64 { return float64(i * (3 + n)) }, "__name__", "graf_seconds_bucket", "job", "api", "le", le)
		for i := range int64(5) {
			r.exemplar(r.now-grafanaSpan+i*300_000+int64(n), 0.05*float64(n+1), fmt.Sprintf("trace-%d-%d", n, i))
		}
	}
	r.floats(kind, func(i int) float64 { return float64(i) * 0.7 }, "__name__", "graf_seconds_sum", "job", "api")
	r.floats(kind, func(i int) float64 { return float64(5 * i) }, "__name__", "graf_seconds_count", "job", "api")
}

// addNativeHistograms adds histograms of integers, of floats and with custom
// buckets.
func (r *grafanaRequest) addNativeHistograms() {
	encode := map[string]func(i, t int64) writev2.Histogram{
		"integer": func(i, t int64) writev2.Histogram {
			return writev2.FromIntHistogram(0, t, tsdbutil.GenerateTestHistogram(i))
		},
		"float": func(i, t int64) writev2.Histogram {
			return writev2.FromFloatHistogram(0, t, tsdbutil.GenerateTestFloatHistogram(i))
		},
		"custom": func(i, t int64) writev2.Histogram {
			return writev2.FromIntHistogram(0, t, tsdbutil.GenerateTestCustomBucketsHistogram(i))
		},
	}
	for _, kind := range []string{"integer", "float", "custom"} {
		ls := labels.FromStrings("__name__", "graf_latency_seconds", "kind", kind)
		r.add(writev2.Metadata_METRIC_TYPE_HISTOGRAM, ls, func(ts *writev2.TimeSeries, i int, t int64) {
			ts.Histograms = append(ts.Histograms, encode[kind](int64(i), t))
		})
		r.exemplar(r.now-60_000, 1.5, "native-"+kind)
	}
}
