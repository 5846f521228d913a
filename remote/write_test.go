package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine"
)

// TestWriteNegotiation: 415 comes before anything else is looked at, and the
// version header decides nothing.
func TestWriteNegotiation(t *testing.T) {
	v1Body := v1(t, v1Series([]prompb.Sample{{Timestamp: 1, Value: 1}}, "__name__", "up"))
	v2Body := marshal(t, toV2([]prompb.TimeSeries{v1Series([]prompb.Sample{{Timestamp: 1, Value: 1}}, "__name__", "up")}))
	junk := []byte("this is neither snappy nor protobuf")
	tests := []struct {
		name, contentType, encoding, version string
		body                                 []byte
		status                               int
	}{
		{"plain", typeV1, "snappy", "0.1.0", snappy.Encode(nil, v1Body), 204},
		{"named 1.0", "application/x-protobuf;proto=prometheus.WriteRequest", "snappy", "", snappy.Encode(nil, v1Body), 204},
		{"2.0", typeV2, "snappy", "2.0.0", snappy.Encode(nil, v2Body), 204},
		{"2.0 with a space", "application/x-protobuf; proto=io.prometheus.write.v2.Request", "snappy", "", snappy.Encode(nil, v2Body), 204},
		{"2.0 in quotes", `application/x-protobuf;proto="io.prometheus.write.v2.Request"`, "snappy", "", snappy.Encode(nil, v2Body), 204},
		{"another parameter", "application/x-protobuf;charset=utf-8", "snappy", "", snappy.Encode(nil, v1Body), 204},
		{"no content type", "", "snappy", "", snappy.Encode(nil, v1Body), 204},
		{"no encoding", typeV1, "", "", snappy.Encode(nil, v1Body), 204},
		{"1.0 under a 2.0 version", typeV1, "snappy", "2.0.0", snappy.Encode(nil, v1Body), 204},
		{"2.0 under a 1.0 version", typeV2, "snappy", "0.1.0", snappy.Encode(nil, v2Body), 204},
		{"json", "application/json", "snappy", "", junk, 415},
		{"png", "image/png", "snappy", "", junk, 415},
		{"text", "text/plain", "snappy", "", junk, 415},
		{"unknown message", "application/x-protobuf;proto=io.prometheus.write.v3.Request", "snappy", "2.0.0", junk, 415},
		{"parameter without value", "application/x-protobuf;proto", "snappy", "", junk, 415},
		{"garbage", ";;;", "snappy", "", junk, 415},
		{"gzip", typeV1, "gzip", "", junk, 415},
		{"deflate", typeV2, "deflate", "", junk, 415},
		{"identity", typeV1, "identity", "", junk, 415},
		{"bad type and bad encoding", "application/json", "gzip", "", junk, 415},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			eng := &fakeEngine{}
			url, reg := serve(t, eng, nil)
			header := http.Header{}
			for name, value := range map[string]string{
				"Content-Type": test.contentType, "Content-Encoding": test.encoding, "X-Prometheus-Remote-Write-Version": test.version,
			} {
				if value != "" {
					header[name] = []string{value}
				}
			}
			got := send(t, http.MethodPost, url+"/api/v1/write", header, test.body)
			got.wantStatus(t, test.status)
			if test.status == 204 && (got.body != "" || len(eng.series) != 1) {
				t.Errorf("body %q, %d series stored", got.body, len(eng.series))
			}
			if test.status == 415 && eng.appends != 0 {
				t.Error("the engine was asked")
			}
			wantCounter(t, reg, 1, "adapter_http_requests_total", "handler", "write", "code", fmt.Sprint(test.status))
		})
	}
}

