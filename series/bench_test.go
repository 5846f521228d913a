package series_test

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

// benchLabels is a label set of the size and shape that a Kubernetes scrape gives.
func benchLabels() labels.Labels {
	return labels.FromStrings(
		labels.MetricName, "http_request_duration_seconds_bucket",
		"cluster", "eu-west-1-production",
		"container", "api-server",
		"handler", "/api/v1/query_range",
		"instance", "10.128.14.203:9090",
		"job", "monitoring/api-server",
		"le", "0.25",
		"method", "GET",
		"namespace", "monitoring",
		"pod", "api-server-6d4cf56db6-x2x7k",
	)
}

var benchSchemas = []struct {
	name     string
	resource []string
	tenant   string
}{
	{name: "plain"},
	{name: "resources and tenant", resource: []string{"instance", "pod"}, tenant: "team-a"},
}

// forSchemas runs fn once per schema with the series key of benchLabels.
func forSchemas(b *testing.B, fn func(b *testing.B, s series.Schema, ls labels.Labels, key []byte)) {
	for _, bs := range benchSchemas {
		b.Run(bs.name, func(b *testing.B) {
			s := newSchema(b, bs.resource, bs.tenant)
			ls := benchLabels()
			b.ReportAllocs()
			fn(b, s, ls, appendSeriesKey(b, s, ls))
		})
	}
}

func BenchmarkAppendSeriesKey(b *testing.B) {
	forSchemas(b, func(b *testing.B, s series.Schema, ls labels.Labels, key []byte) {
		var err error
		for b.Loop() {
			if key, err = s.AppendSeriesKey(key[:0], ls); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkParseSeriesKey(b *testing.B) {
	forSchemas(b, func(b *testing.B, s series.Schema, _ labels.Labels, key []byte) {
		scratch := labels.NewScratchBuilder(16)
		for b.Loop() {
			if _, err := s.ParseSeriesKey(key, &scratch); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAppendRowKey(b *testing.B) {
	forSchemas(b, func(b *testing.B, s series.Schema, _ labels.Labels, key []byte) {
		var row []byte
		for b.Loop() {
			row = s.AppendRowKey(row[:0], key, 399*series.Period)
		}
	})
}

func BenchmarkParseRowKey(b *testing.B) {
	forSchemas(b, func(b *testing.B, s series.Schema, _ labels.Labels, key []byte) {
		row := s.AppendRowKey(nil, key, 399*series.Period)
		for b.Loop() {
			var err error
			if key, _, err = s.ParseRowKey(key[:0], row); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAppendPostingPrefix(b *testing.B) {
	forSchemas(b, func(b *testing.B, s series.Schema, _ labels.Labels, key []byte) {
		var posting []byte
		for b.Loop() {
			posting = append(s.AppendPostingPrefix(posting[:0], "pod", "api-server-6d4cf56db6-x2x7k", 3000*series.IndexPeriod), key...)
		}
	})
}
