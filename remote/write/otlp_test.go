package write_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/remotetest"
)

// otlpMetrics is one of each kind of metrics, at a time.
func otlpMetrics(at time.Time) pmetricotlp.ExportRequest {
	metrics := pmetric.NewMetrics()
	resource := metrics.ResourceMetrics().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "shop")
	resource.Resource().Attributes().PutStr("service.instance.id", "1")
	resource.Resource().Attributes().PutStr("region", "eu")
	list := resource.ScopeMetrics().AppendEmpty().Metrics()
	stamp, start := pcommon.NewTimestampFromTime(at), pcommon.NewTimestampFromTime(at.Add(-time.Minute))

	gauge := list.AppendEmpty()
	gauge.SetName("room.temperature")
	gauge.SetUnit("Cel")
	gauge.SetDescription("How warm it is.")
	point := gauge.SetEmptyGauge().DataPoints().AppendEmpty()
	point.SetTimestamp(stamp)
	point.SetDoubleValue(math.Copysign(0, -1))
	point.Attributes().PutStr("room", "ä")

	sum := list.AppendEmpty()
	sum.SetName("orders")
	sum.SetEmptySum().SetIsMonotonic(true)
	sum.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	point = sum.Sum().DataPoints().AppendEmpty()
	point.SetTimestamp(stamp)
	point.SetStartTimestamp(start)
	point.SetIntValue(7)
	x := point.Exemplars().AppendEmpty()
	x.SetTimestamp(stamp)
	x.SetDoubleValue(1)
	x.SetTraceID([16]byte{1, 2, 3})

	exponential := list.AppendEmpty()
	exponential.SetName("latency")
	exponential.SetUnit("s")
	exponential.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	h := exponential.ExponentialHistogram().DataPoints().AppendEmpty()
	h.SetTimestamp(stamp)
	h.SetStartTimestamp(start)
	h.SetScale(1)
	h.SetCount(6)
	h.SetSum(10)
	h.SetZeroCount(1)
	h.Positive().BucketCounts().FromRaw([]uint64{2, 3})

	classic := list.AppendEmpty()
	classic.SetName("size")
	classic.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	c := classic.Histogram().DataPoints().AppendEmpty()
	c.SetTimestamp(stamp)
	c.SetCount(3)
	c.SetSum(4)
	c.ExplicitBounds().FromRaw([]float64{1, 2})
	c.BucketCounts().FromRaw([]uint64{1, 1, 1})
	return pmetricotlp.NewExportRequestFromMetrics(metrics)
}

func TestOTLP(t *testing.T) {
	at := time.Now().Truncate(time.Millisecond)
	for _, encoding := range []string{"application/x-protobuf", "application/json", "application/json; charset=utf-8", "gzip"} {
		t.Run(encoding, func(t *testing.T) {
			base, _ := remotetest.ServeStore(t, remotetest.OpenPebble(t))
			header := http.Header{"Content-Type": {encoding}}
			body, err := otlpMetrics(at).MarshalProto()
			switch {
			case strings.Contains(encoding, "json"):
				body, err = otlpMetrics(at).MarshalJSON()
			case encoding == "gzip":
				header = http.Header{"Content-Type": {"application/x-protobuf"}, "Content-Encoding": {"gzip"}}
				body = zipped(t, body)
			}
			if err != nil {
				t.Fatal(err)
			}
			got := remotetest.Send(t, http.MethodPost, base+"/api/v1/otlp/v1/metrics", header, body)
			got.WantStatus(t, 200)
			if strings.Contains(got.Body, "rejected") || got.Header.Get("Content-Type") != strings.Split(header.Get("Content-Type"), ";")[0] {
				t.Errorf("answer %q %q", got.Header.Get("Content-Type"), got.Body)
			}
			ms := at.UnixMilli()
			found := map[string][]string{}
			for _, name := range []string{"room_temperature_celsius", "orders_total", "latency_seconds", "size_bucket", "size_sum", "size_count", "target_info"} {
				found[name] = namedTexts(t, base, name)
			}
			start := ms - 60_000
			wantFound := map[string][]string{
				"room_temperature_celsius": {remotetest.ValueText(ms, 0, math.Copysign(0, -1), nil, nil)},
				"orders_total":             {remotetest.ValueText(ms, start, 7, nil, nil)},
				"latency_seconds": {remotetest.ValueText(ms, start, 0, &histogram.Histogram{
					Schema: 1, ZeroThreshold: 1e-128, ZeroCount: 1, Count: 6, Sum: 10,
					PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}}, PositiveBuckets: []int64{2, 1},
				}, nil)},
				"size_bucket": {remotetest.ValueText(ms, 0, 1, nil, nil), remotetest.ValueText(ms, 0, 2, nil, nil), remotetest.ValueText(ms, 0, 3, nil, nil)},
				"size_sum":    {remotetest.ValueText(ms, 0, 4, nil, nil)},
				"size_count":  {remotetest.ValueText(ms, 0, 3, nil, nil)},
				"target_info": {remotetest.ValueText(ms, 0, 1, nil, nil)},
			}
			for name, want := range wantFound {
				slices.Sort(found[name])
				slices.Sort(want)
				if !slices.Equal(found[name], want) {
					t.Errorf("%s:\n%q\nwant\n%q", name, found[name], want)
				}
			}
		})
	}
}

