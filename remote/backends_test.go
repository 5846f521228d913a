package remote_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
	"github.com/promtable/promtable/series"
)

// TestBackendsRoundTrip: what either protocol writes, both kinds of answers give
// back bit for bit, from either store; and to send it again changes nothing.
func TestBackendsRoundTrip(t *testing.T) {
	all := remotetest.Stock()
	for _, backend := range remotetest.Backends {
		for _, contentType := range []string{remotetest.TypeV1, remotetest.TypeV2} {
			t.Run(backend.Name+"/"+contentType, func(t *testing.T) {
				base, reg := remotetest.ServeStore(t, backend.Open(t))
				body := wiretest.EncodeV1(t, all)
				if contentType == remotetest.TypeV2 {
					body = wiretest.EncodeV2(all)
				}
				for range 2 {
					remotetest.Post(t, base+"/api/v1/write", contentType, body).WantStatus(t, http.StatusNoContent)
					for _, kind := range remotetest.ResponseTypes {
						readBack(t, base, kind, all)
					}
				}
				n := 0
				for _, s := range all {
					n += len(s.Samples)
				}
				version := map[string]string{remotetest.TypeV1: "1.0", remotetest.TypeV2: "2.0"}[contentType]
				remotetest.WantCounter(t, reg, float64(2*n), "adapter_write_samples_total", "protocol", version)
			})
		}
	}
}

// readBack asks for all, which is stock, in several ways.
func readBack(t *testing.T, base string, kind prompb.ReadRequest_ResponseType, all []ingest.Series) {
	t.Helper()
	for _, test := range []struct {
		q    *prompb.Query
		want []ingest.Series
	}{
		{remotetest.Query(math.MinInt64, math.MaxInt64), all},
		{remotetest.Query(math.MinInt64, math.MaxInt64, remotetest.Eq("__name__", "up")), []ingest.Series{all[0], all[2], all[3]}},
		{remotetest.Query(0, 1<<40, remotetest.Re("job", "a|c")), all[2:3]},
		{remotetest.Query(0, 1<<40, remotetest.Eq("a.b c", "\x00\n,=#é")), all[1:2]},
		{remotetest.Query(0, 1<<40, remotetest.Re("a.b c", ".*=#é")), all[1:2]},
		{remotetest.Query(0, 1<<40, &prompb.LabelMatcher{Type: prompb.LabelMatcher_NEQ, Name: "job", Value: ""}), all[2:]},
		{remotetest.Query(0, 1<<40, &prompb.LabelMatcher{Type: prompb.LabelMatcher_NRE, Name: "job", Value: ".+"}), all[:2]},
		{remotetest.Query(-100, -1), nil},
		{remotetest.Query(math.MinInt64, -1), nil},
		{remotetest.Query(math.MaxInt64, math.MaxInt64), nil},
		{remotetest.Query(math.MaxInt64, math.MinInt64), nil},
		{remotetest.Query(0, 1<<40, remotetest.Eq("__name__", "nothing")), nil},
	} {
		got, err := remotetest.Read(t, base, kind, test.q)
		if err != nil {
			t.Fatalf("%s %v: %v", kind, test.q, err)
		}
		remotetest.WantSeries(t, got, test.want)
	}
}

