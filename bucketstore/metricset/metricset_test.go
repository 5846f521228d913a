package metricset_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtable/promtable/bucketstore/metricset"
)

// makeAll makes a metric of each kind, and counts in each.
func makeAll(reg prometheus.Registerer) {
	s := metricset.New(reg)
	s.Counter("c", "A counter.").Inc()
	s.CounterVec("cv", "Counters.", "a", "b").WithLabelValues("1", "2").Inc()
	s.Counters("cs", "Counters of values.", "a", "x", "y").WithLabelValues("y").Inc()
	s.Gauge("g", "A gauge.").Inc()
	s.GaugeVec("gv", "Gauges.", "a").WithLabelValues("1").Inc()
	s.Gauges("gs", "Gauges of values.", "a", "x").WithLabelValues("x").Inc()
	s.With(prometheus.Labels{"l": "v"}).Gauge("gl", "A gauge with a label.").Inc()
	s.Histogram("h", "A histogram.", []float64{1}).Observe(1)
	s.HistogramVec("hv", "Histograms.", []float64{1}, "a").WithLabelValues("1").Observe(1)
}

// TestSet: two packages with one registry count in the same metrics, and a Set without a registry registers nothing.
func TestSet(t *testing.T) {
	makeAll(nil)
	reg := prometheus.NewRegistry()
	makeAll(reg)
	makeAll(reg)
	metricset.New(reg).GaugeFunc("f", "A function.", func() float64 { return 7 })
	err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP c A counter.
# TYPE c counter
c 2
# HELP cs Counters of values.
# TYPE cs counter
cs{a="x"} 0
cs{a="y"} 2
# HELP cv Counters.
# TYPE cv counter
cv{a="1",b="2"} 2
# HELP f A function.
# TYPE f gauge
f 7
# HELP g A gauge.
# TYPE g gauge
g 2
# HELP gl A gauge with a label.
# TYPE gl gauge
gl{l="v"} 2
# HELP gs Gauges of values.
# TYPE gs gauge
gs{a="x"} 2
# HELP gv Gauges.
# TYPE gv gauge
gv{a="1"} 2
# HELP h A histogram.
# TYPE h histogram
h_bucket{le="1"} 2
h_bucket{le="+Inf"} 2
h_sum 2
h_count 2
# HELP hv Histograms.
# TYPE hv histogram
hv_bucket{a="1",le="1"} 2
hv_bucket{a="1",le="+Inf"} 2
hv_sum{a="1"} 2
hv_count{a="1"} 2
`))
	if err != nil {
		t.Error(err)
	}
}

// TestTwice: of two functions for one metric, as of two tenants' engines, the metric is the sum.
func TestTwice(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := metricset.New(reg)
	s.GaugeFunc("f", "A function.", func() float64 { return 1 })
	s.GaugeFunc("f", "A function.", func() float64 { return 2 })
	err := testutil.GatherAndCompare(reg, strings.NewReader("# HELP f A function.\n# TYPE f gauge\nf 3\n"))
	if err != nil {
		t.Error(err)
	}
}
