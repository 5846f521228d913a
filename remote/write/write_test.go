package write_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/prompb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
	"github.com/promtable/promtable/series"
)

// TestWriteNegotiation: 415 comes before anything else is looked at, and the
// version header decides nothing.
func TestWriteNegotiation(t *testing.T) {
	v1Body := wiretest.V1(t, wiretest.V1Series([]prompb.Sample{{Timestamp: 1, Value: 1}}, "__name__", "up"))
	v2Body := wiretest.Marshal(t, wiretest.ToV2([]prompb.TimeSeries{wiretest.V1Series([]prompb.Sample{{Timestamp: 1, Value: 1}}, "__name__", "up")}))
	junk := []byte("this is neither snappy nor protobuf")
	tests := []struct {
		name, contentType, encoding, version string
		body                                 []byte
		status                               int
	}{
		{"plain", remotetest.TypeV1, "snappy", "0.1.0", snappy.Encode(nil, v1Body), 204},
		{"named 1.0", "application/x-protobuf;proto=prometheus.WriteRequest", "snappy", "", snappy.Encode(nil, v1Body), 204},
		{"2.0", remotetest.TypeV2, "snappy", "2.0.0", snappy.Encode(nil, v2Body), 204},
		{"2.0 with a space", "application/x-protobuf; proto=io.prometheus.write.v2.Request", "snappy", "", snappy.Encode(nil, v2Body), 204},
		{"2.0 in quotes", `application/x-protobuf;proto="io.prometheus.write.v2.Request"`, "snappy", "", snappy.Encode(nil, v2Body), 204},
		{"another parameter", "application/x-protobuf;charset=utf-8", "snappy", "", snappy.Encode(nil, v1Body), 204},
		{"no content type", "", "snappy", "", snappy.Encode(nil, v1Body), 204},
		{"no encoding", remotetest.TypeV1, "", "", snappy.Encode(nil, v1Body), 204},
		{"1.0 under a 2.0 version", remotetest.TypeV1, "snappy", "2.0.0", snappy.Encode(nil, v1Body), 204},
		{"2.0 under a 1.0 version", remotetest.TypeV2, "snappy", "0.1.0", snappy.Encode(nil, v2Body), 204},
		{"json", "application/json", "snappy", "", junk, 415},
		{"png", "image/png", "snappy", "", junk, 415},
		{"text", "text/plain", "snappy", "", junk, 415},
		{"unknown message", "application/x-protobuf;proto=io.prometheus.write.v3.Request", "snappy", "2.0.0", junk, 415},
		{"parameter without value", "application/x-protobuf;proto", "snappy", "", junk, 415},
		{"garbage", ";;;", "snappy", "", junk, 415},
		{"gzip", remotetest.TypeV1, "gzip", "", junk, 415},
		{"deflate", remotetest.TypeV2, "deflate", "", junk, 415},
		{"identity", remotetest.TypeV1, "identity", "", junk, 415},
		{"bad type and bad encoding", "application/json", "gzip", "", junk, 415},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			eng := &remotetest.Engine{}
			url, reg := remotetest.Serve(t, eng, nil)
			header := http.Header{}
			for name, value := range map[string]string{
				"Content-Type": test.contentType, "Content-Encoding": test.encoding, "X-Prometheus-Remote-Write-Version": test.version,
			} {
				if value != "" {
					header[name] = []string{value}
				}
			}
			got := remotetest.Send(t, http.MethodPost, url+"/api/v1/write", header, test.body)
			got.WantStatus(t, test.status)
			if test.status == 204 && (got.Body != "" || len(eng.Series) != 1) {
				t.Errorf("body %q, %d series stored", got.Body, len(eng.Series))
			}
			if test.status == 415 && eng.Appends != 0 {
				t.Error("the engine was asked")
			}
			remotetest.WantCounter(t, reg, 1, "adapter_http_requests_total", "handler", "write", "code", fmt.Sprint(test.status))
		})
	}
}

