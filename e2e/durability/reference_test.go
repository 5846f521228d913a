package durability

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/e2e/harness"
)

const (
	referenceDays   = 4
	referenceSeries = 8
	// deletedSeries are those of which samples are deleted.
	deletedSeries   = 3
	referenceConfig = "global: {}\nstorage:\n  tsdb:\n    out_of_order_time_window: 30d\n"
)

// A reference sends the same random samples and deletions to an adapter, which is killed meanwhile, and to a Prometheus.
type reference struct {
	*testing.T
	r          *rand.Rand
	adapter    *harness.Adapter
	prometheus *harness.Prometheus
	// start is when the samples begin, in milliseconds, rounds how many there are: each has times of its own, of which none is written twice.
	start, rounds int64
	// deleted are the ranges that were deleted of each series. Nothing is written there later. Prometheus does not delete samples that came out of
	// order, so they are left out of what it has.
	deleted [referenceSeries][][2]int64
}

// isDeleted says whether a sample of a series was deleted.
func (f *reference) isDeleted(n int, t int64) bool {
	return slices.ContainsFunc(f.deleted[n], func(d [2]int64) bool { return d[0] <= t && t <= d[1] })
}

func (f *reference) labels(n int) labels.Labels {
	return labels.FromStrings("__name__", "reference_total", "job", fmt.Sprint(n%2), "n", fmt.Sprint(n))
}

// batch draws samples of some series, at times of a round.
func (f *reference) batch(round int64) (batch []harness.SentSeries) {
	for n := range referenceSeries {
		if f.r.IntN(3) == 0 {
			continue
		}
		s := harness.SeriesOf(f.labels(n))
		at := f.start + f.r.Int64N(referenceDays*86_400_000-4*3600_000)
		for range 1 + f.r.IntN(300) {
			at += 15_000 * (1 + f.r.Int64N(3))
			t := at/15_000*15_000 + round*15_000/f.rounds
			if !f.isDeleted(n, t) {
				s.Points = append(s.Points, harness.PointAt(t, f.value(t)))
			}
		}
		if len(s.Points) > 0 {
			batch = append(batch, s)
		}
	}
	if len(batch) == 0 {
		return f.batch(round)
	}
	return batch
}

// value draws what is likely to be stored otherwise than it came. The same time always has the same value.
func (f *reference) value(t int64) float64 {
	r := rand.New(rand.NewPCG(uint64(t), 1))
	switch r.IntN(60) {
	case 0:
		return math.Float64frombits(value.StaleNaN)
	case 1:
		return math.Inf(1)
	case 2:
		return math.Copysign(0, -1)
	case 3:
		return r.Float64()
	}
	return float64(t / 15_000 % 5000)
}

