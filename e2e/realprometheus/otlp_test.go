package realprometheus

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/promtable/promtable/e2e/harness"
)

// An otlpCase is a block otlp of a configuration, and a label that the series have with it.
type otlpCase struct{ name, block, label, value string }

func otlpCases() []otlpCase {
	return []otlpCase{
		{"default", "", "__name__", "http_server_duration_seconds_count"},
		{"NoUTF8EscapingWithSuffixes", "translation_strategy: NoUTF8EscapingWithSuffixes", "__name__", "http.server.requests_total"},
		{"UnderscoreEscapingWithoutSuffixes", "translation_strategy: UnderscoreEscapingWithoutSuffixes", "__name__", "http_server_requests"},
		{"NoTranslation", "translation_strategy: NoTranslation", "http.method", "GET"},
		{"promoted", "promote_resource_attributes: [cloud.region, service.name, absent]", "cloud_region", "eu"},
		{"all promoted", "promote_all_resource_attributes: true", "host_name", "ä"},
		{"all but some promoted", "promote_all_resource_attributes: true, ignore_resource_attributes: [host.name]", "a__b", "c"},
		{"identifying", "keep_identifying_resource_attributes: true", "service_name", "shop"},
		{"custom buckets", "convert_histograms_to_nhcb: true", "__name__", "http_server_duration_seconds"},
		{"scope", "promote_scope_metadata: true", "otel_scope_version", "1.2"},
		{"underscores", "label_name_underscore_sanitization: false, label_name_preserve_multiple_underscores: false, promote_all_resource_attributes: true", "a_b", "c"},
		{"all together", "translation_strategy: NoTranslation, promote_all_resource_attributes: true, keep_identifying_resource_attributes: true, convert_histograms_to_nhcb: true, promote_scope_metadata: true", "otel_scope_team", "x"},
	}
}

// TestOTLP sends the same OTLP metrics to a Prometheus and to an adapter, with the same configuration, and wants the same
// series of both.
func TestOTLP(t *testing.T) {
	for _, feature := range []string{"", "otlp-deltatocumulative", "otlp-native-delta-ingestion"} {
		t.Run("feature "+feature, func(t *testing.T) {
			t.Parallel()
			p := harness.StartOTLPPair(t, feature)
			kinds := map[string]pmetric.AggregationTemporality{"cumulative": pmetric.AggregationTemporalityCumulative}
			if feature != "" {
				kinds["delta"] = pmetric.AggregationTemporalityDelta
			}
			for _, tt := range otlpCases() {
				t.Run(tt.name, func(t *testing.T) {
					p.Configure(t, "otlp: {"+tt.block+"}\n")
					for name, temporality := range kinds {
						instance := tt.name + " " + name
						first := time.Now().Truncate(time.Millisecond).Add(-time.Minute)
						for i := range 4 {
							body := otlpMetrics(t, instance, temporality, first.Add(time.Duration(i)*10*time.Second), i)
							p.Send(t, body)
						}
						found, withExemplars := p.Compare(t, "instance", instance)
						if withExemplars == 0 {
							t.Error("no series has exemplars")
						}
						if !slices.ContainsFunc(found, func(s harness.TimeSeries) bool { return s.Labels.Get(tt.label) == tt.value }) {
							t.Errorf("no series has %s=%q: %v", tt.label, tt.value, namesOf(found))
						}
					}
				})
			}
		})
	}
}

func namesOf(series []harness.TimeSeries) (names []string) {
	for _, s := range series {
		names = append(names, s.Labels.Get(labels.MetricName))
	}
	return names
}