// TestWriteBody: what is wrong with the bytes is a 400, whatever the protocol.
func TestWriteBody(t *testing.T) {
	good := wiretest.V1(t, wiretest.V1Series([]prompb.Sample{{Timestamp: 1, Value: 1}}, "__name__", "up"))
	var framed bytes.Buffer
	stream := snappy.NewBufferedWriter(&framed)
	if _, err := stream.Write(good); err != nil {
		t.Fatal(err)
	}
	if err := stream.Close(); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		body   []byte
		status int
	}{
		{"good", snappy.Encode(nil, good), 204},
		{"no series", snappy.Encode(nil, nil), 204},
		{"empty", nil, 400},
		{"not compressed", good, 400},
		{"framed snappy", framed.Bytes(), 400},
		{"cut block", snappy.Encode(nil, good)[:8], 400},
		{"cut message", snappy.Encode(nil, good[:len(good)-1]), 400},
		{"not protobuf", snappy.Encode(nil, []byte("hello, is there anybody?")), 400},
		{"field zero", snappy.Encode(nil, []byte{0, 0}), 400},
		{"a group", snappy.Encode(nil, []byte{1<<3 | 3, 1<<3 | 4}), 400},
		{"series as a number", snappy.Encode(nil, []byte{1 << 3, 5, 5 << 3, 5}), 400},
		{"varint without end", snappy.Encode(nil, bytes.Repeat([]byte{0xff}, 20)), 400},
		{"decoded over the limit", snappy.Encode(nil, make([]byte, 4097)), 400},
		{"body over the limit", bytes.Repeat([]byte{0x55}, 5000), 413},
	}
	for _, test := range tests {
		for _, contentType := range []string{remotetest.TypeV1, remotetest.TypeV2} {
			if test.name == "good" && contentType == remotetest.TypeV2 {
				continue // other bytes
			}
			t.Run(test.name+"/"+contentType, func(t *testing.T) {
				eng := &remotetest.Engine{}
				url, _ := remotetest.Serve(t, eng, func(cfg *remote.Config) { cfg.MaxBodyBytes = 4096 })
				header := http.Header{"Content-Type": {contentType}, "Content-Encoding": {"snappy"}}
				got := remotetest.Send(t, http.MethodPost, url+"/write", header, test.body)
				got.WantStatus(t, test.status)
				if test.status >= 400 && (eng.Appends > 0 || got.Body == "") {
					t.Errorf("%d appends, body %q", eng.Appends, got.Body)
				}
			})
		}
	}
}

// TestWritePartial: one bad series among 2,000 costs that series, no more.
func TestWritePartial(t *testing.T) {
	all := wiretest.Targets(2000)
	all[1234].Labels = all[1234].Labels[1:] // no name
	for _, test := range []struct {
		name, contentType, protocol string
		body                        []byte
	}{
		{"1.0", remotetest.TypeV1, "1.0", wiretest.V1(t, all...)},
		{"2.0", remotetest.TypeV2, "2.0", wiretest.Marshal(t, wiretest.ToV2(all))},
	} {
		t.Run(test.name, func(t *testing.T) {
			eng := &remotetest.Engine{}
			url, reg := remotetest.Serve(t, eng, nil)
			got := remotetest.Post(t, url+"/api/v1/write", test.contentType, test.body)
			got.WantStatus(t, http.StatusBadRequest)
			if !strings.Contains(got.Body, "no metric name") || len(got.Body) > 1024 {
				t.Errorf("text %q", got.Body)
			}
			if len(eng.Series) != 1999 {
				t.Errorf("%d series stored", len(eng.Series))
			}
			remotetest.WantWritten(t, got, test.contentType == remotetest.TypeV2, "1999")
			remotetest.WantCounter(t, reg, 1999, "adapter_write_samples_total", "protocol", test.protocol)
			remotetest.WantCounter(t, reg, 1, "adapter_write_rejected_total", "reason", "labels")
			remotetest.WantCounter(t, reg, 0, "adapter_write_failed_samples_total", "protocol", test.protocol)
		})
	}
}

// TestWriteMetadataFails: metadata that was not stored comes again.
func TestWriteMetadataFails(t *testing.T) {
	eng := &remotetest.Engine{MetadataErr: remotetest.ErrStore}
	url, reg := remotetest.Serve(t, eng, nil)
	got := remotetest.Post(t, url+"/api/v1/write", remotetest.TypeV1, wiretest.Marshal(t, &prompb.WriteRequest{Metadata: []prompb.MetricMetadata{{MetricFamilyName: "up"}}}))
	got.WantStatus(t, 503)
	remotetest.WantCounter(t, reg, 0, "adapter_write_metadata_total")
}