// TestBackendsBadPieces: what can never be stored is named, the rest is stored.
func TestBackendsBadPieces(t *testing.T) {
	sample := []prompb.Sample{{Timestamp: 5, Value: 7}}
	long := strings.Repeat("x", 2000)
	tests := []struct {
		name     string
		bad      prompb.TimeSeries
		reason   ingest.Reason
		rejected int
		text     string
	}{
		{"no name", wiretest.V1Series(sample, "job", "bad"), ingest.ReasonLabels, 1, `{job="bad"}`},
		{"empty name", wiretest.V1Series(sample, "__name__", "", "job", "bad"), ingest.ReasonLabels, 1, `{job="bad"}`},
		{"no labels", wiretest.V1Series(sample), ingest.ReasonLabels, 1, "{}"},
		{"label twice", wiretest.V1Series(sample, "__name__", "bad", "a", "x", "b", "y", "a", "z"), ingest.ReasonLabels, 1, `"a" is there twice`},
		{"label twice with the same value", wiretest.V1Series(sample, "__name__", "bad", "a", "x", "a", "x"), ingest.ReasonLabels, 1, `"a" is there twice`},
		{"name twice", wiretest.V1Series(sample, "__name__", "bad", "__name__", "worse"), ingest.ReasonLabels, 1, `"__name__" is there twice`},
		{"empty label name", wiretest.V1Series(sample, "__name__", "bad", "", "x"), ingest.ReasonLabels, 1, "bad"},
		{"label name not UTF-8", wiretest.V1Series(sample, "__name__", "bad", "a\xff", "x"), ingest.ReasonLabels, 1, "UTF-8"},
		{"label value not UTF-8", wiretest.V1Series(sample, "__name__", "bad", "a", "\xc3"), ingest.ReasonLabels, 1, "UTF-8"},
		{"metric name not UTF-8", wiretest.V1Series(sample, "__name__", "bad\x80"), ingest.ReasonLabels, 1, "UTF-8"},
		{"key too long", wiretest.V1Series(sample, "__name__", "bad", "a", long, "b", long), ingest.ReasonKeyTooLong, 1, "the limit is 3072"},
		{"negative time", wiretest.V1Series([]prompb.Sample{{Timestamp: -1}, {Timestamp: math.MinInt64}}, "__name__", "bad"), ingest.ReasonTime, 2, "timestamp -1"},
		{"after all time", wiretest.V1Series([]prompb.Sample{{Timestamp: series.MaxTime + 1}, {Timestamp: math.MaxInt64}}, "__name__", "bad"), ingest.ReasonTime, 2, "9223372036854775807"},
		{
			"in the future", wiretest.V1Series([]prompb.Sample{{Timestamp: time.Now().Add(11 * time.Minute).UnixMilli()}}, "__name__", "bad"),
			ingest.ReasonFuture, 1, "ahead of the clock",
		},
		{
			"too old", wiretest.V1Series([]prompb.Sample{{Timestamp: 0}, {Timestamp: 4}}, "__name__", "bad"), ingest.ReasonOld, 2,
			`{__name__="bad"}: timestamp 0 is too old: samples are kept from 5 on, see --retention.resolution-raw`,
		},
	}
	for _, backend := range remotetest.Backends {
		base, reg := remotetest.ServeStore(t, backend.Open(t), func(cfg *engine.Config) { cfg.Timeline = timelinetest.Cut(func(time.Time) int64 { return 5 }) })
		counted := make(map[ingest.Reason]float64)
		for i, test := range tests {
			for _, contentType := range []string{remotetest.TypeV1, remotetest.TypeV2} {
				t.Run(backend.Name+"/"+test.name+"/"+contentType, func(t *testing.T) {
					name := fmt.Sprintf("good_%d_%d", i, len(contentType))
					all := []prompb.TimeSeries{test.bad, wiretest.V1Series(sample, "__name__", name)}
					body := wiretest.V1(t, all...)
					if contentType == remotetest.TypeV2 {
						body = wiretest.Marshal(t, wiretest.ToV2(all))
					}
					got := remotetest.Post(t, base+"/write", contentType, body)
					got.WantStatus(t, http.StatusBadRequest)
					if !strings.Contains(got.Body, test.text) || len(got.Body) > 1024 {
						t.Errorf("text %q, want %q in it", got.Body, test.text)
					}
					remotetest.WantWritten(t, got, contentType == remotetest.TypeV2, "1")
					stored, err := remotetest.Read(t, base, prompb.ReadRequest_SAMPLES, remotetest.Query(0, 1<<40, remotetest.Re("__name__", "bad.*|worse|"+name)))
					if err != nil {
						t.Fatal(err)
					}
					remotetest.WantSeries(t, stored, []ingest.Series{{Labels: wiretest.LabelSet("__name__", name), Samples: []ingest.Sample{{T: 5, V: 7}}}})
					counted[test.reason] += float64(test.rejected)
					remotetest.WantCounter(t, reg, counted[test.reason], "adapter_write_rejected_total", "reason", string(test.reason))
				})
			}
		}
	}
}

// TestBackendsBounds: no sample is lost at the bounds of a bucket, or of what
// can be stored, whatever range begins or ends there.
func TestBackendsBounds(t *testing.T) {
	base := 380 * series.Period // in 2021
	want := ingest.Series{Labels: wiretest.LabelSet("__name__", "bound")}
	for i, ts := range []int64{0, series.Period - 1, series.Period, base - 1, base, base + 1, base + series.Period - 1, base + series.Period} {
		want.Samples = append(want.Samples, ingest.Sample{T: ts, V: float64(i)})
	}
	for _, backend := range remotetest.Backends {
		t.Run(backend.Name, func(t *testing.T) {
			url, _ := remotetest.ServeStore(t, backend.Open(t))
			shuffled := slices.Clone(want.Samples)
			slices.Reverse(shuffled)
			body := wiretest.EncodeV1(t, []ingest.Series{{Labels: want.Labels, Samples: shuffled}})
			remotetest.Post(t, url+"/write", remotetest.TypeV1, body).WantStatus(t, http.StatusNoContent)
			for _, kind := range remotetest.ResponseTypes {
				for i := range want.Samples {
					for j := i; j < len(want.Samples); j++ {
						from, to := want.Samples[i].T, want.Samples[j].T
						got, err := remotetest.Read(t, url, kind, remotetest.Query(from, to))
						if err != nil {
							t.Fatal(err)
						}
						remotetest.WantSeries(t, got, []ingest.Series{{Labels: want.Labels, Samples: want.Samples[i : j+1]}})
					}
				}
				got, err := remotetest.Read(t, url, kind, remotetest.Query(1, series.Period-2))
				if err != nil {
					t.Fatal(err)
				}
				remotetest.WantSeries(t, got, nil)
			}
		})
	}
}

