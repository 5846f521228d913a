package ingest_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/remote/ingest"
)

func TestFamilyName(t *testing.T) {
	for _, tt := range []struct{ name, kind, want string }{
		{"x_bucket", "histogram", "x"},
		{"x_count", "histogram", "x"},
		{"x_sum", "summary", "x"},
		{"x_bucket", "summary", "x_bucket"},
		{"x_gcount", "gaugehistogram", "x"},
		{"x_sum", "counter", "x_sum"},
		{"x_total", "counter", "x_total"},
		{"x", "histogram", "x"},
		{"_sum", "histogram", "_sum"},
		{"x_sum", "", "x_sum"},
	} {
		t.Run(fmt.Sprintf("%s of a %s", tt.name, tt.kind), func(t *testing.T) {
			if got := ingest.FamilyName(tt.name, model.MetricType(tt.kind)); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
