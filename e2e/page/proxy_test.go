//go:build browser

package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/promtable/promtable/e2e/harness"
)

// proxied is the path under which the page is in these tests.
const proxied = "/some/prefix"

// startProxied starts an adapter behind a proxy that serves it under proxied, and returns the host of the proxy.
func startProxied(t testing.TB, strips bool) string {
	t.Helper()
	var target atomic.Pointer[url.URL]
	strip := func(h http.Handler) http.Handler { return h }
	if strips {
		strip = func(h http.Handler) http.Handler { return http.StripPrefix(proxied, h) }
	}
	forward := strip(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target.Load()) }})
	mux := http.NewServeMux()
	mux.Handle(proxied+"/", forward)
	proxy := httptest.NewServer(mux)
	t.Cleanup(proxy.Close)
	args := []string{"--web.external-url=" + proxy.URL + proxied + "/"}
	if strips {
		args = append(args, "--web.route-prefix=/")
	}
	a := harness.StartAdapter(t, harness.Embedded(t), args...)
	target.Store(&url.URL{Scheme: "http", Host: a.Addr})
	if line := strings.TrimSpace(a.WaitLine(t, `msg="ready to serve"`)); !strings.HasSuffix(line, " page="+proxy.URL+proxied+"/") ||
		!strings.Contains(line, " remote_write="+proxy.URL+proxied+"/api/v1/write ") {
		t.Errorf("the log says %s", line)
	}
	fillPaged(t, proxy.URL+proxied)
	if !strips {
		if resp := harness.MustGet(t, a.URL(proxied+"/-/healthy"), nil); resp.Status != http.StatusOK {
			t.Errorf("the health under the prefix: %v", resp)
		}
	}
	return strings.TrimPrefix(proxy.URL, "http://")
}

// TestPageProxy uses the page under a path of a reverse proxy, which removes the path, or does not.
func TestPageProxy(t *testing.T) {
	t.Parallel()
	for _, strips := range []bool{true, false} {
		t.Run(fmt.Sprintf("strips=%t", strips), func(t *testing.T) {
			host := startProxied(t, strips)
			p := startBrowser(t, host)
			p.path = proxied
			for _, v := range pageViews() {
				p.view(v, p.open)
			}
			p.load() // whose tabs are as they were never left
			for _, tab := range evaluate[[]string](p, `[...document.querySelectorAll("nav a")].map((a) => a.dataset.tab)`) {
				p.click("nav a[data-tab=" + tab + "]")
				p.wantParameters("tab", tab)
			}
			p.click("h1 a")
			p.open("expr", "page_gauge")
			p.wantRows(0, pageGauges())
			p.reload()
			p.wantRows(0, pageGauges())
			for _, path := range []string{"/graph", "/query"} {
				p.do(chromedp.Navigate("http://" + host + proxied + path + "?g0.expr=page_gauge&g0.tab=1"))
				p.settle()
				p.wantParameters("expr", "page_gauge", "view", "table")
				p.wantRows(0, pageGauges())
			}
			p.open("tab", "status")
			if got := p.texts("pre"); len(got) != 1 || !strings.Contains(got[0], "url: http://"+host+proxied+"/api/v1/write\n") {
				t.Errorf("for prometheus.yml: %q", got)
			}
			for _, link := range evaluate[[]string](p, `[...document.querySelectorAll("#status .result a:not([href^='?'])")].map((a) => a.href)`) {
				if resp := harness.MustGet(t, link, nil); resp.Status != http.StatusOK {
					t.Errorf("%s: %d", link, resp.Status)
				}
			}
			if problems := p.takeProblems(); len(problems) > 0 {
				t.Errorf("in the page: %q", problems)
			}
			checkGrafanaCalls(t, "http://"+host+proxied)
		})
	}
}

