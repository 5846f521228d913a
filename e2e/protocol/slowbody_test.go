package protocol

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/e2e/harness"
)

// TestSlowBodies: a client that announces a body and does not send it gets its answer all the same, at the
// deadline of its request or before, and the connection is closed. The server does not wait for a body that it
// does not read, either.
func TestSlowBodies(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t), "--write.timeout=300ms", "--read.timeout=300ms", "--query.timeout=300ms", "--web.enable-admin-api")
	const form, v1, timeout = "application/x-www-form-urlencoded", "application/x-protobuf", http.StatusServiceUnavailable
	for _, tt := range []struct {
		request, contentType string
		status               int
	}{
		{"POST /api/v1/write", v1, timeout},
		{"POST /write", v1 + ";proto=io.prometheus.write.v2.Request", timeout},
		{"POST /api/v1/otlp/v1/metrics", v1, timeout},
		{"POST /api/v1/otlp/v1/metrics", "application/json", timeout},
		{"POST /api/v1/read", v1, timeout},
		{"POST /api/v1/query", form, timeout},
		{"POST /api/v1/query", "multipart/form-data; boundary=x", timeout},
		{"POST /api/v1/query_range", form, timeout},
		{"POST /api/v1/query_exemplars", form, timeout},
		{"POST /api/v1/format_query", form, timeout},
		{"POST /api/v1/parse_query", form, timeout},
		{"POST /api/v1/series", form, timeout},
		{"POST /api/v1/labels", form, timeout},
		{"POST /api/v1/explain", form, timeout},
		{"POST /api/v1/admin/tsdb/delete_series", form, timeout},
		{"PUT /api/v1/admin/tsdb/clean_tombstones", form, timeout},
		{"POST /api/v1/admin/import", v1, http.StatusBadRequest}, // without parameters
		{"POST /api/v1/write", "text/plain", http.StatusUnsupportedMediaType},
		{"DELETE /api/v1/write", v1, http.StatusMethodNotAllowed},
		{"POST /nothing", form, http.StatusNotFound},
		{"GET /api/v1/labels", "text/plain", http.StatusOK},
		{"GET /metrics", "text/plain", http.StatusOK},
		{"GET /-/ready", "text/plain", http.StatusOK},
	} {
		for name, body := range map[string]string{"length": "Content-Length: 200000\r\n\r\nab", "chunked": "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"} {
			t.Run(tt.request+" "+tt.contentType+" "+name, func(t *testing.T) {
				t.Parallel()
				conn, err := net.Dial("tcp", a.Addr)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil { // for a server that waits for ever
					t.Fatal(err)
				}
				if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\n%s", tt.request, a.Addr, tt.contentType, body); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(resp.Body)
				if resp.StatusCode != tt.status || err != nil {
					t.Errorf("status %d, %v: %.200s", resp.StatusCode, err, text)
				}
				if resp.StatusCode == timeout && !strings.Contains(string(text), "timeout") {
					t.Errorf("the answer does not say why: %s", text)
				}
				if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("the connection is open: %v", err)
				}
			})
		}
	}
}
