package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
)

// TestWebFlags: what the flags mean for paths and for links.
func TestWebFlags(t *testing.T) {
	const local = "http://localhost:9201"
	for _, tt := range []struct {
		external, route   string
		prefix, own, link string
		err               string
	}{
		{own: local, link: local},
		{external: "https://metrics.example", own: local, link: "https://metrics.example"},
		{external: "https://metrics.example:8443/a/b/", prefix: "/a/b", own: local + "/a/b", link: "https://metrics.example:8443/a/b"},
		{external: "https://metrics.example/a/b", route: "/", own: local, link: "https://metrics.example/a/b"},
		{external: "http://metrics.example/a", route: "b/c/", prefix: "/b/c", own: local + "/b/c", link: "http://metrics.example/a"},
		{external: "/a/", prefix: "/a", own: local + "/a", link: local + "/a"},
		{external: "/a", route: "/", own: local, link: local + "/a"},
		{external: "/", own: local, link: local},
		{route: "a-1_x.y", prefix: "/a-1_x.y", own: local + "/a-1_x.y", link: local + "/a-1_x.y"},
		{external: "metrics.example/a", err: "give a URL such as"},
		{external: "ftp://metrics.example/", err: "give a URL such as"},
		{external: "mailto:a", err: "give a URL such as"},
		{external: `"http://metrics.example/"`, err: "--web.external-url"},
		{external: "http://me:secret@metrics.example/", err: "without user"},
		{external: "http://metrics.example/?a=b", err: "without user"},
		{external: "http://metrics.example/{a}/", err: "--web.external-url: the path /{a}"},
		{route: "/a/{$}", err: "--web.route-prefix: the path /a/{$}"},
		{route: "/a/../b", err: "--web.route-prefix: the path"},
		{route: "/a//b", err: "--web.route-prefix: the path"},
		{route: "a b", err: "--web.route-prefix: the path"},
	} {
		t.Run(tt.external+" "+tt.route, func(t *testing.T) {
			var args []string
			if tt.external != "" {
				args = append(args, "--web.external-url="+tt.external)
			}
			if tt.route != "" {
				args = append(args, "--web.route-prefix="+tt.route)
			}
			o, err := parseFlags(args)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("the error is %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			s := &server{o: o, scheme: "http", listeners: []net.Listener{anyAddress{}}}
			if o.web.prefix != tt.prefix || s.own() != tt.own || s.link() != tt.link {
				t.Errorf("prefix %q, own %s, link %s, want %q, %s, %s", o.web.prefix, s.own(), s.link(), tt.prefix, tt.own, tt.link)
			}
		})
	}
	if _, err := parseFlags([]string{"--web.cors.origin=("}); err == nil || !strings.Contains(err.Error(), "--web.cors.origin") {
		t.Errorf("of a regular expression that is none: %v", err)
	}
	for _, host := range []string{"https://metrics.example", "metrics.example:9201", "metrics.example/a", "[::1]:9201", "a b", "me@metrics.example", "."} {
		if _, err := parseFlags([]string{"--web.enable-admin-api", "--web.allowed-hosts=metrics.example," + host}); err == nil || !strings.Contains(err.Error(), "--web.allowed-hosts="+host) {
			t.Errorf("a host %q: %v", host, err)
		}
	}
}

// anyAddress listens nowhere, and says it does on all addresses of port 9201.
type anyAddress struct{ net.Listener }

func (anyAddress) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv6unspecified, Port: 9201} }

// startRoutes returns the routes of a ready server with flags. The handlers say who they are, and the path that they see.
func startRoutes(t *testing.T, args ...string) http.Handler {
	t.Helper()
	o, err := parseFlags(args)
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Promtable-Series", "7")
			fmt.Fprintf(w, "%s %s%s", name, r.URL.Path, r.Header.Get("Origin"))
		})
	}
	s := &server{o: o, logger: log.NewNopLogger(), reg: prometheus.NewRegistry()}
	s.ready.Store(true)
	return s.serving(s.routes(handlers{protocols: named("protocols"), queries: named("queries"), page: named("page")})).all
}

