package protocol

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/promtable/promtable/e2e/harness"
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
	series harness.SentSeries
	want   string
}

func badSeriesOf(t testing.TB, p harness.Protocol) []badSeries {
	now := harness.NowMillis()
	one := []harness.Point{harness.PointAt(now, 1)}
	encoded, err := p.Histogram(0, now, &histogram.Histogram{Count: 1, Sum: 1}, nil) // in no bucket
	if err != nil {
		t.Fatal(err)
	}
	return []badSeries{
		{"label twice", harness.SentSeries{Labels: []string{"__name__", "bad", "twice", "a", "twice", "b"}, Points: one}, "twice"},
		{"no name", harness.SentSeries{Labels: []string{"job", "nameless"}, Points: one}, "nameless"},
		{"empty label name", harness.SentSeries{Labels: []string{"__name__", "bad_label", "", "x"}, Points: one}, "bad_label"},
		{"key too long", harness.SentSeries{Labels: []string{"__name__", "bad_long", "x", strings.Repeat("x", 3072)}, Points: one}, "bad_long"},
		{"far in the future", harness.SentSeries{Labels: []string{"__name__", "bad_future"}, Points: []harness.Point{harness.PointAt(now+3_600_000, 1)}}, "bad_future"},
		{"before 1970", harness.SentSeries{Labels: []string{"__name__", "bad_past"}, Points: []harness.Point{harness.PointAt(-1, 1)}}, "bad_past"},
		{"histogram", harness.SentSeries{Labels: []string{"__name__", "bad_histogram"}, Histograms: [][]byte{encoded}}, "bad_histogram"},
	}
}

// TestPartialWrite puts one bad series among good ones, in each position that
// could matter and of each kind.
func TestPartialWrite(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t))
	for _, p := range harness.RemoteWrites() {
		for i, bad := range badSeriesOf(t, p) {
			t.Run(p.Name+"/"+bad.name, func(t *testing.T) {
				position := []int{0, 9, 19}[i%3]
				checkPartial(t, a, p, fmt.Sprintf("%s-%d", p.Name, i), 20, position, bad)
			})
		}
	}
}

// TestPartialWriteOfFullRequest does it in a request of the size that
// Prometheus sends, on each backend.
func TestPartialWriteOfFullRequest(t *testing.T) {
	for _, open := range harness.Backends() {
		b := open(t)
		a := harness.StartAdapter(t, b)
		for _, p := range harness.RemoteWrites() {
			t.Run(b.Name+"/"+p.Name, func(t *testing.T) {
				checkPartial(t, a, p, p.Name, 2000, 1234, badSeriesOf(t, p)[0])
			})
		}
		a.Terminate(t)
	}
}

// checkPartial sends n series of a job, the one in position being bad, twice:
// to repeat a request changes nothing.
func checkPartial(t *testing.T, a *harness.Adapter, p harness.Protocol, job string, n, position int, bad badSeries) {
	t.Helper()
	request := make([]harness.SentSeries, n)
	for i := range request {
		ls := []string{"__name__", "partial", "job", job, "series", fmt.Sprint(i)}
		request[i] = harness.SentSeries{Labels: ls, Points: []harness.Point{harness.PointAt(harness.NowMillis(), float64(i))}}
	}
	request[position] = bad.series
	for range 2 {
		resp, err := p.Send(context.Background(), a.URL("/api/v1/write"), request)
		if err != nil {
			t.Fatal(err)
		}
		checkRefusal(t, resp, bad.want)
		checkWritten(t, resp, p, fmt.Sprint(n-1))
		q := harness.Query{Mint: 0, Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "job", "=", job)}
		for _, as := range harness.AnswerTypes() {
			if found := harness.MustRead(t, a.URL("/api/v1/read"), as, q); harness.CountPoints(found) != n-1 {
				t.Errorf("%v: %d samples are stored, want %d", as, harness.CountPoints(found), n-1)
			}
		}
	}
}

// checkRefusal wants a 400 whose message a sender can read whole, and that
// says what was wrong.
func checkRefusal(t *testing.T, resp harness.Response, want string) {
	t.Helper()
	if resp.Status != http.StatusBadRequest || !strings.Contains(resp.Body, want) || len(resp.Body) > 1024 {
		t.Errorf("want a 400 with %q in at most 1024 bytes, got %v", want, resp)
	}
}

// checkWritten wants exact headers in 2.0 and none in 1.0.
func checkWritten(t *testing.T, resp harness.Response, p harness.Protocol, samples string) {
	t.Helper()
	want := map[string][]string{samplesWritten: {samples}, histogramsWritten: {"0"}, exemplarsWritten: {"0"}}
	for name, value := range want {
		if p.Name == harness.RemoteWrite1().Name {
			value = nil
		}
		if got := resp.Header.Values(name); !slices.Equal(got, value) {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
}

// TestWrittenHeaders counts what was stored of a request that is all right.
func TestWrittenHeaders(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t))
	now := harness.NowMillis()
	series := []harness.SentSeries{
		{Labels: []string{"__name__", "b", "unsorted", "1", "a", "2"}, Points: []harness.Point{harness.PointAt(now-1, 1), harness.PointAt(now, 2)}},
		{Labels: []string{"__name__", "a"}, Points: []harness.Point{harness.PointAt(now, 3)}, Starts: []int64{now - 1000}},
	}
	for _, p := range harness.RemoteWrites() {
		resp, err := p.Send(context.Background(), a.URL("/api/v1/write"), series)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Status != http.StatusNoContent || resp.Body != "" {
			t.Errorf("%s: %v", p.Name, resp)
		}
		checkWritten(t, resp, p, "3")
	}
}
