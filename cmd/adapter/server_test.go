package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-kit/log"
)

// TestRecovered: a request that panics is a 500, but for one that is answered in
// part, which must not look whole. The others go on.
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
			s := &server{logger: log.NewLogfmtLogger(&logged)}
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
