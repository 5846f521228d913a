package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/cmd/adapter/demo"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/backfill"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/indexrows"
	"github.com/promtable/promtable/remote/engine/metadata"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
)

const commandDemo = "demo"

// demoOptions are the flags of demo.
type demoOptions struct {
	years float64
	dir   string
}

const (
	// minDemoYears and maxDemoYears bound --years: a week, and what a disk has room for.
	minDemoYears, maxDemoYears = 0.02, 20
	// demoAddress is the default of --web.listen-address in a demonstration: other machines cannot reach it.
	demoAddress = "127.0.0.1:9201"
	// demoFile says what a directory of --dir holds, demoStore is the directory of the store in it.
	demoFile, demoStore = "DEMO", "data"
	// demoPanel is what is asked for. Its windows are whole hours, so all of them come from rollups.
	demoPanel = "sum by (handler) (rate(http_requests_total[1w]))"
	// demoLead is how much there is before the panel begins, in milliseconds: its first window.
	demoLead = 7 * 24 * 3600 * 1000
	// panelSteps is about how many points the page draws.
	panelSteps = 250
)

func (o *options) demoCommand(app *kingpin.Application) {
	c := app.Command(commandDemo, "Write years of a few series to a new embedded store, make their rollups, and serve it on "+demoAddress+", with a link to a graph of all of it. It takes a minute.")
	c.Flag("years", "How much to write, in years of 365 days.").Default("3").Float64Var(&o.demo.years)
	c.Flag("dir", "Directory to keep it in, which is new, empty, or of an earlier demonstration that is served again. By default it is a temporary one, removed at the end.").StringVar(&o.demo.dir)
}

// checkDemo checks the flags of demo, and sets the defaults that depend on it.
func (o *options) checkDemo() error {
	if o.command != commandDemo {
		return nil
	}
	switch {
	case !o.traits().OnDisk:
		return errors.New("demo is for the embedded store: leave --storage.backend out")
	case o.given["storage.path"]:
		return errors.New("demo makes a store of its own: give --dir instead of --storage.path")
	case o.given["buffer.path"]:
		return errors.New("demo makes a store of its own: leave --buffer.path out")
	case !(o.demo.years >= minDemoYears && o.demo.years <= maxDemoYears): // NaN too
		return fmt.Errorf("--years=%g: give it %g to %d", o.demo.years, minDemoYears, maxDemoYears)
	}
	if !o.given["web.listen-address"] {
		o.listen = []string{demoAddress}
	}
	return nil
}

// A demonstration is a store with years of samples that is served.
type demonstration struct {
	o      *options
	logger log.Logger
	dir    string
	held   demoHeld
}

// demoHeld is what the file DEMO of a directory says that it holds.
type demoHeld struct {
	demo.History
	Series, Samples int64
	// Complete says that all is there.
	Complete bool
}

// demonstrate runs demo.
func demonstrate(ctx context.Context, o *options, logger log.Logger) (err error) {
	d := &demonstration{o: o, logger: logger, dir: o.demo.dir}
	if err := d.openDirectory(); err != nil {
		return err
	}
	defer func() {
		if o.demo.dir == "" {
			err = errors.Join(err, os.RemoveAll(d.dir))
		} else if !d.held.Complete {
			err = errors.Join(err, os.RemoveAll(filepath.Join(d.dir, demoStore)), os.Remove(filepath.Join(d.dir, demoFile)))
		}
	}()
	o.path = filepath.Join(d.dir, demoStore)
	o.bufferPath = filepath.Join(o.path, "buffer")
	o.prepare, o.onReady = d.prepare, d.show
	return run(ctx, o, logger)
}

// openDirectory makes the directory, or finds out what it holds.
func (d *demonstration) openDirectory() (err error) {
	if d.dir == "" {
		d.dir, err = os.MkdirTemp("", "promtable-demo-")
		return err
	}
	if err := os.MkdirAll(d.dir, 0o750); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(d.dir, demoFile))
	if err == nil {
		if err = json.Unmarshal(text, &d.held); err != nil || !d.held.Complete {
			return fmt.Errorf("--dir=%s: an earlier demonstration was not finished: remove the directory, or give another one", d.dir)
		}
		return nil
	}
	files, readErr := os.ReadDir(d.dir)
	switch {
	case readErr != nil:
		return fmt.Errorf("--dir: %w", readErr)
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("--dir: %w", err)
	case len(files) > 0:
		return fmt.Errorf("--dir=%s: the directory is not empty, and not of an earlier demonstration: give a new one", d.dir)
	}
	return d.save()
}

// save writes the file DEMO.
func (d *demonstration) save() error {
	text, err := json.Marshal(d.held)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.dir, demoFile), append(text, '\n'), 0o640)
}

