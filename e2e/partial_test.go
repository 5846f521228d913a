package e2e

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
)

// Headers that say what remote write 2.0 has stored.
const (
	samplesWritten    = "X-Prometheus-Remote-Write-Samples-Written"
	histogramsWritten = "X-Prometheus-Remote-Write-Histograms-Written"
	exemplarsWritten  = "X-Prometheus-Remote-Write-Exemplars-Written"
)

// A badSeries is a series that must be refused, for which the message must
// contain want.
type badSeries struct {
	name   string
	series sentSeries
	want   string
}

func badSeriesOf(t testing.TB, p protocol) []badSeries {
	now := nowMillis()
	one := []point{at(now, 1)}
	encoded, err := p.histogram(0, now, &histogram.Histogram{Count: 1, Sum: 1}, nil) // in no bucket
	if err != nil {
		t.Fatal(err)
	}
	return []badSeries{
		{"label twice", sentSeries{labels: []string{"__name__", "bad", "twice", "a", "twice", "b"}, points: one}, "twice"},
		{"no name", sentSeries{labels: []string{"job", "nameless"}, points: one}, "nameless"},
		{"empty label name", sentSeries{labels: []string{"__name__", "bad_label", "", "x"}, points: one}, "bad_label"},
		{"key too long", sentSeries{labels: []string{"__name__", "bad_long", "x", strings.Repeat("x", 3072)}, points: one}, "bad_long"},
		{"far in the future", sentSeries{labels: []string{"__name__", "bad_future"}, points: []point{at(now+3_600_000, 1)}}, "bad_future"},
		{"before 1970", sentSeries{labels: []string{"__name__", "bad_past"}, points: []point{at(-1, 1)}}, "bad_past"},
		{"histogram", sentSeries{labels: []string{"__name__", "bad_histogram"}, hists: [][]byte{encoded}}, "bad_histogram"},
	}
}

// TestPartialWrite puts one bad series among good ones, in each position that
// could matter and of each kind.
func TestPartialWrite(t *testing.T) {
	a := startAdapter(t, embedded(t))
	for _, p := range remoteWrites() {
		for i, bad := range badSeriesOf(t, p) {
			t.Run(p.name+"/"+bad.name, func(t *testing.T) {
				position := []int{0, 9, 19}[i%3]
				checkPartial(t, a, p, fmt.Sprintf("%s-%d", p.name, i), 20, position, bad)
			})
		}
	}
}

// TestPartialWriteOfFullRequest does it in a request of the size that
// Prometheus sends, on each backend.
func TestPartialWriteOfFullRequest(t *testing.T) {
	for _, open := range openBackends() {
		b := open(t)
		a := startAdapter(t, b)
		for _, p := range remoteWrites() {
			t.Run(b.name+"/"+p.name, func(t *testing.T) {
				checkPartial(t, a, p, p.name, 2000, 1234, badSeriesOf(t, p)[0])
			})
		}
		a.terminate(t)
	}
}

// checkPartial sends n series of a job, the one in position being bad, twice:
// to repeat a request changes nothing.
func checkPartial(t *testing.T, a *adapter, p protocol, job string, n, position int, bad badSeries) {
	t.Helper()
	request := make([]sentSeries, n)
	for i := range request {
		ls := []string{"__name__", "partial", "job", job, "series", fmt.Sprint(i)}
		request[i] = sentSeries{labels: ls, points: []point{at(nowMillis(), float64(i))}}
	}
	request[position] = bad.series
	for range 2 {
		resp, err := p.send(context.Background(), a.url("/api/v1/write"), request)
		if err != nil {
			t.Fatal(err)
		}
		checkRefusal(t, resp, bad.want)
		checkWritten(t, resp, p, fmt.Sprint(n-1))
		q := query{0, math.MaxInt64, mustMatchers(t, "job", "=", job)}
		for _, as := range answers() {
			if found := mustRead(t, a.url("/api/v1/read"), as, q); countPoints(found) != n-1 {
				t.Errorf("%v: %d samples are stored, want %d", as, countPoints(found), n-1)
			}
		}
	}
}

// checkRefusal wants a 400 whose message a sender can read whole, and that
// says what was wrong.
func checkRefusal(t *testing.T, resp response, want string) {
	t.Helper()
	if resp.status != http.StatusBadRequest || !strings.Contains(resp.body, want) || len(resp.body) > 1024 {
		t.Errorf("want a 400 with %q in at most 1024 bytes, got %v", want, resp)
	}
}

// checkWritten wants exact headers in 2.0 and none in 1.0.
func checkWritten(t *testing.T, resp response, p protocol, samples string) {
	t.Helper()
	want := map[string][]string{samplesWritten: {samples}, histogramsWritten: {"0"}, exemplarsWritten: {"0"}}
	for name, value := range want {
		if p.name == remoteWrite1().name {
			value = nil
		}
		if got := resp.header.Values(name); !slices.Equal(got, value) {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
}

// TestWrittenHeaders counts what was stored of a request that is all right.
func TestWrittenHeaders(t *testing.T) {
	a := startAdapter(t, embedded(t))
	now := nowMillis()
	series := []sentSeries{
		{labels: []string{"__name__", "b", "unsorted", "1", "a", "2"}, points: []point{at(now-1, 1), at(now, 2)}},
		{labels: []string{"__name__", "a"}, points: []point{at(now, 3)}, starts: []int64{now - 1000}},
	}
	for _, p := range remoteWrites() {
		resp, err := p.send(context.Background(), a.url("/api/v1/write"), series)
		if err != nil {
			t.Fatal(err)
		}
		if resp.status != http.StatusNoContent || resp.body != "" {
			t.Errorf("%s: %v", p.name, resp)
		}
		checkWritten(t, resp, p, "3")
	}
}
