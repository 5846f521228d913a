package ui

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Where Prometheus has its page: up to version 2, and since version 3.
const (
	graphPath = "/graph"
	queryPath = "/query"
)

// fromPrometheus returns the state of the page that shows what a link to Prometheus' page does: the expressions of all its
// panels, as its first panel shows its own. What cannot be read is left out.
func fromPrometheus(link url.Values) url.Values {
	state := url.Values{"tab": {"query"}, "view": {"table"}}
	for _, panel := range panels(link) {
		if expr := link.Get(panel + ".expr"); expr != "" {
			state.Add("expr", expr)
		}
	}
	if tab := link.Get("g0.tab"); tab == "0" || tab == "graph" {
		state.Set("view", "graph")
	}
	if link.Get("g0.show_exemplars") == "1" {
		state.Set("exemplars", "on")
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

// panels returns the names of the panels of a link that have an expression, in their order: g0, g1 and so on.
func panels(link url.Values) (names []string) {
	numbers := make(map[string]uint64)
	for name := range link {
		panel, ok := strings.CutSuffix(name, ".expr")
		digits, isPanel := strings.CutPrefix(panel, "g")
		if n, err := strconv.ParseUint(digits, 10, 32); ok && isPanel && err == nil {
			numbers[panel] = n
			names = append(names, panel)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(numbers[a], numbers[b]), strings.Compare(a, b))
	})
	return names
}
