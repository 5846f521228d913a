package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promtable/promtable/e2e/harness"
)

// A sizing measures what writes take at several numbers of series, and what samples take on the disk, and says what to plan for.
type sizing struct {
	series   []int
	scrapes  int
	interval time.Duration
	history  history
	rows     table
	// raw, minutes and hours are bytes on the disk for each sample: of samples, and of their rollups.
	raw, minutes, hours float64
}

// openSample is about what a sample takes in an open chunk, in bytes, as adapter estimate counts it.
const openSample = 3

// runSizing is the command sizing.
func runSizing(ctx context.Context, args []string) error {
	s := &sizing{}
	app := kingpin.New("bench sizing", "Prints the table of docs/sizing.md: cores, memory and disk of an adapter with the embedded store, by series that are scraped. It writes as fast as the adapter takes it, and scales to the interval.")
	app.Flag("series", "Series. Repeatable.").Default("10000", "100000", "1000000").IntsVar(&s.series)
	app.Flag("scrapes", "Scrapes that are measured, after the first, which creates the series.").Default("8").IntVar(&s.scrapes)
	app.Flag("interval", "Time between two samples of a series.").Default("15s").DurationVar(&s.interval)
	app.Flag("history-days", "Days of the 200 series whose bytes are counted.").Default("30").IntVar(&s.history.days)
	if _, err := app.Parse(args); err != nil {
		return err
	}
	if s.scrapes < 1 || s.interval < time.Second || s.history.days < 3 {
		return errors.New("--scrapes has to be at least 1, --interval 1s, and --history-days 3")
	}
	fmt.Printf("%s, %d cores, %s, load %s before\n\n    %s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version(), load(), commandLine(append([]string{"sizing"}, args...)))
	if err := s.countBytes(ctx); err != nil {
		return err
	}
	const month, year = 30 * 24 * time.Hour, 365 * 24 * time.Hour
	s.rows = table{{"active series", "samples a second", "cores", "memory, GB", "disk for 30 days, GB", "disk for 30 days, 5m for a year and 1h for five, GB"}}
	for _, n := range s.series {
		cpu, peak, err := s.measure(ctx, n)
		if err != nil {
			return err
		}
		// Chunks stay open for up to two windows, which are longer than what is written here.
		open := min(512<<20, 2*openSample*window/s.interval.Milliseconds()*int64(n))
		rate := float64(n) / s.interval.Seconds()
		stored := func(bytes float64, over time.Duration) float64 { return bytes * rate * over.Seconds() / 1e9 / 0.9 } // a tenth stays free
		raw := stored(s.raw, month)
		s.rows.add(fmt.Sprint(n), digits(rate), digits(max(1, 2*cpu*rate)), digits(float64(peak+open)*1.25/1e9), digits(raw), digits(raw+stored(s.minutes, year)+stored(s.hours, 5*year)))
	}
	fmt.Printf("%s\nBytes on the disk for each sample: %s of samples, %s of rollups of 5 minutes, %s of rollups of an hour.\n", s.rows, digits(s.raw), digits(s.minutes), digits(s.hours))
	return nil
}

// countBytes counts what samples and their rollups take on the disk.
func (s *sizing) countBytes(ctx context.Context) (err error) {
	h := &s.history
	h.workload.Series, h.workload.Interval, h.workload.Seed = 200, s.interval, 1
	h.workload.Samples = int(time.Duration(h.days) * 24 * time.Hour / s.interval)
	h.workload.End = time.Now().UnixMilli()/day*day - day
	if h.dir, err = os.MkdirTemp("", "promtable-sizing-"); err != nil {
		return err
	}
	defer os.RemoveAll(h.dir)
	if h.program, err = buildAdapter(ctx); err != nil {
		return err
	}
	h.adapter = newAdapter(h.program, nil)
	return h.make(ctx, func(context.Context, *server) error {
		total := float64(h.workload.total())
		s.raw, s.minutes, s.hours = float64(h.written)/total, h.made[`adapter_rollup_bytes_total{resolution="5m"}`]/total, h.made[`adapter_rollup_bytes_total{resolution="1h"}`]/total
		return nil
	})
}

// measure returns the CPU seconds of a sample that is written, with all that follows from it, and the most memory that the adapter held.
func (s *sizing) measure(ctx context.Context, series int) (cpu float64, peak int64, err error) {
	of := &scale{protocol: harness.RemoteWrite2(), patience: 5 * time.Minute, perRequest: 2000, connections: 2, adapter: newAdapter(s.history.program, nil)}
	of.workload = workload{Series: series, Samples: s.scrapes + 1, Interval: s.interval, Seed: 1, End: endBefore(time.Now().UnixMilli())}
	if of.dir, err = os.MkdirTemp("", "promtable-sizing-"); err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(of.dir)
	data := filepath.Join(of.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return 0, 0, err
	}
	if of.server, err = of.adapter.start(ctx, data); err != nil {
		return 0, 0, err
	}
	defer of.server.close()
	of.generator = newGenerator(of.workload)
	if err := of.phase(ctx, fmt.Sprintf("%d series: creation", series), false, of.scrape); err != nil {
		return 0, 0, err
	}
	peak = of.last.peak
	for i := range s.scrapes {
		if err := of.phase(ctx, fmt.Sprintf("%d series: scrape %d", series, i+2), false, of.scrape); err != nil {
			return 0, 0, err
		}
		cpu += of.last.cpu.Seconds() / float64(series*s.scrapes)
		peak = max(peak, of.last.peak)
	}
	if len(of.refused) > 0 {
		return 0, 0, fmt.Errorf("requests are refused: %s", strings.Join(of.refused, ", "))
	}
	return cpu, peak, of.server.stop()
}
