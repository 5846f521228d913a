package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promtable/promtable/e2e/harness"
)

// A latency asks for a long time of the series of one metric on Bigtable, from samples or from rollups, with and without a delay of each call.
type latency struct {
	year
	delay   time.Duration
	rollups bool
}

// runLatency is the command latency.
func runLatency(ctx context.Context, args []string) (err error) {
	l := &latency{}
	app := kingpin.New("bench latency", "Writes a long time of the series of one metric to an emulator of Bigtable, and prints what a query of all of it takes, from samples or from rollups, with and without a delay of each call.")
	app.Flag("metric", "Their metric, a counter.").Default("node_cpu_seconds_total").StringVar(&l.workload.Metric)
	app.Flag("series", "Series.").Default("1000").IntVar(&l.workload.Series)
	app.Flag("days", "Days.").Default("28").IntVar(&l.days)
	app.Flag("interval", "Time between two samples of a series.").Default("15s").DurationVar(&l.workload.Interval)
	app.Flag("seed", "Seed of the values.").Default("1").Uint64Var(&l.workload.Seed)
	app.Flag("adapter-args", "Flags for the adapter, separated by spaces.").StringVar(&l.adapterArgs)
	app.Flag("delay", "How much later each byte arrives, in each direction.").Default("5ms").DurationVar(&l.delay)
	app.Flag("rollups", "Make rollups, and ask these for all days at a step of 6h.").BoolVar(&l.rollups)
	app.Flag("read-time", "How long each query is repeated, at least five times.").Default("2s").DurationVar(&l.readTime)
	if _, err := app.Parse(args); err != nil {
		return err
	}
	if l.days < 1 || l.workload.Series < 1 || l.workload.Interval < time.Second || len(l.workload.shapes()) == 0 {
		return errors.New("--days and --series have to be at least 1, --interval 1s, and --metric one of a host's")
	}
	l.workload.Samples = int(time.Duration(l.days) * 24 * time.Hour / l.workload.Interval)
	l.workload.End = time.Now().UnixMilli()/day*day - day
	if l.program, err = buildAdapter(ctx); err != nil {
		return err
	}
	fmt.Printf("%s, %d cores, %s, load %s before\n\n    %s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version(), load(), commandLine(append([]string{"latency"}, args...)))
	l.table = table{{fmt.Sprintf("%d series, %d days, a sample each %v", l.workload.Series, l.days, l.workload.Interval), ""}}
	err = l.measure(ctx)
	fmt.Println(l.table) // what is known so far, too
	return err
}

func (l *latency) measure(ctx context.Context) error {
	emulator, err := buildEmulator(ctx)
	if err != nil {
		return err
	}
	e, err := startProcess(ctx, "emulator", harness.Command{Path: emulator.path, Args: []string{"-host=127.0.0.1", "-port=0"}})
	if err != nil {
		return err
	}
	defer e.End()
	var address string
	if err := e.Await(ctx, patience(), "listens", func() (err error) {
		address, err = emulatorAddress(e.Printed())
		return err
	}); err != nil {
		return err
	}
	args := append(strings.Fields(l.adapterArgs), "--query.timeout=1h", "--no-seal.enabled")
	if !l.rollups {
		args = append(args, "--no-rollup.enabled")
	}
	serve := func(address string, do func(*server) error) error {
		s, err := onBigtable(ctx, l.program, address, args)
		if err != nil {
			return err
		}
		defer s.close()
		return errors.Join(do(s), s.stop())
	}
	if err := serve(address, func(*server) error { return nil }); err != nil { // which makes the tables
		return err
	}
	if err := l.openBigtable(ctx, address); err != nil {
		return err
	}
	progress("writing %d samples", l.workload.total())
	if err := errors.Join(l.fill(ctx, l.workload, 0), l.store.Close()); err != nil {
		return err
	}
	if l.rollups {
		progress("making rollups")
		if err := serve(address, func(s *server) error {
			_, err := s.awaitRollups(ctx, l.days)
			return err
		}); err != nil {
			return err
		}
	}
	for _, delay := range []time.Duration{0, l.delay} {
		proxy, err := harness.NewProxy(address, delay)
		if err != nil {
			return err
		}
		err = serve(proxy.Addr, func(s *server) error { return l.ask(ctx, s, fmt.Sprintf("delay %v", delay)) })
		proxy.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// ask asks for all of the time, for the last day, and for an instant.
func (l *latency) ask(ctx context.Context, s *server, of string) error {
	end, params := l.workload.End/3_600_000*3_600_000, "&max_source_resolution=0s"
	all := rangeQuery{fmt.Sprintf("sum by (job) (rate(%s[1h15s]))", l.workload.Metric), end - int64(l.days)*day + 3_600_000, end, time.Hour}
	if l.rollups {
		params, all.text, all.step = "", strings.Replace(all.text, "1h15s", "6h15s", 1), 6*time.Hour
	}
	type asked struct {
		name string
		rangeQuery
	}
	questions := []asked{
		{"all days", all},
		{"a day", rangeQuery{fmt.Sprintf("sum by (job) (rate(%s[5m]))", l.workload.Metric), end - day, end, 5 * time.Minute}},
		{"an instant", rangeQuery{fmt.Sprintf("sum by (job) (rate(%s[5m]))", l.workload.Metric), end, end, 5 * time.Minute}},
	}
	if l.rollups {
		questions = questions[:1]
	}
	for _, q := range questions {
		before, err := s.counters(ctx)
		if err != nil {
			return err
		}
		if err := l.askOne(ctx, s, of+", "+q.name, q.rangeQuery, params, false); err != nil {
			return err
		}
		after, err := s.counters(ctx)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(after)) {
			if n := after[name] - before[name]; n > 0 && strings.HasPrefix(name, "adapter_bigtable_requests_total") {
				l.add(of+", "+q.name+": "+strings.TrimPrefix(name, "adapter_bigtable_requests_total")+" of all answers", fmt.Sprint(n))
			}
		}
	}
	return nil
}
