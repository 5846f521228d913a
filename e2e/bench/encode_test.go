package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/promtable/promtable/e2e/harness"
)

// A decoded is a series of a request.
type decoded struct {
	labels labels.Labels
	t      int64
	v      float64
}

// decode reads a request with generated code, and wants one sample a series.
func decode(t testing.TB, version string, body []byte) (list []decoded) {
	t.Helper()
	data, err := snappy.Decode(nil, body)
	if err != nil {
		t.Fatal(err)
	}
	b := labels.NewScratchBuilder(0)
	if version == "1.0" {
		var req prompb.WriteRequest
		if err := proto.Unmarshal(data, &req); err != nil {
			t.Fatal(err)
		}
		for _, ts := range req.Timeseries {
			if len(ts.Samples) != 1 {
				t.Fatalf("%d samples", len(ts.Samples))
			}
			list = append(list, decoded{ts.ToLabels(&b, nil), ts.Samples[0].Timestamp, ts.Samples[0].Value})
		}
		return list
	}
	var req writev2.Request
	if err := proto.Unmarshal(data, &req); err != nil {
		t.Fatal(err)
	}
	if len(req.Symbols) == 0 || req.Symbols[0] != "" {
		t.Fatalf("symbols begin with %q", req.Symbols[:min(1, len(req.Symbols))])
	}
	for _, ts := range req.Timeseries {
		ls, err := ts.ToLabels(&b, req.Symbols)
		if err != nil || len(ts.Samples) != 1 {
			t.Fatalf("%d samples, %v", len(ts.Samples), err)
		}
		list = append(list, decoded{ls, ts.Samples[0].Timestamp, ts.Samples[0].Value})
	}
	return list
}

// TestSpool reads requests back from their file and wants in them, in order,
// what the generator makes.
func TestSpool(t *testing.T) {
	w := smallWorkload()
	w.Samples = 3
	for _, p := range harness.RemoteWrites() {
		for _, c := range []struct {
			name       string
			perRequest int
			perScrape  int
		}{
			{"some requests a scrape, the last smaller", 200, (w.Series + 199) / 200},
			{"one request a scrape, exactly", w.Series, 1},
			{"one request a scrape, larger", 100_000, 1},
		} {
			t.Run(p.Name+", "+c.name, func(t *testing.T) {
				s, err := newSpool(t.Context(), filepath.Join(t.TempDir(), "requests"), p, w, c.perRequest)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if s.perScrape != c.perScrape || len(s.ends) != c.perScrape*w.Samples {
					t.Fatalf("%d requests a scrape, %d in all", s.perScrape, len(s.ends))
				}
				checkSpool(t, s, p, newGenerator(w))
			})
		}
	}
}

func checkSpool(t *testing.T, s *spool, p harness.Protocol, g *generator) {
	t.Helper()
	var buf []byte
	for scrape := 0; g.scrape(); scrape++ {
		var got []decoded
		for k := range s.perScrape {
			var err error
			if buf, err = s.request(scrape*s.perScrape+k, buf); err != nil {
				t.Fatal(err)
			}
			got = append(got, decode(t, p.Name, buf)...)
		}
		if len(got) != g.Series {
			t.Fatalf("scrape %d has %d series, want %d", scrape, len(got), g.Series)
		}
		for i, d := range got {
			if want := g.labels(i); !labels.Equal(d.labels, want) || d.t != g.T[i] || !equalBits([]float64{d.v}, []float64{g.V[i]}) {
				t.Fatalf("scrape %d: got %s %d %v, want %s %d %v", scrape, d.labels, d.t, d.v, want, g.T[i], g.V[i])
			}
		}
	}
}

// TestSend wants every sample to arrive once, and those of a series in order,
// whatever the connections do.
func TestSend(t *testing.T) {
	w := smallWorkload()
	w.Samples = 20
	for _, p := range harness.RemoteWrites() {
		t.Run(p.Name, func(t *testing.T) {
			s, err := newSpool(t.Context(), filepath.Join(t.TempDir(), "requests"), p, w, 150)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			r := &receiver{t: t, protocol: p, latest: map[string]int64{}}
			server := httptest.NewServer(r)
			defer server.Close()
			took, err := send(t.Context(), server.URL, p, s, 5)
			if err != nil || len(took) != len(s.ends) {
				t.Fatalf("%d answers, want %d: %v", len(took), len(s.ends), err)
			}
			if r.samples != w.total() || len(r.latest) != w.Series {
				t.Errorf("%d samples of %d series arrived, want %d of %d", r.samples, len(r.latest), w.total(), w.Series)
			}
		})
	}
}

// A receiver takes remote writes.
type receiver struct {
	t        *testing.T
	protocol harness.Protocol
	mu       sync.Mutex
	latest   map[string]int64
	samples  int
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if got := req.Header.Get("Content-Type"); got != r.protocol.ContentType {
		r.t.Errorf("content type %q", got)
	}
	body := make([]byte, req.ContentLength)
	for n := 0; n < len(body); {
		k, err := req.Body.Read(body[n:])
		if n += k; err != nil && n < len(body) {
			r.t.Errorf("read the body: %v", err)
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range decode(r.t, r.protocol.Name, body) {
		key := d.labels.String()
		if d.t <= r.latest[key] {
			r.t.Errorf("%s at %d came after %d", key, d.t, r.latest[key])
		}
		r.latest[key] = d.t
		r.samples++
	}
	w.WriteHeader(http.StatusNoContent)
}

// TestSendRefused wants an answer that is not 2xx to end it, with its text.
func TestSendRefused(t *testing.T) {
	w := smallWorkload()
	w.Samples = 2
	p := harness.RemoteWrite1()
	s, err := newSpool(t.Context(), filepath.Join(t.TempDir(), "requests"), p, w, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "out of cheese", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	_, err = send(context.Background(), server.URL, p, s, 2)
	if !contains(err, "out of cheese") || !contains(err, "503") {
		t.Errorf("got %v", err)
	}
}
