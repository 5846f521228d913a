package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

// A year asks for a long time of the series of one metric, from rollups and from samples.
type year struct {
	workload workload
	days     int
	step     time.Duration
	readTime time.Duration
	raw      bool
	adapter  contender
	dir      string
	filler
	table
}

// runYear is the command year.
func runYear(ctx context.Context, args []string) (err error) {
	y := &year{}
	var adapterArgs string
	app := kingpin.New("bench year", "Writes a long time of the series of one metric to an embedded store, lets the adapter make rollups, and prints what these cost, and what a query of all of it does from rollups and from samples.")
	app.Flag("series", "Series.").Default("1000").IntVar(&y.workload.Series)
	app.Flag("metric", "Their metric, a counter.").Default("node_cpu_seconds_total").StringVar(&y.workload.Metric)
	app.Flag("days", "Days.").Default("365").IntVar(&y.days)
	app.Flag("interval", "Time between two samples of a series.").Default("15s").DurationVar(&y.workload.Interval)
	app.Flag("seed", "Seed of the values.").Default("1").Uint64Var(&y.workload.Seed)
	app.Flag("step", "Step of the query.").Default("6h").DurationVar(&y.step)
	app.Flag("raw", "Ask for samples, too.").Default("true").BoolVar(&y.raw)
	app.Flag("read-time", "How long each query is repeated, at least five times but from samples, which is once.").Default("2s").DurationVar(&y.readTime)
	app.Flag("adapter-args", "Flags for the adapter, separated by spaces.").StringVar(&adapterArgs)
	if _, err := app.Parse(args); err != nil {
		return err
	}
	if y.days < 3 || y.workload.Series < 1 || y.workload.Interval < time.Second || len(y.workload.shapes()) == 0 {
		return errors.New("--days has to be at least 3, --series 1, --interval 1s, and --metric one of a host's")
	}
	y.workload.Samples = int(time.Duration(y.days) * 24 * time.Hour / y.workload.Interval)
	y.workload.End = time.Now().UnixMilli()/day*day - day // the last day is over for long enough
	if y.dir, err = os.MkdirTemp("", "promtable-year-"); err != nil {
		return err
	}
	defer os.RemoveAll(y.dir)
	p, err := buildAdapter(ctx)
	if err != nil {
		return err
	}
	y.adapter = newAdapter(p, append(strings.Fields(adapterArgs), "--query.timeout=1h")) // from samples it takes minutes
	fmt.Printf("%s, %d cores, %s, load %s before\n\n    %s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version(), load(), commandLine(append([]string{"year"}, args...)))
	y.table = table{{fmt.Sprintf("%d series, %d days, a sample each %v", y.workload.Series, y.days, y.workload.Interval), ""}}
	err = y.run(ctx)
	fmt.Println(y.table) // what is known so far, too
	return err
}

func (y *year) run(ctx context.Context) error {
	dir := filepath.Join(y.dir, "data")
	empty, err := y.adapter.start(ctx, dir) // which gives the store its identity
	if err != nil {
		return err
	}
	defer empty.close()
	if err := empty.stop(); err != nil {
		return err
	}
	if err := y.write(ctx, dir); err != nil {
		return err
	}
	if err := y.makeRollups(ctx, dir); err != nil {
		return err
	}
	server, err := y.adapter.start(ctx, dir)
	if err != nil {
		return err
	}
	defer server.close()
	return y.ask(ctx, server)
}

// write fills the store.
func (y *year) write(ctx context.Context, dir string) error {
	if err := y.open(dir); err != nil {
		return err
	}
	progress("writing %d samples", y.workload.total())
	began := time.Now()
	err := y.fill(ctx, y.workload, 0)
	if err = errors.Join(err, y.store.Close()); err != nil {
		return err
	}
	y.add("samples", fmt.Sprint(y.workload.total()))
	y.add("writing them as chunks, s", digits(time.Since(began).Seconds()))
	return y.disk(dir, "samples")
}

// disk notes what a store takes.
func (y *year) disk(dir, of string) error {
	disk, err := diskUsage(dir, filepath.Join(dir, "RESERVE"))
	if err == nil {
		y.add(of+", on disk (du), MB", megabytes(disk.occupied))
		y.add(of+", on disk (du), B a sample", digits(float64(disk.occupied)/float64(y.workload.total())))
	}
	return err
}

// makeRollups runs the adapter until all rollups are made.
func (y *year) makeRollups(ctx context.Context, dir string) error {
	progress("making rollups")
	server, err := y.adapter.start(ctx, dir)
	if err != nil {
		return err
	}
	defer server.close()
	began := time.Now()
	var made map[string]float64
	err = server.Await(ctx, patience(), "makes rollups", func() error {
		if made, err = server.counters(ctx); err != nil {
			return err
		}
		if days := made["adapter_rollup_walks_total"]; days < float64(y.days) || made["adapter_rollup_lag_seconds"] > 0 {
			return fmt.Errorf("%v of %d days are made", days, y.days)
		}
		return nil
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	if err := server.stop(); err != nil {
		return err
	}
	y.add("making rollups, s", digits(took.Seconds()))
	y.add("making rollups, CPU s per M samples", digits(server.total().cpu.Seconds()/float64(y.workload.total())*1e6))
	for _, resolution := range []string{"5m", "1h"} {
		name := fmt.Sprintf("adapter_rollup_bytes_total{resolution=%q}", resolution)
		y.add(resolution+" rollups, B a sample", digits(made[name]/float64(y.workload.total())))
	}
	return y.disk(dir, "samples and rollups")
}

// ask asks for all of the time.
func (y *year) ask(ctx context.Context, s *server) error {
	end := y.workload.End / 3_600_000 * 3_600_000
	hour := rangeQuery{fmt.Sprintf("sum by (job) (rate(%s[1h]))", y.workload.Metric), end - int64(y.days-1)*day, end, y.step}
	odd := hour
	odd.start, odd.end = hour.start-1_234_000, hour.end-1_234_000
	for _, q := range []struct {
		name string
		rangeQuery
		params string
	}{
		{"on the hour", hour, ""}, {"on the hour, from 5m", hour, "&max_source_resolution=5m"}, {"on the hour, from samples", hour, "&max_source_resolution=0s"},
		{"at an odd second", odd, ""}, {"at an odd second, from samples", odd, "&max_source_resolution=0s"},
	} {
		isRaw := strings.HasSuffix(q.params, "0s")
		if isRaw && !y.raw {
			continue
		}
		progress("asking %s", q.name)
		if err := y.askOne(ctx, s, q.name, q.rangeQuery, q.params, isRaw); err != nil {
			return err
		}
	}
	return nil
}

// askOne notes what an answer costs.
func (y *year) askOne(ctx context.Context, s *server, name string, q rangeQuery, params string, once bool) error {
	if err := settle(ctx, s.PID(), time.Minute); err != nil {
		return err
	}
	client := newClient(1)
	defer client.CloseIdleConnections()
	idle, err := resetPeak(s.PID())
	if err != nil {
		return err
	}
	before, err := usageOf(s.PID())
	if err != nil {
		return err
	}
	var took []time.Duration
	var buf bytes.Buffer
	for began := time.Now(); len(took) == 0 || !once && (len(took) < 5 || time.Since(began) < y.readTime); {
		req, err := rangeRequest(ctx, s.url, q)
		if err != nil {
			return err
		}
		req.URL.RawQuery += params + "&stats=all"
		sent := time.Now()
		if err := fetch(client, req, &buf); err != nil {
			return err
		}
		took = append(took, time.Since(sent))
	}
	after, err := usageOf(s.PID())
	if err != nil {
		return err
	}
	d, err := countMatrix(buf.Bytes())
	if err != nil {
		return err
	}
	if d.Samples == 0 {
		return fmt.Errorf("%s: the answer is empty", name)
	}
	y.add(name+": values", fmt.Sprint(d.Samples))
	y.add(name+": CPU s", digits((after.cpu-before.cpu).Seconds()/float64(len(took))))
	slices.Sort(took)
	y.add(name+": p50, ms", digits(milliseconds(quantile(took, 0.5))))
	y.add(name+": peak RSS over idle, MB", megabytes(after.peak-idle))
	read, err := bytesRead(buf.Bytes())
	y.add(name+": bytes of cells read, MB", megabytes(read))
	return err
}

// counters returns the metrics of an adapter, by name and labels.
func (s *server) counters(ctx context.Context) (map[string]float64, error) {
	text, err := s.call(ctx, http.MethodGet, "/metrics")
	if err != nil {
		return nil, err
	}
	found := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		var v float64
		if at := strings.LastIndexByte(line, ' '); at > 0 && line[0] != '#' {
			if _, err := fmt.Sscan(line[at+1:], &v); err != nil {
				return nil, fmt.Errorf("metric %q: %w", line, err)
			}
			found[line[:at]] = v
		}
	}
	return found, nil
}
