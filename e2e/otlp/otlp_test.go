// Package otlp sends metrics as programs do, with the SDK of OpenTelemetry and through the exporter of its collector,
// to a Prometheus and to an adapter. Both have to store the same.
package otlp

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/promtable/promtable/e2e/harness"
)

// rounds is how often a program sends its metrics.
const rounds = 4

func TestOTLP(t *testing.T) {
	for _, tt := range []struct {
		name, feature string
		temporality   sdk.TemporalitySelector
	}{
		{"cumulative", "", sdk.DefaultTemporalitySelector},
		{"deltas added up", "otlp-deltatocumulative", sdk.DeltaTemporalitySelector},
		{"deltas stored", "otlp-native-delta-ingestion", sdk.DeltaTemporalitySelector},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pair := harness.StartOTLPPair(t, tt.feature)
			for name, block := range map[string]string{
				"default": "{}",
				"changed": "{translation_strategy: NoTranslation, promote_resource_attributes: [host.name], convert_histograms_to_nhcb: true, promote_scope_metadata: true}",
			} {
				pair.Configure(t, "otlp: "+block+"\n")
				t.Run(name+" by the SDK", func(t *testing.T) {
					p := newProgram(t, tt.name+name+" SDK", tt.temporality)
					p.run(t, startSDKs(t, pair.URLs(harness.OTLPPath)))
					check(t, pair, p.instance)
				})
				t.Run(name+" by the collector", func(t *testing.T) {
					p := newProgram(t, tt.name+name+" collector", tt.temporality)
					collector := startCollector(t, pair.URLs(harness.OTLPPath))
					p.run(t, startSDKs(t, []string{collector}))
					check(t, pair, p.instance)
				})
			}
		})
	}
}

// check compares what both have stored of an instance, and wants that all kinds of metrics are there.
func check(t *testing.T, pair *harness.OTLPPair, instance string) {
	t.Helper()
	series, _ := pair.Compare(t, "instance", instance)
	floats, histograms := 0, 0
	for _, s := range series {
		for _, p := range s.Points {
			if p.Histogram != "" {
				histograms++
			} else {
				floats++
			}
		}
	}
	if floats < 5*rounds || histograms < rounds {
		t.Errorf("%d floats and %d histograms are stored", floats, histograms)
	}
}

// A program has instruments of the SDK.
type program struct {
	instance string
	reader   *sdk.ManualReader

	orders   metric.Int64Counter
	weight   metric.Float64Counter
	active   metric.Int64UpDownCounter
	warmth   metric.Float64Gauge
	size     metric.Int64Histogram
	duration metric.Float64Histogram // exponential
}

func newProgram(t *testing.T, instance string, temporality sdk.TemporalitySelector) *program {
	t.Helper()
	p := &program{instance: instance, reader: sdk.NewManualReader(sdk.WithTemporalitySelector(temporality))}
	exponential := sdk.NewView(sdk.Instrument{Name: "request.duration"}, sdk.Stream{Aggregation: sdk.AggregationBase2ExponentialHistogram{MaxSize: 20, MaxScale: 20}})
	provider := sdk.NewMeterProvider(sdk.WithReader(p.reader), sdk.WithView(exponential), sdk.WithResource(resource.NewSchemaless(
		attribute.String("service.name", "shop"), attribute.String("service.instance.id", instance), attribute.String("host.name", "ä"),
	)))
	t.Cleanup(func() {
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	meter := provider.Meter("lib", metric.WithInstrumentationVersion("1.2"), metric.WithSchemaURL("https://opentelemetry.io/schemas/1.30.0"))
	var errs [6]error
	p.orders, errs[0] = meter.Int64Counter("orders", metric.WithUnit("{order}"), metric.WithDescription("Orders."))
	p.weight, errs[1] = meter.Float64Counter("orders.weight", metric.WithUnit("kg"))
	p.active, errs[2] = meter.Int64UpDownCounter("requests.active")
	p.warmth, errs[3] = meter.Float64Gauge("room.temperature", metric.WithUnit("Cel"))
	p.size, errs[4] = meter.Int64Histogram("request.size", metric.WithUnit("By"), metric.WithExplicitBucketBoundaries(10, 100, 1000))
	p.duration, errs[5] = meter.Float64Histogram("request.duration", metric.WithUnit("s"))
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// run lets the program work for some rounds, and sends what each has measured to all exporters.
func (p *program) run(t *testing.T, exporters []sdk.Exporter) {
	t.Helper()
	ctx := t.Context()
	for round := range rounds {
		for last := harness.NowMillis(); harness.NowMillis() == last; { // two of one millisecond would have samples of one time
			runtime.Gosched()
		}
		p.work(ctx, round)
		var measured metricdata.ResourceMetrics
		if err := p.reader.Collect(ctx, &measured); err != nil {
			t.Fatal(err)
		}
		for _, e := range exporters {
			if err := e.Export(ctx, &measured); err != nil { // also of a partial success
				t.Error(err)
			}
		}
	}
}

func (p *program) work(ctx context.Context, round int) {
	for _, method := range []string{"GET", "PUT"} {
		with := metric.WithAttributes(attribute.String("http.method", method))
		p.orders.Add(ctx, int64(3+round), with)
		p.weight.Add(ctx, 0.25*float64(round+1), with)
		p.active.Add(ctx, int64(2-round), with)
		p.warmth.Record(ctx, 20.5-float64(round), with)
		for i := range 10 {
			p.size.Record(ctx, int64(i*i*i*(round+1)), with)
			p.duration.Record(ctx, float64(i*(round+1))/8, with)
		}
	}
}

// startSDKs returns an exporter of the SDK to each URL.
func startSDKs(t *testing.T, urls []string) (exporters []sdk.Exporter) {
	t.Helper()
	for _, url := range urls {
		e, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(url), otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		})
		exporters = append(exporters, e)
	}
	return exporters
}

// startCollector returns the URL of a collector that sends what it gets to each of these URLs.
func startCollector(t *testing.T, urls []string) string {
	t.Helper()
	var exporters []exporter.Metrics
	for _, url := range urls {
		factory := otlphttpexporter.NewFactory()
		cfg := factory.CreateDefaultConfig().(*otlphttpexporter.Config)
		cfg.MetricsEndpoint = url
		cfg.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]() // an error comes back
		e, err := factory.CreateMetrics(t.Context(), exportertest.NewNopSettings(factory.Type()), cfg)
		if err == nil {
			err = e.Start(t.Context(), componenttest.NewNopHost())
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		})
		exporters = append(exporters, e)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		metrics, err := decode(r)
		for _, e := range exporters {
			if err == nil {
				err = e.ConsumeMetrics(r.Context(), metrics)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + harness.OTLPPath
}

// decode reads a request of the SDK.
func decode(r *http.Request) (pmetric.Metrics, error) {
	request := pmetricotlp.NewExportRequest()
	unzipped, err := gzip.NewReader(r.Body)
	if err != nil {
		return request.Metrics(), err
	}
	body, err := io.ReadAll(unzipped)
	if err != nil {
		return request.Metrics(), err
	}
	err = request.UnmarshalProto(body)
	return request.Metrics(), err
}
