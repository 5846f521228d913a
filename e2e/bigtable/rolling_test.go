package bigtable

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/e2e/harness"
)

// A balancer sends each request to the next adapter, whatever it is.
type balancer struct {
	*httptest.Server
	mu   sync.Mutex
	to   []*harness.Adapter
	next int
}

func newBalancer(t *testing.T) *balancer {
	b := &balancer{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.next++
			r.SetURL(&url.URL{Scheme: "http", Host: b.to[b.next%len(b.to)].Addr})
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	b.Server = httptest.NewServer(proxy)
	t.Cleanup(b.Close)
	return b
}

// set gives the balancer its adapters.
func (b *balancer) set(to ...*harness.Adapter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to = to
}

// An element is a series of the answer to a range query, with its values.
type element struct {
	Metric map[string]string
	Values [][2]any
}

// elementsOf parses elements, by their labels.
func elementsOf(t *testing.T, elements []string) map[string]element {
	t.Helper()
	all := make(map[string]element)
	for _, text := range elements {
		var e element
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		all[fmt.Sprint(e.Metric)] = e
	}
	return all
}

// nearlySame returns an error unless two answers have the same series at the same times, and values that differ by a part in 10^13 at most: Prometheus adds the series of a group in
// the order in which it has seen them first, the adapter in that of their labels, and so the last bits of a sum or an average may differ. That all samples are the same, to the
// bit, is compared before.
func nearlySame(t *testing.T, got, want []string) error {
	t.Helper()
	gotBy, wantBy := elementsOf(t, got), elementsOf(t, want)
	if len(gotBy) != len(wantBy) {
		return fmt.Errorf("%d series, want %d", len(gotBy), len(wantBy))
	}
	for labels, w := range wantBy {
		g := gotBy[labels]
		if len(g.Values) != len(w.Values) {
			return fmt.Errorf("%s has %d values, want %d", labels, len(g.Values), len(w.Values))
		}
		for i := range w.Values {
			if g.Values[i][0] != w.Values[i][0] || !isNear(t, g.Values[i][1], w.Values[i][1]) {
				return fmt.Errorf("%s has %v, want %v", labels, g.Values[i], w.Values[i])
			}
		}
	}
	return nil
}

// isNear says whether two values, as the API writes them, differ by a part in 10^13 at most.
func isNear(t *testing.T, a, b any) bool {
	t.Helper()
	if a == b {
		return true
	}
	var fs [2]float64
	for i, text := range []any{a, b} {
		var err error
		if fs[i], err = strconv.ParseFloat(text.(string), 64); err != nil {
			t.Fatal(err)
		}
	}
	difference := math.Abs(fs[0] - fs[1])
	return !math.IsInf(difference, 0) && difference <= 1e-13*max(math.Abs(fs[0]), math.Abs(fs[1]))
}

// TestNearlySame: what differs by more than the order of additions is found.
func TestNearlySame(t *testing.T) {
	of := func(value, at string) []string {
		return []string{`{"metric":{"a":"b"},"values":[[` + at + `,"` + value + `"],[2,"NaN"]]}`}
	}
	for _, tt := range []struct {
		got  []string
		same bool
	}{
		{of("5297.32680032665", "1"), true}, {of("5297.326800326651", "1"), true}, {of("5297.32680032764", "1"), false}, {of("5297.32680032665", "1.001"), false},
		{of("NaN", "1"), false}, {of("+Inf", "1"), false}, {nil, false}, {[]string{`{"metric":{"a":"c"},"values":[[1,"5297.32680032665"],[2,"NaN"]]}`}, false},
	} {
		if err := nearlySame(t, tt.got, of("5297.32680032665", "1")); (err == nil) != tt.same {
			t.Errorf("%v: %v", tt.got, err)
		}
	}
}

// TestRollingFleet: a real Prometheus writes through a balancer that knows nothing to members whose calls to Bigtable each take a while. While it does, each member is
// restarted after the other, one is killed, one is cut off from Bigtable, two come and all but one leave. Then the fleet has what Prometheus has, bit for bit, and answers
// random PromQL as it does.
func TestRollingFleet(t *testing.T) {
	t.Parallel()
	emulator := harness.Emulator(t)
	harness.StartAdapter(t, emulator).Terminate(t) // makes the tables
	const delay = 2 * time.Millisecond
	var (
		members []*harness.Adapter
		proxies []*harness.Proxy
	)
	join := func(n int) {
		t.Helper()
		from := len(members)
		members, proxies = append(members, make([]*harness.Adapter, n)...), append(proxies, make([]*harness.Proxy, n)...)
		var starting sync.WaitGroup
		for i := from; i < len(members); i++ {
			starting.Go(func() {
				var b harness.Backend
				b, proxies[i] = emulator.Behind(t, delay)
				members[i] = harness.StartAdapter(t, harness.WithBuffer(b, t.TempDir()), "--fleet.listen-address=127.0.0.1:0", "--shutdown.delay=1s")
			})
		}
		starting.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	join(3)
	reader := harness.StartAdapter(t, emulator, "--mode=read")
	balanced := newBalancer(t)
	balanced.set(members...)

	began := harness.NowMillis()
	p := harness.StartPrometheus(t)
	p.Configure(t, harness.ScrapeConfig(harness.Job{Name: "self", Targets: []string{p.Addr}}, harness.Job{Name: "reader", Targets: []string{reader.Addr}})+
		"remote_write:\n  - url: "+balanced.URL+"/api/v1/write\n    queue_config: {batch_send_deadline: 1s, min_shards: 4, min_backoff: 30ms, max_backoff: 1s}\n")
	scraped := func(what string) {
		t.Helper()
		t.Log(what)
		p.AwaitScrapes(t, 2, harness.NowMillis()+2000)
	}
	scraped("three members")
	for _, m := range members { // a rolling restart
		m.Terminate(t)
		m.Rerun(t)
	}
	scraped("after a rolling restart")
	members[0].Kill(t)
	scraped("one is killed")
	members[0].Rerun(t)
	proxies[1].Cut()
	scraped("one is cut off from Bigtable")
	proxies[1].Mend()
	join(2)
	balanced.set(members...)
	scraped("five members")
	for _, m := range members[1:] {
		m.Terminate(t)
	}
	balanced.set(members[0])
	scraped("one member")

	p.AwaitScrapes(t, 2, harness.NowMillis())
	last := harness.NowMillis() - 1000
	harness.Eventually(t, "Prometheus has sent all", func() error {
		const sent = "prometheus_remote_storage_queue_highest_timestamp_seconds" // of what was sent
		found, err := p.Instant(sent+" > "+harness.FormatSeconds(last), harness.NowMillis())
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%s is not past %d", sent, last)
		}
		return err
	})
	lost, err := p.Instant("prometheus_remote_storage_samples_failed_total > 0 or prometheus_remote_storage_samples_dropped_total > 0", harness.NowMillis())
	if err != nil || len(lost) > 0 {
		t.Errorf("Prometheus gave samples up: %v, %v", lost, err)
	}
	all := harness.Query{Mint: began, Maxt: last, Matchers: harness.MustMatchers(t, "__name__", "=~", ".+")}
	want := harness.MustRead(t, p.URL("/api/v1/read"), prompb.ReadRequest_STREAMED_XOR_CHUNKS, all)
	for _, a := range []*harness.Adapter{members[0], reader} {
		if d := harness.DiffSeries(harness.MustRead(t, a.URL("/api/v1/read"), prompb.ReadRequest_STREAMED_XOR_CHUNKS, all), want); d != "" {
			t.Fatalf("%s: %s", a, d)
		}
	}
	t.Logf("%d samples of %d series in %d s", harness.CountPoints(want), len(want), (last-began)/1000)

	names, seed := p.Names(t), rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	compared := 0
	for range 200 {
		expr := fmt.Sprintf("%s by (%s) (%s(%s[%ds]))", pick("sum", "max", "count", "avg"), pick("job", "instance", "handler", "le"),
			pick("rate", "increase", "max_over_time", "last_over_time", "changes", "avg_over_time", "sum_over_time", "resets"), pick(names...), 2+r.IntN(60))
		mint := began + r.Int64N(last-began)
		maxt := mint + r.Int64N(last-mint+1)
		want, err := p.Ranged(expr, mint, maxt)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		if len(want) == 0 {
			continue
		}
		compared++
		asked := &harness.Prometheus{Addr: []*harness.Adapter{members[0], reader}[r.IntN(2)].Addr}
		got, err := asked.Ranged(expr, mint, maxt)
		if err == nil {
			err = nearlySame(t, got, want)
		}
		if err != nil {
			t.Errorf("%s from %d to %d: %v", expr, mint, maxt, err)
		}
	}
	if compared < 50 {
		t.Errorf("only %d answers had something to compare", compared)
	}
}
