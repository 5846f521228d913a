package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
)

// A churn fills an embedded store with series that live for a day each: their index, and
// their samples as the chunks that a buffer would have flushed. It needs no adapter: to send
// a month of samples would take hours.
type churn struct {
	active   int
	days     int
	interval time.Duration
	seed     uint64
	begin    int64 // of the first day, in ms
	filler
}

const day = 86_400_000

// runChurn is the command churn.
func runChurn(ctx context.Context, args []string) error {
	c := &churn{}
	var indexSeries int
	app := kingpin.New("bench churn", "Writes series that are replaced each day to an embedded store, and prints the part of the index, and what new series cost at the end.")
	app.Flag("active", "Series of a day; 0 leaves them out.").Default("20000").IntVar(&c.active)
	app.Flag("days", "Days.").Default("30").IntVar(&c.days)
	app.Flag("interval", "Time between two samples of a series.").Default("15s").DurationVar(&c.interval)
	app.Flag("index-series", "Series in all of a second store, which has no samples; spread over the same days; 0 leaves them out.").Default("30000000").IntVar(&indexSeries)
	app.Flag("seed", "Seed of the values.").Default("1").Uint64Var(&c.seed)
	if _, err := app.Parse(args); err != nil {
		return err
	}
	const tenths = 10
	if c.active < 0 || c.days < tenths || indexSeries < 0 || c.interval < time.Second {
		return fmt.Errorf("--days has to be at least %d, --interval 1s, --active and --index-series 0", tenths)
	}
	// At the start of an index period: with 30 days, none of the first or last three is in the
	// last eighth of one, where new series are written to the next one, too.
	c.begin = series.PeriodOf(time.Now().UnixMilli() - int64(c.days)*day)
	dir, err := os.MkdirTemp("", "promtable-churn-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%s, %d cores, %s, load %s before\n\n    %s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version(), load(), commandLine(append([]string{"churn"}, args...)))
	if c.active > 0 {
		if err := c.run(ctx, filepath.Join(dir, "samples"), c.active, true); err != nil {
			return err
		}
	}
	if perDay := indexSeries / c.days; perDay > 0 {
		return c.run(ctx, filepath.Join(dir, "index"), perDay, false)
	}
	return nil
}

// run fills a store with so many new series a day, with or without samples, and prints what
// that took.
func (c *churn) run(ctx context.Context, dir string, active int, samples bool) (err error) {
	if err := c.open(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.store.Close(), os.RemoveAll(dir)) }()
	var created []time.Duration // CPU time of the series of each day
	for d := range c.days {
		w := workload{Seed: c.seed + uint64(d), Series: active, Samples: int(day * time.Millisecond / c.interval), Interval: c.interval}
		w.End = c.begin + int64(d+1)*day
		before, err := cpuOf(os.Getpid())
		if err != nil {
			return err
		}
		if err := c.create(ctx, w, firstOf(d, active)); err != nil {
			return err
		}
		after, err := cpuOf(os.Getpid())
		if err != nil {
			return err
		}
		created = append(created, after-before)
		progress("day %d: %d series took %v CPU time", d+1, active, after-before)
		if samples {
			if err := c.fill(ctx, w, firstOf(d, active)); err != nil {
				return err
			}
		}
	}
	if err := c.reopen(ctx, dir); err != nil {
		return err
	}
	if err := c.check(ctx, active, samples); err != nil {
		return err
	}
	return c.report(dir, active, samples, created)
}

// firstOf returns the number of the first series of a day with so many: that of a new host.
func firstOf(day, active int) int {
	shapes := len(hostShapes())
	return day * ((active + shapes - 1) / shapes) * shapes
}

// reopen leaves nothing in memory, and waits until compactions have ended.
func (c *churn) reopen(ctx context.Context, dir string) error {
	if err := c.store.Close(); err != nil {
		return err
	}
	if err := c.open(dir); err != nil {
		return err
	}
	return settle(ctx, os.Getpid(), 10*time.Minute)
}

