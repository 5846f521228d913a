package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/bcrypt"
)

// The users of tests have their names as passwords, or as tokens.
const (
	basicUsers = "basic_auth_users: {reader: %q, writer: %[1]q, other: %[1]q}\nhttp_server_config: {headers: {Strict-Transport-Security: max-age=60}}\n"
	usersText  = "users:\n  reader: {roles: [read]}\n  writer: {roles: [write]}\n  admin: {roles: [admin], tokens_sha256: [%x]}\n"
)

// A lines is a log that a test reads while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A client asks a server of a test.
type client struct {
	t           *testing.T
	base, admin string
	logged      *lines
	usersFile   string
}

// ask sends a request with credentials: a name with a colon is for basic auth, another one a token.
func (c *client) ask(base, method, path, credentials string) (int, string, http.Header) {
	c.t.Helper()
	req, err := http.NewRequest(method, base+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if name, password, isBasic := strings.Cut(credentials, ":"); isBasic {
		req.SetBasicAuth(name, password)
	} else if name != "" {
		req.Header.Set("Authorization", "Bearer "+name)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

// namedHandler answers with its name.
func namedHandler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
}

// startServer starts a server with basic auth, users and an address for operators, whose handlers answer with their names.
func startServer(t *testing.T, args ...string) *client {
	t.Helper()
	dir := t.TempDir()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, logged: &lines{}, usersFile: filepath.Join(dir, "users.yml")}
	for path, text := range map[string]string{
		filepath.Join(dir, "web.yml"): fmt.Sprintf(basicUsers, hash),
		c.usersFile:                   fmt.Sprintf(usersText, sha256.Sum256([]byte("admin"))),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "DIR", dir)
	}
	o, err := parseFlags(append([]string{"--web.listen-address=127.0.0.1:0"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	s, err := listen(o, log.NewLogfmtLogger(c.logged), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	s.start(cancel)
	t.Cleanup(func() {
		s.close()
		if err := context.Cause(ctx); errors.Is(err, errServing) {
			t.Error(err)
		}
		cancel(nil)
	})
	s.ready.Store(true)
	s.answer(s.serving(s.routes(handlers{
		protocols: namedHandler("protocols"), queries: namedHandler("queries"), page: namedHandler("page"), tenants: namedHandler("tenants"),
	})))
	c.base = "http://" + s.listeners[0].Addr().String()
	c.admin = c.base
	if s.admin != nil {
		c.admin = "http://" + s.admin.Addr().String()
	}
	return c
}

// TestUsers: with a file of users each request needs credentials, and the role of its path.
func TestUsers(t *testing.T) {
	c := startServer(t, "--web.config.file=DIR/web.yml", "--web.users-file=DIR/users.yml", "--web.enable-admin-api", "--web.external-url=/a/")
	for _, tt := range []struct {
		method, path, credentials string
		status                    int
		says                      string
	}{
		{"GET", "/api/v1/query", "reader:secret", 200, "queries"},
		{"GET", "/api/v1/query", "reader:wrong", 401, "Unauthorized"},
		{"GET", "/api/v1/query", "", 401, "Unauthorized"},
		{"GET", "/api/v1/query", "stranger", 401, "bearer token"},
		{"GET", "/api/v1/query", "writer:secret", 403, `GET "/a/api/v1/query" needs the role read, which the user "writer" does not have`},
		{"GET", "/api/v1/query", "other:secret", 403, `the user "other" does not have`}, // it has a password, but is not in the file
		{"GET", "/api/v1/query", "admin", 200, "queries"},
		{"GET", "/", "reader:secret", 200, "page"},
		{"GET", "/", "writer:secret", 403, "role read"},
		{"POST", "/api/v1/write", "writer:secret", 200, "protocols"},
		{"POST", "/api/v1/write", "reader:secret", 403, "role write"},
		{"POST", "/api/v1/write", "admin", 200, "protocols"},
		{"POST", "/api/v1/read", "reader:secret", 200, "protocols"},
		{"POST", "/api/v1/read", "writer:secret", 403, "role read"},
		{"POST", "/api/v1/admin/tsdb/delete_series", "admin", 200, "queries"},
		{"POST", "/api/v1/admin/tsdb/delete_series", "reader:secret", 403, "role admin"},
		{"DELETE", "/api/v1/admin/tenants/x", "writer:secret", 403, "role admin"},
		{"GET", "/metrics", "reader:secret", 200, "promhttp"},
		{"GET", "/debug/pprof/cmdline", "reader:secret", 403, "role admin"},
		{"GET", "/-/ready", "writer:secret", 200, "ready"},
		{"GET", "/-/ready", "", 401, ""},
		{"GET", "/nothing", "writer:secret", 404, ""},
		{"GET", "/nothing", "", 401, ""},
		{"PUT", "/api/v1/query", "reader:secret", 405, ""},
		{"DELETE", "/api/v1/write", "writer:secret", 405, ""},
	} {
		status, body, header := c.ask(c.base, tt.method, "/a"+tt.path, tt.credentials)
		if status != tt.status || !strings.Contains(body, tt.says) {
			t.Errorf("%s %s of %q: %d %.200s, want %d %s", tt.method, tt.path, tt.credentials, status, body, tt.status, tt.says)
		}
		if header.Get("Strict-Transport-Security") != "max-age=60" || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "no-referrer" ||
			!strings.Contains(header.Get("Content-Security-Policy"), "frame-ancestors 'none'") || (status == 401) != (header.Get("WWW-Authenticate") != "") {
			t.Errorf("%s %s of %q: %d with %v", tt.method, tt.path, tt.credentials, status, header)
		}
	}
	for _, line := range []string{
		`msg="admin request" action="POST /a/api/v1/admin/tsdb/delete_series" status=200 client=127.0.0.1:`,
		`msg="admin request" action="POST /a/api/v1/admin/tsdb/delete_series" status=403 client=127.0.0.1:`,
		`msg="admin request" action="DELETE /a/api/v1/admin/tenants/x" status=403 client=127.0.0.1:`,
	} {
		if strings.Count(c.logged.String(), line) != 1 {
			t.Errorf("the log has not once %s:\n%s", line, c.logged)
		}
	}
	if !strings.Contains(c.logged.String(), " user=reader") || !strings.Contains(c.logged.String(), " user=admin") || strings.Contains(c.logged.String(), "secret") {
		t.Errorf("the log:\n%s", c.logged)
	}
}

// TestReloadUsers: a reload by an admin takes the new users, or says what is wrong with them and keeps those before.
func TestReloadUsers(t *testing.T) {
	c := startServer(t, "--web.users-file=DIR/users.yml")
	reload := func(text, credentials string, want int) string {
		t.Helper()
		if err := os.WriteFile(c.usersFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		status, body, _ := c.ask(c.base, "POST", "/-/reload", credentials)
		if status != want {
			t.Errorf("%d %s, want %d", status, body, want)
		}
		return body
	}
	next := fmt.Sprintf("users: {next: {roles: [admin], tokens_sha256: [%x]}}", sha256.Sum256([]byte("next")))
	if body := reload("users: {x: {}}", "admin", 500); !strings.Contains(body, `user "x"`) {
		t.Error(body)
	}
	reload(next, "next", 401)
	reload(next, "admin", 200)
	reload(next, "admin", 401)
	reload(next, "next", 200)
	if status, _, _ := c.ask(c.base, "GET", "/-/reload", "next"); status != 405 {
		t.Errorf("GET: %d", status)
	}
	if n := strings.Count(c.logged.String(), `action="POST /-/reload"`); n != 3 {
		t.Errorf("%d lines:\n%s", n, c.logged)
	}
	// Without a check of passwords, a name is not a user.
	if status, _, _ := c.ask(c.base, "GET", "/api/v1/query", "next:any"); status != 401 {
		t.Errorf("a password that nothing checks: %d", status)
	}
}

// TestAdminAddress: what is for operators is served at their address only, health at both, and the rest not there.
func TestAdminAddress(t *testing.T) {
	c := startServer(t, "--web.admin-listen-address=127.0.0.1:0", "--web.enable-admin-api")
	for path, at := range map[string]string{
		"GET /metrics": "admin", "GET /debug/pprof/cmdline": "admin", "POST /api/v1/admin/tsdb/delete_series": "admin", "PUT /api/v1/admin/tsdb/snapshot": "admin",
		"POST /api/v1/admin/import": "admin", "GET /api/v1/admin/tenants": "admin", "DELETE /api/v1/status/active_queries/1": "admin",
		"GET /-/healthy": "both", "GET /-/ready": "both",
		"GET /": "public", "GET /api/v1/query": "public", "POST /api/v1/write": "public", "POST /api/v1/read": "public", "GET /federate": "public", "GET /api/v1/explain": "public",
	} {
		method, path, _ := strings.Cut(path, " ")
		for name, base := range map[string]string{"public": c.base, "admin": c.admin} {
			want := http.StatusNotFound
			if at == name || at == "both" {
				want = http.StatusOK
			}
			if status, body, _ := c.ask(base, method, path, ""); status != want {
				t.Errorf("%s %s at the %s address: %d %s", method, path, name, status, body)
			}
		}
	}
}

// TestFreeHealth: with the flag a client without credentials learns whether the adapter is ready, and nothing else.
func TestFreeHealth(t *testing.T) {
	for name, args := range map[string][]string{
		"passwords": {"--web.config.file=DIR/web.yml"},
		"users":     {"--web.users-file=DIR/users.yml"},
		"both":      {"--web.config.file=DIR/web.yml", "--web.users-file=DIR/users.yml", "--web.route-prefix=/a"},
	} {
		for _, isFree := range []bool{false, true} {
			if isFree {
				args = append(args, "--web.health-without-credentials")
			}
			c := startServer(t, slices.Clone(args)...)
			prefix := ""
			if name == "both" {
				prefix = "/a"
			}
			for path, health := range map[string]bool{"/-/healthy": true, "/-/ready": true, "/-/other": false, "/metrics": false, "/": false, "/-/ready/": false} {
				want := http.StatusUnauthorized
				if isFree && health {
					want = http.StatusOK
				}
				if status, _, _ := c.ask(c.base, "GET", prefix+path, ""); status != want {
					t.Errorf("%s, %t: %s: %d, want %d", name, isFree, path, status, want)
				}
			}
		}
	}
}

// TestHostsOfUsers: credentials allow any name of the adapter; without them the admin API is at names of its own only, those of its addresses
// included.
func TestHostsOfUsers(t *testing.T) {
	names := []string{"--web.enable-admin-api", "--web.external-url=http://metrics.example/", "--web.route-prefix=/"}
	for name, tt := range map[string]struct {
		args        []string
		credentials string
		want        int
	}{
		"no credentials":                 {nil, "", 403},
		"a password that nothing checks": {nil, "reader:secret", 403},
		"a password":                     {[]string{"--web.config.file=DIR/web.yml"}, "reader:secret", 200},
		"a user":                         {[]string{"--web.users-file=DIR/users.yml"}, "admin", 200},
	} {
		c := startServer(t, append(slices.Clone(names), tt.args...)...)
		for host, want := range map[string]int{"evil.example": tt.want, "localhost": 200, "metrics.example": 200, "[::1]:9201": 200} {
			req, err := http.NewRequest("POST", c.base+"/api/v1/admin/tsdb/delete_series", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			req.Header.Set("Origin", "http://"+host)
			if user, password, isBasic := strings.Cut(tt.credentials, ":"); isBasic {
				req.SetBasicAuth(user, password)
			} else if tt.credentials != "" {
				req.Header.Set("Authorization", "Bearer "+tt.credentials)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s: at %s: %d, want %d", name, host, resp.StatusCode, want)
			}
		}
	}
	own := startRoutes(t, "--web.enable-admin-api", "--web.listen-address=Store.internal:9201", "--web.listen-address=:9202")
	for host, want := range map[string]int{"store.internal:9201": 200, "internal": 403, "": 403} {
		if got := askRoute(own, "POST", "http://"+host+"/api/v1/admin/tsdb/snapshot").StatusCode; got != want {
			t.Errorf("at %s, which it listens on: %d, want %d", host, got, want)
		}
	}
}

// TestUnsentBody: a client that is refused before its body is read gets its answer though it never sends the rest, and the connection is
// closed.
func TestUnsentBody(t *testing.T) {
	for name, args := range map[string][]string{
		"passwords": {"--web.config.file=DIR/web.yml"},
		"users":     {"--web.users-file=DIR/users.yml"},
		"both":      {"--web.config.file=DIR/web.yml", "--web.users-file=DIR/users.yml"},
	} {
		c := startServer(t, args...)
		for _, body := range []string{"Content-Length: 2000\r\n\r\nab", "Content-Length: 200000\r\n\r\nab", "Content-Length: 2000000\r\n\r\nab", "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"} {
			for _, credentials := range []string{"", "Authorization: Bearer x\r\n", "Authorization: Basic cmVhZGVyOng=\r\n"} {
				t.Run(strings.Fields(name + " " + credentials)[0]+" "+body[:22]+credentials, func(t *testing.T) {
					t.Parallel()
					conn, err := net.Dial("tcp", strings.TrimPrefix(c.base, "http://"))
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil { // for a server that waits for ever
						t.Fatal(err)
					}
					if _, err := fmt.Fprintf(conn, "POST /api/v1/write HTTP/1.1\r\nHost: localhost\r\n%s%s", credentials, body); err != nil {
						t.Fatal(err)
					}
					resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusUnauthorized {
						t.Errorf("%s, %v", resp.Status, err)
					}
					if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
						t.Errorf("the connection is open: %v", err)
					}
				})
			}
		}
	}
}

// TestPasswordInURL: a command that is refused does not print the password in its URL.
func TestPasswordInURL(t *testing.T) {
	c := startServer(t, "--web.config.file=DIR/web.yml")
	base := strings.Replace(c.base, "http://", "http://reader:hidden@", 1)
	o, err := parseFlags([]string{"tenant", "list", "--url=" + base})
	if err != nil {
		t.Fatal(err)
	}
	errTenants := o.askTenants(t.Context(), io.Discard)
	_, errAdapter := askAdapter(t.Context(), http.DefaultClient, http.MethodGet, base+"/api/v1/labels", nil)
	for _, err := range []error{errTenants, errAdapter} {
		if err == nil || !strings.Contains(err.Error(), "401") || !strings.Contains(err.Error(), "reader:") || strings.Contains(err.Error(), "hidden") {
			t.Errorf("the error is %v", err)
		}
	}
}
