package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine"
)

// begin starts a request and returns its answer in a channel.
func begin(h http.Handler, method, target string, body io.Reader) <-chan *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, target, body), httptest.NewRecorder()
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		h.ServeHTTP(w, r)
		done <- w
	}()
	return done
}

// wantBusy checks the answer of a request that was turned away after waited.
func wantBusy(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" {
		t.Errorf("status %d, Retry-After %q, want 503 and 5", w.Code, w.Header().Get("Retry-After"))
	}
}

// block is the compressed body of a write of about size bytes, and how large it
// is when decompressed.
func block(t testing.TB, size int) (compressed []byte, decoded int) {
	body := v1(t, v1Series(make([]prompb.Sample, size/2), "__name__", "up"))
	return snappy.Encode(nil, body), len(body)
}

// TestWriteBytesInFlight: as many writes run as their decompressed bytes allow;
// the next waits ten seconds, and one that is larger than all of it has it to
// itself.
func TestWriteBytesInFlight(t *testing.T) {
	small, size := block(t, 1000)
	large, _ := block(t, 10_000)
	for _, test := range []struct {
		name  string
		total int
		body  []byte
		runs  int64 // of three that begin together
	}{
		{"all fit", 3 * size, small, 3},
		{"two fit", 3*size - 1, small, 2},
		{"one fits", size, small, 1},
		{"larger than the bound", size, large, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int64
				leave := make(chan struct{})
				eng := &fakeEngine{onAppend: func(context.Context, []engine.Series) (int, error) {
					running.Add(1)
					<-leave
					return 1, nil
				}}
				h := remote.New(remote.Config{Engine: eng, Now: time.Now, MaxWriteBytes: test.total})
				var answers []<-chan *httptest.ResponseRecorder
				for range 3 {
					answers = append(answers, begin(h, http.MethodPost, "/write", bytes.NewReader(test.body)))
					synctest.Wait()
				}
				if n := running.Load(); n != test.runs {
					t.Errorf("%d writes run, want %d", n, test.runs)
				}
				time.Sleep(10*time.Second + time.Millisecond)
				synctest.Wait()
				for _, answer := range answers[min(test.runs, running.Load()):] {
					wantBusy(t, <-answer)
				}
				close(leave)
				for _, answer := range answers[:running.Load()] {
					if w := <-answer; w.Code != http.StatusNoContent {
						t.Errorf("status %d %q", w.Code, w.Body)
					}
				}
				// All of it has been given back.
				if w := <-begin(h, http.MethodPost, "/write", bytes.NewReader(large)); w.Code != http.StatusNoContent {
					t.Errorf("afterwards: status %d %q", w.Code, w.Body)
				}
			})
		})
	}
}

// TestWriteBytesGivenBack: whatever ends a write, it keeps nothing.
func TestWriteBytesGivenBack(t *testing.T) {
	good, size := block(t, 1000)
	for _, test := range []struct {
		name   string
		body   []byte
		err    error
		status int
	}{
		{"stored", good, nil, 204},
		{"store fails", good, errStore, 503},
		{"corrupt block", append(bytes.Clone(good[:len(good)-1]), 0xff), nil, 400},
		{"corrupt message", snappy.Encode(nil, bytes.Repeat([]byte{7}, size)), nil, 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			eng := &fakeEngine{onAppend: func(context.Context, []engine.Series) (int, error) { return 1, test.err }}
			h := remote.New(remote.Config{Engine: eng, Now: time.Now, MaxWriteBytes: size, WriteTimeout: 5 * time.Second})
			for range 3 {
				if w := <-begin(h, http.MethodPost, "/write", bytes.NewReader(test.body)); w.Code != test.status {
					t.Fatalf("status %d %q, want %d", w.Code, w.Body, test.status)
				}
			}
		})
	}
}

