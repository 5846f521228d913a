package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/e2e/harness"
)

// tenantHeader is the default of --tenancy.header.
const tenantHeader = "X-Scope-OrgID"

// tenantName returns the name of a tenant.
func tenantName(i int) string { return fmt.Sprintf("tenant-%d", i) }

// tenants measures what many tenants cost.
type tenants struct {
	workload workload
	tenants  int
	backend  string
	// noise is how long one tenant writes more than it may, at so many times its limit.
	noise time.Duration
	times int
	dir   string
	rows  table
}

// runTenants is the command tenants.
func runTenants(ctx context.Context, args []string) error {
	t := &tenants{rows: table{{"", "one tenant", "many"}}}
	perTenant := 0
	app := kingpin.New("bench tenants", "Sends the same requests as of one tenant, and as of many, and prints what both cost. Then one of them writes many times what it may, and the writes and queries of the others are measured without it and beside it.")
	app.Flag("tenants", "Tenants.").Default("200").IntVar(&t.tenants)
	app.Flag("series", "Series of each.").Default("500").IntVar(&perTenant)
	app.Flag("samples", "Samples of each series.").Default("60").IntVar(&t.workload.Samples)
	app.Flag("interval", "Time between two samples of a series.").Default("15s").DurationVar(&t.workload.Interval)
	app.Flag("seed", "Seed of the values.").Default("1").Uint64Var(&t.workload.Seed)
	app.Flag("backend", "Where the adapter keeps rows: embedded, or bigtable for an emulator.").Default("embedded").EnumVar(&t.backend, "embedded", "bigtable")
	app.Flag("noise", "How long one tenant writes more than it may.").Default("20s").DurationVar(&t.noise)
	app.Flag("times", "How many times its limit it writes.").Default("100").IntVar(&t.times)
	if _, err := app.Parse(args); err != nil {
		return err
	}
	t.workload.Series, t.workload.End = perTenant*t.tenants, endBefore(time.Now().UnixMilli())
	var err error
	if t.dir, err = os.MkdirTemp("", "promtable-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(t.dir)
	if err := t.run(ctx, perTenant); err != nil {
		return err
	}
	fmt.Printf("%s; %d tenants of %d series, %d samples each; load %s\n\n%s", t.backend, t.tenants, perTenant, t.workload.Samples, load(), t.rows)
	return nil
}

// run measures one tenant, and then all.
func (t *tenants) run(ctx context.Context, perTenant int) error {
	p := harness.RemoteWrite2()
	requests, err := newSpool(ctx, filepath.Join(t.dir, "requests"), p, t.workload, perTenant)
	if err != nil {
		return err
	}
	defer requests.Close()
	cells := map[string][]string{}
	var order []string
	for _, n := range []int{1, t.tenants} {
		requests.tenants = n
		err := t.measure(ctx, p, requests, func(name string, value float64) {
			if !slices.Contains(order, name) {
				order = append(order, name)
			}
			cells[name] = append(cells[name], digits(value))
		})
		if err != nil {
			return err
		}
	}
	for _, name := range order {
		t.rows.add(append([]string{name}, cells[name]...)...)
	}
	return t.measureNoise(ctx)
}

// start starts the adapter on a directory.
func (t *tenants) start(ctx context.Context, dir string, args ...string) (*server, error) {
	adapter, err := buildAdapter(ctx)
	if err != nil {
		return nil, err
	}
	args = append(args, "--tenancy", "--tenancy.create")
	if t.backend == "embedded" {
		return newAdapter(adapter, args).start(ctx, dir)
	}
	emulator, err := buildEmulator(ctx)
	if err != nil {
		return nil, err
	}
	return newBigtableAdapter(adapter, emulator, append(args, "--buffer.enabled", "--buffer.path="+dir)).start(ctx, dir)
}

// measure sends all requests to a new adapter, and starts it again if its rows are on the disk.
func (t *tenants) measure(ctx context.Context, p harness.Protocol, requests *spool, note func(string, float64)) error {
	dir, err := os.MkdirTemp(t.dir, "data-")
	if err != nil {
		return err
	}
	s, err := t.start(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { s.close() }()
	before, err := usageOf(s.PID())
	if err != nil {
		return err
	}
	began := time.Now()
	took, err := send(ctx, s.url+"/api/v1/write", p, requests, 2)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.Tail())
	}
	wall := time.Since(began)
	if err := s.settle(ctx); err != nil {
		return err
	}
	after, err := usageOf(s.PID())
	if err != nil {
		return err
	}
	samples := float64(t.workload.total())
	note("CPU s per M samples", (after.cpu-before.cpu).Seconds()/samples*1e6)
	note("samples per second, thousands", samples/wall.Seconds()/1e3)
	note("request p50, ms", milliseconds(quantile(took, 0.5)))
	note("request p99, ms", milliseconds(quantile(took, 0.99)))
	note("peak RSS before the first request, MB", float64(before.peak)/1e6)
	note("peak RSS, MB", float64(after.peak)/1e6)
	if err := s.stop(); err != nil || t.backend != "embedded" {
		return err
	}
	began = time.Now()
	if s, err = t.start(ctx, dir); err != nil {
		return err
	}
	note("next start until it is ready, s", time.Since(began).Seconds())
	if err := s.settle(ctx); err != nil {
		return err
	}
	if after, err = usageOf(s.PID()); err != nil {
		return err
	}
	note("CPU of the start, s", after.cpu.Seconds())
	note("peak RSS of the start, MB", float64(after.peak)/1e6)
	return s.stop()
}