// prepare writes the store, unless an earlier demonstration has.
func (d *demonstration) prepare(ctx context.Context) (err error) {
	if d.held.Complete {
		return nil
	}
	schema, err := newSchema(d.o)
	if err != nil {
		return err
	}
	quiet := newLogger(os.Stderr, "warn", d.o.logFormat)
	rows, err := openStore(ctx, d.o, quiet, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing("close the store", rows.Close())) }()
	about, err := meta.Open(ctx, rows, schema, time.Now)
	if err == nil {
		err = about.Init(ctx)
	}
	if err != nil {
		return err
	}
	days, err := downsample.Open(ctx, downsample.Config{Store: rows, Schema: schema, Now: time.Now, Logger: quiet})
	if err != nil {
		return err
	}
	history := demo.History{Seed: 1, End: time.Now().UnixMilli() - demo.Interval}
	history.Begin = history.End - int64(d.o.demo.years*365*24*3600)*1000 - demoLead
	d.held = demoHeld{History: history}
	w := backfill.Config{
		Store: days.Counted(rows), Schema: schema,
		Index: index.New(index.Config{Schema: schema, AtomicPuts: true, Exclusive: true}, indexrows.New(rows)),
	}
	latest, err := d.write(ctx, w)
	if err != nil {
		return err
	}
	if err := describe(ctx, rows, schema, latest); err != nil {
		return err
	}
	if err := d.makeRollups(ctx, days); err != nil {
		return err
	}
	d.held.Complete = true
	return d.save()
}

// write writes the samples, on all cores, and returns the latest of each series.
func (d *demonstration) write(ctx context.Context, to backfill.Config) ([]bucketstore.Sample, error) {
	all := d.held.History.Series()
	d.held.Series = int64(len(all))
	latest := make([]bucketstore.Sample, len(all))
	expected := float64(d.held.End-d.held.Begin) / demo.Interval * float64(len(all))
	var written atomic.Int64
	part := func() float64 { return float64(written.Load()) / expected }
	err := d.watch(fmt.Sprintf("writing %s of %d series", yearsText(d.held.History), len(all)), part, func() error {
		group, ctx := errgroup.WithContext(ctx)
		workers := min(runtime.GOMAXPROCS(0), len(all))
		for i := range workers {
			group.Go(func() error {
				var mine []demoSeries
				for j := i; j < len(all); j += workers {
					mine = append(mine, demoSeries{Series: all[j], latest: &latest[j]})
				}
				return writeSeries(ctx, to, mine, &written)
			})
		}
		return group.Wait()
	})
	d.held.Samples = written.Load()
	return latest, err
}

// demoSeries is a series that is written.
type demoSeries struct {
	*demo.Series
	to *backfill.Series
	// latest is its last sample so far.
	latest *bucketstore.Sample
}

// demoRef is the reference of a series by its key.
type demoRef []byte

// SeriesKey implements bucketstore.Ref.
func (r demoRef) SeriesKey() []byte { return r }

