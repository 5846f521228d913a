package load

import (
	"fmt"
	"math"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtable/promtable/e2e/harness"
)

// soakVariable is the environment variable with how long TestSoak runs:
//
//	E2E_SOAK=1h go test -timeout 2h -run Soak -v ./e2e/load
//
// Without it the run is short. Then it shows that the test works, and a leak only if it is
// large.
const (
	soakVariable = "E2E_SOAK"
	shortSoak    = 20 * time.Second
)

const (
	// The clock of the data goes soakInterval ahead in each soakPace: a window lasts 7 s, an
	// index period 7.5 minutes, a base an hour.
	soakInterval = 60_000 // milliseconds between two scrapes
	soakPace     = 50 * time.Millisecond
	soakPods     = 20
	soakOfPod    = 50 // series
	soakAtOnce   = 5  // pods in a request
	// Every soakLife scrapes a pod is replaced by one with another name.
	soakLife = 100
	// soakRecent is the range of queries in milliseconds.
	soakRecent = 6 * 3_600_000
	// soakMeasures is how many measurements are taken.
	soakMeasures = 30
)

// TestSoak writes, queries and reads for a while, with series that come and go. The memory,
// goroutines and file descriptors of the adapter stay what they were after a third of the
// time, but for what belongs to the series that were new.
func TestSoak(t *testing.T) {
	long := shortSoak
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil || long < time.Second {
			t.Fatalf("%s=%s: give a duration such as 1h", soakVariable, text)
		}
	}
	a := harness.StartAdapter(t, harness.Embedded(t))
	// The data ends now: the adapter refuses samples of the future.
	first := harness.NowMillis() - (int64(long/soakPace)+1)*soakInterval
	s := &soak{a: a, at: first - first%soakInterval, counts: make(map[string]int)}
	for i := range soakPods {
		s.pods = append(s.pods, s.newPod(i))
	}

	var measured []soakMeasure
	ticker := time.NewTicker(soakPace)
	defer ticker.Stop()
	begun := time.Now()
	for scrape := 0; time.Since(begun) < long; scrape++ {
		<-ticker.C
		s.scrape(t)
		if scrape%soakLife == soakLife-1 {
			s.replacePod(t)
		}
		s.read(t, scrape)
		if time.Since(begun) >= long*time.Duration(len(measured)+1)/(soakMeasures+1) {
			m := s.measure(t, time.Since(begun))
			t.Log(m)
			measured = append(measured, m)
		}
	}
	checkFlat(t, measured)
	if measured[len(measured)-1].chunks == 0 {
		t.Error("no chunk was sealed: the test shows less than it should")
	}
	for _, pod := range s.pods {
		if s.counts[pod] > 0 { // else it has only just begun
			s.check(t, pod)
		}
	}
}

// A soak is an adapter and the series that are written to it.
type soak struct {
	a *harness.Adapter
	// at is the time of the next scrape.
	at   int64
	pods []string
	// made counts pods, counts the samples of each.
	made   int
	counts map[string]int
}

func (s *soak) newPod(i int) string {
	s.made++
	return fmt.Sprintf("pod-%d-%d", i, s.made)
}

// scrape writes a sample of each series, by both protocols in turn: of each pod counters,
// gauges, and a native histogram.
func (s *soak) scrape(t *testing.T) {
	t.Helper()
	for i := 0; i < soakPods; i += soakAtOnce {
		protocol := harness.RemoteWrites()[i/soakAtOnce%2]
		var batch []harness.SentSeries
		for _, pod := range s.pods[i : i+soakAtOnce] {
			batch = append(batch, s.ofPod(t, protocol, pod)...)
			s.counts[pod] += soakOfPod
		}
		protocol.MustSend(t, s.a.URL("/api/v1/write"), batch...)
	}
	s.at += soakInterval
}

// ofPod returns the next samples of a pod.
func (s *soak) ofPod(t *testing.T, protocol harness.Protocol, pod string) (batch []harness.SentSeries) {
	t.Helper()
	scrape := s.at / soakInterval
	for n := range soakOfPod {
		next := harness.SeriesOf(labels.FromStrings("__name__", fmt.Sprintf("soak_%d", n), "job", "soak", "pod", pod))
		switch {
		case n == soakOfPod-1:
			h, err := protocol.Histogram(0, s.at, tsdbutil.GenerateTestHistogram(scrape%1000), nil)
			if err != nil {
				t.Fatal(err)
			}
			next.Histograms = [][]byte{h}
		case n%2 == 0:
			next.Points = []harness.Point{harness.PointAt(s.at, float64(scrape*int64(1+n)))}
		default:
			next.Points = []harness.Point{harness.PointAt(s.at, math.Round(1000*math.Sin(float64(scrape)/100+float64(n)))/10)}
		}
		batch = append(batch, next)
	}
	return batch
}

