package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

const (
	memoryClients = 200
	// memoryLimit is what the queries may hold together, in MiB.
	memoryLimit = 64

	histogramSeries = 300
	histogramStep   = 60_000
)

// heavyKinds are queries that each hold some MiB. The number of a client makes each query another one.
var heavyKinds = []string{
	`heavy * 1.%d`, `-heavy offset %ds`, `sum by (instance) (rate(heavy[%ds]))`, `sort(rate(heavy[%d7s]))`,
	`max_over_time(rate(heavy[5m%ds])[30m:30s])`, `heavy{series=~"1.|2.|3."} * on (instance, series) (heavy offset 1m%ds)`,
	`heavy_histogram * 1.%d`, `sum(rate(heavy_histogram[5m%ds]))`, `histogram_quantile(0.9, sum by (instance) (rate(heavy_histogram[5m%ds])))`,
	`quantile_over_time(0.9, heavy_histogram[%dm]) or topk(10, heavy)`,
}

// TestQueryMemory: --query.max-total-memory-bytes is what it says. The memory of the process grows by one and a half times
// as much, for the garbage, and 64 MiB, whatever many clients ask for. Queries beyond it are told so, and no write is refused. Each client asks
// once; with E2E_ROUNDS=3 so many times.
func TestQueryMemory(t *testing.T) {
	rounds := harness.Rounds(t, 1)
	w := &writer{a: harness.StartAdapter(t, harness.Embedded(t), "--query.results-cache-bytes=0", "--query.log-slower-than=0s",
		fmt.Sprintf("--query.max-total-memory-bytes=%dMiB", memoryLimit)), first: harness.NowMillis() - heavyHours*3_600_000}
	for at := w.first; at < harness.NowMillis()-heavyStep; {
		at = w.history(t, at)
	}
	w.histograms(t)
	w.a.Terminate(t)
	w.a.Rerun(t)
	w.run(t, 10)
	idle := resident(t, w.a.PID(), "VmRSS")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	var answers [3]atomic.Int64 // whole ones, those told of the limit, and of them those of remote read
	for client := range memoryClients {
		clients.Go(func() {
			for round := range rounds {
				status, text, err := w.heavyRequest(ctx, client, round)
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					t.Error(err)
				case status == http.StatusOK:
					answers[0].Add(1)
				case status == http.StatusServiceUnavailable || status == http.StatusUnprocessableEntity:
					answers[1].Add(1)
					if !regexp.MustCompile(`--query\.max-|too many concurrent|timed out|queue`).MatchString(text) {
						t.Errorf("status %d does not say what is exceeded: %s", status, text)
					}
				default:
					t.Errorf("status %d: %s", status, text)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { clients.Wait(); close(done) }()
	for writing := true; writing; {
		w.run(t, 5) // fails the test if one is refused
		select {
		case <-done:
			writing = false
		default:
		}
	}
	peak := resident(t, w.a.PID(), "VmHWM")
	t.Logf("%d MiB idle, %d MiB at most beside %d clients: %d whole answers, %d told of the limit", idle, peak, memoryClients, answers[0].Load(), answers[1].Load())
	if over := peak - idle; over > memoryLimit*3/2+64 {
		t.Errorf("%d MiB more than idle, the limit of queries is %d MiB", over, memoryLimit)
	}
	if answers[0].Load() == 0 || answers[1].Load() == 0 {
		t.Error("the load does not reach the limit, or nothing is answered")
	}
}

// histograms writes native histograms of the same time as the history.
func (w *writer) histograms(t *testing.T) {
	t.Helper()
	for n := range histogramSeries {
		s := harness.SeriesOf(labels.FromStrings("__name__", "heavy_histogram", "instance", fmt.Sprint(n/perInstance), "series", fmt.Sprint(n%perInstance)))
		for at := w.first; at < harness.NowMillis()-heavyStep; at += histogramStep {
			h := &histogram.Histogram{Schema: 3, PositiveSpans: []histogram.Span{{Length: 60}}, PositiveBuckets: make([]int64, 60)}
			h.PositiveBuckets[0] = 1 + (at-w.first)/histogramStep
			h.Count = 60 * uint64(h.PositiveBuckets[0])
			h.Sum = float64(h.Count)
			sent, err := harness.RemoteWrite2().Histogram(0, at, h, nil)
			if err != nil {
				t.Fatal(err)
			}
			s.Histograms = append(s.Histograms, sent)
		}
		harness.RemoteWrite2().MustSend(t, w.a.URL("/api/v1/write"), s)
	}
}

// heavyRequest sends a query, or every eighth client a remote read.
func (w *writer) heavyRequest(ctx context.Context, client, round int) (status int, text string, err error) {
	var resp *http.Response
	if client%8 == 7 {
		q := harness.Query{Mint: w.first, Maxt: harness.NowMillis(), Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", "heavy")}}
		resp, err = harness.PostRead(ctx, w.a.URL("/api/v1/read"), harness.AnswerTypes()[(client/8+round)%2], q)
		if refused := (harness.StatusError{}); errors.As(err, &refused) && refused.Status == http.StatusServiceUnavailable {
			return refused.Status, err.Error(), nil
		}
		if err != nil {
			return 0, "", err
		}
	} else {
		params := url.Values{
			"query": {fmt.Sprintf(heavyKinds[(client+round)%len(heavyKinds)], 1+client%50)},
			"start": {harness.FormatSeconds(w.first + 600_000)}, "end": {harness.FormatSeconds(w.first + heavyHours*3_600_000)}, "step": {strconv.Itoa(30 + client%7)},
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.a.URL("/api/v1/query_range")+"?"+params.Encode(), nil)
		if err != nil {
			return 0, "", err
		}
		if resp, err = http.DefaultClient.Do(req); err != nil {
			return 0, "", err
		}
	}
	defer resp.Body.Close()
	begin, err := io.ReadAll(io.LimitReader(resp.Body, 300))
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	return resp.StatusCode, string(begin), err
}

// resident returns what Linux says of the memory of a process, in MiB: VmRSS is what it has, VmHWM the most it ever had.
func resident(t *testing.T, pid int, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(name + `:\s*(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no %s in %s", name, text)
	}
	kib, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}
