package ui

import (
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
)

// Where Prometheus has its page: up to version 2, and since version 3.
const (
	graphPath = "/graph"
	queryPath = "/query"
)

// fromPrometheus returns the state of the page that shows what a link to Prometheus' page does, of its first panel.
// What cannot be read is left out.
func fromPrometheus(link url.Values) url.Values {
	state := url.Values{"tab": {"query"}, "view": {"table"}}
	if expr := link.Get("g0.expr"); expr != "" {
		state.Set("expr", expr)
	}
	if tab := link.Get("g0.tab"); tab == "0" || tab == "graph" {
		state.Set("view", "graph")
	}
	if span, err := model.ParseDuration(link.Get("g0.range_input")); err == nil && time.Duration(span) >= time.Second {
		state.Set("range", strconv.FormatInt(int64(time.Duration(span)/time.Second), 10))
	}
	for _, name := range []string{"g0.end_input", "g0.moment_input"} { // of a graph, of a table
		for _, layout := range []string{time.DateTime, "2006-01-02 15:04"} { // in UTC
			if end, err := time.Parse(layout, link.Get(name)); err == nil {
				state.Set("end", end.Format(time.RFC3339))
			}
		}
	}
	return state
}