// TestWriteBytesArriving: large bodies that are on their way are bounded as
// well; small ones do not wait for them.
func TestWriteBytesArriving(t *testing.T) {
	noise := make([]byte, 3<<20)
	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	small, _ := block(t, 1000)
	synctest.Test(t, func(t *testing.T) {
		h := remote.New(remote.Config{Engine: &fakeEngine{}, Now: time.Now, MaxWriteBytes: 4 << 20})
		body, arriving := io.Pipe()
		first := begin(h, http.MethodPost, "/write", body)
		if _, err := arriving.Write(noise[:2<<20]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		second := begin(h, http.MethodPost, "/write", bytes.NewReader(noise))
		if w := <-begin(h, http.MethodPost, "/write", bytes.NewReader(small)); w.Code != http.StatusNoContent {
			t.Errorf("small: status %d %q", w.Code, w.Body)
		}
		wantBusy(t, <-second)
		arriving.Close()
		<-first
		if w := <-begin(h, http.MethodPost, "/write", bytes.NewReader(noise)); w.Code != http.StatusBadRequest {
			t.Errorf("afterwards: status %d %q, want 400", w.Code, w.Body)
		}
	})
}

// TestWriteOneSeriesMemory: the samples of a large series are not copied as
// they become more.
func TestWriteOneSeriesMemory(t *testing.T) {
	const samples = 1 << 20
	all := []prompb.TimeSeries{v1Series(make([]prompb.Sample, samples), "__name__", "up")}
	for _, test := range []struct {
		name, contentType string
		body              []byte
	}{
		{"1.0", typeV1, v1(t, all...)},
		{"2.0", typeV2, marshal(t, toV2(all))},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := 0
			eng := &fakeEngine{onAppend: func(_ context.Context, batch []engine.Series) (int, error) {
				got = len(batch[0].Samples)
				return got, nil
			}}
			h := remote.New(remote.Config{Engine: eng, Now: time.Now})
			compressed := snappy.Encode(nil, test.body)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			w := serveOnce(h, "/write", test.contentType, compressed)
			runtime.ReadMemStats(&after)
			if w.Code != http.StatusNoContent || got != samples {
				t.Fatalf("status %d %q, %d samples", w.Code, w.Body, got)
			}
			limit := uint64(24*samples + len(test.body) + 4*len(compressed) + 1<<20)
			if used := after.TotalAlloc - before.TotalAlloc; used > limit {
				t.Errorf("%d bytes allocated for a body of %d, want no more than %d", used, len(test.body), limit)
			}
		})
	}
}

// TestReadGateWait: a read that finds no slot is told so well before a client
// gives up by itself.
func TestReadGateWait(t *testing.T) {
	for _, test := range []struct {
		name          string
		timeout, wait time.Duration
	}{
		{"default", 0, 30 * time.Second},
		{"an hour", time.Hour, 30 * time.Second},
		{"ten seconds", 10 * time.Second, 5 * time.Second},
	} {
		for _, target := range []string{"/read", "/federate?match[]=up", "/api/v1/explain?match[]=up"} {
			t.Run(test.name+target, func(t *testing.T) {
				body, method := []byte(nil), http.MethodGet
				if target == "/read" {
					body, method = snappy.Encode(nil, marshal(t, streamedRequest())), http.MethodPost
				}
				synctest.Test(t, func(t *testing.T) {
					leave := make(chan struct{})
					eng := &fakeEngine{onCurrent: func(context.Context, int64) error {
						<-leave
						return nil
					}}
					h := remote.New(remote.Config{Engine: eng, Now: time.Now, MaxConcurrentReads: 1, ReadTimeout: test.timeout})
					first := begin(h, http.MethodGet, "/federate?match[]=up", nil)
					synctest.Wait()
					second := begin(h, method, target, bytes.NewReader(body))
					time.Sleep(test.wait - time.Millisecond)
					synctest.Wait()
					if len(second) != 0 {
						t.Error("it did not wait long enough")
					}
					time.Sleep(2 * time.Millisecond)
					synctest.Wait()
					if len(second) != 1 {
						t.Error("it waits still")
					}
					close(leave)
					<-first
					wantBusy(t, <-second)
				})
			})
		}
	}
}

