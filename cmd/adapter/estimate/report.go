package estimate

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Print prints the estimate for people. docs/estimate.md explains each line.
func (e Estimate) Print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(name string, columns ...string) {
		fmt.Fprintln(table, strings.Join(append([]string{name}, columns...), "\t")+"\t")
	}
	m := e.Measured
	fmt.Fprintf(w, "Prometheus %s has:\n\n", m.Version)
	line("series", number(m.Series))
	line("series that end, a day", number(m.ChurnPerDay))
	line("samples a second", number(m.SamplesPerSecond))
	line("native histograms among them, %", number(100*m.HistogramShare))
	line("labels of a series", number(m.Labels))
	line("bytes of a series key", number(m.KeyBytes))
	line("samples in a chunk", number(e.SamplesPerChunk))
	line("bytes of a float in a chunk", number(m.Payload))
	if err := table.Flush(); err != nil {
		return err
	}

	fmt.Fprintf(w, "\nHere it would cost, with %s:\n\n", adapters(e.Adapters))
	line("", "Bigtable, direct", "Bigtable, buffer", "embedded")
	both := func(name string, of func(Bigtable) float64) {
		line(name, number(of(e.Direct)), number(of(e.Buffered)), "-")
	}
	both("row mutations a day: METRIC", func(b Bigtable) float64 { return b.Mutations.Metric })
	both("sealing", func(b Bigtable) float64 { return b.Mutations.Seal })
	both("CURRENT", func(b Bigtable) float64 { return b.Mutations.Current })
	both("INDEX", func(b Bigtable) float64 { return b.Mutations.Index })
	both("all", func(b Bigtable) float64 { return b.Mutations.Total })
	both("row mutations a second", func(b Bigtable) float64 { return b.Mutations.PerSecond })
	both("row mutations a sample", func(b Bigtable) float64 { return b.Mutations.PerSample })
	all := func(name string, of func(Kept) float64, i int) {
		line(name, number(of(e.Direct.Kept[i])), number(of(e.Buffered.Kept[i])), number(of(e.Embedded.Kept[i])))
	}
	for i, k := range e.Direct.Kept {
		if k.Days < 0 {
			line(k.Name+", off", "-", "-", "-")
			continue
		}
		all(k.Name+", GB a month", func(k Kept) float64 { return k.Monthly }, i)
		all(k.Name+", GB "+k.until(), func(k Kept) float64 { return k.Total }, i)
	}
	both("samples not sealed yet, GB", func(b Bigtable) float64 { return b.RawCells })
	line("log of an adapter, GB", "-", number(e.Buffered.Log), number(e.Embedded.Log))
	line("stored in all, GB", number(e.Direct.Total), number(e.Buffered.Total), number(e.Embedded.Total))
	line("memory of an adapter, GB", number(e.Direct.Memory), number(e.Buffered.Memory), number(e.Embedded.Memory))
	both("nodes with SSD", func(b Bigtable) float64 { return b.SSD.Nodes })
	both("money a month with SSD", func(b Bigtable) float64 { return b.SSD.Money })
	both("nodes with HDD", func(b Bigtable) float64 { return b.HDD.Nodes })
	both("money a month with HDD", func(b Bigtable) float64 { return b.HDD.Money })
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nMoney is %g for a node and hour, and %g (SSD) or %g (HDD) for a GB and month: give your own with --price.*\n", e.Prices.NodeHour, e.Prices.SSDMonth, e.Prices.HDDMonth)
	for _, note := range m.Notes {
		fmt.Fprintln(w, "Note:", note)
	}
	return nil
}

// adapters says how many adapters there are on Bigtable.
func adapters(n float64) string {
	if n == 1 {
		return "one adapter"
	}
	return fmt.Sprintf("%.0f adapters on Bigtable, or one on the embedded store", n)
}

// until says when a resolution takes its total.
func (k Kept) until() string {
	if k.Days == 0 {
		return "after a year, kept for ever"
	}
	return fmt.Sprintf("after %g days", k.Days)
}

// number prints three digits, or all before the point.
func number(v float64) string {
	if v >= 1000 || v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return strings.TrimSuffix(fmt.Sprintf("%#.3g", v), ".")
}