func TestMethods(t *testing.T) {
	url, reg := serve(t, &fakeEngine{}, nil)
	for _, test := range []struct{ method, path, allow string }{
		{http.MethodGet, "/api/v1/write", "POST"},
		{http.MethodPut, "/write", "POST"},
		{http.MethodGet, "/api/v1/read", "POST"},
		{http.MethodDelete, "/read", "POST"},
		{http.MethodPost, "/federate", "GET"},
		{http.MethodPut, "/api/v1/explain", "GET, POST"},
	} {
		t.Run(test.method+test.path, func(t *testing.T) {
			got := send(t, test.method, url+test.path, nil, nil)
			got.wantStatus(t, http.StatusMethodNotAllowed)
			if allow := got.header.Get("Allow"); allow != test.allow {
				t.Errorf("Allow: %q, want %q", allow, test.allow)
			}
		})
	}
	wantCounter(t, reg, 2, "adapter_http_requests_total", "handler", "write", "code", "405")
	send(t, http.MethodPost, url+"/api/v1/other", nil, nil).wantStatus(t, http.StatusNotFound)
}

// TestWriteBody: what is wrong with the bytes is a 400, whatever the protocol.
func TestWriteBody(t *testing.T) {
	good := v1(t, v1Series([]prompb.Sample{{Timestamp: 1, Value: 1}}, "__name__", "up"))
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
		for _, contentType := range []string{typeV1, typeV2} {
			if test.name == "good" && contentType == typeV2 {
				continue // other bytes
			}
			t.Run(test.name+"/"+contentType, func(t *testing.T) {
				eng := &fakeEngine{}
				url, _ := serve(t, eng, func(cfg *remote.Config) { cfg.MaxBodyBytes = 4096 })
				header := http.Header{"Content-Type": {contentType}, "Content-Encoding": {"snappy"}}
				got := send(t, http.MethodPost, url+"/write", header, test.body)
				got.wantStatus(t, test.status)
				if test.status >= 400 && (eng.appends > 0 || got.body == "") {
					t.Errorf("%d appends, body %q", eng.appends, got.body)
				}
			})
		}
	}
}

// TestSnappyBomb: a claim of 4 GiB, or of all that is allowed, takes no memory
// on either endpoint.
func TestSnappyBomb(t *testing.T) {
	for _, path := range []string{"/api/v1/write", "/api/v1/read"} {
		for _, test := range []struct {
			name string
			body []byte
		}{
			{"4 GiB", []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 'x'}},
			{"just over the limit", []byte{0x81, 0x80, 0x80, 0x10, 0, 'x'}},
			{"all of the limit in six bytes", []byte{0x80, 0x80, 0x80, 0x10, 0, 'x'}},
		} {
			t.Run(path+"/"+test.name, func(t *testing.T) {
				h := remote.New(remote.Config{Engine: &fakeEngine{}, Now: time.Now})
				const rounds = 20
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range rounds {
					w := serveOnce(h, path, typeV1, test.body)
					if w.Code != http.StatusBadRequest {
						t.Fatalf("status %d %q", w.Code, w.Body)
					}
				}
				runtime.ReadMemStats(&after)
				if got := (after.TotalAlloc - before.TotalAlloc) / rounds; got > 1<<20 {
					t.Errorf("%d bytes allocated for a request", got)
				}
			})
		}
	}
}

// TestWritePartial: one bad series among 2,000 costs that series, no more.
func TestWritePartial(t *testing.T) {
	all := targets(2000)
	all[1234].Labels = all[1234].Labels[1:] // no name
	for _, test := range []struct {
		name, contentType, protocol string
		body                        []byte
	}{
		{"1.0", typeV1, "1.0", v1(t, all...)},
		{"2.0", typeV2, "2.0", marshal(t, toV2(all))},
	} {
		t.Run(test.name, func(t *testing.T) {
			eng := &fakeEngine{}
			url, reg := serve(t, eng, nil)
			got := post(t, url+"/api/v1/write", test.contentType, test.body)
			got.wantStatus(t, http.StatusBadRequest)
			if !strings.Contains(got.body, "no metric name") || len(got.body) > 1024 {
				t.Errorf("text %q", got.body)
			}
			if len(eng.series) != 1999 {
				t.Errorf("%d series stored", len(eng.series))
			}
			wantWritten(t, got, test.contentType == typeV2, "1999")
			wantCounter(t, reg, 1999, "adapter_write_samples_total", "protocol", test.protocol)
			wantCounter(t, reg, 1, "adapter_write_rejected_total", "reason", "labels")
			wantCounter(t, reg, 0, "adapter_write_failed_samples_total", "protocol", test.protocol)
		})
	}
}