// oneConn is a listener of one connection.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	close(l.closed)
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestStuckClient: a client that takes nothing of its answer, however short, is
// cut off when the time is up.
func TestStuckClient(t *testing.T) {
	readBody := func(kind prompb.ReadRequest_ResponseType) string {
		req := streamedRequest()
		req.AcceptedResponseTypes = []prompb.ReadRequest_ResponseType{kind}
		return string(snappy.Encode(nil, marshal(t, req)))
	}
	for _, test := range []struct{ name, method, target, body string }{
		{"federate", "GET", "/federate?match[]=up", ""},
		{"federate, error", "GET", "/federate?match[]=%7B", ""},
		{"explain", "GET", "/api/v1/explain?match[]=up", ""},
		{"explain, error", "GET", "/api/v1/explain", ""},
		{"read, streamed", "POST", "/read", readBody(prompb.ReadRequest_STREAMED_XOR_CHUNKS)},
		{"read, samples", "POST", "/read", readBody(prompb.ReadRequest_SAMPLES)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eng := &fakeEngine{series: stock(), current: []engine.CurrentSample{{Labels: lset("__name__", "up"), T: 1, V: 1}}}
				here, there := net.Pipe() // holds no bytes
				closed := make(chan struct{})
				srv := &http.Server{
					Handler: remote.New(remote.Config{Engine: eng, Now: time.Now, ReadTimeout: time.Minute}),
					ConnState: func(_ net.Conn, s http.ConnState) {
						if s == http.StateClosed {
							close(closed)
						}
					},
				}
				l := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
				l.conn <- there
				go srv.Serve(l)
				fmt.Fprintf(here, "%s %s HTTP/1.1\r\nHost: adapter\r\nContent-Length: %d\r\n\r\n%s", test.method, test.target, len(test.body), test.body)
				select {
				case <-closed:
				case <-time.After(time.Hour):
					t.Error("after an hour it is still there")
				}
				here.Close()
				srv.Close()
			})
		})
	}
}

// TestFederateMaxMatches: the number of match[] is bounded.
func TestFederateMaxMatches(t *testing.T) {
	base, _ := serve(t, &fakeEngine{}, func(cfg *remote.Config) { cfg.MaxQueries = 3 })
	get := func(n int) answer {
		params := url.Values{}
		for i := range n {
			params.Add("match[]", fmt.Sprint("up", i))
		}
		return send(t, http.MethodGet, base+"/federate?"+params.Encode(), nil, nil)
	}
	get(3).wantStatus(t, http.StatusOK)
	got := get(4)
	got.wantStatus(t, http.StatusBadRequest)
	if !strings.Contains(got.body, "4 match[] parameters, the limit is 3") {
		t.Errorf("text %q", got.body)
	}
}

// TestReadOneBlock: an answer that no block can hold is refused, whatever the
// limit on samples is.
func TestReadOneBlock(t *testing.T) {
	const block = 3_681_400_511 // what snappy can take
	for _, test := range []struct {
		name          string
		maxSamples, n int
		ok            bool
	}{
		{"in the limit", 1, 1<<20 + 24, true},
		{"over the limit", 1, 1<<20 + 25, false},
		{"huge limit", math.MaxInt, 4 << 20, true},
		{"block", math.MaxInt, block, true},
		{"over the block", math.MaxInt, block + 1, false},
		{"4 GiB", 1 << 40, 4 << 30, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := remote.CheckAnswerBytes(test.maxSamples, test.n)
			if (err == nil) != test.ok || err != nil && !errors.Is(err, engine.ErrLimit) {
				t.Errorf("%v", err)
			}
			if _, fits := blockSize(test.n); test.ok && !fits {
				t.Error("snappy panics")
			}
		})
	}
}

func blockSize(n int) (size int, ok bool) {
	size = snappy.MaxEncodedLen(n)
	return size, size >= 0
}

// TestReadMaxSamplesUnbounded: without a bound on samples there is none on
// bytes, either.
func TestReadMaxSamplesUnbounded(t *testing.T) {
	all := bigSeries(4, 50_000)
	eng := &fakeEngine{onSelect: func(context.Context, engine.Query) (storage.ChunkSeriesSet, error) {
		return &fakeSet{series: all}, nil
	}}
	base, _ := serve(t, eng, func(cfg *remote.Config) { cfg.MaxSamples = math.MaxInt })
	got, err := read(t, base, prompb.ReadRequest_SAMPLES, query(0, 1))
	if err != nil || len(got) != len(all) {
		t.Errorf("%d series, error %v", len(got), err)
	}
}
