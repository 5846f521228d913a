package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

// A history is an embedded store of a long time, and its rollups.
type history struct {
	workload    workload
	days        int
	adapterArgs string
	program     program // the adapter
	adapter     contender
	dir         string
	// written is what samples take on the disk, and made the metrics of when their rollups were made.
	written int64
	made    map[string]float64
	filler
	table
}

// addFlags adds the flags that say what the history has.
func (h *history) addFlags(app *kingpin.Application) {
	app.Flag("series", "Series.").Default("1000").IntVar(&h.workload.Series)
	app.Flag("days", "Days.").Default("365").IntVar(&h.days)
	app.Flag("interval", "Time between two samples of a series.").Default("15s").DurationVar(&h.workload.Interval)
	app.Flag("seed", "Seed of the values.").Default("1").Uint64Var(&h.workload.Seed)
	app.Flag("adapter-args", "Flags for the adapter, separated by spaces.").StringVar(&h.adapterArgs)
}

// run makes the history, calls ask with an adapter that serves it, and prints the table. The command line is in the table's head.
func (h *history) run(ctx context.Context, command []string, ask func(context.Context, *server) error) (err error) {
	if h.days < 3 || h.workload.Series < 1 || h.workload.Interval < time.Second || len(h.workload.shapes()) == 0 {
		return errors.New("--days has to be at least 3, --series 1, --interval 1s, and --metric one of a host's")
	}
	h.workload.Samples = int(time.Duration(h.days) * 24 * time.Hour / h.workload.Interval)
	h.workload.End = time.Now().UnixMilli()/day*day - day // the last day is over for long enough
	if h.dir, err = os.MkdirTemp("", "promtable-history-"); err != nil {
		return err
	}
	defer os.RemoveAll(h.dir)
	if h.program, err = buildAdapter(ctx); err != nil {
		return err
	}
	h.adapter = newAdapter(h.program, append(strings.Fields(h.adapterArgs), "--query.timeout=1h")) // from samples it takes minutes
	fmt.Printf("%s, %d cores, %s, load %s before\n\n    %s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version(), load(), commandLine(command))
	h.table = table{{fmt.Sprintf("%d series, %d days, a sample each %v", h.workload.Series, h.days, h.workload.Interval), ""}}
	err = h.make(ctx, ask)
	fmt.Println(h.table) // what is known so far, too
	return err
}

func (h *history) make(ctx context.Context, ask func(context.Context, *server) error) error {
	dir := filepath.Join(h.dir, "data")
	empty, err := h.adapter.start(ctx, dir) // which gives the store its identity
	if err != nil {
		return err
	}
	defer empty.close()
	if err := empty.stop(); err != nil {
		return err
	}
	if err := h.write(ctx, dir); err != nil {
		return err
	}
	if err := h.makeRollups(ctx, dir); err != nil {
		return err
	}
	server, err := h.adapter.start(ctx, dir)
	if err != nil {
		return err
	}
	defer server.close()
	return ask(ctx, server)
}

// write fills the store.
func (h *history) write(ctx context.Context, dir string) error {
	if err := h.open(dir); err != nil {
		return err
	}
	progress("writing %d samples", h.workload.total())
	began := time.Now()
	err := h.fill(ctx, h.workload, 0)
	if err = errors.Join(err, h.store.Close()); err != nil {
		return err
	}
	h.add("samples", fmt.Sprint(h.workload.total()))
	h.add("writing them as chunks, s", digits(time.Since(began).Seconds()))
	h.written, err = h.disk(dir, filepath.Join(dir, "RESERVE"), "samples")
	return err
}

// disk notes what a store takes, and returns it in bytes.
func (h *history) disk(dir, skip, of string) (bytes int64, err error) {
	disk, err := diskUsage(dir, skip)
	if err == nil {
		h.add(of+", on disk (du), MB", megabytes(disk.occupied))
		h.add(of+", on disk (du), B a sample", digits(float64(disk.occupied)/float64(h.workload.total())))
	}
	return disk.occupied, err
}

// makeRollups runs the adapter until all rollups are made.
func (h *history) makeRollups(ctx context.Context, dir string) error {
	progress("making rollups")
	server, err := h.adapter.start(ctx, dir)
	if err != nil {
		return err
	}
	defer server.close()
	began := time.Now()
	h.made, err = server.awaitRollups(ctx, h.days)
	if err != nil {
		return err
	}
	took := time.Since(began)
	if err := server.stop(); err != nil {
		return err
	}
	h.add("making rollups, s", digits(took.Seconds()))
	h.add("making rollups, CPU s per M samples", digits(server.total().cpu.Seconds()/float64(h.workload.total())*1e6))
	for _, resolution := range []string{"5m", "1h"} {
		name := fmt.Sprintf("adapter_rollup_bytes_total{resolution=%q}", resolution)
		h.add(resolution+" rollups, B a sample", digits(h.made[name]/float64(h.workload.total())))
	}
	_, err = h.disk(dir, server.skip, "samples and rollups")
	return err
}

// awaitRollups waits until the rollups of so many days are made, and returns the metrics of then. On Bigtable nothing is made for 20 minutes: so long
// other adapters may not know that days are begun.
func (s *server) awaitRollups(ctx context.Context, days int) (made map[string]float64, err error) {
	wait := patience()
	wait.Limit += time.Hour
	err = s.Await(ctx, wait, "makes rollups", func() (err error) {
		if made, err = s.counters(ctx); err != nil {
			return err
		}
		if n := made["adapter_rollup_walks_total"]; n < float64(days) || made["adapter_rollup_lag_seconds"] > 0 {
			return fmt.Errorf("%v of %d days are made", n, days)
		}
		return nil
	})
	return made, err
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