// TestPageProxyError: of an error page of a proxy the page says what it is about, and does not show its markup.
func TestPageProxyError(t *testing.T) {
	t.Parallel()
	a := startPaged(t)
	target := &url.URL{Scheme: "http", Host: a.Addr}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	var page atomic.Pointer[string]
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := page.Load(); text != nil && strings.HasPrefix(r.URL.Path, "/api/") {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusGatewayTimeout)
			fmt.Fprint(w, *text)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	p := startBrowser(t, strings.TrimPrefix(proxy.URL, "http://"))
	p.open()
	for text, want := range map[string]string{
		"<html>\r\n<head><title>504 Gateway Time-out</title></head>\r\n<body><center><h1>504 Gateway Time-out</h1></center></body></html>": ` It says: "504 Gateway Time-out".`,
		"<!doctype html><style>p { color: red }</style><body style='color: red'><p>Please <b>log in</b>":                                   ` It says: "Please log in".`,
		"<html><body><script>alert(1)</script><img src=x onerror=alert(1)>":                                                                "",
	} {
		page.Store(&text)
		p.open("expr", "page_gauge")
		if got := p.texts("[role=alert]"); !slices.Equal(got, []string{"504 Gateway Timeout, from a proxy or gateway in front of the adapter." + want}) {
			t.Errorf("of %s the page says %q", text, got)
		}
		p.open()
	}
	if problems := p.takeProblems(); slices.ContainsFunc(problems, func(text string) bool { return !strings.HasPrefix(text, "504 for ") }) {
		t.Errorf("in the page: %q", problems)
	}
}

// checkGrafanaCalls asks as a data source of Grafana does, whose URL has the path.
func checkGrafanaCalls(t *testing.T, base string) {
	t.Helper()
	for path, form := range map[string]url.Values{
		"/api/v1/query":        {"query": {"1+1"}, "time": {"1"}},
		"/api/v1/query_range":  {"query": {"page_gauge"}, "start": {"0"}, "end": {"60"}, "step": {"60"}},
		"/api/v1/labels":       {},
		"/api/v1/series":       {"match[]": {"page_gauge"}},
		"/api/v1/format_query": {"query": {"a"}},
	} {
		resp, err := http.PostForm(base+path, form)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("POST %s: %s", path, resp.Status)
		}
	}
	for _, path := range []string{"/api/v1/status/buildinfo", "/api/v1/label/instance/values", "/api/v1/metadata", "/api/v1/rules", "/metrics", "/-/ready", "/federate", "/debug/pprof/"} {
		if resp := harness.MustGet(t, base+path, nil); resp.Status != http.StatusOK {
			t.Errorf("GET %s: %d", path, resp.Status)
		}
	}
}

// TestPageOtherOrigin asks the API from pages of other origins: one that is allowed, and one that is not.
func TestPageOtherOrigin(t *testing.T) {
	t.Parallel()
	other := func() string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<title>other</title>") }))
		t.Cleanup(s.Close)
		return s.URL
	}
	allowed, refused := other(), other()
	a := startPaged(t, "--web.cors.origin="+strings.ReplaceAll(allowed, ".", `\.`))
	p := startBrowser(t, a.Addr) // whose requests fail, as they must
	for origin, wants := range map[string]map[string]string{
		allowed: {"api/v1/query": "success", "api/v1/explain": "success", "metrics": "refused", "": "refused", "api/v1/admin/tsdb/delete_series": "refused"},
		refused: {"api/v1/query": "refused", "api/v1/explain": "refused"},
	} {
		p.do(chromedp.Navigate(origin))
		for path, want := range wants {
			// Cache-Control makes the browser ask first whether it may.
			evaluate[bool](p, fmt.Sprintf(`(() => {
				window.said = undefined;
				fetch(%q, { method: "POST", headers: { "Cache-Control": "no-cache" }, body: new URLSearchParams({ %s: "page_gauge" }) })
					.then((response) => response.json()).then(({ status }) => window.said = status, () => window.said = "refused");
				return true;
			})()`, a.URL("/"+path), map[bool]string{true: `"match[]"`, false: "query"}[strings.HasSuffix(path, "explain")]))
			p.await("window.said !== undefined")
			if got := evaluate[string](p, "window.said"); got != want {
				t.Errorf("a page of %s asks %s: %s, want %s", origin, path, got, want)
			}
		}
	}
}
