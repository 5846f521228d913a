// Package remotetest is what the tests of the protocols share: an engine in
// memory, a server over it or over a real store, and clients.
package remotetest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/request"
)

// Discard takes an answer and forgets it.
type Discard struct {
	Headers http.Header
	Status  int
	Bytes   int
}

func (d *Discard) Header() http.Header { return d.Headers }

func (d *Discard) WriteHeader(s int) { d.Status = s }

func (d *Discard) Flush() {}

func (d *Discard) Write(p []byte) (int, error) {
	d.Bytes += len(p)
	return len(p), nil
}

// ServeOnce answers one compressed request without a network.
func ServeOnce(h http.Handler, path, contentType string, compressed []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(compressed))
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// SyncBuffer is a bytes.Buffer for several goroutines.
type SyncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *SyncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *SyncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// FakeClock stands still until it is advanced.
type FakeClock struct {
	mu   sync.Mutex
	Time time.Time
}

func (c *FakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Time
}

func (c *FakeClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Time = c.Time.Add(d)
}

// Explained is the envelope of an answer.
type Explained struct {
	Status, ErrorType, Error string
	Data                     []reader.Explanation
}

const (
	TypeV1 = "application/x-protobuf"
	TypeV2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"

	writtenSamples    = "X-Prometheus-Remote-Write-Samples-Written"
	writtenHistograms = "X-Prometheus-Remote-Write-Histograms-Written"
	writtenExemplars  = "X-Prometheus-Remote-Write-Exemplars-Written"
)

// Serve starts a server for a Handler over eng. change may be nil.
func Serve(t testing.TB, eng *Engine, change func(*remote.Config)) (url string, reg *prometheus.Registry) {
	t.Helper()
	reg = prometheus.NewRegistry()
	cfg := remote.Config{Engine: eng, Now: time.Now, Registerer: reg}
	if change != nil {
		change(&cfg)
	}
	srv := httptest.NewServer(request.WithBodies(remote.New(cfg)))
	t.Cleanup(srv.Close)
	return srv.URL, reg
}

// Answer is what came back.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Post sends body, snappy-compressed, with a content type.
func Post(t testing.TB, url, contentType string, body []byte) Answer {
	t.Helper()
	return Send(t, http.MethodPost, url, http.Header{
		"Content-Type":     {contentType},
		"Content-Encoding": {"snappy"},
	}, snappy.Encode(nil, body))
}

// Send makes a request, headers as they are.
func Send(t testing.TB, method, url string, header http.Header, body []byte) Answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{resp.StatusCode, resp.Header, string(text)}
}

// WantStatus fails the test unless a has this status.
func (a Answer) WantStatus(t testing.TB, status int) {
	t.Helper()
	if a.Status != status {
		t.Fatalf("status %d %q, want %d", a.Status, a.Body, status)
	}
}

// Counter returns the value of a counter or gauge, or the count of a
// histogram, whose labels hold these pairs.
func Counter(t testing.TB, reg *prometheus.Registry, name string, pairs ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			have := make(map[string]string)
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			found := true
			for i := 0; i < len(pairs); i += 2 {
				found = found && have[pairs[i]] == pairs[i+1]
			}
			if found {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// WantCounter waits until a counter has a value: some are counted after the
// answer has gone out.
func WantCounter(t testing.TB, reg *prometheus.Registry, want float64, name string, pairs ...string) {
	t.Helper()
	eventually(t, func() bool { return Counter(t, reg, name, pairs...) == want }, func() {
		t.Errorf("%s%v = %v, want %v", name, pairs, Counter(t, reg, name, pairs...), want)
	})
}

// eventually polls until ok holds, or reports after ten seconds.
func eventually(t testing.TB, ok func() bool, report func()) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			report()
			return
		}
	}
}

// Wait waits for an event, but not for ever.
func Wait(t testing.TB, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(10 * time.Second):
		t.Fatal("waited ten seconds")
	}
}

// Begin starts a request and returns its answer in a channel.
func Begin(h http.Handler, method, target string, body io.Reader) <-chan *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, target, body), httptest.NewRecorder()
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		h.ServeHTTP(w, r)
		done <- w
	}()
	return done
}

// WantBusy checks the answer of a request that was turned away after waited.
func WantBusy(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" {
		t.Errorf("status %d, Retry-After %q, want 503 and 5", w.Code, w.Header().Get("Retry-After"))
	}
}

// WantWritten checks the headers of 2.0: there and exact, or not there at all.
func WantWritten(t testing.TB, a Answer, present bool, samples string) {
	t.Helper()
	n, err := strconv.Atoi(samples)
	if err != nil {
		t.Fatal(err)
	}
	WantWrittenAll(t, a, present, ingest.Stored{Samples: n})
}

// WantWrittenAll wants the headers of 2.0 to say what was stored, if present.
func WantWrittenAll(t testing.TB, a Answer, present bool, stored ingest.Stored) {
	t.Helper()
	want := map[string][]string{
		writtenSamples:    {strconv.Itoa(stored.Samples)},
		writtenHistograms: {strconv.Itoa(stored.Histograms)},
		writtenExemplars:  {strconv.Itoa(stored.Exemplars)},
	}
	for name, value := range want {
		have := a.Header[name]
		if present && (len(have) != 1 || have[0] != value[0]) || !present && have != nil {
			t.Errorf("%s: %q, want %q if %t", name, have, value, present)
		}
	}
}
