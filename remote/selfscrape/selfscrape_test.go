package selfscrape_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/selfscrape"
)

// sink is an engine that remembers the last batch.
type sink struct {
	mu     sync.Mutex
	calls  int
	series []string
	err    error
	// reject has every batch rejected in part.
	reject bool
	// described are the families of the metadata since the last look, metadataErr is what storing them returns.
	described   []string
	metadataErr error
}

func (s *sink) AppendMetadata(_ context.Context, batch []ingest.Metadata, _ *ingest.Rejected) error {
	for _, m := range batch {
		s.described = append(s.described, fmt.Sprintf("%s %s %q %q", m.Family, m.Type, m.Unit, m.Help))
	}
	return s.metadataErr
}

// wantDescribed compares the metadata since the last call with lines.
func (s *sink) wantDescribed(t *testing.T, lines ...string) {
	t.Helper()
	slices.Sort(lines)
	slices.Sort(s.described)
	if !slices.Equal(s.described, lines) {
		t.Errorf("metadata %q, want %q", s.described, lines)
	}
	s.described = nil
}

func (s *sink) Append(_ context.Context, batch []ingest.Series, rejected *ingest.Rejected) (ingest.Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.series = nil
	for _, one := range batch {
		for _, sample := range one.Samples {
			v := fmt.Sprint(sample.V)
			if value.IsStaleNaN(sample.V) {
				v = "stale"
			}
			s.series = append(s.series, fmt.Sprintf("%s %s @%d", one.Labels, v, sample.T))
		}
	}
	slices.Sort(s.series)
	if s.reject {
		rejected.Add(ingest.ReasonLabels, 1, errors.New("rejected"))
	}
	return ingest.Stored{Samples: len(batch)}, s.err
}

func (s *sink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// want compares the last batch with lines.
func (s *sink) want(t *testing.T, lines ...string) {
	t.Helper()
	slices.Sort(lines)
	if got, want := strings.Join(s.series, "\n"), strings.Join(lines, "\n"); got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
}

// fixture is a Scraper of a registry.
type fixture struct {
	*selfscrape.Scraper
	reg  *prometheus.Registry
	sink *sink
	now  int64
}

func newFixture() *fixture {
	f := &fixture{reg: prometheus.NewRegistry(), sink: new(sink), now: 1000}
	f.Scraper = f.scraper(f.reg, time.Minute)
	return f
}

func (f *fixture) scraper(g prometheus.Gatherer, interval time.Duration) *selfscrape.Scraper {
	return selfscrape.New(selfscrape.Config{
		Gatherer: g,
		Appender: f.sink,
		Job:      "adapter",
		Instance: "localhost:9201",
		Interval: interval,
		Now:      func() time.Time { return time.UnixMilli(f.now) },
	})
}

func (f *fixture) scrape(t *testing.T) {
	t.Helper()
	if err := f.Scrape(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestScrapeExpands(t *testing.T) {
	tests := []struct {
		name      string
		collector func() prometheus.Collector
		want      []string
	}{
		{"counter", func() prometheus.Collector {
			c := prometheus.NewCounter(prometheus.CounterOpts{Name: "c_total"})
			c.Add(2.5)
			return c
		}, []string{`{__name__="c_total", instance="localhost:9201", job="adapter"} 2.5 @1000`}},
		{"gauge with labels", func() prometheus.Collector {
			g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "g"}, []string{"zone", "A"})
			g.WithLabelValues("z", "a").Set(-1)
			g.WithLabelValues("", "a").Set(2)
			return g
		}, []string{
			`{A="a", __name__="g", instance="localhost:9201", job="adapter", zone="z"} -1 @1000`,
			`{A="a", __name__="g", instance="localhost:9201", job="adapter"} 2 @1000`,
		}},
		{"labels of its own", func() prometheus.Collector {
			g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "g"}, []string{"job", "instance"})
			g.WithLabelValues("other", "").Set(1)
			return g
		}, []string{`{__name__="g", exported_job="other", instance="localhost:9201", job="adapter"} 1 @1000`}},
		{"histogram", func() prometheus.Collector {
			h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: []float64{0.5, 1, 1e6}})
			h.Observe(0.1)
			h.Observe(1)
			h.Observe(1e9)
			return h
		}, []string{
			`{__name__="h_bucket", instance="localhost:9201", job="adapter", le="0.5"} 1 @1000`,
			`{__name__="h_bucket", instance="localhost:9201", job="adapter", le="1"} 2 @1000`,
			`{__name__="h_bucket", instance="localhost:9201", job="adapter", le="1e+06"} 2 @1000`,
			`{__name__="h_bucket", instance="localhost:9201", job="adapter", le="+Inf"} 3 @1000`,
			`{__name__="h_count", instance="localhost:9201", job="adapter"} 3 @1000`,
			`{__name__="h_sum", instance="localhost:9201", job="adapter"} 1.0000000011e+09 @1000`,
		}},
		{"summary", func() prometheus.Collector {
			s := prometheus.NewSummary(prometheus.SummaryOpts{Name: "s", Objectives: map[float64]float64{0.5: 0, 1: 0}})
			s.Observe(1)
			s.Observe(3)
			return s
		}, []string{
			`{__name__="s", instance="localhost:9201", job="adapter", quantile="0.5"} 1 @1000`,
			`{__name__="s", instance="localhost:9201", job="adapter", quantile="1"} 3 @1000`,
			`{__name__="s_count", instance="localhost:9201", job="adapter"} 2 @1000`,
			`{__name__="s_sum", instance="localhost:9201", job="adapter"} 4 @1000`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture()
			f.reg.MustRegister(tt.collector())
			f.scrape(t)
			f.sink.want(t, tt.want...)
		})
	}
}