// The others write and ask so often, so much, and so many of them.
const (
	othersEach   = 100 * time.Millisecond
	othersSeries = 200
	others       = 10
	// limited is the limit of the noisy tenant, in samples a second.
	limited = 1000
)

// measureNoise measures writes and queries of some tenants, alone and beside one that writes many times what it may.
func (t *tenants) measureNoise(ctx context.Context) error {
	dir, err := os.MkdirTemp(t.dir, "data-")
	if err != nil {
		return err
	}
	limits := filepath.Join(t.dir, "limits.yml")
	text := fmt.Sprintf("overrides: {noisy: {ingestion_rate: %d}}\n", limited)
	if err := os.WriteFile(limits, []byte(text), 0o600); err != nil {
		return err
	}
	s, err := t.start(ctx, dir, "--limits.file="+limits)
	if err != nil {
		return err
	}
	defer s.close()
	if _, _, err := t.others(ctx, s, 2*time.Second); err != nil { // to make what is made once
		return err
	}
	quietWrites, quietQueries, err := t.others(ctx, s, t.noise)
	if err != nil {
		return err
	}
	noisy, stop := context.WithCancel(ctx)
	var refused, sent atomic.Int64
	var ended sync.WaitGroup
	ended.Go(func() { t.noisy(noisy, s, &sent, &refused) })
	writes, queries, err := t.others(ctx, s, t.noise)
	stop()
	ended.Wait()
	if err != nil {
		return err
	}
	t.rows.add(fmt.Sprintf("beside a tenant at %d times its limit: its writes sent, refused", t.times), fmt.Sprint(sent.Load()), fmt.Sprint(refused.Load()))
	for _, of := range []struct {
		name         string
		alone, noisy []time.Duration
	}{{"writes", quietWrites, writes}, {"queries", quietQueries, queries}} {
		for _, q := range []float64{0.5, 0.99} {
			a, b := quantile(of.alone, q), quantile(of.noisy, q)
			t.rows.add(fmt.Sprintf("%s of others without and beside it, p%g, ms; ratio %s", of.name, q*100, digits(float64(b)/float64(a))), digits(milliseconds(a)), digits(milliseconds(b)))
		}
	}
	return s.stop()
}

// others writes and asks as several tenants for some time, and returns how long each took, ascending.
func (t *tenants) others(ctx context.Context, s *server, long time.Duration) (writes, queries []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for i := range others {
		group.Go(func() error {
			client := newClient(1)
			defer client.CloseIdleConnections()
			p, name := harness.RemoteWrite2(), tenantName(i)
			w := t.workload
			w.Series, w.Samples, w.Seed = othersSeries, 1, uint64(i)
			g := newGenerator(w)
			series := g.sent(0, othersSeries)
			ticker := time.NewTicker(othersEach)
			defer ticker.Stop()
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-ticker.C:
				}
				at := time.Now()
				for k := range series {
					series[k].Points[0] = harness.PointAt(at.UnixMilli(), float64(k))
				}
				body := p.Encode(series)
				began := time.Now()
				if err := write(context.WithoutCancel(ctx), client, s.url+"/api/v1/write", p, name, body); err != nil {
					return err
				}
				written := time.Now()
				if err := t.count(context.WithoutCancel(ctx), s, name, at); err != nil {
					return err
				}
				mu.Lock()
				writes, queries = append(writes, written.Sub(began)), append(queries, time.Since(written))
				mu.Unlock()
			}
		})
	}
	err = group.Wait()
	if err == nil && len(writes) == 0 {
		err = errors.New("no other tenant has written")
	}
	slices.Sort(writes)
	slices.Sort(queries)
	return writes, queries, err
}

// count wants all series of a tenant at a time.
func (t *tenants) count(ctx context.Context, s *server, tenant string, at time.Time) error {
	url := fmt.Sprintf(`%s/api/v1/query?query=count({__name__=~".%%2B"})&time=%d.%03d`, s.url, at.Unix(), at.UnixMilli()%1000)
	resp, err := harness.RoundTrip(ctx, http.MethodGet, url, map[string]string{tenantHeader: tenant}, nil)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf(`"%d"`, othersSeries); !strings.Contains(resp.Body, want) {
		return fmt.Errorf("%s: %v, want %s", tenant, resp, want)
	}
	return nil
}

// noisy writes many times what it may, until ctx ends.
func (t *tenants) noisy(ctx context.Context, s *server, sent, refused *atomic.Int64) {
	const size = 1000
	p := harness.RemoteWrite2()
	w := t.workload
	w.Series, w.Samples, w.Seed = size, 1, 99
	series := newGenerator(w).sent(0, size)
	ticker := time.NewTicker(time.Second * size / time.Duration(limited*t.times))
	defer ticker.Stop()
	client := newClient(16)
	defer client.CloseIdleConnections()
	var running errgroup.Group
	running.SetLimit(16)
	for {
		select {
		case <-ctx.Done():
			_ = running.Wait()
			return
		case at := <-ticker.C:
			for k := range series {
				series[k].Points[0] = harness.PointAt(at.UnixMilli(), float64(k))
			}
			body := p.Encode(series)
			running.Go(func() error {
				sent.Add(1)
				if err := write(context.WithoutCancel(ctx), client, s.url+"/api/v1/write", p, "noisy", body); err != nil {
					refused.Add(1)
				}
				return nil
			})
		}
	}
}
