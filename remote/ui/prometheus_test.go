package ui_test

import (
	"net/http"
	"testing"
)

// TestPrometheusLinks: a link to Prometheus' page leads to the same on this one.
func TestPrometheusLinks(t *testing.T) {
	h := startPage(t)
	for link, want := range map[string]string{
		"/graph": "./?tab=query&view=table",
		"/graph?g0.expr=sum(rate(up%5B5m%5D))+%2B+1&g0.tab=0&g0.stacked=0&g0.range_input=1h&g0.end_input=2026-03-04%2005%3A06%3A07": "./?end=2026-03-04T05%3A06%3A07Z&expr=sum%28rate%28up%5B5m%5D%29%29+%2B+1&range=3600&tab=query&view=graph",
		"/graph?g0.expr=up&g0.tab=0&g0.range_input=1w2d&g0.end_input=2026-03-04%2005%3A06&g1.expr=down":                             "./?end=2026-03-04T05%3A06%3A00Z&expr=up&expr=down&range=777600&tab=query&view=graph",
		"/graph?g0.expr=up&g0.tab=1&g0.moment_input=2026-03-04%2005%3A06%3A07":                                                      "./?end=2026-03-04T05%3A06%3A07Z&expr=up&tab=query&view=table",
		"/query?g0.expr=up&g0.show_tree=0&g0.tab=graph&g0.range_input=1d&g0.res_type=auto":                                          "./?expr=up&range=86400&tab=query&view=graph",
		"/query?g10.expr=c&g2.expr=b&g0.expr=a&g1.expr=&gx.expr=d&expr=e&g.expr=f&g1.tab=graph":                                     "./?expr=a&expr=b&expr=c&tab=query&view=table",
		"/graph?g0.expr=up&g0.tab=0&g0.show_exemplars=1":                                                                            "./?exemplars=on&expr=up&tab=query&view=graph",
		"/query?g1.expr=up&g1.tab=graph":                                       "./?expr=up&tab=query&view=table",
		"/query?g0.expr=up&g0.tab=table&g0.range_input=long&g0.end_input=soon": "./?expr=up&tab=query&view=table",
	} {
		if w := get(h, link); w.Code != http.StatusFound || w.Header().Get("Location") != want {
			t.Errorf("%s leads to %d %s, want %s", link, w.Code, w.Header().Get("Location"), want)
		}
	}
}
