package remote_test

import (
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/remotetest"
)

func TestMethods(t *testing.T) {
	url, reg := remotetest.Serve(t, &remotetest.Engine{}, nil)
	for _, test := range []struct{ method, path, allow string }{
		{http.MethodGet, "/api/v1/write", "POST"},
		{http.MethodPut, "/write", "POST"},
		{http.MethodGet, "/api/v1/read", "POST"},
		{http.MethodDelete, "/read", "POST"},
		{http.MethodPost, "/federate", "GET"},
		{http.MethodPut, "/api/v1/explain", "GET, POST"},
	} {
		t.Run(test.method+test.path, func(t *testing.T) {
			got := remotetest.Send(t, test.method, url+test.path, nil, nil)
			got.WantStatus(t, http.StatusMethodNotAllowed)
			if allow := got.Header.Get("Allow"); allow != test.allow {
				t.Errorf("Allow: %q, want %q", allow, test.allow)
			}
		})
	}
	remotetest.WantCounter(t, reg, 2, "adapter_http_requests_total", "handler", "write", "code", "405")
	remotetest.Send(t, http.MethodPost, url+"/api/v1/other", nil, nil).WantStatus(t, http.StatusNotFound)
}

// TestSnappyBomb: an announced size of 4 GiB, or of all that is allowed, takes no memory
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
				h := remote.New(remote.Config{Engine: &remotetest.Engine{}, Now: time.Now})
				const rounds = 20
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range rounds {
					w := remotetest.ServeOnce(h, path, remotetest.TypeV1, test.body)
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
