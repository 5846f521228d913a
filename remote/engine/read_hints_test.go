//go:build !race

package engine_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	config_util "github.com/prometheus/common/config"
	prommodel "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	upstream "github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// A readServer serves remote read of an engine, and counts what that reads and sends.
type readServer struct {
	url string
	// running are its requests.
	running sync.WaitGroup

	mu    sync.Mutex
	usage reader.Counts
	bytes int
}

func serveRead(t testing.TB, e *engine.Engine, now func() time.Time) *readServer {
	t.Helper()
	s := new(readServer)
	h := remotetest.Handler(e, now)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.running.Add(1)
		defer s.running.Done()
		var usage reader.Usage
		counted := &countedAnswer{ResponseWriter: w}
		h.ServeHTTP(counted, r.WithContext(reader.WithUsage(r.Context(), &usage)))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.usage.Add(usage.Counts())
		s.bytes += counted.bytes
	}))
	t.Cleanup(srv.Close)
	s.url = srv.URL + "/api/v1/read"
	return s
}

// take returns what was counted since the call before, when no request runs.
func (s *readServer) take() (reader.Counts, int) {
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	usage, bytes := s.usage, s.bytes
	s.usage, s.bytes = reader.Counts{}, 0
	return usage, bytes
}

type countedAnswer struct {
	http.ResponseWriter
	bytes int
}

func (w *countedAnswer) Write(p []byte) (int, error) {
	w.bytes += len(p)
	return w.ResponseWriter.Write(p)
}