// TestBackendsLastWriteWins: of two values at one time exactly one remains.
func TestBackendsLastWriteWins(t *testing.T) {
	for _, backend := range remotetest.Backends {
		t.Run(backend.Name, func(t *testing.T) {
			base, _ := remotetest.ServeStore(t, backend.Open(t))
			ls := wiretest.LabelSet("__name__", "up")
			first := ingest.Series{Labels: ls, Samples: []ingest.Sample{{T: 5, V: 1}, {T: 5, V: 2}}}
			again := ingest.Series{Labels: ls, Samples: []ingest.Sample{{T: 5, V: 3}}}
			for i, body := range [][]byte{wiretest.EncodeV1(t, []ingest.Series{first}), wiretest.EncodeV2([]ingest.Series{again, again})} {
				remotetest.Post(t, base+"/write", []string{remotetest.TypeV1, remotetest.TypeV2}[i], body).WantStatus(t, http.StatusNoContent)
				got, err := remotetest.Read(t, base, prompb.ReadRequest_STREAMED_XOR_CHUNKS, remotetest.Query(0, 10))
				if err != nil {
					t.Fatal(err)
				}
				remotetest.WantSeries(t, got, []ingest.Series{{Labels: ls, Samples: []ingest.Sample{{T: 5, V: float64(i + 2)}}}})
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
	base, reg := remotetest.ServeStore(t, store)
	all := wiretest.Targets(2000)
	body := wiretest.Marshal(t, wiretest.ToV2(all))
	got := remotetest.Post(t, base+"/write", remotetest.TypeV2, body)
	got.WantStatus(t, http.StatusServiceUnavailable)
	remotetest.WantWritten(t, got, true, "1999")
	remotetest.WantCounter(t, reg, 1999, "adapter_write_samples_total", "protocol", "2.0")
	remotetest.WantCounter(t, reg, 1, "adapter_write_failed_samples_total", "protocol", "2.0")

	got = remotetest.Post(t, base+"/write", remotetest.TypeV2, body)
	got.WantStatus(t, http.StatusNoContent)
	remotetest.WantWritten(t, got, true, "2000")
	found, err := remotetest.Read(t, base, prompb.ReadRequest_STREAMED_XOR_CHUNKS, remotetest.Query(0, 1<<50, remotetest.Eq("job", "kubelet")))
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
	base, _ := remotetest.ServeStore(t, remotetest.OpenPebble(t))
	all := wiretest.Targets(5001)
	remotetest.Post(t, base+"/write", remotetest.TypeV1, wiretest.V1(t, all...)).WantStatus(t, http.StatusNoContent)
	for _, kind := range remotetest.ResponseTypes {
		got := remotetest.PostRead(t, base, &prompb.ReadRequest{
			AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{kind},
			Queries:               []*prompb.Query{remotetest.Query(0, 1), remotetest.Query(0, 1<<50, remotetest.Eq("job", "kubelet"))},
		})
		got.WantStatus(t, http.StatusBadRequest)
		if !strings.Contains(got.Body, "5000") {
			t.Errorf("%s: text %q", kind, got.Body)
		}
	}
}

// TestBackendsFederateAndExplain: the current samples and the explanation come
// from the same engine.
func TestBackendsFederateAndExplain(t *testing.T) {
	for _, backend := range remotetest.Backends {
		t.Run(backend.Name, func(t *testing.T) {
			base, _ := remotetest.ServeStore(t, backend.Open(t))
			now := time.Now().UnixMilli()
			stale := math.Float64frombits(0x7ff0000000000002)
			remotetest.Post(t, base+"/write", remotetest.TypeV1, wiretest.EncodeV1(t, []ingest.Series{
				{Labels: wiretest.LabelSet("__name__", "fresh", "instance", "i"), Samples: []ingest.Sample{{T: now - 1000, V: 2}, {T: now - 2000, V: 1}}},
				{Labels: wiretest.LabelSet("__name__", "old"), Samples: []ingest.Sample{{T: now - 600_000, V: 1}}},
				{Labels: wiretest.LabelSet("__name__", "stale"), Samples: []ingest.Sample{{T: now - 2000, V: 1}, {T: now - 1000, V: stale}}},
			})).WantStatus(t, http.StatusNoContent)

			matchAll := url.Values{"match[]": {`{__name__=~".+"}`}}.Encode()
			got := remotetest.Send(t, http.MethodGet, base+"/federate?"+matchAll, nil, nil)
			got.WantStatus(t, http.StatusOK)
			if want := fmt.Sprintf("# TYPE fresh untyped\nfresh{instance=\"i\"} 2 %d\n", now-1000); got.Body != want {
				t.Errorf("federated %q, want %q", got.Body, want)
			}

			got = remotetest.Send(t, http.MethodGet, base+"/api/v1/explain?match[]=fresh&match[]=nothing", nil, nil)
			got.WantStatus(t, http.StatusOK)
			var e remotetest.Explained
			if err := json.NewDecoder(bytes.NewReader([]byte(got.Body))).Decode(&e); err != nil {
				t.Fatal(err)
			}
			if len(e.Data) != 2 || e.Data[0].Series != 1 || len(e.Data[0].Rows) == 0 || e.Data[1].Series != 0 {
				t.Errorf("explained %s", got.Body)
			}
		})
	}
}
