package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/util/httputil"

	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/request"
)

// TestRecovered: a request that panics is a 500, unless a part of its answer was written,
// which must not look complete. Other requests continue.
func TestRecovered(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		status  int // 0 is a connection that ends
		logged  bool
	}{
		{"good", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, http.StatusNoContent, false},
		{"at once", func(http.ResponseWriter, *http.Request) { panic("a defect") }, http.StatusInternalServerError, true},
		{"after a header is set", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "7")
			panic("a defect")
		}, http.StatusInternalServerError, true},
		{"in the middle", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			panic("a defect")
		}, 0, true},
		{"after a flush", func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			panic("a defect")
		}, 0, true},
		{"cut off", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var logged bytes.Buffer
			s := &server{logger: log.NewLogfmtLogger(log.NewSyncWriter(&logged))}
			server := httptest.NewServer(s.counted(s.recovered(tt.handler)))
			t.Cleanup(server.Close)
			for range 2 {
				status := 0
				resp, err := server.Client().Get(server.URL)
				if err == nil {
					if _, err = io.Copy(io.Discard, resp.Body); err == nil {
						status = resp.StatusCode
					}
					resp.Body.Close()
				}
				if status != tt.status {
					t.Errorf("status %d, want %d, error %v", status, tt.status, err)
				}
			}
			server.Close()
			if has := strings.Contains(logged.String(), `panic="a defect"`) && strings.Contains(logged.String(), "server_test.go"); has != tt.logged {
				t.Errorf("the log says %q", logged.String())
			}
		})
	}
}

// TestRecoveredHeaders: a client can read the 500 of a request that panicked, even if it
// accepts gzip. The 500 has none of the headers of the answer that was not written, but
// those that --web.config.file adds to every answer.
func TestRecoveredHeaders(t *testing.T) {
	withoutEngine, err := api.New(api.Config{Now: time.Now}) // it panics at a query
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := withoutEngine.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, tt := range []struct {
		name    string
		handler http.Handler
	}{
		{"headers of a body", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for _, name := range []string{"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Length", "Content-Type", "Etag", "Last-Modified", "Strict-Transport-Security", "Vary", http.TrailerPrefix + "X"} {
				w.Header().Set(name, "7")
			}
			panic("a defect")
		})},
		{"a header is removed", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			clear(w.Header())
			panic("a defect")
		})},
		{"within the compression of the API", httputil.CompressionHandler{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a defect") })}},
		{"within our own compression", request.Compressed(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a defect") }))},
		{"the API", withoutEngine},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &server{logger: log.NewNopLogger()}
			recovered := s.recovered(tt.handler)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Strict-Transport-Security", "max-age=60")
				recovered.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			resp, err := server.Client().Get(server.URL + "/api/v1/labels") // it asks for gzip
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if want := "The adapter has a defect, its log says more.\n"; err != nil || resp.StatusCode != http.StatusInternalServerError || string(body) != want {
				t.Errorf("status %d, body %q, %v", resp.StatusCode, body, err)
			}
			resp.Header.Del("Date")
			if want := (http.Header{
				"Content-Length":            {"45"},
				"Content-Type":              {"text/plain; charset=utf-8"},
				"Strict-Transport-Security": {"max-age=60"},
				"X-Content-Type-Options":    {"nosniff"},
			}); !reflect.DeepEqual(resp.Header, want) {
				t.Errorf("headers %v, want %v", resp.Header, want)
			}
		})
	}
}