func (w *countedAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// remoteStorage is the storage of a Prometheus that reads from a URL what is up to a time, in milliseconds, and from local what is later.
func remoteStorage(t testing.TB, address string, kind prompb.ReadRequest_ResponseType, local storage.Queryable, until int64) storage.Queryable {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	client, err := upstream.NewReadClient("test", &upstream.ClientConfig{
		URL: &config_util.URL{URL: u}, Timeout: prommodel.Duration(time.Minute), ChunkedReadLimit: 50_000_000, AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{kind},
	})
	if err != nil {
		t.Fatal(err)
	}
	far := upstream.NewSampleAndChunkQueryableClient(client, labels.EmptyLabels(), nil, local == nil, func() (int64, error) { return until, nil })
	if local == nil {
		return far
	}
	return storage.QueryableFunc(func(mint, maxt int64) (storage.Querier, error) {
		remote, err := far.Querier(mint, maxt)
		if err != nil || maxt <= until {
			return remote, err
		}
		near, err := local.Querier(max(mint, until+1), maxt)
		return storage.NewMergeQuerier([]storage.Querier{laterQuerier{near, until}}, []storage.Querier{remote}, storage.ChainedSeriesMerge), err
	})
}

// A laterQuerier has what is later than a time.
type laterQuerier struct {
	storage.Querier
	after int64
}

func (q laterQuerier) Select(ctx context.Context, isSorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	later := *hints
	if later.Start = max(later.Start, q.after+1); later.Start > later.End {
		return storage.EmptySeriesSet()
	}
	return q.Querier.Select(ctx, isSorted, &later, ms...)
}

// hintFunctions are those whose windows may come from rollups, and some others.
var (
	hintFunctions = []string{
		"last_over_time", "ts_of_last_over_time", "present_over_time", "absent_over_time", "first_over_time", "ts_of_first_over_time", "min_over_time", "max_over_time",
		"resets", "rate", "increase", "delta", "", "timestamp", "absent",
	}
	otherFunctions = []string{"count_over_time", "avg_over_time", "irate", "changes", "ts_of_max_over_time"}
)

// A hintQuery is a query to upstream's engine. It is instant if step is 0.
type hintQuery struct {
	fn, expr string
	from, to time.Time
	step     time.Duration
}

func (q hintQuery) String() string {
	return fmt.Sprintf("%s from %d to %d, step %s", q.expr, q.from.UnixMilli(), q.to.UnixMilli(), q.step)
}

// hintQuery draws a query as Grafana sends it, or one that is less usual.
func (s *rolled) hintQuery() hintQuery {
	const minute = time.Minute
	r := s.r
	pick := func(of ...time.Duration) time.Duration { return of[r.IntN(len(of))] }
	fn := hintFunctions[r.IntN(len(hintFunctions))]
	switch r.IntN(6) {
	case 0:
		fn = otherFunctions[r.IntN(len(otherFunctions))]
	case 1:
		fn = []string{"rate", "increase", "delta"}[r.IntN(3)]
	}
	step := pick(5*minute, 10*minute, 15*minute, 30*minute, time.Hour, time.Hour, 2*time.Hour, 6*time.Hour, 12*time.Hour, 24*time.Hour)
	window := pick(step, step, step, step, 5*minute, time.Hour, 6*time.Hour, 24*time.Hour, 7*minute)
	if r.IntN(2) == 0 { // $__rate_interval
		window += pick(15*time.Second, 15*time.Second, minute, 30*time.Second, 2*minute, 10*time.Second)
	}
	name := []string{"x_total", "x_total", "gauge", "gauge", "native", "mixed_native"}[r.IntN(6)]
	from := time.UnixMilli(rollupStart + r.Int64N((rollupDays-1)*rollup.Day)).Truncate(step).Add(-pick(0, 0, 0, time.Hour, 330*minute, 345*minute, -210*minute))
	if r.IntN(12) == 0 {
		from = from.Add(pick(minute, 5*minute, time.Millisecond, time.Duration(r.Int64N(int64(time.Hour)))))
	}
	modifier := []string{"", "", "", "", " offset 1h", " offset 5m", " offset 7m", " offset -1h", " @ end()", fmt.Sprintf(" @ %d", rollupStart/1000+r.Int64N(rollupDays)*86400)}[r.IntN(10)]
	count := 1 + r.IntN(60)
	isNative := strings.HasSuffix(name, "native")
	selector := fmt.Sprintf(`%s%s`, name, []string{"", "", `{job="0"}`}[r.IntN(3)])
	extended := ""
	if canExtend := slices.Contains([]string{"rate", "increase", "delta"}, fn); !isNative && (canExtend || fn == "") && r.IntN(8) == 0 {
		if extended = " smoothed"; canExtend && r.IntN(2) == 0 {
			extended = " anchored"
		}
	}
	expr := fmt.Sprintf("%s(%s[%s]%s%s)", fn, selector, window, modifier, extended)
	switch fn {
	case "":
		expr = selector + modifier + extended
	case "timestamp", "absent":
		expr = fmt.Sprintf("%s(%s%s)", fn, selector, modifier)
	}
	if inner := r.IntN(8); inner == 0 { // The offset of a selector in a subquery has to be a multiple of the bucket, and of its step.
		expr = fmt.Sprintf("%s(%s[%s:%s]%s)", []string{"max_over_time", "sum_over_time", "last_over_time", "rate"}[r.IntN(4)],
			strings.ReplaceAll(strings.ReplaceAll(expr, " offset 7m", " offset 10m"), " offset 5m", " offset 1h"), pick(time.Hour, 6*time.Hour, 24*time.Hour), pick(5*minute, 30*minute, time.Hour), pick(time.Hour, 24*time.Hour))
		expr = strings.Replace(expr, "]1h0m0s)", "] offset 1h)", 1)
		expr = strings.Replace(expr, "]24h0m0s)", "])", 1)
		count = 1 + r.IntN(5)
	}
	expr = fmt.Sprintf([]string{"%s", "%s", "%s", "sum by (job) (%s)", "max(%s)", "%s * 2", "topk(2, %s)", "-(%s)", "sum(%[1]s) / count(%[1]s)"}[r.IntN(9)], expr)
	if r.IntN(6) == 0 {
		return hintQuery{fn: fn, expr: expr, from: from, to: from}
	}
	to := from.Add(step * time.Duration(count))
	if extended == "" && r.IntN(10) == 0 {
		to = to.Add(time.Duration(r.Int64N(int64(step))))
	}
	return hintQuery{fn, expr, from, to, step}
}

// askHints returns the answer of upstream's engine.
func askHints(t testing.TB, of *promql.Engine, from storage.Queryable, q hintQuery) (promql.Matrix, annotations.Annotations) {
	t.Helper()
	var query promql.Query
	var err error
	if q.step == 0 {
		query, err = of.NewInstantQuery(t.Context(), from, nil, q.expr, q.from)
	} else {
		query, err = of.NewRangeQuery(t.Context(), from, nil, q.expr, q.from, q.to, q.step)
	}
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	defer query.Close()
	res := query.Exec(t.Context())
	if res.Err != nil {
		t.Fatalf("%s: %v", q, res.Err)
	}
	found, ok := res.Value.(promql.Matrix)
	if vector, isVector := res.Value.(promql.Vector); isVector {
		for _, v := range vector {
			one := promql.Series{Metric: v.Metric}
			if v.H != nil {
				one.Histograms = []promql.HPoint{{T: v.T, H: v.H}}
			} else {
				one.Floats = []promql.FPoint{{T: v.T, F: v.F}}
			}
			found = append(found, one)
		}
	} else if !ok {
		t.Fatalf("%s: a %T", q, res.Value)
	}
	found = slices.Clone(found)
	for i := range found {
		found[i].Floats, found[i].Histograms = slices.Clone(found[i].Floats), slices.Clone(found[i].Histograms)
	}
	return found, res.Warnings
}

// A hintWorld compares what upstream's engine makes of remote read with and without rollups.
type hintWorld struct {
	*rolled
	promql        *promql.Engine
	hinted, whole *readServer
	// values is how many values were compared, and used how many queries of each function were answered from rollups.
	values int
	used   map[string]int
}

func newHintWorld(t *testing.T, s *rolled) *hintWorld {
	now := func() time.Time { return s.now }
	engine := promql.NewEngine(queryOptions())
	t.Cleanup(func() { _ = engine.Close() })
	return &hintWorld{rolled: s, promql: engine, hinted: serveRead(t, s.engine, now), whole: serveRead(t, s.raw, now), used: make(map[string]int)}
}

// compare compares the answers to a query, of a Prometheus that may have a storage of its own if mayBeLocal is set.
func (w *hintWorld) compare(t *testing.T, q hintQuery, mayBeLocal bool) {
	t.Helper()
	kind := remotetest.ResponseTypes[w.r.IntN(2)]
	if strings.Contains(q.expr, "mixed_native") {
		// Upstream's iterator of an answer of SAMPLES skips the first float of a series that also has histograms, when it seeks twice before it.
		kind = prompb.ReadRequest_STREAMED_XOR_CHUNKS
	}
	var local storage.Queryable
	until := int64(0)
	if mayBeLocal && w.r.IntN(3) == 0 {
		local = w.raw
		until = q.from.UnixMilli() + w.r.Int64N(max(1, q.to.UnixMilli()-q.from.UnixMilli())+rollup.Day) - rollup.Day/2
		until -= until % []int64{1, 1000, 300_000, 3600_000, 7200_000}[w.r.IntN(5)]
	}
	resolution := []string{"auto", "auto", "auto", "1h", "5m"}[w.r.IntN(5)]
	got, warnings := askHints(t, w.promql, remoteStorage(t, w.hinted.url+"?max_source_resolution="+resolution, kind, local, until), q)
	want, wantWarnings := askHints(t, w.promql, remoteStorage(t, w.whole.url, kind, local, until), q)
	usage, _ := w.hinted.take()
	if usage.Days1h+usage.Days5m > 0 {
		w.used[q.fn]++
	}
	about := fmt.Sprintf("%s, %s, %s, local after %d", q, resolution, kind, until)
	if !slices.Equal(textsOf(warnings), textsOf(wantWarnings)) {
		t.Errorf("%s: warnings %v, %v from samples", about, textsOf(warnings), textsOf(wantWarnings))
	}
	w.values += comparePoints(t, about, false, []promql.Matrix{got}, []promql.Matrix{want})
}

// TestReadHints: upstream's engine computes the same bits of what remote read gives it from rollups as of all samples, whatever is asked.
func TestReadHints(t *testing.T) {
	r := seriestest.NewRand(t)
	values, used := 0, make(map[string]int)
	for world := 0; values < storetest.Rounds(t, 12_000) && !t.Failed(); world++ {
		t.Run(strconv.Itoa(world), func(t *testing.T) { // which closes its store
			w := newHintWorld(t, newRolled(t, r))
			w.fill(t, 9)
			w.fillHistograms(t)
			w.fillLarge(t)
			if err := w.maker.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i := 0; i < 200 && !t.Failed(); i++ {
				if i%50 == 25 {
					w.rewrite(t)
				}
				w.compare(t, w.hintQuery(), true)
			}
			values += w.values
			for fn, n := range w.used {
				used[fn] += n
			}
		})
	}
	t.Logf("%d values compared; queries that used rollups: %v", values, used)
	if len(used) == 0 {
		t.Error("no query used rollups")
	}
	for _, fn := range otherFunctions {
		if used[fn] > 0 {
			t.Errorf("%d queries of %s used rollups", used[fn], fn)
		}
	}
}

// TestReadHintsOfGone: where samples are gone, windows that end and begin with buckets are as exact, but for what buckets do not tell: of how much a counter grew with
// more resets in an hour than it keeps.
func TestReadHintsOfGone(t *testing.T) {
	w := newHintWorld(t, newRolled(t, seriestest.NewRand(t)))
	w.fill(t, 9)
	if err := w.maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, w.sources.From = range [][rollup.NumResolutions]int64{{rollupStart + 3*rollup.Day + 5}, {math.MaxInt64, math.MaxInt64}} {
		for _, fn := range hintFunctions {
			expr := fmt.Sprintf(`%s({job=~"0|1"}[2h])`, fn)
			switch fn {
			case "rate", "increase", "resets":
				continue
			case "", "timestamp", "absent":
				expr = fn + `({job=~"0|1"})`
			}
			from := time.UnixMilli(rollupStart + rollup.Day)
			w.compare(t, hintQuery{fn, expr, from, from.Add(6 * 24 * time.Hour), time.Hour}, false)
			if w.used[fn] == 0 || t.Failed() {
				t.Fatalf("%s: no rollups were used", fn)
			}
		}
		clear(w.used)
	}
}
