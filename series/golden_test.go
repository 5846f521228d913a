package series_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/golden"
)

// TestGolden pins the stored bytes.
func TestGolden(t *testing.T) {
	golden.Commands(t, map[string]func(*golden.Case){
		"series":    func(c *golden.Case) { c.Dump("series key", goldenKey(c)) },
		"row":       goldenRows,
		"qualifier": goldenQualifiers,
		"meta":      goldenMeta,
		"index":     goldenIndex,
	})
}

func goldenKey(c *golden.Case) []byte { return appendSeriesKey(c, c.Schema, c.Labels) }

func goldenQualifiers(c *golden.Case) {
	for _, arg := range c.Args {
		delta, err := strconv.ParseUint(arg[0], 10, 32)
		c.Must(err)
		fmt.Fprintf(&c.Out, "%-24d %x\n", delta, series.AppendQualifier(nil, uint32(delta)))
	}
}

func goldenMeta(c *golden.Case) {
	for _, arg := range c.Args {
		key, err := c.Schema.AppendMetaKey(nil, arg[0], arg[1])
		c.Must(err)
		c.Dump("key", key)
	}
}

// goldenRows writes a row key, when it is another one than before, and a line for
// each sample: qualifier, value, time.
func goldenRows(c *golden.Case) {
	var last string
	for _, arg := range c.Args {
		base, delta := series.Split(c.Int(arg[1]))
		key := c.Schema.AppendRowKey(nil, goldenKey(c), base)
		if string(key) != last {
			c.Dump("row key", key)
			last = string(key)
		}
		fmt.Fprintf(&c.Out, "cell  %x  %x  | delta %d, value %s\n",
			series.AppendQualifier(nil, delta), cell.AppendFloat(nil, c.Float(arg[2])), delta, arg[2])
	}
}

// goldenIndex writes the rows that each label of the set has in a period.
func goldenIndex(c *golden.Case) {
	period := c.Int(c.Args[0][1])
	c.Labels.Range(func(l labels.Label) {
		c.Dump("posting", appendPosting(c.Schema, l.Name, l.Value, period, goldenKey(c)))
		c.Dump("value", c.Schema.AppendValueKey(nil, l.Name, l.Value, period))
		c.Dump("name", c.Schema.AppendNameKey(nil, l.Name, period))
	})
}
