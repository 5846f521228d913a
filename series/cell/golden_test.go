package cell_test

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/golden"
)

// TestGolden pins the stored bytes.
func TestGolden(t *testing.T) {
	golden.Commands(t, map[string]func(*golden.Case){
		"value":     goldenFloats,
		"start":     goldenStarts,
		"histogram": goldenHistograms,
		"exemplar":  goldenExemplars,
	})
}

func goldenFloats(c *golden.Case) {
	for _, arg := range c.Args {
		fmt.Fprintf(&c.Out, "%-24s %x\n", arg[0], cell.AppendFloat(nil, c.Float(arg[0])))
	}
}

func goldenStarts(c *golden.Case) {
	for _, arg := range c.Args {
		v := cell.Value{Start: c.Int(arg[1]), Float: c.Float(arg[0])}
		fmt.Fprintf(&c.Out, "%s since %d\n%s", arg[0], v.Start, hex.Dump(cell.Append(nil, v)))
	}
}

func goldenHistograms(c *golden.Case) {
	for i, v := range someHistograms() {
		fmt.Fprintf(&c.Out, "histogram %d since %d\n%s", i, v.Start, hex.Dump(cell.Append(nil, v)))
	}
}

func goldenExemplars(c *golden.Case) {
	for _, arg := range c.Args {
		x := exemplar.Exemplar{Labels: labels.FromStrings(arg[2:]...), Value: c.Float(arg[1])}
		value := cell.AppendExemplar(nil, x)
		c.Dump("qualifier", cell.AppendExemplarQualifier(nil, uint32(c.Int(arg[0])), value))
		c.Dump("value", value)
	}
}
