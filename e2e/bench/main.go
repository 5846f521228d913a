// Command bench sends the same requests to the adapter and to its peers, one
// after the other, and prints what they cost each server:
//
//	go -C e2e/bench run .
//
// The adapter is built from this tree, Prometheus and VictoriaMetrics from the
// versions that e2e pins. Each runs on a fresh directory and on a port of
// 127.0.0.1, and is stopped before the next one starts. It needs /proc, so it runs
// on Linux.
//
//	main.go      flags, and the order of things
//	shapes.go    which series a host has, walk.go how their values move
//	workload.go  labels, times and values of all samples
//	spool.go     requests in a file, send.go sending them
//	query.go     what is asked, read.go the requests and their answers
//	build.go     getting the programs, server.go starting them
//	usage.go     what a running program uses, emulator.go Bigtable
//	measure.go   one server from start to stop
//	report.go    the table
//
// Seven other commands are of the adapter alone, but for panels:
//
//	scale.go     scale: very many series, scalequestions.go what is asked of them
//	churn.go     churn: series that are replaced each day, as the store keeps them
//	year.go      year: a long time from rollups and from samples
//	panels.go    panels: those of dashboards, which catalog.go has, of the peers too, which peers.go fills
//	history.go   the store of both
//	latency.go   latency: a long time on Bigtable, with a delay of each call
//	sizing.go    sizing: the table of docs/sizing.md
//	tenants.go   tenants: many tenants beside one, and one that writes far more than it may
//
// What runs and builds programs, encodes writes and decodes reads is in e2e/harness.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promtable/promtable/e2e/harness"
)

// options are the flags.
type options struct {
	workload    workload
	perRequest  int
	connections int
	protocols   string
	only        string
	backend     string
	adapterArgs string
	reads       bool
	atTurn      bool
	readTime    time.Duration
	json        string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run compares, unless the first argument is the name of another command.
func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "latency":
			return runLatency(ctx, args[1:])
		case "scale":
			return runScale(ctx, args[1:])
		case "churn":
			return runChurn(ctx, args[1:])
		case "year":
			return runYear(ctx, args[1:])
		case "panels":
			return runPanels(ctx, args[1:])
		case "sizing":
			return runSizing(ctx, args[1:])
		case "tenants":
			return runTenants(ctx, args[1:])
		}
	}
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	return o.run(ctx)
}

func parseFlags(args []string) (*options, error) {
	o := &options{}
	app := kingpin.New("bench", "Sends the same samples to the adapter and to its peers and prints what they cost.")
	app.Flag("series", "Series.").Default("10000").IntVar(&o.workload.Series)
	app.Flag("metric", "Only series of this metric, a counter: then one query is asked, of all of them over all of the time.").StringVar(&o.workload.Metric)
	app.Flag("samples", "Samples of each series.").Default("120").IntVar(&o.workload.Samples)
	app.Flag("interval", "Time between two samples of a series.").Default("15s").DurationVar(&o.workload.Interval)
	app.Flag("seed", "Seed of the values.").Default("1").Uint64Var(&o.workload.Seed)
	app.Flag("request", "Samples in a request.").Default("2000").IntVar(&o.perRequest)
	app.Flag("connections", "Connections that send at once.").Default("2").IntVar(&o.connections)
	app.Flag("protocol", "Versions of remote write.").Default("1.0,2.0").StringVar(&o.protocols)
	app.Flag("only", "Servers: adapter, prometheus, victoriametrics.").
		Default(strings.Join([]string{adapterName, prometheusName, victoriaName}, ",")).StringVar(&o.only)
	app.Flag("backend", "Where the adapter keeps rows: embedded, or bigtable for an emulator.").Default("embedded").
		EnumVar(&o.backend, "embedded", "bigtable")
	app.Flag("adapter-args", "Flags for the adapter, separated by spaces.").StringVar(&o.adapterArgs)
	app.Flag("at-turn", "End the samples just before an index period of the adapter does: new series are written to the next one, too.").BoolVar(&o.atTurn)
	app.Flag("reads", "Read after the writes.").Default("true").BoolVar(&o.reads)
	app.Flag("read-time", "How long each query is repeated, at least.").Default("1s").DurationVar(&o.readTime)
	app.Flag("json", "File for everything as JSON; - prints it instead of the table.").StringVar(&o.json)
	if _, err := app.Parse(args); err != nil {
		return nil, err
	}
	return o, o.check()
}

// check refuses what cannot be run.
func (o *options) check() error {
	w, host := o.workload, len(o.workload.shapes())
	switch span := time.Duration(w.Samples) * w.Interval; {
	case host == 0:
		return fmt.Errorf("--metric=%s is none that a host has", w.Metric)
	case w.Interval < time.Second:
		return fmt.Errorf("--interval=%v is less than 1s", w.Interval)
	case w.Samples < 1 || w.Series < 1 || o.perRequest < 1 || o.connections < 1:
		return errors.New("--samples, --series, --request and --connections have to be at least 1")
	case o.reads && w.Series < host:
		return fmt.Errorf("--series=%d is less than the %d of one host, which reads ask for: raise it, or add --no-reads", w.Series, host)
	case o.reads && span < 20*time.Minute:
		return fmt.Errorf("--samples=%d each --interval=%v last %v, and reads need 20m: raise them, or add --no-reads", w.Samples, w.Interval, span)
	}
	if _, err := pick(o.protocols, harness.RemoteWrites(), func(p harness.Protocol) string { return p.Name }); err != nil {
		return fmt.Errorf("--protocol: %w", err)
	}
	names := []string{adapterName, prometheusName, victoriaName}
	if _, err := pick(o.only, names, func(s string) string { return s }); err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	return nil
}

