package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/e2e/harness"
)

// A scale is a run of the adapter alone, with very many series. Its requests are made while
// they are sent: a spool of them would be large.
type scale struct {
	workload    workload
	perRequest  int
	connections int
	dir         string
	adapter     contender
	protocol    harness.Protocol
	patience    time.Duration // bounds the wait for an idle adapter

	generator *generator
	server    *server
	empty     memory // of an adapter without series
	last      usage  // what the last phase took
	// phases and answers are tables.
	phases, answers table
	disk            string   // a sentence
	refused         []string // answers with another status than 2xx that may not be
}

// A memory is what a process holds, in bytes: resident, and live after a garbage collection.
type memory struct{ rss, live int64 }

// A table is rows of cells; the first are the heads of the columns.
type table [][]string

// add adds a row, and shows it.
func (t *table) add(cells ...string) {
	progress("%s", strings.Join(cells, " | "))
	*t = append(*t, cells)
}

// String returns Markdown.
func (t table) String() string {
	var b strings.Builder
	for i, cells := range t {
		for _, text := range cells {
			b.WriteString("| " + strings.ReplaceAll(text, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString("|---" + strings.Repeat("|---:", len(cells)-1) + "|\n")
		}
	}
	return b.String()
}

// runScale is the command scale.
func runScale(ctx context.Context, args []string) error {
	s := &scale{protocol: harness.RemoteWrite2(), patience: 5 * time.Minute}
	var adapterArgs string
	app := kingpin.New("bench scale", "Creates very many series in an adapter with the embedded store, and prints what they cost it.")
	app.Flag("series", "Series.").Default("100000").IntVar(&s.workload.Series)
	app.Flag("scrapes", "Samples of each series: the first creates it, and the last follows a restart.").Default("4").IntVar(&s.workload.Samples)
	app.Flag("interval", "Time between two samples of a series.").Default("15s").DurationVar(&s.workload.Interval)
	app.Flag("seed", "Seed of the values.").Default("1").Uint64Var(&s.workload.Seed)
	app.Flag("request", "Samples in a request.").Default("2000").IntVar(&s.perRequest)
	app.Flag("connections", "Connections that send at once.").Default("2").IntVar(&s.connections)
	app.Flag("adapter-args", "Flags for the adapter, separated by spaces.").StringVar(&adapterArgs)
	if _, err := app.Parse(args); err != nil {
		return err
	}
	if least := len(hostShapes()); s.workload.Series < least || s.workload.Samples < 3 || s.perRequest < 1 || s.connections < 1 {
		return fmt.Errorf("--series has to be at least %d, --scrapes 3, --request and --connections 1", least)
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "promtable-scale-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	p, err := buildAdapter(ctx)
	if err != nil {
		return err
	}
	s.adapter = newAdapter(p, strings.Fields(adapterArgs))
	if s.workload.End = time.Now().UnixMilli(); s.workload.End%indexPeriod >= indexPeriod/8*7 {
		s.workload.End = endBefore(s.workload.End) // otherwise series go to two index periods
	}
	r := results{
		Date: time.Now().UTC().Format(time.DateOnly), Command: commandLine(append([]string{"scale"}, args...)),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Load: load(),
		Workload: s.workload, PerRequest: s.perRequest, Connections: s.connections,
		Servers: []participant{{s.adapter.name, s.adapter.title, s.adapter.version}},
	}
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go watchMemory(watched, cancel)
	if err = s.run(watched); watched.Err() != nil {
		err = context.Cause(watched)
	}
	var head strings.Builder
	r.head(&head)
	fmt.Printf("%s%s\n%s\n\n%s", head.String(), s.phases, s.disk, s.answers)
	return err
}

// watchMemory cancels when less than 2 GB of memory are available: others use the machine, too.
func watchMemory(ctx context.Context, cancel context.CancelCauseFunc) {
	const least = 2_000_000 // kB
	for ctx.Err() == nil {
		available, err := fileField("/proc/meminfo", "MemAvailable:")
		if err != nil {
			cancel(err)
		} else if available < least {
			cancel(fmt.Errorf("stopped: only %d MB of memory are available", available/1000))
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// run does all that is measured.
func (s *scale) run(ctx context.Context) (err error) {
	defer func() {
		if s.server != nil {
			s.server.close()
		}
	}()
	data := filepath.Join(s.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	start := func(ctx context.Context) error {
		started, err := s.adapter.start(ctx, data)
		if err == nil {
			s.server = started
		}
		return err
	}
	if err := start(ctx); err != nil {
		return err
	}
	if s.empty, err = s.memory(ctx); err != nil {
		return err
	}
	s.phases.add("", "CPU s per M series", "time, s", "peak RSS, MB", "B a series", "RSS then, MB", "B a series", "live heap, MB", "B a series")
	s.phases.add("an empty adapter", "", "", "", "", megabytes(s.empty.rss), "", megabytes(s.empty.live), "")
	s.generator = newGenerator(s.workload)
	if err := s.phase(ctx, "creation", false, s.scrape); err != nil {
		return err
	}
	for i := range s.workload.Samples - 2 {
		if err := s.phase(ctx, fmt.Sprintf("scrape %d", i+2), false, s.scrape); err != nil {
			return err
		}
	}
	used, err := diskUsage(data, s.server.skip)
	if err != nil {
		return err
	}
	s.answers.add("", "answer", "ms", "again, ms", "peak RSS over that before, MB")
	if err := s.ask(ctx, "after the scrapes", s.questions()); err != nil {
		return err
	}
	before, err := cpuOf(s.server.PID())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.server.stop(); err != nil {
		return err
	}
	s.phases.add("stop", digits((s.server.total().cpu-before).Seconds()/float64(s.workload.Series)*1e6), digits(time.Since(began).Seconds()), "", "", "", "", "", "")
	stopped, err := diskUsage(data, s.server.skip)
	if err != nil {
		return err
	}
	series := int64(s.workload.Series)
	s.disk = fmt.Sprintf("On disk %s MB, %d B a series, with the log; after a stop %s MB, %d B a series.",
		megabytes(used.occupied), used.occupied/series, megabytes(stopped.occupied), stopped.occupied/series)
	if err := s.phase(ctx, "start after a stop", true, start); err != nil {
		return err
	}
	if err := s.phase(ctx, "scrape after it", false, s.scrape); err != nil {
		return err
	}
	s.server.End()
	if err := s.phase(ctx, "start after kill -9", true, start); err != nil {
		return err
	}
	if err := s.ask(ctx, "after kill -9", s.questions()); err != nil {
		return err
	}
	if len(s.refused) > 0 {
		return fmt.Errorf("%d requests are refused, the first: %s", len(s.refused), s.refused[0])
	}
	return nil
}

// phase notes what f costs the adapter until it is idle, and its memory then. If f starts the
// adapter all that it has used counts.
func (s *scale) phase(ctx context.Context, what string, starts bool, f func(context.Context) error) error {
	var before usage
	if !starts {
		var err error
		if before, err = usageOf(s.server.PID()); err != nil {
			return err
		}
		if _, err = resetPeak(s.server.PID()); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := f(ctx); err != nil {
		return fmt.Errorf("%s: %w\n%s", what, err, s.server.Tail())
	}
	took := time.Since(began)
	if err := settle(ctx, s.server.PID(), s.patience); err != nil {
		return err
	}
	after, err := usageOf(s.server.PID())
	if err != nil {
		return err
	}
	s.last = usage{cpu: after.cpu - before.cpu, peak: after.peak}
	then, err := s.memory(ctx)
	if err != nil {
		return err
	}
	perSeries := func(n, empty int64) string { return fmt.Sprint((n - empty) / int64(s.workload.Series)) }
	s.phases.add(what, digits((after.cpu-before.cpu).Seconds()/float64(s.workload.Series)*1e6), digits(took.Seconds()),
		megabytes(after.peak), perSeries(after.peak, s.empty.rss), megabytes(then.rss), perSeries(then.rss, s.empty.rss),
		megabytes(then.live), perSeries(then.live, s.empty.live))
	return nil
}

// memory returns what the adapter holds.
func (s *scale) memory(ctx context.Context) (m memory, err error) {
	kilobytes, err := procField(s.server.PID(), "status", "VmRSS:")
	if err != nil {
		return m, err
	}
	if _, err := s.server.call(ctx, http.MethodGet, "/debug/pprof/heap?gc=1"); err != nil {
		return m, err
	}
	live, err := s.server.metric(ctx, "go_memstats_heap_alloc_bytes")
	return memory{kilobytes << 10, int64(live)}, err
}

func megabytes(n int64) string { return fmt.Sprint(n / 1e6) }

// scrape sends the next sample of each series.
func (s *scale) scrape(ctx context.Context) error {
	s.generator.scrape()
	client := newClient(s.connections)
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.connections)
	for from := 0; from < s.workload.Series && ctx.Err() == nil; from += s.perRequest {
		group.Go(func() error {
			limit := min(from+s.perRequest, s.workload.Series)
			return write(ctx, client, s.server.url+"/api/v1/write", s.protocol, "", s.protocol.Encode(s.generator.sent(from, limit)))
		})
	}
	return group.Wait()
}