// vanishing is a gauge with two series.
func vanishing(f *fixture) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "g"}, []string{"n"})
	f.reg.MustRegister(g)
	g.WithLabelValues("1").Set(1)
	g.WithLabelValues("2").Set(2)
	return g
}

func line(n, v string, now int64) string {
	return fmt.Sprintf(`{__name__="g", instance="localhost:9201", job="adapter", n="%s"} %s @%d`, n, v, now)
}

func TestScrapeMarksWhatVanished(t *testing.T) {
	f := newFixture()
	g := vanishing(f)
	f.scrape(t)
	f.sink.want(t, line("1", "1", 1000), line("2", "2", 1000))
	g.DeleteLabelValues("2")
	f.now = 2000
	f.scrape(t)
	f.sink.want(t, line("1", "1", 2000), line("2", "stale", 2000))
	f.now = 3000
	f.scrape(t)
	f.sink.want(t, line("1", "1", 3000))
	g.WithLabelValues("2").Set(4)
	f.scrape(t)
	f.sink.want(t, line("1", "1", 3000), line("2", "4", 3000))
}

// What a failed scrape may have stored gets its marker from the next.
func TestScrapeMarksAfterFailure(t *testing.T) {
	f := newFixture()
	g := vanishing(f)
	f.scrape(t)
	g.DeleteLabelValues("1")
	g.WithLabelValues("3").Set(3)
	f.sink.err = errors.New("the store is away")
	if err := f.Scrape(t.Context()); !errors.Is(err, f.sink.err) {
		t.Errorf("error %v", err)
	}
	f.sink.want(t, line("1", "stale", 1000), line("2", "2", 1000), line("3", "3", 1000))
	g.DeleteLabelValues("3")
	f.sink.err = nil
	f.scrape(t)
	f.sink.want(t, line("1", "stale", 1000), line("2", "2", 1000), line("3", "stale", 1000))
	f.scrape(t)
	f.sink.want(t, line("2", "2", 1000))
}

// TestScrapeDescribes wants metadata of each type once, again when it changes, and again after it could not be stored.
func TestScrapeDescribes(t *testing.T) {
	f := newFixture()
	family := func(kind dto.MetricType, name, help string) *dto.MetricFamily {
		one := &dto.Metric{Untyped: new(dto.Untyped), Counter: new(dto.Counter), Gauge: new(dto.Gauge), Histogram: new(dto.Histogram), Summary: new(dto.Summary)}
		return &dto.MetricFamily{Name: &name, Help: &help, Type: &kind, Metric: []*dto.Metric{one}}
	}
	unit, all := "bytes", []*dto.MetricFamily{
		family(dto.MetricType_COUNTER, "c_total", "Counts."), family(dto.MetricType_GAUGE, "g_bytes", "Is."), family(dto.MetricType_HISTOGRAM, "h", ""),
		family(dto.MetricType_SUMMARY, "s", ""), family(dto.MetricType_UNTYPED, "u", ""), family(dto.MetricType_GAUGE_HISTOGRAM, "gh", ""),
	}
	all[1].Unit = &unit
	s := f.scraper(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return all, nil }), time.Minute)
	scrape := func(want error) {
		t.Helper()
		if err := s.Scrape(t.Context()); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	scrape(nil)
	f.sink.wantDescribed(t, `c_total counter "" "Counts."`, `g_bytes gauge "bytes" "Is."`, `h histogram "" ""`, `s summary "" ""`, `u unknown "" ""`, `gh gaugehistogram "" ""`)
	scrape(nil)
	f.sink.wantDescribed(t)
	all[0] = family(dto.MetricType_COUNTER, "c_total", "Counts more.")
	f.sink.metadataErr = errors.New("the store is away")
	scrape(f.sink.metadataErr)
	f.sink.wantDescribed(t, `c_total counter "" "Counts more."`)
	f.sink.metadataErr = nil
	scrape(nil)
	f.sink.wantDescribed(t, `c_total counter "" "Counts more."`)
	scrape(nil)
	f.sink.wantDescribed(t)
}

func TestScrapeErrors(t *testing.T) {
	t.Run("rejected", func(t *testing.T) {
		f := newFixture()
		vanishing(f)
		f.sink.reject = true
		var rejected *ingest.Rejected
		if err := f.Scrape(t.Context()); !errors.As(err, &rejected) {
			t.Errorf("error %v, want a Rejected", err)
		}
	})
	t.Run("gatherer", func(t *testing.T) {
		f := newFixture()
		errGather := errors.New("gather")
		s := f.scraper(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errGather }), time.Minute)
		if err := s.Scrape(t.Context()); !errors.Is(err, errGather) || f.sink.calls != 0 {
			t.Errorf("error %v after %d calls", err, f.sink.calls)
		}
	})
}

// Run scrapes at once, again at the interval, errors or not, and ends with its
// context.
func TestRun(t *testing.T) {
	f := newFixture()
	vanishing(f)
	f.sink.err = errors.New("the store is away")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.scraper(f.reg, 5*time.Millisecond).Run(ctx)
	}()
	for deadline := time.Now().Add(10 * time.Second); f.sink.count() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d scrapes after ten seconds", f.sink.count())
		}
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("Run has not ended after ten seconds")
	}
}

func TestRunScrapesAtOnce(t *testing.T) {
	f := newFixture()
	vanishing(f)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.scraper(f.reg, time.Hour).Run(ctx)
	}()
	for deadline := time.Now().Add(10 * time.Second); f.sink.count() < 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no scrape after ten seconds")
		}
	}
	cancel()
	<-ended
}