// pick returns those of all that a list with commas names, in the order of all.
func pick[T any](list string, all []T, name func(T) string) (picked []T, err error) {
	wanted := strings.Split(list, ",")
	for _, x := range all {
		if i := slices.Index(wanted, name(x)); i >= 0 {
			picked, wanted = append(picked, x), slices.Delete(wanted, i, i+1)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("%q is unknown or there twice", wanted[0])
	}
	return picked, nil
}

// run does everything in a temporary directory.
func (o *options) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "promtable-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	out := &results{
		Date: time.Now().UTC().Format(time.DateOnly), Command: commandLine(os.Args[1:]),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Load: load(),
		Backend: o.backend, PerRequest: o.perRequest, Connections: o.connections,
	}
	contenders, err := o.contenders(ctx, out)
	if err != nil {
		return err
	}
	o.workload.End = endBefore(time.Now().UnixMilli())
	if o.atTurn {
		o.workload.End = turnBefore(time.Now().UnixMilli())
	}
	out.Workload = o.workload
	if err := o.measure(ctx, dir, contenders, out); err != nil {
		return err
	}
	return o.report(out)
}

// contenders builds the servers.
func (o *options) contenders(ctx context.Context, out *results) ([]contender, error) {
	names, err := pick(o.only, []string{adapterName, prometheusName, victoriaName}, func(s string) string { return s })
	if err != nil {
		return nil, err
	}
	var list []contender
	for _, name := range names {
		progress("building %s", name)
		c, err := o.contender(ctx, name)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
		out.Servers = append(out.Servers, participant{c.name, c.title, c.version})
	}
	return list, nil
}

func (o *options) contender(ctx context.Context, name string) (contender, error) {
	switch name {
	case prometheusName:
		p, err := buildPrometheus()
		return newPrometheus(p), err
	case victoriaName:
		p, err := buildVictoria()
		return newVictoria(p), err
	}
	p, err := buildAdapter(ctx)
	if err != nil {
		return contender{}, err
	}
	args := strings.Fields(o.adapterArgs)
	if o.backend == "embedded" {
		return newAdapter(p, args), nil
	}
	e, err := buildEmulator(ctx)
	return newBigtableAdapter(p, e, args), err
}

// measure runs each server once with each protocol that it takes. It reads after
// the first.
func (o *options) measure(ctx context.Context, dir string, contenders []contender, out *results) error {
	b := &bench{workload: o.workload, connections: o.connections, readTime: o.readTime, dir: dir, progress: progress}
	want := map[string]digest{}
	if o.reads && o.workload.Metric != "" {
		b.expressions = whole(o.workload)
	} else if o.reads {
		b.selections, b.expressions = selections(o.workload), expressions(o.workload)
		for i, d := range expected(o.workload, b.selections) {
			want[b.selections[i].name] = want[b.selections[i].name].and(d)
		}
	}
	picked, err := pick(o.protocols, harness.RemoteWrites(), func(p harness.Protocol) string { return p.Name })
	if err != nil {
		return err
	}
	read := map[string]bool{}
	for _, p := range picked {
		progress("encoding %d samples for remote write %s", o.workload.total(), p.Name)
		s, err := newSpool(ctx, filepath.Join(dir, "requests"), p, o.workload, o.perRequest)
		if err != nil {
			return err
		}
		for _, c := range contenders {
			if !slices.Contains(c.protocols, p.Name) {
				continue
			}
			if err := b.run(ctx, c, p, s, o.reads && !read[c.name], out); err != nil {
				s.Close()
				return err
			}
			read[c.name] = true
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	out.check(want)
	return nil
}

// report prints the results. Wrong answers are an error.
func (o *options) report(out *results) error {
	switch o.json {
	case "-":
		if err := out.writeJSON(os.Stdout); err != nil {
			return err
		}
	case "":
	default:
		f, err := os.Create(o.json)
		if err != nil {
			return err
		}
		if err := errors.Join(out.writeJSON(f), f.Close()); err != nil {
			return err
		}
	}
	if o.json != "-" {
		if err := out.writeTable(os.Stdout); err != nil {
			return err
		}
	}
	if len(out.Problems) > 0 {
		return fmt.Errorf("%d wrong answers, the first: %s", len(out.Problems), out.Problems[0])
	}
	return nil
}

// progress prints what is going on.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// commandLine is what was typed, but for the file of the report.
func commandLine(args []string) string {
	words := []string{"go -C e2e/bench run ."}
	for i, a := range args {
		switch {
		case strings.HasPrefix(a, "--json"), i > 0 && args[i-1] == "--json":
			continue
		case strings.Contains(a, " "):
			a = "'" + a + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}
