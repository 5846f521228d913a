package bigtable

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// TestBufferCost checks the row mutations of the buffer on Bigtable. The samples are of the
// past, in order: these go through open chunks, too.
func TestBufferCost(t *testing.T) {
	t.Parallel() // it waits for the clock
	const (
		series   = 200
		interval = 15_000
		samples  = 2 * int(harness.ChunkWindow/interval) // of a series: of two windows
		limit    = 0.02                                  // row mutations for a sample
	)
	b := harness.Emulator(t)
	a := harness.StartAdapter(t, harness.WithBuffer(b, t.TempDir()), "--current.flush-interval=24h")
	mutations := func(table string) int {
		return int(a.Metric(t, `adapter_bigtable_mutations_total\{result="success",table="`+table+`"\}`))
	}
	before := mutations("METRIC")
	first := (harness.NowMillis()-30*harness.ChunkWindow)&^(harness.ChunkWindow-1) + 1
	const atOnce = 43 // samples of a series in a request
	for n := 0; n < samples; n += atOnce {
		batch := make([]harness.SentSeries, series)
		for i := range batch {
			ls := labels.FromStrings("__name__", "cost", "job", "buffer", "series", fmt.Sprint(i))
			batch[i] = harness.SeriesOf(ls)
			for j := n; j < min(n+atOnce, samples); j++ {
				batch[i].Points = append(batch[i].Points, harness.PointAt(first+interval*int64(j), float64(j*i)))
			}
		}
		harness.RemoteWrite2().MustSend(t, a.URL("/write"), batch...)
	}
	// Everything is in the store when an adapter without the buffer finds it.
	direct := harness.StartAdapter(t, b, "--no-buffer.enabled", "--buffer.path="+t.TempDir())
	harness.Eventually(t, "the clock has sealed all", func() error {
		if got := harness.CountPoints(harness.MustRead(t, direct.URL("/read"), harness.Streamed, harness.Query{Mint: 0, Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "__name__", "=", "cost")})); got != series*samples {
			return fmt.Errorf("%d of %d samples", got, series*samples)
		}
		return nil
	})
	metric := mutations("METRIC") - before
	t.Logf("%d samples: METRIC %d row mutations (%.4f of each), INDEX %d, CURRENT %d", series*samples, metric,
		float64(metric)/float64(series*samples), mutations("INDEX"), mutations("CURRENT"))
	if metric < 2 || float64(metric) > limit*float64(series*samples) {
		t.Errorf("%d samples cost %d row mutations", series*samples, metric)
	}
}

// TestFleetCost counts the row mutations of a fleet, beside what adapter estimate says: a chunk for each series and window if each member gets series
// of its own, and one for each member that gets samples of it if requests are spread over all. CURRENT is written once a window by the clock, so once at most here.
func TestFleetCost(t *testing.T) {
	const (
		members  = 3
		series   = 150
		windows  = 3
		interval = 15_000
		atOnce   = 43 // samples of a series in a request
	)
	for _, bySeries := range []bool{true, false} {
		t.Run(fmt.Sprint("by series ", bySeries), func(t *testing.T) {
			t.Parallel() // a member waits before it takes samples
			m := startMembers(t, harness.Emulator(t), members)
			mutations := func(table string) (n int) {
				for _, a := range m.all {
					n += int(a.Metric(t, `adapter_bigtable_mutations_total\{result="success",table="`+table+`"\}`))
				}
				return n
			}
			metric, index := mutations("METRIC"), mutations("INDEX")
			first := (harness.NowMillis()-30*harness.ChunkWindow)&^(harness.ChunkWindow-1) + 1
			samples := windows * int(harness.ChunkWindow/interval)
			for n := 0; n < samples; n += atOnce {
				batches := make([][]harness.SentSeries, members)
				for i := range series {
					s := harness.SeriesOf(labels.FromStrings("__name__", "cost", "job", "fleet", "series", fmt.Sprint(i)))
					for j := n; j < min(n+atOnce, samples); j++ {
						s.Points = append(s.Points, harness.PointAt(first+interval*int64(j), float64(j*i)))
					}
					to := i % members
					if !bySeries {
						to = (n/atOnce + i) % members // as requests of several senders
					}
					batches[to] = append(batches[to], s)
				}
				for to, batch := range batches {
					harness.RemoteWrite2().MustSend(t, m.all[to].URL("/api/v1/write"), batch...)
				}
			}
			writers := 1
			if !bySeries {
				writers = members
			}
			want := series * windows * writers
			harness.Eventually(t, "all chunks but the open ones are stored", func() error {
				if got := mutations("METRIC") - metric; got < want*(windows-1)/windows {
					return fmt.Errorf("%d of %d", got, want)
				}
				return nil
			})
			got := mutations("METRIC") - metric
			t.Logf("%d samples in %d windows, the last of which may be open: METRIC %d row mutations, INDEX %d, CURRENT %d", series*samples, windows, got, mutations("INDEX")-index, mutations("CURRENT"))
			if got > want {
				t.Errorf("%d chunks of %d series in %d windows", got, series, windows)
			}
			if current := mutations("CURRENT"); current > series*writers {
				t.Errorf("CURRENT is written more than once before a window has passed: %d rows", current)
			}
		})
	}
}

// TestCost checks the documented cost on Bigtable: row mutations.
func TestCost(t *testing.T) {
	const (
		series   = 500
		requests = 8
		interval = 15_000
		// Of each series: metric, instance, job, le.
		postings = 4 * series
		// One metric, one job, five instances, one hundred bounds; four names.
		texts = 1 + 1 + 5 + 100 + 4
	)
	a := harness.StartAdapter(t, harness.InProcess(t), "--current.flush-interval=1h")
	mutations := func(table string) int {
		return int(a.Metric(t, `adapter_bigtable_mutations_total\{result="success",table="`+table+`"\}`))
	}
	metric, index, current := mutations("METRIC"), mutations("INDEX"), mutations("CURRENT")
	// In one index period, before its last eighth, when the next period is written.
	start := int64(3000) << 29
	for n := range int64(requests) {
		batch := make([]harness.SentSeries, series)
		for i := range batch {
			ls := labels.FromStrings("__name__", "request_duration_seconds_bucket", "job", "shop",
				"instance", fmt.Sprintf("10.0.0.%d:8080", i%5), "le", fmt.Sprint(i/5))
			batch[i] = harness.SeriesOf(ls, harness.PointAt(start+n*interval, float64(n)))
		}
		harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), batch...)
		if got := mutations("METRIC") - metric; got != series*int(n+1) {
			t.Errorf("%d samples cost %d row mutations", series*(n+1), got)
		}
		if got := mutations("INDEX") - index; got != postings+texts {
			t.Errorf("after request %d the index cost %d row mutations, want %d", n, got, postings+texts)
		}
	}
	if got := mutations("CURRENT") - current; got != 0 {
		t.Errorf("CURRENT was written %d times before its interval had passed", got)
	}
}