// TestWriteStoreFails: a failure of the store is worth more than bad input, and
// only what is confirmed is counted.
func TestWriteStoreFails(t *testing.T) {
	all := wiretest.Targets(10)
	all[3].Labels = all[3].Labels[1:]
	for _, test := range []struct {
		name   string
		err    error
		status int
		wait   string
	}{
		{"store error", remotetest.ErrStore, 503, ""},
		{"deadline", context.DeadlineExceeded, 503, ""},
		{"cancelled by the store", context.Canceled, 503, ""},
		{"overload", &bucketstore.OverloadError{RetryAfter: 1100 * time.Millisecond, Err: remotetest.ErrStore}, 503, "2"},
	} {
		for _, contentType := range []string{remotetest.TypeV1, remotetest.TypeV2} {
			t.Run(test.name+"/"+contentType, func(t *testing.T) {
				eng := &remotetest.Engine{OnAppend: func(context.Context, []ingest.Series) (int, error) { return 4, test.err }}
				url, reg := remotetest.Serve(t, eng, nil)
				body, protocol := wiretest.V1(t, all...), "1.0"
				if contentType == remotetest.TypeV2 {
					body, protocol = wiretest.Marshal(t, wiretest.ToV2(all)), "2.0"
				}
				got := remotetest.Post(t, url+"/api/v1/write", contentType, body)
				got.WantStatus(t, test.status)
				remotetest.WantWritten(t, got, contentType == remotetest.TypeV2, "4")
				if wait := got.Header.Get("Retry-After"); wait != test.wait {
					t.Errorf("Retry-After is %q, want %q", wait, test.wait)
				}
				if !strings.Contains(got.Body, test.err.Error()) {
					t.Errorf("text %q", got.Body)
				}
				remotetest.WantCounter(t, reg, 4, "adapter_write_samples_total", "protocol", protocol)
				remotetest.WantCounter(t, reg, 5, "adapter_write_failed_samples_total", "protocol", protocol)
				remotetest.WantCounter(t, reg, 1, "adapter_write_rejected_total", "reason", "labels")
			})
		}
	}
}

// TestWriteDeadline: the engine gets the deadline of the request, and its end is
// a 503.
func TestWriteDeadline(t *testing.T) {
	eng := &remotetest.Engine{OnAppend: func(ctx context.Context, _ []ingest.Series) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}}
	url, _ := remotetest.Serve(t, eng, func(cfg *remote.Config) { cfg.WriteTimeout = 20 * time.Millisecond })
	remotetest.Post(t, url+"/write", remotetest.TypeV1, wiretest.V1(t, wiretest.Targets(1)...)).WantStatus(t, http.StatusServiceUnavailable)
}

// TestWriteSlowBody: a sender that does not send is told to come again, after
// the timeout of the request.
func TestWriteSlowBody(t *testing.T) {
	eng := &remotetest.Engine{}
	url, _ := remotetest.Serve(t, eng, func(cfg *remote.Config) { cfg.WriteTimeout = 50 * time.Millisecond })
	for _, length := range []int64{-1, 1000, 1 << 20} {
		body, writer := io.Pipe()
		defer writer.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a server that waits for ever
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/write", body)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = length
		req.Header.Set("Content-Type", remotetest.TypeV1)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("length %d: %v", length, err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || !resp.Close || eng.Appends != 0 {
			t.Errorf("length %d: status %d, close %t, %d appends", length, resp.StatusCode, resp.Close, eng.Appends)
		}
	}
}

// TestWriteOverload: a write that finds no slot before its deadline gets a 503 that says
// when to try again, never a 429.
func TestWriteOverload(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(leave) })
	eng := &remotetest.Engine{OnAppend: func(context.Context, []ingest.Series) (int, error) {
		close(entered)
		<-leave
		return 1, nil
	}}
	url, reg := remotetest.Serve(t, eng, func(cfg *remote.Config) {
		cfg.MaxConcurrentWrites = 1
		cfg.WriteTimeout = 100 * time.Millisecond
	})
	t.Cleanup(release)
	body := wiretest.V1(t, wiretest.Targets(1)...)
	first := make(chan remotetest.Answer, 1)
	go func() { first <- remotetest.Post(t, url+"/write", remotetest.TypeV1, body) }()
	remotetest.Wait(t, entered)
	got := remotetest.Post(t, url+"/write", remotetest.TypeV2, wiretest.Marshal(t, wiretest.ToV2(wiretest.Targets(1))))
	got.WantStatus(t, http.StatusServiceUnavailable)
	if after := got.Header.Get("Retry-After"); after != "5" {
		t.Errorf("Retry-After: %q", after)
	}
	remotetest.WantWritten(t, got, true, "0")
	if n := remotetest.Counter(t, reg, "adapter_http_requests_in_flight", "handler", "write"); n != 1 {
		t.Errorf("%v in flight", n)
	}
	for gate, want := range map[string]float64{"write": 1, "read": 20} {
		remotetest.WantCounter(t, reg, want, "adapter_http_concurrent_requests_limit", "gate", gate)
	}
	release()
	(<-first).WantStatus(t, http.StatusNoContent)
	remotetest.WantCounter(t, reg, 2, "adapter_http_request_duration_seconds", "handler", "write")
}

