//go:build browser

package page

import (
	"slices"
	"strings"
	"testing"
)

// TestPageDemo: of what a demonstration has written the page knows the latest values, and of what type the metrics are.
func TestPageDemo(t *testing.T) {
	p := newPage(t, startRolled(t))
	p.open("tab", "latest", "filter", "room_temperature_celsius")
	if rows := p.rows(0); len(rows) != 2 || !strings.Contains(rows[0][0], `room="office"`) {
		t.Errorf("the latest values are %q", rows)
	}
	p.open("tab", "explore", "metric", "http_requests_total")
	if got := p.texts(".metric .facts"); !slices.Contains(got, "counter · 12 series: Requests answered, by handler and code.") {
		t.Errorf("of a metric the page says %q", got)
	}
	p.wantExplored([]string{"sum by (instance) (rate(http_requests_total[5m]))"}, 3)
}