// otlpMetrics is a request with metrics of each kind, the step-th of a process.
func otlpMetrics(t *testing.T, instance string, temporality pmetric.AggregationTemporality, at time.Time, step int) []byte {
	metrics := pmetric.NewMetrics()
	resource := metrics.ResourceMetrics().AppendEmpty()
	for name, value := range map[string]string{
		"service.name": "shop", "service.namespace": "web", "service.instance.id": instance,
		"cloud.region": "eu", "host.name": "ä", "_private": "y", "a__b": "c",
	} {
		resource.Resource().Attributes().PutStr(name, value)
	}
	resource.Resource().Attributes().PutInt("process.pid", 7)
	scope := resource.ScopeMetrics().AppendEmpty()
	scope.SetSchemaUrl("https://opentelemetry.io/schemas/1.30.0")
	scope.Scope().SetName("lib")
	scope.Scope().SetVersion("1.2")
	scope.Scope().Attributes().PutStr("team", "x")
	b := otlpBuilder{list: scope.Metrics(), temporality: temporality, at: at, start: at.Add(-time.Duration(step+1) * 10 * time.Second), step: step}
	if temporality == pmetric.AggregationTemporalityDelta {
		b.start = at.Add(-10 * time.Second)
	}
	b.gauges()
	b.sums()
	b.histograms()
	b.exponentials()
	b.summary()
	body, err := pmetricotlp.NewExportRequestFromMetrics(metrics).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// An otlpBuilder appends metrics at a time.
type otlpBuilder struct {
	list        pmetric.MetricSlice
	temporality pmetric.AggregationTemporality
	at, start   time.Time
	step        int
}

func (b otlpBuilder) metric(name, unit string) pmetric.Metric {
	m := b.list.AppendEmpty()
	m.SetName(name)
	m.SetUnit(unit)
	m.SetDescription("What " + name + " is.")
	return m
}

// value grows with the steps, unless it is a delta.
func (b otlpBuilder) value(n int) uint64 {
	if b.temporality == pmetric.AggregationTemporalityDelta {
		return uint64(n)
	}
	return uint64(n * (b.step + 1))
}

// point is what all data points have in common.
type point interface {
	SetTimestamp(pcommon.Timestamp)
	SetStartTimestamp(pcommon.Timestamp)
	Attributes() pcommon.Map
}

func (b otlpBuilder) stamp(p point, attributes ...string) {
	p.SetTimestamp(pcommon.NewTimestampFromTime(b.at))
	p.SetStartTimestamp(pcommon.NewTimestampFromTime(b.start))
	for pair := range slices.Chunk(attributes, 2) {
		p.Attributes().PutStr(pair[0], pair[1])
	}
}

func (b otlpBuilder) exemplar(list pmetric.ExemplarSlice, v float64) {
	x := list.AppendEmpty()
	x.SetTimestamp(pcommon.NewTimestampFromTime(b.at.Add(-time.Second)))
	x.SetDoubleValue(v)
	x.SetTraceID([16]byte{1, byte(b.step)})
	x.SetSpanID([8]byte{2})
	x.FilteredAttributes().PutStr("user.id", "u")
}

func (b otlpBuilder) gauges() {
	g := b.metric("room.temperature", "Cel").SetEmptyGauge()
	p := g.DataPoints().AppendEmpty()
	b.stamp(p, "_room", "ä", "floor..no", "2", "__reserved__", "r")
	p.SetDoubleValue(20.5 - float64(b.step))
	p = g.DataPoints().AppendEmpty()
	b.stamp(p, "room", "b")
	p.SetIntValue(int64(b.step))
	if b.step == 2 {
		p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
	}
	p = b.metric("2xx ratio", "1").SetEmptyGauge().DataPoints().AppendEmpty()
	b.stamp(p)
	p.SetDoubleValue(0.5)
}

func (b otlpBuilder) sums() {
	for _, monotonic := range []bool{true, false} {
		name := "http.server.requests"
		if !monotonic {
			name = "http.server.active"
		}
		s := b.metric(name, "{request}").SetEmptySum()
		s.SetIsMonotonic(monotonic)
		s.SetAggregationTemporality(b.temporality)
		p := s.DataPoints().AppendEmpty()
		b.stamp(p, "http.method", "GET")
		p.SetIntValue(int64(b.value(3)))
		b.exemplar(p.Exemplars(), 1)
		p = s.DataPoints().AppendEmpty()
		b.stamp(p, "http.method", "PUT")
		p.SetDoubleValue(float64(b.value(5)) / 4)
	}
}

func (b otlpBuilder) histograms() {
	h := b.metric("http.server.duration", "s").SetEmptyHistogram()
	h.SetAggregationTemporality(b.temporality)
	for _, method := range []string{"GET", "PUT"} {
		p := h.DataPoints().AppendEmpty()
		b.stamp(p, "http.method", method)
		p.ExplicitBounds().FromRaw([]float64{0.1, 1, 10})
		p.BucketCounts().FromRaw([]uint64{b.value(1), 0, b.value(4), b.value(2)})
		p.SetCount(b.value(7))
		if method == "GET" {
			p.SetSum(float64(b.value(33)) / 2)
			p.SetMin(0.01)
			p.SetMax(20)
		}
		b.exemplar(p.Exemplars(), 0.5)
	}
}

func (b otlpBuilder) exponentials() {
	e := b.metric("rpc.size", "By").SetEmptyExponentialHistogram()
	e.SetAggregationTemporality(b.temporality)
	for i, name := range []string{"fine", "coarse"} {
		p := e.DataPoints().AppendEmpty()
		b.stamp(p, "kind", name)
		p.SetScale(int32(9*(1-i)) - int32(b.step/2))
		p.SetZeroThreshold(0.001)
		p.SetZeroCount(b.value(1))
		p.Positive().SetOffset(-2)
		p.Positive().BucketCounts().FromRaw([]uint64{b.value(1), 0, 0, 0, b.value(3)})
		p.Negative().SetOffset(3)
		p.Negative().BucketCounts().FromRaw([]uint64{b.value(2)})
		p.SetCount(b.value(7))
		p.SetSum(-float64(b.value(9)))
		b.exemplar(p.Exemplars(), 2)
	}
}

func (b otlpBuilder) summary() {
	p := b.metric("gc.pause", "ms").SetEmptySummary().DataPoints().AppendEmpty()
	b.stamp(p)
	p.SetCount(uint64(b.step + 1))
	p.SetSum(float64(b.step) * 2.5)
	for _, q := range []float64{0, 0.5, 1} {
		v := p.QuantileValues().AppendEmpty()
		v.SetQuantile(q)
		v.SetValue(q * float64(b.step))
	}
}

// TestOTLPFile: a start with a wrong file is refused, and so are features that do not go together.
func TestOTLPFile(t *testing.T) {
	for text, want := range map[string]string{
		"global: {}":          "field global: the file has only the block otlp",
		"otlp: {promote: []}": "field promote not found",
	} {
		path := filepath.Join(t.TempDir(), "otlp.yml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b := harness.Embedded(t)
		b.Args = append(b.Args, "--otlp.config-file="+path)
		harness.CheckRefused(t, b, "--otlp.config-file", path, want)
	}
	b := harness.Embedded(t)
	b.Args = append(b.Args, "--enable-feature=otlp-deltatocumulative,otlp-native-delta-ingestion")
	harness.CheckRefused(t, b, "--enable-feature", "do not go together")
}