func askRoute(h http.Handler, method, target string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// TestRoutePrefix: all endpoints live under the prefix, and / leads there.
func TestRoutePrefix(t *testing.T) {
	for prefix, h := range map[string]http.Handler{
		"":       startRoutes(t),
		"/a/b":   startRoutes(t, "--web.external-url=http://metrics.example/a/b/"),
		"/other": startRoutes(t, "--web.external-url=http://metrics.example/a/b/", "--web.route-prefix=/other"),
	} {
		for _, tt := range []struct{ method, path, want string }{
			{"GET", "/", "page /"},
			{"GET", "/ui/app.js", "page /ui/app.js"},
			{"GET", "/graph", "page /graph"},
			{"GET", "/api/v1/query", "queries /api/v1/query"},
			{"POST", "/api/v1/query_range", "queries /api/v1/query_range"},
			{"GET", "/api/v1/label/a%2Fb/values", "queries /api/v1/label/a/b/values"},
			{"POST", "/api/v1/admin/tsdb/snapshot", "queries /api/v1/admin/tsdb/snapshot"},
			{"GET", "/api/v1/explain", "protocols /api/v1/explain"},
			{"POST", "/api/v1/write", "protocols /api/v1/write"},
			{"POST", "/write", "protocols /write"},
			{"GET", "/federate", "protocols /federate"},
			{"GET", "/-/healthy", "The adapter is healthy.\n"},
			{"GET", "/-/ready", "The adapter is ready.\n"},
			{"GET", "/metrics", ""},
			{"GET", "/debug/pprof/cmdline", ""},
		} {
			resp := askRoute(h, tt.method, prefix+tt.path)
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK || tt.want != "" && string(body) != tt.want {
				t.Errorf("%s %s%s: %d %q, %v", tt.method, prefix, tt.path, resp.StatusCode, body, err)
			}
			if resp := askRoute(h, tt.method, tt.path); prefix != "" && tt.path != "/" && resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s %s without its prefix: %d", tt.method, tt.path, resp.StatusCode)
			}
		}
		for from, to := range map[string]string{prefix + "/debug/pprof": prefix + "/debug/pprof/", prefix + "//graph?a=b": prefix + "/graph?a=b"} {
			if resp := askRoute(h, "GET", from); resp.StatusCode/100 != 3 || resp.Header.Get("Location") != to {
				t.Errorf("%s: %d to %q, want %s", from, resp.StatusCode, resp.Header.Get("Location"), to)
			}
		}
		if prefix == "" {
			continue
		}
		for _, from := range []string{"/", prefix} {
			if resp := askRoute(h, "GET", from+"?tab=status"); resp.StatusCode/100 != 3 || resp.Header.Get("Location") != prefix+"/?tab=status" {
				t.Errorf("%s: %d to %q", from, resp.StatusCode, resp.Header.Get("Location"))
			}
		}
	}
}

// TestCORS: pages of the origins that are named may ask the HTTP API, and nothing else.
func TestCORS(t *testing.T) {
	named := startRoutes(t, `--web.cors.origin=https?://(one|two)\.example`, "--web.external-url=/a/")
	none := startRoutes(t, "--web.external-url=/a/")
	for _, tt := range []struct {
		path, origin string
		api          bool
	}{
		{"/api/v1/query", "https://one.example", true},
		{"/api/v1/query", "http://two.example", true},
		{"/api/v1/label/job/values", "http://two.example", true},
		{"/api/v1/explain", "http://two.example", true},
		{"/api/v1/status/tsdb", "http://two.example", true},
		{"/api/v1/query", "https://one.example.evil", false},
		{"/api/v1/query", "https://three.example", false},
		{"/api/v1/query", "null", false},
		{"/api/v1/query", "", false},
		{"/", "https://one.example", false},
		{"/metrics", "https://one.example", false},
		{"/api/v1/write", "https://one.example", false},
		{"/api/v1/read", "https://one.example", false},
		{"/federate", "https://one.example", false},
		{"/api/v1/admin/tsdb/delete_series", "https://one.example", false},
		{"/api/v1/admin/import", "https://one.example", false},
	} {
		for server, h := range map[string]http.Handler{"named": named, "none": none} {
			for _, method := range []string{"GET", "POST", "OPTIONS"} {
				if isQuery := tt.path == "/api/v1/query" || tt.path == "/api/v1/explain"; method == "POST" && tt.api && !isQuery {
					continue // it is asked by GET only
				}
				t.Run(strings.Join([]string{server, method, tt.path, tt.origin}, " "), func(t *testing.T) {
					resp := askRoute(h, method, "/a"+tt.path, "Origin", tt.origin, "Access-Control-Request-Method", "POST")
					header := resp.Header
					want := ""
					if server == "named" && tt.api {
						want = tt.origin
					}
					if got := header.Get("Access-Control-Allow-Origin"); got != want {
						t.Errorf("the allowed origin is %q, want %q", got, want)
					}
					if header.Get("Access-Control-Allow-Credentials") != "" {
						t.Error("credentials are allowed")
					}
					isPreflight := method == "OPTIONS" && want != ""
					if got := header.Get("Access-Control-Allow-Methods"); (got == "GET, POST, OPTIONS") != isPreflight || (got == "") == isPreflight {
						t.Errorf("the allowed methods are %q", got)
					}
					if got := header.Get("Access-Control-Allow-Headers"); strings.Contains(got, "Authorization") != isPreflight || strings.Contains(got, "Content-Type") != isPreflight {
						t.Errorf("the allowed headers are %q", got)
					}
					if method == "OPTIONS" && tt.api && resp.StatusCode != http.StatusNoContent {
						t.Errorf("status %d", resp.StatusCode)
					}
					if want != "" && !strings.Contains(strings.Join(header.Values("Vary"), ","), "Origin") {
						t.Errorf("it varies by %q", header.Values("Vary"))
					}
					if want != "" && !isPreflight {
						body, err := io.ReadAll(resp.Body)
						if err != nil || resp.StatusCode == http.StatusOK && strings.Contains(string(body), "example") || !strings.Contains(header.Get("Access-Control-Expose-Headers"), "X-Promtable-Series") {
							t.Errorf("%d %q %v, %v", resp.StatusCode, body, header, err)
						}
					}
				})
			}
		}
	}
	if got := askRoute(named, "GET", "/a/api/v1/query", "Origin", "https://three.example").Header.Values("Vary"); len(got) != 1 || got[0] != "Origin" {
		t.Errorf("the answer to another origin varies by %q", got)
	}
}

