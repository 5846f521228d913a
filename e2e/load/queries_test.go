package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

const (
	heavySeries  = 3000
	perInstance  = 100 // series of an instance
	heavyHours   = 4
	heavyStep    = 30_000 // milliseconds between samples of the history
	heavyQueries = 20     // as many as the adapter evaluates at once, by default
	// The steady load: every pace one request of perRequest series.
	perRequest = 500
	pace       = 20 * time.Millisecond
)

// TestHeavyQueries: beside 20 heavy queries at once no write is refused, and no query. The
// latency of writes is logged, with and without the queries; E2E_ROUNDS=1000 measures it by
// so many writes.
func TestHeavyQueries(t *testing.T) {
	requests := harness.Rounds(t, 100)
	a := harness.StartAdapter(t, harness.Embedded(t))
	w := &writer{a: a, first: harness.NowMillis() - heavyHours*3_600_000}
	for at := w.first; at < harness.NowMillis()-heavyStep; {
		at = w.history(t, at)
	}

	w.run(t, requests) // warm
	before := w.run(t, requests)
	q := startQueries(t, a, w.first)
	harness.Eventually(t, "queries are answered", func() error {
		if n := q.done.Load(); n < heavyQueries {
			return fmt.Errorf("%d of %d are", n, heavyQueries)
		}
		return nil
	})
	beside := w.run(t, requests)
	q.stop()

	if q.done.Load() < heavyQueries {
		t.Errorf("%d queries were answered", q.done.Load())
	}
	if got, err := harness.CountOverTime(a, "heavy", w.first); err != nil || got != w.written {
		t.Errorf("%d samples, want %d: %v", got, w.written, err)
	}
	p50, p99 := percentile(before, 0.5), percentile(before, 0.99)
	loaded50, loaded99 := percentile(beside, 0.5), percentile(beside, 0.99)
	t.Logf("%d queries answered, of %d series and %d hours, %d at once", q.done.Load(), heavySeries, heavyHours, heavyQueries)
	t.Logf("a write of %d samples: median %v, p99 %v; beside the queries %v, %v: %.1f and %.1f times as long",
		perRequest, p50, p99, loaded50, loaded99, float64(loaded50)/float64(p50), float64(loaded99)/float64(p99))
}

// A writer sends samples of the metric heavy to an adapter.
type writer struct {
	a       *harness.Adapter
	first   int64 // time of the first sample
	next    int   // series
	written int
}

func heavyLabels(n int) labels.Labels {
	return labels.FromStrings("__name__", "heavy", "instance", fmt.Sprint(n/perInstance), "series", fmt.Sprint(n%perInstance))
}

// history writes some minutes of all series, from a time on, and returns when it ends.
func (w *writer) history(t *testing.T, from int64) (to int64) {
	t.Helper()
	const samples = 20 // of each series in a request
	to = from + samples*heavyStep
	for n := 0; n < heavySeries; n += perRequest {
		batch := make([]harness.SentSeries, perRequest)
		for i := range batch {
			s := harness.SeriesOf(heavyLabels(n + i))
			for at := from; at < to && at < harness.NowMillis(); at += heavyStep {
				s.Points = append(s.Points, harness.PointAt(at, float64(at-w.first)*float64(1+n%7)))
			}
			w.written += len(s.Points)
			batch[i] = s
		}
		harness.RemoteWrite2().MustSend(t, w.a.URL("/api/v1/write"), batch...)
	}
	return to
}

// run sends the steady load, n requests of current samples, and returns how long each took.
// Every one must be stored.
func (w *writer) run(t *testing.T, n int) (took []time.Duration) {
	t.Helper()
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for range n {
		<-ticker.C
		now := harness.NowMillis()
		batch := make([]harness.SentSeries, perRequest)
		for i := range batch {
			batch[i] = harness.SeriesOf(heavyLabels(w.next), harness.PointAt(now, float64(now-w.first)))
			w.next = (w.next + 1) % heavySeries
		}
		begun := time.Now()
		harness.RemoteWrite2().MustSend(t, w.a.URL("/api/v1/write"), batch...)
		took = append(took, time.Since(begun))
		w.written += perRequest
	}
	return took
}

// queries are heavy queries that run again and again.
type queries struct {
	done atomic.Int64
	stop func()
}

// startQueries asks for rates over all of the history, by heavyQueries clients. Every answer
// must be complete.
func startQueries(t *testing.T, a *harness.Adapter, first int64) *queries {
	t.Helper()
	q := new(queries)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	q.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(q.stop)
	for client := range heavyQueries {
		running.Go(func() {
			params := url.Values{
				// Of each client another window: no two are the same query.
				"query": {fmt.Sprintf("sum by (instance) (rate(heavy[%ds]))", 300+client)},
				"start": {harness.FormatSeconds(first + 600_000)}, "end": {harness.FormatSeconds(first + heavyHours*3_600_000)}, "step": {"60"},
			}
			for ctx.Err() == nil && !t.Failed() {
				err := heavyQuery(ctx, a.URL("/api/v1/query_range")+"?"+params.Encode())
				switch {
				case err == nil:
					q.done.Add(1)
				case ctx.Err() == nil:
					t.Error(err)
				}
			}
		})
	}
	return q
}

// heavyQuery wants an answer with all instances, at all steps.
func heavyQuery(ctx context.Context, target string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req) // it may take longer than harness.Patience
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Data struct {
			Result []struct{ Values [][2]any }
		}
	}
	err = json.Unmarshal(body, &answer)
	if resp.StatusCode != http.StatusOK || err != nil || len(answer.Data.Result) != heavySeries/perInstance {
		return errors.Join(fmt.Errorf("status %d, %d instances: %.300s", resp.StatusCode, len(answer.Data.Result), body), err)
	}
	const steps = heavyHours*60 - 10
	for _, r := range answer.Data.Result {
		if len(r.Values) < steps {
			return fmt.Errorf("an instance has %d values, want %d", len(r.Values), steps)
		}
	}
	return nil
}

// percentile returns the least duration that so many, from 0 to 1, do not exceed.
func percentile(took []time.Duration, share float64) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[int(share*float64(len(sorted)-1))].Round(10 * time.Microsecond)
}