// TestWriteClientGone: a sender that hangs up cancels the work.
func TestWriteClientGone(t *testing.T) {
	entered, cancelled := make(chan struct{}), make(chan struct{})
	eng := &remotetest.Engine{OnAppend: func(ctx context.Context, _ []ingest.Series) (int, error) {
		close(entered)
		<-ctx.Done()
		close(cancelled)
		return 0, ctx.Err()
	}}
	url, reg := remotetest.Serve(t, eng, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	body := snappy.Encode(nil, wiretest.V1(t, wiretest.Targets(1)...))
	fmt.Fprintf(conn, "POST /write HTTP/1.1\r\nHost: adapter\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	remotetest.Wait(t, entered)
	conn.Close()
	remotetest.Wait(t, cancelled)
	remotetest.WantCounter(t, reg, 1, "adapter_http_requests_total", "handler", "write", "code", "499")
}

// TestWriteLog: bad requests are logged, but a sender that repeats them does
// not fill the log.
func TestWriteLog(t *testing.T) {
	var lines remotetest.SyncBuffer
	clock := &remotetest.FakeClock{Time: time.Unix(1_700_000_000, 0)}
	url, _ := remotetest.Serve(t, &remotetest.Engine{}, func(cfg *remote.Config) {
		cfg.Logger = log.NewLogfmtLogger(&lines)
		cfg.Now = clock.Now
	})
	for range 5 {
		remotetest.Post(t, url+"/write", remotetest.TypeV1, wiretest.V1(t, wiretest.V1Series([]prompb.Sample{{}}, "job", "x"))).WantStatus(t, 400)
	}
	clock.Advance(11 * time.Second)
	remotetest.Post(t, url+"/write", remotetest.TypeV1, wiretest.V1(t, wiretest.V1Series([]prompb.Sample{{}}, "job", "x"))).WantStatus(t, 400)
	got := strings.Split(strings.TrimSpace(lines.String()), "\n")
	if len(got) != 2 || !strings.Contains(got[0], "level=warn") || !strings.Contains(got[1], "unlogged=4") {
		t.Errorf("log:\n%s", strings.Join(got, "\n"))
	}
}

// While the clock is set back, what is refused for that is a 503 and counted as failed:
// after a 400 the sender would drop it.
func TestWriteClockSetBack(t *testing.T) {
	clock := &remotetest.FakeClock{Time: time.Unix(1_300_000_000, 0)}
	present := clock.Now().UnixMilli()
	store, reg := remotetest.OpenPebble(t), prometheus.NewRegistry()
	eng, err := engine.New(engine.Config{Store: store, Appender: bucketstore.NewDirect(store, series.Schema{}, clock.Now, nil), Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eng.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	h := remote.New(remote.Config{Engine: eng, Now: clock.Now, Registerer: reg})
	send := func(want int, wantText string) {
		t.Helper()
		body := snappy.Encode(nil, wiretest.V1(t, wiretest.V1Series([]prompb.Sample{{Timestamp: present, Value: 1}}, "__name__", "up")))
		if w := remotetest.ServeOnce(h, "/api/v1/write", remotetest.TypeV1, body); w.Code != want || !strings.Contains(w.Body.String(), wantText) {
			t.Errorf("status %d with %q, want %d with %q", w.Code, w.Body, want, wantText)
		}
	}
	send(http.StatusNoContent, "")
	clock.Advance(-time.Hour)
	send(http.StatusServiceUnavailable, "clock is behind by 1h0m0s")
	remotetest.WantCounter(t, reg, 1, "adapter_write_failed_samples_total")
	remotetest.WantCounter(t, reg, 0, "adapter_write_rejected_total", "reason", "too_far_in_future")
	clock.Advance(time.Hour)
	send(http.StatusNoContent, "")
}

// TestWriteRefusedRow: samples and exemplars of a row that Bigtable refuses, alone or with
// its request, are a 400 that names the series, so that their sender goes on. All others are
// stored. What is doubtful is a 503.
func TestWriteRefusedRow(t *testing.T) {
	now := time.Now().UnixMilli()
	const (
		bad = `series {__name__="bad", job="x"}: the row of timestamp`
		// samples of a row are more bytes than rowLimit.
		samples, rowLimit = 30, 300
	)
	failBad := func(code codes.Code) bigtabletest.Fault {
		return bigtabletest.Fault{Row: func(key string) error {
			if strings.HasPrefix(key, "bad,") {
				return status.Error(code, "broken row")
			}
			return nil
		}}
	}
	for _, tt := range []struct {
		name string
		// fault is what each request meets, rowLimit the bytes that one may write to a row.
		fault    bigtabletest.Fault
		rowLimit int
		status   int
		text     string
		// rejected and good count samples, and rejected exemplars, too.
		rejected, good float64
	}{
		{"a row", failBad(codes.InvalidArgument), 0, http.StatusBadRequest, bad, samples + 1, 2},
		{"its request", bigtabletest.Fault{}, rowLimit, http.StatusBadRequest, bad, samples, 2},
		{"a row that may be stored later", failBad(codes.FailedPrecondition), 0, http.StatusServiceUnavailable, "broken row", 0, 2},
		{"its request may be repeated", bigtabletest.Fault{Err: status.Error(codes.PermissionDenied, "not you")}, 0, http.StatusServiceUnavailable, "not you", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var broken atomic.Bool
			store := bigtabletest.Open(t, bigtabletest.WithLimits(func(l *bigtabletest.Limits) { l.Row = cmp.Or(tt.rowLimit, l.Row) }),
				bigtabletest.WithFaults(func(proto.Message) bigtabletest.Fault {
					if broken.Load() {
						return tt.fault
					}
					return bigtabletest.Fault{}
				}))
			base, reg := remotetest.ServeStore(t, bucketstore.Isolate(store, time.Now))
			write := func(ofBad int64) remotetest.Answer {
				var series []prompb.TimeSeries
				for _, name := range []string{"a", "bad", "c"} {
					s := wiretest.V1Series([]prompb.Sample{{Timestamp: now, Value: 1}}, "__name__", name, "job", "x")
					s.Exemplars = []prompb.Exemplar{{Timestamp: now, Value: 1}}
					for i := int64(1); i < ofBad && name == "bad"; i++ {
						s.Samples = append(s.Samples, prompb.Sample{Timestamp: now - i, Value: 1})
					}
					series = append(series, s)
				}
				return remotetest.Post(t, base+"/api/v1/write", remotetest.TypeV1, wiretest.V1(t, series...))
			}
			if a := write(1); a.Status != http.StatusNoContent {
				t.Fatalf("before: %d %s", a.Status, a.Body)
			}
			broken.Store(true)
			if a := write(samples); a.Status != tt.status || !strings.Contains(a.Body, tt.text) {
				t.Errorf("status %d with %q, want %d with %q", a.Status, a.Body, tt.status, tt.text)
			}
			remotetest.WantCounter(t, reg, tt.rejected, "adapter_write_rejected_total", "reason", "refused_by_store")
			remotetest.WantCounter(t, reg, 3+tt.good, "adapter_write_samples_total", "protocol", "1.0")
			broken.Store(false)
			if a := write(1); a.Status != http.StatusNoContent {
				t.Errorf("after: %d %s", a.Status, a.Body)
			}
		})
	}
}