func zipped(t *testing.T, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// namedTexts reads the values of all series of a metric.
func namedTexts(t *testing.T, base, name string) []string {
	t.Helper()
	return remotetest.StreamedTexts(t, base, "Prometheus/3.16.0", remotetest.Query(0, math.MaxInt64, remotetest.Eq("__name__", name)))
}

func TestOTLPRefuses(t *testing.T) {
	at := time.Now()
	good, err := otlpMetrics(at).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	future, err := otlpMetrics(at.Add(time.Hour)).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	delta := otlpMetrics(at)
	delta.Metrics().ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(1).Sum().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	mixed, err := delta.MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	bomb := zipped(t, make([]byte, 33<<20))
	base, _ := remotetest.ServeStore(t, remotetest.OpenPebble(t))
	for _, tt := range []struct {
		name                  string
		contentType, encoding string
		body                  []byte
		status                int
		text                  string
	}{
		{"no content type", "", "", good, 415, "content type"},
		{"text", "text/plain", "", good, 415, "text/plain"},
		{"snappy", otlpType, "snappy", good, 415, "snappy"},
		{"no protobuf", otlpType, "", []byte("hello, is there anybody?"), 400, "decode OTLP metrics"},
		{"no JSON", "application/json", "", []byte("{"), 400, "decode OTLP metrics"},
		{"no gzip", otlpType, "gzip", good, 400, "decompress"},
		{"half a gzip", otlpType, "gzip", zipped(t, good)[:50], 400, "decompress"},
		{"a bomb", otlpType, "gzip", bomb, 413, "more than 33554432 bytes"},
		{"the future", otlpType, "", future, 200, "ahead of the clock"},
		{"a part that cannot be translated", otlpType, "", mixed, 200, "temporality"},
		{"nothing", otlpType, "", nil, 200, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			header := http.Header{"Content-Type": {tt.contentType}}
			if tt.encoding != "" {
				header["Content-Encoding"] = []string{tt.encoding}
			}
			got := remotetest.Send(t, http.MethodPost, base+"/api/v1/otlp/v1/metrics", header, tt.body)
			got.WantStatus(t, tt.status)
			if !strings.Contains(got.Body, tt.text) {
				t.Errorf("answer %q, want %q in it", got.Body, tt.text)
			}
			if tt.status != 200 {
				return
			}
			response := pmetricotlp.NewExportResponse()
			if err := response.UnmarshalProto([]byte(got.Body)); err != nil {
				t.Fatal(err)
			}
			if n := response.PartialSuccess().RejectedDataPoints(); (n > 0) != (tt.text != "") {
				t.Errorf("%d rejected", n)
			}
		})
	}
	// What could be translated is stored.
	if got := namedTexts(t, base, "room_temperature_celsius"); len(got) != 1 {
		t.Errorf("stored %q", got)
	}
	if got := namedTexts(t, base, "orders_total"); len(got) != 0 {
		t.Errorf("stored %q", got)
	}
	remotetest.Send(t, http.MethodGet, base+"/api/v1/otlp/v1/metrics", nil, nil).WantStatus(t, 405)
}

const otlpType = "application/x-protobuf"

// sampleless is a store that takes no samples.
type sampleless struct{ bucketstore.Store }

func (s sampleless) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if table == bucketstore.Metric {
		return remotetest.ErrStore
	}
	return s.Store.Apply(ctx, table, muts)
}

// TestOTLPStoreFails: what is not stored is not acknowledged. Prometheus' own
// handler would.
func TestOTLPStoreFails(t *testing.T) {
	base, _ := remotetest.ServeStore(t, sampleless{remotetest.OpenPebble(t)})
	body, err := otlpMetrics(time.Now()).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	got := remotetest.Send(t, http.MethodPost, base+"/api/v1/otlp/v1/metrics", http.Header{"Content-Type": {otlpType}}, body)
	got.WantStatus(t, 503)
	if !strings.Contains(got.Body, "store:") {
		t.Errorf("answer %q", got.Body)
	}
}
