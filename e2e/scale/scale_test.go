package scale

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// scaleVariable is the environment variable with the number of series of TestScale. A
// million of them,
//
//	E2E_SCALE=1000000 go test ./e2e/scale -run 'TestScale$' -v -timeout 30m
//
// take minutes and some GB of memory. Without it they are few: then the test
// shows that all is there, and nothing of how it grows.
const scaleVariable = "E2E_SCALE"

const (
	fewSeries    = 10_000
	scaleAtOnce  = 2_000 // series in a request, as of Prometheus
	perInstance  = 1_000 // series of an instance
	scaleMetrics = 100   // names of an instance
)

// TestScale writes one sample of each of many series, by remote write 2.0, and
// a few scrapes more; asks for labels; and stops the adapter well and badly.
// The last series may not cost three times the first.
func TestScale(t *testing.T) {
	n := fewSeries
	if text := os.Getenv(scaleVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n%perInstance != 0 || n < 2*scaleAtOnce {
			t.Fatalf("%s=%s: give a number of series, a multiple of %d", scaleVariable, text, perInstance)
		}
	}
	a := harness.StartAdapter(t, harness.Embedded(t))
	s := &scale{Adapter: a, series: n, base: a.PeakMemory(t), first: harness.NowMillis() - 3_600_000}
	s.scrape(t, "creation")
	for i := range 3 {
		s.scrape(t, fmt.Sprintf("scrape %d", i+1))
	}
	s.ask(t)
	s.phase(t, "stop", func() { a.Terminate(t) })
	s.phase(t, "start", func() { a.Rerun(t) })
	s.memory(t)
	s.scrape(t, "scrape after a clean stop")
	s.scrape(t, "one more")
	s.check(t)
	a.Kill(t)
	s.phase(t, "start with a replay", func() { a.Rerun(t) })
	s.memory(t)
	s.check(t)
	s.scrape(t, "scrape after the replay")
	s.ask(t)
	s.check(t)
	s.phase(t, "stop", func() { a.Terminate(t) })
}

// A scale is an adapter with many series.
type scale struct {
	*harness.Adapter
	series  int
	base    int // memory of the adapter before the first series
	first   int64
	scrapes int64
}

// labels returns those of a series. Series of one instance follow each other.
func (s *scale) labels(i int) labels.Labels {
	return labels.FromStrings("__name__", fmt.Sprintf("scale_%03d_bytes_total", i%scaleMetrics), "job", "scale",
		"instance", fmt.Sprintf("10.0.%d.%d:9100", i/perInstance/250, i/perInstance%250),
		"device", fmt.Sprintf("disk%d", i/scaleMetrics%(perInstance/scaleMetrics)), "environment", "production")
}

func (s *scale) point(i int, scrape int64) harness.Point {
	return harness.PointAt(s.first+15_000*scrape, float64(i)+float64(scrape*scrape)/8)
}

// scrape writes the next sample of each series, and wants the last ones to take
// no more than three times what the first ones did.
func (s *scale) scrape(t *testing.T, what string) {
	t.Helper()
	began := time.Now()
	tenth := max(s.series/10, scaleAtOnce)
	var firstTook, lastTook time.Duration
	for i := 0; i < s.series; i += scaleAtOnce {
		var batch []harness.SentSeries
		for j := i; j < min(i+scaleAtOnce, s.series); j++ {
			batch = append(batch, harness.SeriesOf(s.labels(j), s.point(j, s.scrapes)))
		}
		sending := time.Now()
		harness.RemoteWrite2().MustSend(t, s.URL("/api/v1/write"), batch...)
		took := time.Since(sending)
		if i < tenth {
			firstTook += took
		}
		if i >= s.series-tenth {
			lastTook += took
		}
	}
	s.scrapes++
	ratio := lastTook.Seconds() / firstTook.Seconds()
	t.Logf("%s: %.1fs; the first %d series %.2fs, the last %.2fs, ratio %.2f", what, time.Since(began).Seconds(), tenth, firstTook.Seconds(), lastTook.Seconds(), ratio)
	s.memory(t)
	const bound, enough = 3, 1_000_000 // of fewer series chance has a say
	if s.series >= enough && ratio > bound {
		t.Errorf("%s: the last %d series took %.2f times as long as the first", what, tenth, ratio)
	}
}

// memory logs the most memory that the process has held since it began.
func (s *scale) memory(t *testing.T) {
	peak := s.PeakMemory(t)
	t.Logf("    peak %d MB, %d bytes a series over the base of %d MB", peak>>20, (peak-s.base)/s.series, s.base>>20)
}

// phase logs how long f takes.
func (s *scale) phase(t *testing.T, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	t.Logf("%s: %.2fs", what, time.Since(began).Seconds())
}

// ask asks for labels and series, which come from the index alone.
func (s *scale) ask(t *testing.T) {
	t.Helper()
	last := s.labels(s.series - 1)
	for _, q := range []struct {
		path   string
		params url.Values
		want   int
	}{
		{"/api/v1/labels", nil, 5},
		{"/api/v1/label/__name__/values", nil, scaleMetrics},
		{"/api/v1/label/instance/values", nil, s.series / perInstance},
		{"/api/v1/label/device/values", url.Values{"match[]": {fmt.Sprintf("{instance=%q}", last.Get("instance"))}}, perInstance / scaleMetrics},
		{"/api/v1/series", url.Values{"match[]": {fmt.Sprintf("{instance=%q}", s.labels(0).Get("instance"))}}, perInstance},
		{"/api/v1/series", url.Values{"match[]": {fmt.Sprintf("{instance=%q}", last.Get("instance"))}}, perInstance},
		{"/api/v1/series", url.Values{"match[]": {last.Get("__name__")}}, s.series / scaleMetrics},
		{"/api/v1/series", url.Values{"match[]": {`{job="scale"}`}, "limit": {"100"}}, 100},
	} {
		began := time.Now()
		resp := harness.MustGet(t, s.URL(q.path+"?"+q.params.Encode()), nil)
		took := time.Since(began)
		var answer struct{ Data []any }
		if err := json.Unmarshal([]byte(resp.Body), &answer); err != nil || len(answer.Data) != q.want {
			t.Errorf("%s %v: %d found, want %d: %v, %.200v", q.path, q.params, len(answer.Data), q.want, err, resp)
		}
		t.Logf("%s %v: %d found, %.3fs", q.path, q.params, len(answer.Data), took.Seconds())
	}
}

// check reads all samples of the first, the middle and the last instance, and
// the current sample of every series of one name.
func (s *scale) check(t *testing.T) {
	t.Helper()
	for _, i := range []int{0, s.series / 2 / perInstance * perInstance, s.series - perInstance} {
		var want []harness.TimeSeries
		for j := i; j < i+perInstance; j++ {
			ts := harness.TimeSeries{Labels: s.labels(j)}
			for scrape := range s.scrapes {
				ts.Points = append(ts.Points, s.point(j, scrape))
			}
			want = append(want, ts)
		}
		harness.SortSeries(want)
		instance := want[0].Labels.Get("instance")
		for _, as := range harness.AnswerTypes() {
			if d := harness.DiffSeries(harness.MustRead(t, s.URL("/api/v1/read"), as, harness.Query{Mint: 0, Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "instance", "=", instance)}), want); d != "" {
				t.Errorf("%v of %s: %s", as, instance, d)
			}
		}
	}
	got, err := harness.CountOverTime(s.Adapter, s.labels(0).Get("__name__"), s.first)
	if want := int(s.scrapes) * s.series / scaleMetrics; err != nil || got != want {
		t.Errorf("%d samples of one name, want %d: %v", got, want, err)
	}
}