// TestCrossOrigin wants pages of other origins not to change anything, whatever may ask the API: their requests are
// simple ones, without a preflight.
func TestCrossOrigin(t *testing.T) {
	h := startRoutes(t, "--web.cors.origin=.*", "--web.external-url=https://m.example/a/")
	for _, path := range []string{"/api/v1/write", "/write", "/api/v1/otlp/v1/metrics", "/api/v1/admin/import", "/api/v1/admin/tsdb/delete_series", "/api/v1/admin/tsdb/clean_tombstones", "/api/v1/admin/tsdb/snapshot"} {
		for _, tt := range []struct {
			name    string
			headers []string
			want    int
		}{
			{"another site", []string{"Origin", "https://one.example", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
			{"an old browser at another site", []string{"Origin", "https://one.example"}, http.StatusForbidden},
			{"the page", []string{"Origin", "https://m.example", "Sec-Fetch-Site", "same-origin"}, http.StatusOK},
			{"a sender", nil, http.StatusOK},
		} {
			if got := askRoute(h, http.MethodPost, "/a"+path, tt.headers...).StatusCode; got != tt.want {
				t.Errorf("%s to %s: %d, want %d", tt.name, path, got, tt.want)
			}
		}
	}
	if got := askRoute(h, http.MethodPost, "/a/api/v1/query", "Origin", "https://one.example", "Sec-Fetch-Site", "cross-site").StatusCode; got != http.StatusOK {
		t.Errorf("a query of another site: %d", got)
	}
}

// TestHosts: with the admin API, a page of a site whose name leads here changes nothing: by its host it is known to be
// another one's. Without the API nothing can be deleted, and senders may use any name.
func TestHosts(t *testing.T) {
	admin := startRoutes(t, "--web.enable-admin-api", "--web.external-url=https://Metrics.example:8443/", "--web.allowed-hosts=promtable,Store.example.", "--web.allowed-hosts=third", "--web.route-prefix=/")
	plain := startRoutes(t)
	own := []string{
		"localhost", "localhost:9201", "LocalHost:1", "localhost.:9201", "127.0.0.1:9201", "127.1.2.3", "[::1]:9201", "[::1]", "10.1.2.3:80", "[2001:db8::1]:9201",
		"metrics.example", "METRICS.example:9201", "metrics.example.:443", "promtable", "promtable:9201", "store.example", "STORE.example.:1", "third",
	}
	others := []string{
		"evil.example", "evil.example:9201", "localhost.evil.example", "evil-localhost", "localhost.evil", "127.0.0.1.evil.example:9201", "metrics.example.evil", "x.metrics.example", "etrics.example",
		"promtable.evil:9201", "127.1", "0x7f.1", "2130706433", "", "localhost..",
	}
	paths := []string{"/api/v1/admin/tsdb/delete_series", "/api/v1/admin/tsdb/clean_tombstones", "/api/v1/admin/tsdb/snapshot", "/api/v1/admin/import", "/api/v1/write", "/api/v1/otlp/v1/metrics"}
	ask := func(h http.Handler, path, host, origin string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.Host = host
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, path := range paths {
		isAdmin := strings.HasPrefix(path, "/api/v1/admin/")
		for _, host := range own {
			for _, origin := range []string{"", "http://" + host} {
				if got, text := ask(admin, path, host, origin); got != http.StatusOK {
					t.Errorf("%s at %s with origin %q: %d %s", path, host, origin, got, text)
				}
			}
		}
		for _, host := range others {
			if got, text := ask(admin, path, host, "http://"+host); got != http.StatusForbidden || host != "" && !strings.Contains(text, host) || !strings.Contains(text, "--web.allowed-hosts") {
				t.Errorf("%s of a page at %s: %d %s", path, host, got, text)
			}
			if got, _ := ask(admin, path, host, ""); (got == http.StatusForbidden) != isAdmin {
				t.Errorf("%s at %s of a sender: %d", path, host, got)
			}
			if got, _ := ask(plain, path, host, "http://"+host); got != http.StatusOK {
				t.Errorf("%s at %s without the admin API: %d", path, host, got)
			}
		}
	}
	if got, _ := ask(admin, "/api/v1/query", "evil.example", "http://evil.example"); got != http.StatusOK {
		t.Errorf("a query: %d", got)
	}
}
