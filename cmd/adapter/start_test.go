package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/remote/wire/wiretest"
)

// TestServesDuringReplay: a replay may take longer than storeTimeout. Meanwhile the adapter
// is alive and has metrics, and clients shall retry.
func TestServesDuringReplay(t *testing.T) {
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	var hold sync.Once
	held := make(chan struct{})
	addr := bigtabletest.Serve(t, bigtabletest.WithMutateRowsHook(func(key string) error {
		if strings.HasPrefix(key, "held") {
			hold.Do(func() { close(held) })
			<-released
		}
		return nil
	}))
	t.Setenv("BIGTABLE_EMULATOR_HOST", addr)
	o, err := parseFlags([]string{
		"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i", "--self-scrape-interval=0s",
		"--buffer.enabled", "--buffer.path=" + t.TempDir(), "--web.listen-address=127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	listening := make(chan string, 1)
	o.netListen = func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		if err == nil {
			listening <- l.Addr().String()
		}
		return l, err
	}
	leaveLog(t, o)

	const patience = time.Minute
	o.storeTimeout = 5 * time.Second
	begun := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o, log.NewNopLogger()) }()
	base := "http://" + <-listening
	select {
	case <-held:
	case err := <-ended:
		t.Fatalf("the start ended: %v", err)
	case <-time.After(patience):
		t.Fatal("nothing is replayed")
	}

	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/-/healthy", http.StatusOK},
		{"GET", "/metrics", http.StatusOK},
		{"GET", "/-/ready", http.StatusServiceUnavailable},
		{"POST", "/api/v1/write", http.StatusServiceUnavailable},
		{"POST", "/api/v1/read", http.StatusServiceUnavailable},
		{"GET", "/api/v1/query?query=1", http.StatusServiceUnavailable},
		{"GET", "/", http.StatusServiceUnavailable},
	} {
		status, header, body := ask(t, tt.method, base+tt.path)
		if status != tt.status || (status == http.StatusOK) == (header.Get("Retry-After") != "") {
			t.Errorf("%s %s: %d, Retry-After %q", tt.method, tt.path, status, header.Get("Retry-After"))
		}
		if tt.path == "/metrics" && !strings.Contains(body, "\nadapter_buffer_replay_progress_ratio 1\n") {
			t.Error("no metric for the progress of the replay")
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/graph", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusServiceUnavailable || !strings.HasPrefix(string(page), "<!doctype html>") || !strings.Contains(string(page), `http-equiv="refresh"`) || !strings.Contains(string(page), "replays its log") {
		t.Errorf("a browser is answered %d, %v:\n%s", answer.StatusCode, err, page)
	}
	opening, cancel := context.WithDeadline(t.Context(), begun.Add(o.storeTimeout))
	defer cancel()
	<-opening.Done() // a deadline for the whole start would have passed
	release()
	for deadline := time.Now().Add(patience); ; {
		status, _, _ := ask(t, "GET", base+"/-/ready")
		if status == http.StatusOK {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the start ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the adapter does not become ready")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestBigtableIsDown: an adapter whose Bigtable cannot be reached says so, with the address,
// in its log and in its answers, and serves as soon as it can. While it serves, an outage is
// a 503, and the adapter goes on after it.
func TestBigtableIsDown(t *testing.T) {
	proxy := bigtabletest.NewProxy(t, bigtabletest.Serve(t))
	proxy.SetDown(true)
	t.Setenv("BIGTABLE_EMULATOR_HOST", proxy.Addr)
	o, err := parseFlags([]string{
		"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i", "--self-scrape-interval=0s",
		"--web.listen-address=127.0.0.1:0", "--write.timeout=500ms",
	})
	if err != nil {
		t.Fatal(err)
	}
	o.reachTimeout = 100 * time.Millisecond
	listening := make(chan string, 1)
	o.netListen = func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		if err == nil {
			listening <- l.Addr().String()
		}
		return l, err
	}
	var logged syncBuffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o, log.NewLogfmtLogger(&logged)) }()
	base := "http://" + <-listening
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !done(); {
			select {
			case err := <-ended:
				t.Fatalf("the adapter ended: %v", err)
			case <-time.After(10 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: not within a minute; the log is\n%s", what, logged.String())
			}
		}
	}
	write := func() int {
		body := wiretest.V1(t, wiretest.V1Series([]prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: 1}}, "__name__", "up"))
		resp, err := http.Post(base+"/api/v1/write", "application/x-protobuf", bytes.NewReader(snappy.Encode(nil, body)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}

	until("an answer that names the address", func() bool {
		status, header, body := ask(t, "POST", base+"/api/v1/write")
		if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
			t.Fatalf("status %d, headers %v", status, header)
		}
		return strings.Contains(body, "does not answer at "+proxy.Addr)
	})
	if !strings.Contains(logged.String(), "does not answer at "+proxy.Addr) {
		t.Errorf("the log is\n%s", logged.String())
	}
	proxy.SetDown(false)
	until("ready", func() bool {
		status, _, _ := ask(t, "GET", base+"/-/ready")
		return status == http.StatusOK
	})
	until("a write", func() bool { return write() == http.StatusNoContent })
	proxy.SetDown(true)
	until("an outage", func() bool { return write() == http.StatusServiceUnavailable })
	proxy.SetDown(false)
	until("a write after the outage", func() bool { return write() == http.StatusNoContent })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A syncBuffer may be written and read at the same time.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestStopDuringStart: a stop while the adapter is not ready is no failure.
