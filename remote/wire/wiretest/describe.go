package wiretest

import (
	"fmt"
	"math"
	"strings"

	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series/cell"
)

// Describe writes all that is in a series, bit for bit.
func Describe(s ingest.Series) string {
	var b strings.Builder
	b.WriteString(s.Labels.String())
	for _, p := range s.Samples {
		fmt.Fprintf(&b, " %d:%x", p.T, math.Float64bits(p.V))
		if p.ST != 0 {
			fmt.Fprintf(&b, " since %d", p.ST)
		}
	}
	for _, h := range s.Histograms {
		fmt.Fprintf(&b, " %d:%x", h.T, cell.Append(nil, cell.Value{Start: h.ST, Histogram: h.H, FloatHistogram: h.FH}))
	}
	for _, x := range s.Exemplars {
		fmt.Fprintf(&b, " exemplar %s %d:%x", x.Labels, x.Ts, math.Float64bits(x.Value))
	}
	return b.String()
}
