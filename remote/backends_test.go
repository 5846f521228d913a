package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/series"
)

// backends are the real stores.
var backends = []struct {
	name string
	open func(t testing.TB) bucketstore.Store
}{
	{"pebble", openPebble},
	{"bigtable", func(t testing.TB) bucketstore.Store { return bigtabletest.Open(t) }},
}

func openPebble(t testing.TB) bucketstore.Store {
	t.Helper()
	store, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(0)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return store
}

// serveStore starts a server over a real engine on store.
func serveStore(t testing.TB, store bucketstore.Store) (base string, reg *prometheus.Registry) {
	t.Helper()
	reg = prometheus.NewRegistry()
	schema, err := series.NewSchema(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	eng, err := engine.Open(ctx, engine.Config{
		Store:      store,
		Appender:   bucketstore.NewDirect(store, schema, time.Now, nil),
		Schema:     schema,
		Now:        time.Now,
		Registerer: reg,
		Limits:     engine.Limits{MaxFuture: 10 * time.Minute, MaxSeries: 5000},
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(remote.New(remote.Config{Engine: eng, Now: time.Now, Registerer: reg}))
	t.Cleanup(func() {
		srv.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := eng.Close(ctx); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return srv.URL, reg
}

// encodeV1 encodes series with all bits of their values.
func encodeV1(t testing.TB, all []engine.Series) (body []byte) {
	t.Helper()
	for _, s := range all {
		ts := marshal(t, &prompb.TimeSeries{Labels: prompb.FromLabels(s.Labels, nil)})
		body = appendMessage(body, 1, append(ts, rawSamples(s.Samples)...))
	}
	return body
}

// encodeV2 does the same for 2.0: each label is two symbols of its own.
func encodeV2(all []engine.Series) []byte {
	symbols := appendMessage(nil, 4, nil)
	var body []byte
	ref := byte(0)
	for _, s := range all {
		var refs []byte
		s.Labels.Range(func(l labels.Label) {
			symbols = appendMessage(appendMessage(symbols, 4, []byte(l.Name)), 4, []byte(l.Value))
			refs = append(refs, ref+1, ref+2)
			ref += 2
		})
		body = appendMessage(body, 5, append(appendMessage(nil, 1, refs), rawSamples(s.Samples)...))
	}
	return append(symbols, body...)
}

// TestBackendsRoundTrip: what either protocol writes, both kinds of answers give
// back bit for bit, from either store; and to send it again changes nothing.
func TestBackendsRoundTrip(t *testing.T) {
	all := stock()
	for _, backend := range backends {
		for _, contentType := range []string{typeV1, typeV2} {
			t.Run(backend.name+"/"+contentType, func(t *testing.T) {
				base, reg := serveStore(t, backend.open(t))
				body := encodeV1(t, all)
				if contentType == typeV2 {
					body = encodeV2(all)
				}
				for range 2 {
					post(t, base+"/api/v1/write", contentType, body).wantStatus(t, http.StatusNoContent)
					for _, kind := range responseTypes {
						readBack(t, base, kind, all)
					}
				}
				n := 0
				for _, s := range all {
					n += len(s.Samples)
				}
				version := map[string]string{typeV1: "1.0", typeV2: "2.0"}[contentType]
				wantCounter(t, reg, float64(2*n), "adapter_write_samples_total", "protocol", version)
			})
		}
	}
}

// readBack asks for all, which is stock, in several ways.
func readBack(t *testing.T, base string, kind prompb.ReadRequest_ResponseType, all []engine.Series) {
	t.Helper()
	for _, test := range []struct {
		q    *prompb.Query
		want []engine.Series
	}{
		{query(math.MinInt64, math.MaxInt64), all},
		{query(math.MinInt64, math.MaxInt64, eq("__name__", "up")), []engine.Series{all[0], all[2], all[3]}},
		{query(0, 1<<40, re("job", "a|c")), all[2:3]},
		{query(0, 1<<40, eq("a.b c", "\x00\n,=#é")), all[1:2]},
		{query(0, 1<<40, re("a.b c", ".*=#é")), all[1:2]},
		{query(0, 1<<40, &prompb.LabelMatcher{Type: prompb.LabelMatcher_NEQ, Name: "job", Value: ""}), all[2:]},
		{query(0, 1<<40, &prompb.LabelMatcher{Type: prompb.LabelMatcher_NRE, Name: "job", Value: ".+"}), all[:2]},
		{query(-100, -1), nil},
		{query(math.MinInt64, -1), nil},
		{query(math.MaxInt64, math.MaxInt64), nil},
		{query(math.MaxInt64, math.MinInt64), nil},
		{query(0, 1<<40, eq("__name__", "nothing")), nil},
	} {
		got, err := read(t, base, kind, test.q)
		if err != nil {
			t.Fatalf("%s %v: %v", kind, test.q, err)
		}
		wantSeries(t, got, test.want)
	}
}

// TestBackendsBadPieces: what can never be stored is named, the rest is stored.
func TestBackendsBadPieces(t *testing.T) {
	sample := []prompb.Sample{{Timestamp: 5, Value: 7}}
	long := strings.Repeat("x", 2000)
	tests := []struct {
		name     string
		bad      prompb.TimeSeries
		reason   engine.Reason
		rejected int
		text     string
	}{
		{"no name", v1Series(sample, "job", "bad"), engine.ReasonLabels, 1, `{job="bad"}`},
		{"empty name", v1Series(sample, "__name__", "", "job", "bad"), engine.ReasonLabels, 1, `{job="bad"}`},
		{"no labels", v1Series(sample), engine.ReasonLabels, 1, "{}"},
		{"label twice", v1Series(sample, "__name__", "bad", "a", "x", "b", "y", "a", "z"), engine.ReasonLabels, 1, `"a" is there twice`},
		{"label twice with the same value", v1Series(sample, "__name__", "bad", "a", "x", "a", "x"), engine.ReasonLabels, 1, `"a" is there twice`},
		{"name twice", v1Series(sample, "__name__", "bad", "__name__", "worse"), engine.ReasonLabels, 1, `"__name__" is there twice`},
		{"empty label name", v1Series(sample, "__name__", "bad", "", "x"), engine.ReasonLabels, 1, "bad"},
		{"label name not UTF-8", v1Series(sample, "__name__", "bad", "a\xff", "x"), engine.ReasonLabels, 1, "UTF-8"},
		{"label value not UTF-8", v1Series(sample, "__name__", "bad", "a", "\xc3"), engine.ReasonLabels, 1, "UTF-8"},
		{"metric name not UTF-8", v1Series(sample, "__name__", "bad\x80"), engine.ReasonLabels, 1, "UTF-8"},
		{"key too long", v1Series(sample, "__name__", "bad", "a", long, "b", long), engine.ReasonKeyTooLong, 1, "the limit is 3072"},
		{"negative time", v1Series([]prompb.Sample{{Timestamp: -1}, {Timestamp: math.MinInt64}}, "__name__", "bad"), engine.ReasonTime, 2, "timestamp -1"},
		{"after all time", v1Series([]prompb.Sample{{Timestamp: series.MaxTime + 1}, {Timestamp: math.MaxInt64}}, "__name__", "bad"), engine.ReasonTime, 2, "9223372036854775807"},
		{
			"in the future", v1Series([]prompb.Sample{{Timestamp: time.Now().Add(11 * time.Minute).UnixMilli()}}, "__name__", "bad"),
			engine.ReasonFuture, 1, "ahead of the clock",
		},
	}
	for _, backend := range backends {
		base, reg := serveStore(t, backend.open(t))
		counted := make(map[engine.Reason]float64)
		for i, test := range tests {
			for _, contentType := range []string{typeV1, typeV2} {
				t.Run(backend.name+"/"+test.name+"/"+contentType, func(t *testing.T) {
					name := fmt.Sprintf("good_%d_%d", i, len(contentType))
					all := []prompb.TimeSeries{test.bad, v1Series(sample, "__name__", name)}
					body := v1(t, all...)
					if contentType == typeV2 {
						body = marshal(t, toV2(all))
					}
					got := post(t, base+"/write", contentType, body)
					got.wantStatus(t, http.StatusBadRequest)
					if !strings.Contains(got.body, test.text) || len(got.body) > 1024 {
						t.Errorf("text %q, want %q in it", got.body, test.text)
					}
					wantWritten(t, got, contentType == typeV2, "1")
					stored, err := read(t, base, prompb.ReadRequest_SAMPLES, query(0, 1<<40, re("__name__", "bad.*|worse|"+name)))
					if err != nil {
						t.Fatal(err)
					}
					wantSeries(t, stored, []engine.Series{{Labels: lset("__name__", name), Samples: []engine.Sample{{T: 5, V: 7}}}})
					counted[test.reason] += float64(test.rejected)
					wantCounter(t, reg, counted[test.reason], "adapter_write_rejected_total", "reason", string(test.reason))
				})
			}
		}
	}
}

// TestBackendsBaseEdges: no sample is lost at the edge of a bucket, or of what
// can be stored, whatever range begins or ends there.
func TestBackendsBaseEdges(t *testing.T) {
	base := 380 * series.Period // in 2021
	want := engine.Series{Labels: lset("__name__", "edge")}
	for i, ts := range []int64{0, series.Period - 1, series.Period, base - 1, base, base + 1, base + series.Period - 1, base + series.Period} {
		want.Samples = append(want.Samples, engine.Sample{T: ts, V: float64(i)})
	}
	for _, backend := range backends {
		t.Run(backend.name, func(t *testing.T) {
			url, _ := serveStore(t, backend.open(t))
			shuffled := slices.Clone(want.Samples)
			slices.Reverse(shuffled)
			body := encodeV1(t, []engine.Series{{Labels: want.Labels, Samples: shuffled}})
			post(t, url+"/write", typeV1, body).wantStatus(t, http.StatusNoContent)
			for _, kind := range responseTypes {
				for i := range want.Samples {
					for j := i; j < len(want.Samples); j++ {
						from, to := want.Samples[i].T, want.Samples[j].T
						got, err := read(t, url, kind, query(from, to))
						if err != nil {
							t.Fatal(err)
						}
						wantSeries(t, got, []engine.Series{{Labels: want.Labels, Samples: want.Samples[i : j+1]}})
					}
				}
				got, err := read(t, url, kind, query(1, series.Period-2))
				if err != nil {
					t.Fatal(err)
				}
				wantSeries(t, got, nil)
			}
		})
	}
}

// TestBackendsLastWriteWins: of two values at one time exactly one remains.
func TestBackendsLastWriteWins(t *testing.T) {
	for _, backend := range backends {
		t.Run(backend.name, func(t *testing.T) {
			base, _ := serveStore(t, backend.open(t))
			ls := lset("__name__", "up")
			first := engine.Series{Labels: ls, Samples: []engine.Sample{{T: 5, V: 1}, {T: 5, V: 2}}}
			again := engine.Series{Labels: ls, Samples: []engine.Sample{{T: 5, V: 3}}}
			for i, body := range [][]byte{encodeV1(t, []engine.Series{first}), encodeV2([]engine.Series{again, again})} {
				post(t, base+"/write", []string{typeV1, typeV2}[i], body).wantStatus(t, http.StatusNoContent)
				got, err := read(t, base, prompb.ReadRequest_STREAMED_XOR_CHUNKS, query(0, 10))
				if err != nil {
					t.Fatal(err)
				}
				wantSeries(t, got, []engine.Series{{Labels: ls, Samples: []engine.Sample{{T: 5, V: float64(i + 2)}}}})
			}
		})
	}
}

// TestBigtableRowFails: one row of 2,000 fails, the answer is a 5xx with an
// exact count, and after the retry everything is there.
func TestBigtableRowFails(t *testing.T) {
	var failing atomic.Int32
	store := bigtabletest.Open(t, bigtabletest.WithMutateRowsHook(func(key string) error {
		if strings.HasPrefix(key, "container_network_receive_bytes_total,") && strings.Contains(key, "pod=frontend-34-4d2,") {
			if failing.Add(1) == 1 {
				return status.Error(codes.Internal, "this row fails once")
			}
		}
		return nil
	}))
	base, reg := serveStore(t, store)
	all := targets(2000)
	body := marshal(t, toV2(all))
	got := post(t, base+"/write", typeV2, body)
	got.wantStatus(t, http.StatusServiceUnavailable)
	wantWritten(t, got, true, "1999")
	wantCounter(t, reg, 1999, "adapter_write_samples_total", "protocol", "2.0")
	wantCounter(t, reg, 1, "adapter_write_failed_samples_total", "protocol", "2.0")

	got = post(t, base+"/write", typeV2, body)
	got.wantStatus(t, http.StatusNoContent)
	wantWritten(t, got, true, "2000")
	found, err := read(t, base, prompb.ReadRequest_STREAMED_XOR_CHUNKS, query(0, 1<<50, eq("job", "kubelet")))
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[float64]bool)
	for _, s := range found {
		for _, sample := range s.Samples {
			values[sample.V] = true
		}
	}
	if len(found) != 2000 || len(values) != 2000 {
		t.Errorf("%d series with %d values", len(found), len(values))
	}
}

// TestBackendsSeriesLimit: too many series are a 400 before the first byte.
func TestBackendsSeriesLimit(t *testing.T) {
	base, _ := serveStore(t, openPebble(t))
	all := targets(5001)
	post(t, base+"/write", typeV1, v1(t, all...)).wantStatus(t, http.StatusNoContent)
	for _, kind := range responseTypes {
		got := postRead(t, base, &prompb.ReadRequest{
			AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{kind},
			Queries:               []*prompb.Query{query(0, 1), query(0, 1<<50, eq("job", "kubelet"))},
		})
		got.wantStatus(t, http.StatusBadRequest)
		if !strings.Contains(got.body, "5000") {
			t.Errorf("%s: text %q", kind, got.body)
		}
	}
}

// TestBackendsFederateAndExplain: the newest samples and the explanation come
// from the same engine.
func TestBackendsFederateAndExplain(t *testing.T) {
	for _, backend := range backends {
		t.Run(backend.name, func(t *testing.T) {
			base, _ := serveStore(t, backend.open(t))
			now := time.Now().UnixMilli()
			stale := math.Float64frombits(0x7ff0000000000002)
			post(t, base+"/write", typeV1, encodeV1(t, []engine.Series{
				{Labels: lset("__name__", "fresh", "instance", "i"), Samples: []engine.Sample{{T: now - 1000, V: 2}, {T: now - 2000, V: 1}}},
				{Labels: lset("__name__", "old"), Samples: []engine.Sample{{T: now - 600_000, V: 1}}},
				{Labels: lset("__name__", "stale"), Samples: []engine.Sample{{T: now - 2000, V: 1}, {T: now - 1000, V: stale}}},
			})).wantStatus(t, http.StatusNoContent)

			matchAll := url.Values{"match[]": {`{__name__=~".+"}`}}.Encode()
			got := send(t, http.MethodGet, base+"/federate?"+matchAll, nil, nil)
			got.wantStatus(t, http.StatusOK)
			if want := fmt.Sprintf("# TYPE fresh untyped\nfresh{instance=\"i\"} 2 %d\n", now-1000); got.body != want {
				t.Errorf("federated %q, want %q", got.body, want)
			}

			got = send(t, http.MethodGet, base+"/api/v1/explain?match[]=fresh&match[]=nothing", nil, nil)
			got.wantStatus(t, http.StatusOK)
			var e explained
			if err := json.NewDecoder(bytes.NewReader([]byte(got.body))).Decode(&e); err != nil {
				t.Fatal(err)
			}
			if len(e.Data) != 2 || e.Data[0].Series != 1 || len(e.Data[0].Rows) == 0 || e.Data[1].Series != 0 {
				t.Errorf("explained %s", got.body)
			}
		})
	}
}