func TestStopDuringStart(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	o, err := parseFlags([]string{"--storage.path=" + t.TempDir(), "--web.listen-address=127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := run(ctx, o, log.NewNopLogger()); err != nil {
		t.Error(err)
	}
}

func ask(t *testing.T, method, url string) (status int, header http.Header, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
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
	return resp.StatusCode, resp.Header, string(text)
}

// leaveLog leaves a log with a sample of the series held in the directory of the buffer, as
// a process that dies does.
func leaveLog(t *testing.T, o *options) {
	t.Helper()
	schema, err := newSchema(o)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := openStore(t.Context(), o, log.NewNopLogger(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
	}()
	copied := *o
	copied.bufferPath = t.TempDir()
	terms, err := newTerms(t.Context(), &copied, schema, rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := bindLog(t.Context(), &copied, terms, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := buffer.Open(t.Context(), dir, buffer.Config{Store: deafStore{rows}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Append(t.Context(), []bucketstore.Sample{{Ref: b.Ref([]byte("held")), T: time.Now().UnixMilli(), V: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(o.bufferPath, os.DirFS(copied.bufferPath)); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// deafStore discards the samples that it is given, and stays open.
type deafStore struct{ bucketstore.Store }

func (s deafStore) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if table == bucketstore.Metric {
		return nil
	}
	return s.Store.Apply(ctx, table, muts)
}

func (deafStore) Close() error { return nil }

// TestAdviseLog: the error says which flags to change.
func TestAdviseLog(t *testing.T) {
	o := &options{bufferPath: "here"}
	for _, tt := range []struct {
		err  error
		want []string
	}{
		{nil, nil},
		{fmt.Errorf("x: %w", buffer.ErrForeignLog), []string{"--buffer.path", "here"}},
		{&buffer.LostLogError{Dir: "here"}, []string{"--buffer.path=", "--buffer.discard-lost-log="}},
		{fmt.Errorf("x: %w", syscall.ENOSPC), []string{"--buffer.path=here", "free some space", "--no-buffer.enabled"}},
		{errors.New("disk"), []string{"disk"}},
	} {
		got := adviseLog(o, tt.err)
		if (got == nil) != (tt.err == nil) || !errors.Is(got, tt.err) {
			t.Errorf("%v became %v", tt.err, got)
		}
		for _, want := range tt.want {
			if !strings.Contains(fmt.Sprint(got), want) {
				t.Errorf("%v does not say %s", got, want)
			}
		}
	}
}

// TestStartingProgress: a request during the replay is told how much of the log is replayed, as text and as a page, and the reason is no HTML.
func TestStartingProgress(t *testing.T) {
	s := &server{reg: prometheus.NewRegistry()}
	replayed := prometheus.NewGauge(prometheus.GaugeOpts{Name: buffer.ReplayMetric})
	s.reg.MustRegister(replayed)
	for part, want := range map[float64]string{0: "<wait>", 0.439: "<wait> It has replayed 43 % of its log.", 1: "<wait>"} {
		replayed.Set(part)
		for accept, text := range map[string]string{"*/*": want + "\n", "text/html": "<p>" + html.EscapeString(want) + "</p>"} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			s.starting(w, r, "<wait>")
			if got := w.Body.String(); w.Code != http.StatusServiceUnavailable || !strings.Contains(got, text) {
				t.Errorf("%v, %s: %d %q, want %q", part, accept, w.Code, got, text)
			}
		}
	}
}