// replacePod ends the series of a pod, and begins those of a new one.
func (s *soak) replacePod(t *testing.T) {
	t.Helper()
	i := s.made % soakPods
	s.check(t, s.pods[i])
	delete(s.counts, s.pods[i])
	s.pods[i] = s.newPod(i)
}

// check wants all samples of a pod.
func (s *soak) check(t *testing.T, pod string) {
	t.Helper()
	got := harness.MustRead(t, s.a.URL("/api/v1/read"), harness.Streamed, harness.Query{
		Mint: 0, Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "pod", "=", pod),
	})
	if n := harness.CountPoints(got); n != s.counts[pod] || len(got) != soakOfPod {
		t.Fatalf("%s has %d samples of %d series, want %d of %d", pod, n, len(got), s.counts[pod], soakOfPod)
	}
}

// read sends one request of each kind in turn.
func (s *soak) read(t *testing.T, n int) {
	t.Helper()
	start, end := harness.FormatSeconds(s.at-soakRecent), harness.FormatSeconds(s.at)
	path, params := "/api/v1/query_range", url.Values{"start": {start}, "end": {end}, "step": {"300"}}
	switch n % 5 {
	case 0:
		params.Set("query", "sum by (pod) (rate(soak_0[10m]))")
	case 1:
		params.Set("query", fmt.Sprintf("avg_over_time(soak_%d[1h])", n%soakOfPod))
	case 2:
		path = "/api/v1/series"
		params.Set("match[]", "soak_2")
	case 3:
		path = "/api/v1/label/pod/values"
	case 4:
		harness.MustRead(t, s.a.URL("/api/v1/read"), harness.AnswerTypes()[n/5%2], harness.Query{
			Mint: s.at - soakRecent, Maxt: s.at, Matchers: harness.MustMatchers(t, "pod", "=", s.pods[n%soakPods]),
		})
		return
	}
	if _, err := harness.GetAPI(s.a.URL(path), params); err != nil {
		t.Fatal(err)
	}
}

// A soakMeasure is what the adapter uses at a time.
type soakMeasure struct {
	after             time.Duration
	memory, heap      float64 // bytes
	goroutines, files float64
	chunks            float64 // that were sealed
	series            int
}

func (s *soak) measure(t *testing.T, after time.Duration) soakMeasure {
	t.Helper()
	body := harness.MustGet(t, s.a.URL("/metrics"), nil).Body
	metric := func(name string) float64 {
		t.Helper()
		m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(body)
		if m == nil {
			t.Fatalf("no metric %s", name)
		}
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	return soakMeasure{
		after:      after.Round(time.Second),
		memory:     metric("process_resident_memory_bytes"),
		heap:       metric("go_memstats_heap_inuse_bytes"),
		goroutines: metric("go_goroutines"),
		files:      metric("process_open_fds"),
		chunks:     metric("adapter_buffer_sealed_chunks_total"),
		series:     s.made * soakOfPod,
	}
}

// String formats a measurement as a line of a table.
func (m soakMeasure) String() string {
	return fmt.Sprintf("%8v: %4.0f MiB resident, %4.0f MiB heap, %3.0f goroutines, %3.0f files; so far %.0f chunks of %d series",
		m.after, m.memory/(1<<20), m.heap/(1<<20), m.goroutines, m.files, m.chunks, m.series)
}

const (
	// soakPerSeries is what the adapter may keep of a series that has ended: it keeps up to a
	// million of them in memory, and two million in the index.
	soakPerSeries = 4 << 10
	// soakSlack is by how much the last third may exceed the one before.
	soakSlack = 1.25
)

// checkFlat compares the last third with the second one.
func checkFlat(t *testing.T, measured []soakMeasure) {
	t.Helper()
	third := len(measured) / 3
	before, after := measured[third:2*third], measured[2*third:]
	newSeries := after[len(after)-1].series - before[len(before)-1].series
	for _, tt := range []struct {
		what string
		of   func(soakMeasure) float64
		more float64 // that is allowed
	}{
		{"bytes resident", func(m soakMeasure) float64 { return m.memory }, float64(newSeries * soakPerSeries)},
		{"goroutines", func(m soakMeasure) float64 { return m.goroutines }, 10},
		{"open files", func(m soakMeasure) float64 { return m.files }, 10},
	} {
		values := func(list []soakMeasure) (all []float64) {
			for _, m := range list {
				all = append(all, tt.of(m))
			}
			return all
		}
		was, is := slices.Max(values(before)), slices.Max(values(after))
		if is > was*soakSlack+tt.more {
			t.Errorf("up to %g %s, and %g before", is, tt.what, was)
		}
	}
}