// send sends a batch until it is stored, as Prometheus does.
func (f *reference) send(to string, batch []harness.SentSeries) error {
	for {
		resp, err := harness.RemoteWrite2().Send(f.Context(), to, batch)
		switch {
		case err == nil && resp.Status/100 == 2:
			return nil
		case err == nil && resp.Status/100 == 4:
			return fmt.Errorf("%s: %v", to, resp)
		case f.Context().Err() != nil:
			return f.Context().Err()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// round sends batches to both, and kills the adapter while it takes one.
func (f *reference) round(round int64) {
	f.Helper()
	const batches = 10
	kill := f.r.IntN(batches)
	for i := range batches {
		batch := f.batch(round)
		sent := make(chan error, 1)
		go func(to string) { sent <- f.send(to, batch) }(f.adapter.URL("/write"))
		if i == kill {
			f.adapter.Kill(f)
			f.adapter.Rerun(f)
		}
		if err := errors.Join(<-sent, f.send(f.prometheus.URL("/api/v1/write"), batch)); err != nil {
			f.Fatal(err)
		}
	}
}

// delete deletes a range of one of the first series.
func (f *reference) delete() {
	f.Helper()
	n := f.r.IntN(deletedSeries)
	from := f.start + f.r.Int64N(referenceDays*86_400_000)
	to := from + f.r.Int64N(12*3600_000)
	form := url.Values{"match[]": {f.labels(n).String()}, "start": {harness.FormatSeconds(from)}, "end": {harness.FormatSeconds(to)}}
	if resp, err := harness.Post(f.Context(), f.adapter.URL("/api/v1/admin/tsdb/delete_series?"+form.Encode()), nil, nil); err != nil || resp.Status != http.StatusNoContent {
		f.Fatalf("%v, %v", resp, err)
	}
	f.deleted[n] = append(f.deleted[n], [2]int64{from, to})
}

// compareSamples compares all samples, bit for bit.
func (f *reference) compareSamples(when string) (points int) {
	f.Helper()
	q := harness.Query{Mint: f.start - 1, Maxt: f.start + (referenceDays+1)*86_400_000, Matchers: harness.MustMatchers(f, "__name__", "=", "reference_total")}
	want := harness.MustRead(f, f.prometheus.URL("/api/v1/read"), harness.Streamed, q) // its SAMPLES have no -0
	for i := range want {
		n, err := strconv.Atoi(want[i].Labels.Get("n"))
		if err != nil {
			f.Fatal(err)
		}
		want[i].Points = slices.DeleteFunc(want[i].Points, func(p harness.Point) bool { return f.isDeleted(n, p.T) })
	}
	want = slices.DeleteFunc(want, func(s harness.TimeSeries) bool { return len(s.Points) == 0 })
	for _, as := range harness.AnswerTypes() {
		if diff := harness.DiffSeries(harness.MustRead(f, f.adapter.URL("/read"), as, q), want); diff != "" {
			f.Fatalf("%s, %v: %s", when, as, diff)
		}
	}
	return harness.CountPoints(want)
}

// comparePoints compares answers to random queries, on the hour and beside it: from rollups, where these are made, and from samples.
func (f *reference) comparePoints(n int) (points int) {
	f.Helper()
	asked := &harness.Prometheus{Addr: f.adapter.Addr}
	functions := []string{"rate", "increase", "delta", "changes", "resets", "min_over_time", "max_over_time", "count_over_time", "present_over_time", "last_over_time", "absent_over_time"}
	for range n {
		window := []string{"5m", "1h", "6h", "1h15s", "1d", "13m"}[f.r.IntN(6)]
		expr := fmt.Sprintf(`%s(reference_total{n=~"%d|%d"}[%s])`, functions[f.r.IntN(len(functions))], deletedSeries+f.r.IntN(referenceSeries-deletedSeries), deletedSeries+f.r.IntN(referenceSeries-deletedSeries), window)
		if f.r.IntN(8) == 0 {
			const kept = `reference_total{n=~"[3-7]"}`
			expr = []string{kept, "timestamp(" + kept + ")", `absent(reference_total{n="5"})`, "sum by (job) (" + kept + ")"}[f.r.IntN(4)]
		}
		at := f.start + f.r.Int64N(referenceDays*24)*3600_000
		if f.r.IntN(3) == 0 {
			at += f.r.Int64N(3600_000)
		}
		want, err := f.prometheus.Instant(expr, at)
		if err != nil {
			f.Fatal(expr, err)
		}
		got, err := asked.Instant(expr, at)
		if err != nil || !slices.Equal(got, want) {
			f.Fatalf("%s at %d: %v\ngot  %s\nwant %s", expr, at, err, got, want)
		}
		points += len(want)
	}
	return points
}

// TestReference holds adapters in each mode against a real Prometheus: random samples in any order, deletions, and kill -9 meanwhile. All samples are the
// same bit for bit after each round, and so are answers to PromQL at the end, when rollups are made. E2E_ROUNDS=300 is the run that a change of the store
// is held against.
func TestReference(t *testing.T) {
	for _, mode := range []struct {
		name string
		open func(testing.TB) harness.Backend
		args []string
	}{
		{"embedded, buffered", harness.Embedded, nil},
		{"embedded, direct", harness.Embedded, []string{"--no-buffer.enabled"}},
		{"Bigtable, direct", harness.InProcess, nil},
		{"Bigtable, buffered", func(t testing.TB) harness.Backend { return harness.WithBuffer(harness.InProcess(t), t.TempDir()) }, nil},
	} {
		t.Run(mode.name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			f := &reference{T: t, r: rand.New(rand.NewPCG(seed, 2)), rounds: int64(harness.Rounds(t, 2))}
			f.start = (harness.NowMillis() - (referenceDays+1)*86_400_000) / 86_400_000 * 86_400_000
			f.prometheus = harness.StartPrometheus(t, "--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=90d")
			f.prometheus.Configure(t, referenceConfig)
			b := mode.open(t)
			args := slices.Concat(mode.args, []string{adminAPI, "--self-scrape-interval=0s"})
			f.adapter = harness.StartAdapter(t, b, append(args, "--no-rollup.enabled")...)
			samples := 0
			for round := range f.rounds {
				f.round(round)
				samples += f.compareSamples(fmt.Sprint("round ", round, ", written"))
				f.delete()
				samples += f.compareSamples(fmt.Sprint("round ", round, ", deleted"))
			}
			points := f.comparePoints(100)
			if b.Name == "embedded" { // there rollups need no waits
				f.adapter.Terminate(t)
				f.adapter = harness.StartAdapter(t, b, args...)
				harness.Eventually(t, "rollups are made", func() error {
					if n := f.adapter.Metric(t, "adapter_rollup_walks_total"); n < referenceDays-1 {
						return fmt.Errorf("%v days", n)
					}
					return nil
				})
				points += f.comparePoints(100)
			}
			t.Logf("%d samples and %d points are the same", samples, points)
		})
	}
}
