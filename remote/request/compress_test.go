package request_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/promtable/promtable/remote/request"
)

// TestCompressed: a large answer is compressed if the client takes that, with the same status.
func TestCompressed(t *testing.T) {
	large, small := strings.Repeat(`{"status":"success"}`, 1000), "{}"
	for _, tt := range []struct {
		name, accept, body, want string
	}{
		{"large", "gzip", large, "gzip"},
		{"a browser", "gzip, deflate, br, zstd", large, "gzip"},
		{"another encoding", "zstd", large, ""},
		{"none", "", large, ""},
		{"small", "gzip", small, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := request.Compressed(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", strconv.Itoa(len(tt.body)))
				w.WriteHeader(http.StatusTeapot)
				_, _ = io.WriteString(w, tt.body)
			}))
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Accept-Encoding", tt.accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if got := w.Header().Get("Content-Encoding"); got != tt.want || w.Code != http.StatusTeapot || w.Header().Get("Vary") != "Accept-Encoding" {
				t.Fatalf("%d %v", w.Code, w.Header())
			}
			var body io.Reader = w.Body
			if tt.want == "gzip" {
				if w.Body.Len() > len(tt.body)/10 || w.Header().Get("Content-Length") != "" {
					t.Errorf("%d bytes, %v", w.Body.Len(), w.Header())
				}
				var err error
				if body, err = gzip.NewReader(w.Body); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := io.ReadAll(body); err != nil || string(got) != tt.body {
				t.Errorf("%d bytes, %v, want %d", len(got), err, len(tt.body))
			}
		})
	}
}