// writeSeries writes all samples of some series, in order of time, and counts them.
func writeSeries(ctx context.Context, to backfill.Config, all []demoSeries, written *atomic.Int64) error {
	w := backfill.New(to)
	for i := range all {
		s := &all[i]
		key, err := to.Schema.AppendSeriesKey(nil, s.Labels)
		if err != nil {
			return err
		}
		s.latest.Ref = demoRef(key)
		if s.to, err = w.Series(s.Labels); err != nil {
			return err
		}
	}
	var times []int64
	var values []float64
	for left := true; left; {
		left = false
		for _, s := range all {
			times, values = s.Next(times[:0], values[:0])
			if len(times) == 0 {
				continue
			}
			if err := s.to.Append(ctx, times, values); err != nil {
				return err
			}
			s.latest.T, s.latest.V = times[len(times)-1], values[len(values)-1]
			written.Add(int64(len(times)))
			left = true
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	for _, s := range all {
		if err := s.to.Close(ctx); err != nil {
			return err
		}
	}
	return w.Flush(ctx)
}

// describe writes what a sender's samples would leave beside them: the current samples, which history does not change, and metadata.
func describe(ctx context.Context, rows bucketstore.Store, schema series.Schema, latest []bucketstore.Sample) error {
	table := current.New(current.Config{Store: rows, Schema: schema})
	table.Add(latest, make([]*current.Handle, len(latest)))
	if err := table.Close(ctx); err != nil {
		return err
	}
	var entries []ingest.Metadata
	for family, said := range demo.Metadata() {
		entries = append(entries, ingest.Metadata{Family: family, Metadata: said})
	}
	var rejected error
	err := metadata.New(rows, schema, time.Now, nil).Append(ctx, entries, func(err error) { rejected = err })
	return errors.Join(err, rejected)
}

// makeRollups makes all rollups that are due and not off, as fast as it can.
func (d *demonstration) makeRollups(ctx context.Context, days *downsample.Days) error {
	maker := newMaker(d.o, days, nil, downsample.MakerConfig{RowsPerSecond: math.MaxInt32, Timeline: timeline.New(timeline.Config{})})
	if maker == nil {
		return nil
	}
	part := func() float64 { return float64(days.Made()-d.held.Begin) / float64(d.held.End-d.held.Begin) }
	return d.watch("making rollups", part, func() error { return maker.Once(ctx) })
}

// watch calls do, and says how far it is.
func (d *demonstration) watch(what string, part func() float64, do func() error) error {
	began := time.Now()
	line := "" // where the line of a terminal is written again
	if isTerminal(d.o.out) {
		line = clearLine
	}
	err := watch(200*time.Millisecond, func() {
		if p := min(part(), 1); line != "" && p > 0 {
			fmt.Fprintf(d.o.out, "%s%s: %.0f %%, %.0f s left", line, what, p*100, (1-p)/p*time.Since(began).Seconds())
		}
	}, do)
	if err != nil {
		fmt.Fprintf(d.o.out, "%s%s: not finished\n", line, what)
		return err
	}
	fmt.Fprintf(d.o.out, "%s%s: %.1f s\n", line, what, time.Since(began).Seconds())
	return nil
}

// yearsText says how long the panel of a history is.
func yearsText(h demo.History) string {
	text := fmt.Sprintf("%.3g years", float64(h.End-h.Begin-demoLead)/1000/3600/24/365)
	if text == "1 years" {
		return "1 year"
	}
	return text
}

// show prints links to a graph of all that there is, from rollups and from samples, and what both cost.
func (d *demonstration) show(ctx context.Context, own, link string) {
	h := d.held
	fmt.Fprintf(d.o.out, "\n%s of %d series, %d samples, %.2f B each on the disk:\n\n", yearsText(h.History), h.Series, h.Samples, float64(tableBytes(d.o.path))/float64(h.Samples))
	now := time.Now().Unix()
	long := (h.End-h.Begin-demoLead)/1000 + (now-h.End/1000)/3600*3600
	for _, as := range []struct{ name, resolution string }{{"rollups", ""}, {"samples", "0s"}} {
		page := url.Values{"tab": {"query"}, "expr": {demoPanel}, "view": {"graph"}, "range": {strconv.FormatInt(long, 10)}}
		if as.resolution != "" {
			page.Set("res", as.resolution)
		}
		fmt.Fprintf(d.o.out, "  from %s  %s/?%s\n", as.name, link, page.Encode())
		cost, err := askPanel(ctx, own, now-long, now, as.resolution)
		if err != nil {
			cost = fmt.Sprintf("not measured: %v", err)
		}
		fmt.Fprintf(d.o.out, "                %s\n\n", cost)
	}
	end := "Ctrl-C ends it. To serve it again: adapter demo --dir=" + d.dir
	if d.o.demo.dir == "" {
		end = "Ctrl-C ends it, and removes " + d.dir
	}
	fmt.Fprintf(d.o.out, "The page has the choice, too: Resolution.\n%s\n", end)
}

// tableBytes returns the size of the tables of an embedded store that can be found.
func tableBytes(dir string) (sum int64) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.sst")) // the pattern is right
	for _, file := range files {
		if info, err := os.Stat(file); err == nil { // else a compaction has removed it
			sum += info.Size()
		}
	}
	return sum
}

// askPanel asks for the panel as the page does, from about start to end, in seconds, and says what it cost.
func askPanel(ctx context.Context, base string, start, end int64, resolution string) (string, error) {
	const hour = 3600
	step := max(1, (end-start+panelSteps*hour/2)/(panelSteps*hour)) * hour
	end -= end % hour
	q := url.Values{
		"query": {demoPanel}, "start": {fmt.Sprint(end - (end-start)/step*step)}, "end": {fmt.Sprint(end)}, "step": {fmt.Sprint(step)},
		"stats": {"all"}, "max_source_resolution": {resolution},
	}
	began := time.Now()
	var answer struct {
		Data struct {
			Stats struct{ Storage struct{ Cells, Bytes int64 } }
		}
	}
	resp, err := askAdapter(ctx, http.DefaultClient, http.MethodGet, base+"/api/v1/query_range?"+q.Encode(), &answer)
	if err != nil {
		return "", err
	}
	read := answer.Data.Stats.Storage
	return fmt.Sprintf("%.3f s, read %s: %d cells, %.1f MB", time.Since(began).Seconds(), resp.Header.Get("X-Promtable-Resolution"), read.Cells, float64(read.Bytes)/1e6), nil
}