// wantWritten checks the headers of 2.0: there and exact, or not there at all.
func wantWritten(t testing.TB, a answer, present bool, samples string) {
	t.Helper()
	n, err := strconv.Atoi(samples)
	if err != nil {
		t.Fatal(err)
	}
	wantWrittenAll(t, a, present, engine.Stored{Samples: n})
}

// wantWrittenAll wants the headers of 2.0 to say what was stored, if present.
func wantWrittenAll(t testing.TB, a answer, present bool, stored engine.Stored) {
	t.Helper()
	want := map[string][]string{
		writtenSamples:    {strconv.Itoa(stored.Samples)},
		writtenHistograms: {strconv.Itoa(stored.Histograms)},
		writtenExemplars:  {strconv.Itoa(stored.Exemplars)},
	}
	for name, value := range want {
		have := a.header[name]
		if present && (len(have) != 1 || have[0] != value[0]) || !present && have != nil {
			t.Errorf("%s: %q, want %q if %t", name, have, value, present)
		}
	}
}

// TestWriteMetadataFails: metadata that was not stored comes again.
func TestWriteMetadataFails(t *testing.T) {
	eng := &fakeEngine{metadataErr: errStore}
	url, reg := serve(t, eng, nil)
	got := post(t, url+"/api/v1/write", typeV1, marshal(t, &prompb.WriteRequest{Metadata: []prompb.MetricMetadata{{MetricFamilyName: "up"}}}))
	got.wantStatus(t, 503)
	wantCounter(t, reg, 0, "adapter_write_metadata_total")
}

// TestWriteStoreFails: a failure of the store is worth more than bad input, and
// only what is confirmed is counted.
func TestWriteStoreFails(t *testing.T) {
	all := targets(10)
	all[3].Labels = all[3].Labels[1:]
	for _, test := range []struct {
		name   string
		err    error
		status int
	}{
		{"store error", errStore, 503},
		{"deadline", context.DeadlineExceeded, 503},
		{"cancelled by the store", context.Canceled, 503},
	} {
		for _, contentType := range []string{typeV1, typeV2} {
			t.Run(test.name+"/"+contentType, func(t *testing.T) {
				eng := &fakeEngine{onAppend: func(context.Context, []engine.Series) (int, error) { return 4, test.err }}
				url, reg := serve(t, eng, nil)
				body, protocol := v1(t, all...), "1.0"
				if contentType == typeV2 {
					body, protocol = marshal(t, toV2(all)), "2.0"
				}
				got := post(t, url+"/api/v1/write", contentType, body)
				got.wantStatus(t, test.status)
				wantWritten(t, got, contentType == typeV2, "4")
				if !strings.Contains(got.body, test.err.Error()) {
					t.Errorf("text %q", got.body)
				}
				wantCounter(t, reg, 4, "adapter_write_samples_total", "protocol", protocol)
				wantCounter(t, reg, 5, "adapter_write_failed_samples_total", "protocol", protocol)
				wantCounter(t, reg, 1, "adapter_write_rejected_total", "reason", "labels")
			})
		}
	}
}

// TestWriteDeadline: the engine gets the deadline of the request, and its end is
// a 503.
func TestWriteDeadline(t *testing.T) {
	eng := &fakeEngine{onAppend: func(ctx context.Context, _ []engine.Series) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}}
	url, _ := serve(t, eng, func(cfg *remote.Config) { cfg.WriteTimeout = 20 * time.Millisecond })
	post(t, url+"/write", typeV1, v1(t, targets(1)...)).wantStatus(t, http.StatusServiceUnavailable)
}

