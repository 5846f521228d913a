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
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight) // text without a tab ends its columns
	row := func(name string, values ...float64) {
		fmt.Fprint(table, name, "\t")
		for _, v := range values {
			fmt.Fprint(table, number(v), "\t")
		}
		fmt.Fprintln(table)
	}
	m, d, b, none := e.Measured, e.Direct, e.Buffered, math.NaN()
	fmt.Fprintf(table, "Prometheus %s has:\n\n", m.Version)
	row("series", m.Series)
	row("series that end, a day", m.ChurnPerDay)
	row("samples a second", m.SamplesPerSecond)
	row("native histograms among them, %", 100*m.HistogramShare)
	row("labels of a series", m.Labels)
	row("bytes of a series key", m.KeyBytes)
	row("samples in a chunk", e.SamplesPerChunk)
	row("bytes of a float in a chunk", m.Payload)
	adapters := "one adapter"
	if e.Adapters != 1 {
		adapters = fmt.Sprintf("%.0f adapters on Bigtable, or one on the embedded store", e.Adapters)
	}
	fmt.Fprintf(table, "\nHere it would cost, with %s:\n\n\tBigtable, direct\tBigtable, buffer\tembedded\t\n", adapters)
	row("row mutations a day: METRIC", d.Mutations.Metric, b.Mutations.Metric, none)
	row("sealing", d.Mutations.Seal, b.Mutations.Seal, none)
	row("CURRENT", d.Mutations.Current, b.Mutations.Current, none)
	row("INDEX", d.Mutations.Index, b.Mutations.Index, none)
	row("all", d.Mutations.Total, b.Mutations.Total, none)
	row("row mutations a second", d.Mutations.PerSecond, b.Mutations.PerSecond, none)
	row("row mutations a sample", d.Mutations.PerSample, b.Mutations.PerSample, none)
	for i, k := range d.Kept {
		until := fmt.Sprintf("after %g days", k.Days)
		switch {
		case k.Days < 0:
			row(k.Name+", off", none, none, none)
			continue
		case k.Days == 0:
			until = "after a year, kept for ever"
		}
		row(k.Name+", GB a month", k.Monthly, b.Kept[i].Monthly, e.Embedded.Kept[i].Monthly)
		row(k.Name+", GB "+until, k.Total, b.Kept[i].Total, e.Embedded.Kept[i].Total)
	}
	row("samples not sealed yet, GB", d.RawCells, b.RawCells, none)
	row("log of an adapter, GB", none, b.Log, e.Embedded.Log)
	row("stored in all, GB", d.Total, b.Total, e.Embedded.Total)
	row("memory of an adapter, GB", d.Memory, b.Memory, e.Embedded.Memory)
	row("nodes with SSD", d.SSD.Nodes, b.SSD.Nodes, none)
	row("money a month with SSD", d.SSD.Money, b.SSD.Money, none)
	row("nodes with HDD", d.HDD.Nodes, b.HDD.Nodes, none)
	row("money a month with HDD", d.HDD.Money, b.HDD.Money, none)
	fmt.Fprintf(table, "\nA node does %g %% of what Google says, as headroom. Money is %g for a node and hour, and %g (SSD) or %g (HDD) for a GB and month: give your own with --price.*\n", Headroom*100, e.Prices.NodeHour, e.Prices.SSDMonth, e.Prices.HDDMonth)
	for _, note := range m.Notes {
		fmt.Fprintln(table, "Note:", note)
	}
	return table.Flush()
}

// number prints three digits, or all before the point, and NaN as a figure that there is not.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v >= 1000 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	}
	return strings.TrimSuffix(fmt.Sprintf("%#.3g", v), ".")
}
