package api

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestCompressed wants large answers to be compressed for clients that take that, those of Prometheus' API and our own.
func TestCompressed(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t))
	var series []harness.SentSeries
	for i := range 200 {
		series = append(series, harness.SentSeries{Labels: []string{"__name__", "many", "n", fmt.Sprintf("%03d", i)}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), float64(i))}})
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), series...)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	ask := func(target, accept string) *http.Response {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, a.URL(target), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", accept)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	selector := url.QueryEscape(`{__name__=~"many"}`)
	for _, target := range []string{
		"/api/v1/query?query=many", "/api/v1/series?match[]=many", "/api/v1/current", "/federate?match[]=many",
		"/api/v1/status/tsdb?limit=100", "/api/v1/status/adapter", "/api/v1/explain?match[]=" + selector + "&match[]=" + selector + "&match[]=" + selector, "/metrics",
	} {
		plain, small := ask(target, "identity"), ask(target, "gzip, deflate, br, zstd")
		want, err := io.ReadAll(plain.Body)
		if err != nil || plain.Header.Get("Content-Encoding") != "" || plain.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %v, %v", target, plain.StatusCode, plain.Header, err)
		}
		counted := &counter{Reader: small.Body}
		if small.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s, of %d bytes, is not compressed: %v", target, len(want), small.Header)
			continue
		}
		r, err := gzip.NewReader(counted)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || len(got) < len(want)/2 || counted.n > len(got)/2 { // ages and times differ
			t.Errorf("%s: %d bytes are %d behind gzip, and %d without: %v", target, counted.n, len(got), len(want), err)
		}
	}
}

// A counter counts what is read.
type counter struct {
	io.Reader
	n int
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += n
	return n, err
}