// create writes the index of the series of a day, the first of which has this number.
func (c *churn) create(ctx context.Context, w workload, first int) error {
	for from := 0; from < w.Series; from += atOnce {
		list, err := c.entries(w, first+from, first+min(from+atOnce, w.Series), w.begin())
		if err == nil {
			err = c.index.Write(ctx, list)
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// check wants the series of the first and of the last host to be found in their days, and
// each to have all its samples of the day, if it has any.
func (c *churn) check(ctx context.Context, active int, samples bool) error {
	g := generator{shapes: hostShapes()}
	last := firstOf(c.days-1, active)
	for _, at := range []struct{ day, series, want int }{
		{0, 0, min(active, len(g.shapes))},
		{c.days - 1, last + active - 1, (active-1)%len(g.shapes) + 1},
	} {
		host, _ := g.locate(at.series)
		start := c.begin + int64(at.day)*day
		m := labels.MustNewMatcher(labels.MatchRegexp, "instance", instance(host, false)+"|"+instance(host, true))
		found, err := c.index.Select(ctx, index.Query{Matchers: []*labels.Matcher{m}, Start: start, Limit: start + day})
		if err != nil {
			return err
		}
		if len(found.Series) != at.want {
			return fmt.Errorf("%d series of %s on day %d, want %d", len(found.Series), m.Value, at.day+1, at.want)
		}
		for _, s := range found.Series {
			if err := c.checkSamples(ctx, s, samples); err != nil {
				return fmt.Errorf("%v: %w", s.Labels, err)
			}
		}
	}
	return nil
}

// checkSamples counts the samples of a series.
func (c *churn) checkSamples(ctx context.Context, s index.Series, samples bool) error {
	req := bucketstore.ScanRequest{Table: bucketstore.Metric, Families: []bucketstore.FamilyRange{{Family: series.FamilyChunk}}}
	for _, base := range s.Bases {
		req.Rows = append(req.Rows, series.SingleRow(c.schema.AppendRowKey(nil, []byte(s.Key), base)))
	}
	got, want := int64(0), int64(0)
	if samples {
		want = day / c.interval.Milliseconds()
	}
	err := c.store.Scan(ctx, req, func(row bucketstore.Row) error {
		for _, cell := range row.Cells {
			sealed, err := chunk.Parse(cell.Qualifier, cell.Value)
			if err != nil {
				return err
			}
			times, _, err := dense.Decode(sealed.Data, nil, nil)
			if err != nil {
				return err
			}
			got += int64(len(times))
		}
		return nil
	})
	if err == nil && got != want {
		err = fmt.Errorf("%d samples, want %d", got, want)
	}
	return err
}

// report prints what is on the disk, and what series have cost at first and at last.
func (c *churn) report(dir string, active int, samples bool, created []time.Duration) error {
	indexed, err := c.store.(*pebble.Store).DiskUsage(bucketstore.Index)
	if err != nil {
		return err
	}
	all, err := diskUsage(dir, filepath.Join(dir, "RESERVE"))
	if err != nil {
		return err
	}
	count := active * c.days
	tenth := c.days / 10
	cost := func(days []time.Duration) string {
		var sum time.Duration
		for _, d := range days {
			sum += d
		}
		return digits(sum.Seconds() / float64(len(days)*active) * 1e6)
	}
	t := table{{fmt.Sprintf("%d days, %d new series in each", c.days, active), ""}}
	if samples {
		n := int64(count) * (day / c.interval.Milliseconds())
		t.add("samples", fmt.Sprint(n))
		t.add("bytes on disk (du) a sample", digits(float64(all.occupied)/float64(n)))
	}
	t.add("series", fmt.Sprint(count))
	t.add("on disk (du), MB", megabytes(all.occupied))
	t.add("INDEX of it, MB", megabytes(int64(indexed)))
	t.add("INDEX of it, %", digits(float64(indexed)/float64(all.occupied)*100))
	t.add("INDEX, B a series", digits(float64(indexed)/float64(count)))
	t.add("CPU s per M series created, first tenth", cost(created[:tenth]))
	t.add("CPU s per M series created, last tenth", cost(created[c.days-tenth:]))
	fmt.Println(t)
	return nil
}