// TestWriteSlowBody: a sender that does not send is told to come again, after
// the timeout of the request.
func TestWriteSlowBody(t *testing.T) {
	eng := &fakeEngine{}
	url, _ := serve(t, eng, func(cfg *remote.Config) { cfg.WriteTimeout = 50 * time.Millisecond })
	body, _ := io.Pipe() // nobody writes
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/write", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", typeV1)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || eng.appends != 0 {
		t.Errorf("status %d, %d appends", resp.StatusCode, eng.appends)
	}
}

// TestWriteOverload: who finds no slot before its deadline gets a 503 that says
// when to come again, never a 429.
func TestWriteOverload(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(leave) })
	eng := &fakeEngine{onAppend: func(context.Context, []engine.Series) (int, error) {
		close(entered)
		<-leave
		return 1, nil
	}}
	url, reg := serve(t, eng, func(cfg *remote.Config) {
		cfg.MaxConcurrentWrites = 1
		cfg.WriteTimeout = 100 * time.Millisecond
	})
	t.Cleanup(release)
	body := v1(t, targets(1)...)
	first := make(chan answer, 1)
	go func() { first <- post(t, url+"/write", typeV1, body) }()
	wait(t, entered)
	got := post(t, url+"/write", typeV2, marshal(t, toV2(targets(1))))
	got.wantStatus(t, http.StatusServiceUnavailable)
	if after := got.header.Get("Retry-After"); after != "5" {
		t.Errorf("Retry-After: %q", after)
	}
	wantWritten(t, got, true, "0")
	if n := counter(t, reg, "adapter_http_requests_in_flight", "handler", "write"); n != 1 {
		t.Errorf("%v in flight", n)
	}
	release()
	(<-first).wantStatus(t, http.StatusNoContent)
	wantCounter(t, reg, 2, "adapter_http_request_duration_seconds", "handler", "write")
}

// TestWriteClientGone: a sender that hangs up cancels the work.
func TestWriteClientGone(t *testing.T) {
	entered, cancelled := make(chan struct{}), make(chan struct{})
	eng := &fakeEngine{onAppend: func(ctx context.Context, _ []engine.Series) (int, error) {
		close(entered)
		<-ctx.Done()
		close(cancelled)
		return 0, ctx.Err()
	}}
	url, reg := serve(t, eng, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	body := snappy.Encode(nil, v1(t, targets(1)...))
	fmt.Fprintf(conn, "POST /write HTTP/1.1\r\nHost: adapter\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	wait(t, entered)
	conn.Close()
	wait(t, cancelled)
	wantCounter(t, reg, 1, "adapter_http_requests_total", "handler", "write", "code", "499")
}

// TestWriteLog: bad requests are logged, but a sender that repeats them does
// not fill the log.
func TestWriteLog(t *testing.T) {
	var lines syncBuffer
	clock := &fakeClock{now: time.Unix(1_700_000_000, 0)}
	url, _ := serve(t, &fakeEngine{}, func(cfg *remote.Config) {
		cfg.Logger = log.NewLogfmtLogger(&lines)
		cfg.Now = clock.Now
	})
	for range 5 {
		post(t, url+"/write", typeV1, v1(t, v1Series([]prompb.Sample{{}}, "job", "x"))).wantStatus(t, 400)
	}
	clock.advance(11 * time.Second)
	post(t, url+"/write", typeV1, v1(t, v1Series([]prompb.Sample{{}}, "job", "x"))).wantStatus(t, 400)
	got := strings.Split(strings.TrimSpace(lines.String()), "\n")
	if len(got) != 2 || !strings.Contains(got[0], "level=warn") || !strings.Contains(got[1], "unlogged=4") {
		t.Errorf("log:\n%s", strings.Join(got, "\n"))
	}
}
