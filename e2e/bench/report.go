package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// results are everything that was found out, as --json prints it.
type results struct {
	Date        string
	Command     string
	Go          string
	Platform    string
	Cores       int
	Load        string // average of a minute, before anything ran
	Backend     string
	Workload    workload
	PerRequest  int
	Connections int
	Servers     []participant
	Figures     []*figure
	Answers     []answer
	Problems    []string
}

// A participant is a server that took part. The first is the adapter, if it did.
type participant struct{ Name, Title, Version string }

// A figure is one quantity, by the name of the server. Less is better, but for
// those per second.
type figure struct {
	Section, Name string
	Values        map[string]float64
}

// An answer is what a server gave to one query.
type answer struct {
	Server, Section, Query string
	digest
}

// A noter notes a value of one server in one section.
type noter func(name string, value float64)

func (r *results) noter(server, section string) noter {
	return func(name string, value float64) {
		i := slices.IndexFunc(r.Figures, func(f *figure) bool { return f.Section == section && f.Name == name })
		if i < 0 {
			i = len(r.Figures)
			r.Figures = append(r.Figures, &figure{section, name, map[string]float64{}})
		}
		r.Figures[i].Values[server] = value
	}
}

func (r *results) answer(server, section, query string, d digest) {
	r.Answers = append(r.Answers, answer{server, section, query, d})
}

// check compares the answers, those to remote reads with what they have to be,
// by name, and those to PromQL with one another.
func (r *results) check(want map[string]digest) {
	first := map[string]answer{}
	for _, a := range r.Answers {
		source := fmt.Sprintf("%s, %s, %s", a.Server, a.Section, a.Query)
		if w, ok := want[a.Query]; ok {
			if a.digest != w {
				r.Problems = append(r.Problems, fmt.Sprintf("%s: %v, want %v", source, a.digest, w))
			}
			continue
		}
		f, ok := first[a.Query]
		switch {
		case a.Samples == 0:
			r.Problems = append(r.Problems, source+": no samples")
		case !ok:
			first[a.Query] = a
		case a.digest != f.digest:
			r.Problems = append(r.Problems, fmt.Sprintf("%s: %v, but %s has %v", source, a.digest, f.Server, f.digest))
		}
	}
}

// String names a digest in a message.
func (d digest) String() string {
	if d.Sum == 0 {
		return fmt.Sprintf("%d samples", d.Samples)
	}
	return fmt.Sprintf("%d samples with checksum %016x", d.Samples, d.Sum)
}

// writeJSON prints everything as JSON.
func (r *results) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// writeTable prints Markdown: what was run, and a table with a column for each
// server and one for each ratio of the first to another.
func (r *results) writeTable(w io.Writer) error {
	var b strings.Builder
	r.head(&b)
	r.tableHead(&b)
	section := ""
	for _, f := range r.sorted() {
		if f.Section != section {
			section = f.Section
			fmt.Fprintf(&b, "| **%s** |%s\n", section, strings.Repeat(" |", len(r.columns())-1))
		}
		r.row(&b, f)
	}
	if len(r.Problems) == 0 && len(r.Answers) > 0 {
		b.WriteString("\nRemote reads gave exactly the samples that were sent, and PromQL the same number of samples on all servers.\n")
	}
	b.WriteString("\nCPU time and bytes written are counted until the server has nothing left to do, for a minute at most. " +
		"On disk is after a clean stop, without the adapter's reserve file and VictoriaMetrics' cache directory.\n")
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "\nWRONG ANSWER: %s\n", p)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *results) head(b *strings.Builder) {
	fmt.Fprintf(b, "%s, %d cores, %s, %s, load %s before\n\n    %s\n\n", r.Date, r.Cores, r.Platform, r.Go, r.Load, r.Command)
	var versions []string
	for _, p := range r.Servers {
		versions = append(versions, p.Title+" "+p.Version)
	}
	fmt.Fprintf(b, "%s. ", strings.Join(versions, "; "))
	wl, metric := r.Workload, ""
	if wl.Metric != "" {
		metric = " of " + wl.Metric
	}
	fmt.Fprintf(b, "%d series%s of %d samples, one each %v until %s, %d samples a request, %d connections; seed %d.\n\n",
		wl.Series, metric, wl.Samples, wl.Interval, time.UnixMilli(wl.End).UTC().Format("2006-01-02 15:04"), r.PerRequest, r.Connections, wl.Seed)
}

// columns are the heads of the columns.
func (r *results) columns() []string {
	list := []string{""}
	for _, p := range r.Servers {
		list = append(list, p.Title)
	}
	if len(r.Servers) > 1 {
		for _, p := range r.Servers[1:] {
			list = append(list, r.Servers[0].Title+" / "+p.Title)
		}
	}
	return list
}

func (r *results) tableHead(b *strings.Builder) {
	columns := r.columns()
	fmt.Fprintf(b, "|%s |\n|---%s|\n", strings.Join(columns, " | "), strings.Repeat("|---:", len(columns)-1))
}

func (r *results) row(b *strings.Builder, f *figure) {
	cells := []string{f.Name}
	for _, p := range r.Servers {
		cells = append(cells, cell(f.Values, p.Name))
	}
	if len(r.Servers) > 1 {
		for _, p := range r.Servers[1:] {
			cells = append(cells, ratio(f.Values, r.Servers[0].Name, p.Name))
		}
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

func cell(values map[string]float64, server string) string {
	if v, ok := values[server]; ok {
		return digits(v)
	}
	return "–"
}

func ratio(values map[string]float64, a, b string) string {
	x, okA := values[a]
	y, okB := values[b]
	if !okA || !okB || y == 0 {
		return "–"
	}
	return digits(x / y)
}

// digits prints three significant digits, and all before the point.
func digits(v float64) string {
	if v == 0 {
		return "0"
	}
	decimals := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return strconv.FormatFloat(v, 'f', min(max(decimals, 0), 4), 64)
}

// sorted returns the figures with sections together, in the order in which they
// first came.
func (r *results) sorted() []*figure {
	order := map[string]int{}
	for _, f := range r.Figures {
		if _, ok := order[f.Section]; !ok {
			order[f.Section] = len(order)
		}
	}
	list := slices.Clone(r.Figures)
	slices.SortStableFunc(list, func(a, b *figure) int { return order[a.Section] - order[b.Section] })
	return list
}
