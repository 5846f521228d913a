package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/boards"
	"github.com/promtable/promtable/remote/history"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/tenancy"
	"github.com/promtable/promtable/remote/ui"
	"github.com/promtable/promtable/remote/users"
)

const (
	healthyPath = "/-/healthy"
	readyPath   = "/-/ready"
	reloadPath  = "/-/reload"
)

// maxForm bounds the body of a request with parameters, in bytes, as net/http does for most of them.
const maxForm = 10 << 20

// operator is what requests about the whole adapter need.
var operator = users.Need{Role: users.Admin, AllTenants: true}

// An address is where a route is served if --web.admin-listen-address is given. Without it, all routes are at all addresses.
type address uint8

const (
	publicAddress address = iota
	adminAddress
	bothAddresses
)

// A route is an endpoint.
type route struct {
	// pattern is one of http.ServeMux, below the prefix of all routes.
	pattern string
	need    users.Need
	// body bounds the body of a request, in bytes.
	body int
	// audit says that each request is logged.
	audit bool
	at    address
	// serve sees paths without the prefix.
	serve http.Handler
}

// handlers are what the server serves: remote write and read, the HTTP API, and the page.
type handlers struct {
	protocols, queries, page http.Handler
	// boards are those of the page.
	boards http.Handler
	// writes answers senders. It is nil if protocols does.
	writes http.Handler
	// tenants lists, makes and drops tenants. It is nil in a store without tenants, and without the admin API.
	tenants http.Handler
	// tenantNames returns the tenants of the store. It is nil in a store without tenants.
	tenantNames func(ctx context.Context) ([]string, error)
}

// routes returns the routes of the protocols, the HTTP API and the page, and operatorRoutes.
func (s *server) routes(h handlers) []route {
	read, write, admin := users.Need{Role: users.Read}, users.Need{Role: users.Write}, users.Need{Role: users.Admin}
	all := s.operatorRoutes()
	writes := h.writes
	if writes == nil {
		writes = h.protocols
	}
	add := func(patterns []string, of route) {
		for _, pattern := range patterns {
			of.pattern = pattern
			all = append(all, of)
		}
	}
	add(ui.Patterns(), route{need: read, serve: h.page})
	add([]string{"GET /api/v1/status/tenants"}, route{need: read, serve: s.choice(h)})
	add(remote.WritePatterns(), route{need: write, body: s.o.remote.MaxBodyBytes, serve: s.o.refuseWrites(s.guarded(false, writes))})
	add(remote.ReadPatterns(), route{need: read, body: s.o.remote.MaxBodyBytes, serve: s.guarded(false, h.protocols)})
	// The frames of an import are bounded, not their number.
	add(remote.AdminPatterns(), route{need: admin, body: unbounded(0), at: adminAddress, serve: s.guarded(true, h.protocols)})
	add(remote.TransferPatterns(), route{need: admin, body: maxForm, at: adminAddress, serve: s.guarded(true, h.protocols)})
	for _, pattern := range api.AdminPatterns() {
		need := admin
		if api.IsOfStore(pattern) {
			need = operator
		}
		add([]string{pattern}, route{need: need, body: maxForm, at: adminAddress, serve: s.guarded(strings.Contains(pattern, "/admin/"), h.queries)})
	}
	if h.tenants != nil {
		add(tenancy.AdminPatterns(), route{need: operator, at: adminAddress, serve: s.guarded(true, h.tenants)})
	}
	add(boards.WritePatterns(), route{need: write, body: maxForm, serve: s.guarded(false, h.boards)})
	for i := range all {
		all[i].audit = all[i].need.Role == users.Admin && !strings.HasPrefix(all[i].pattern, "GET ") && all[i].pattern != "PUT "+history.TransfersPath && !strings.Contains(all[i].pattern, "/debug/")
	}
	all = append(all, s.apiRoutes(api.Patterns(), route{need: read, body: maxForm, serve: h.queries})...)
	all = append(all, s.apiRoutes(boards.Patterns(), route{need: read, serve: h.boards})...)
	all = append(all, s.apiRoutes(remote.QueryPatterns(), route{need: read, body: maxForm, serve: h.protocols})...)
	for i := range all {
		if method, _, _ := strings.Cut(all[i].pattern, " "); method == http.MethodGet || method == http.MethodDelete {
			all[i].body = 0
		}
	}
	return all
}

// choice tells the page how it names a tenant, and which its user may choose from. Without users the header is trusted, and which tenants there are
// is not told.
func (s *server) choice(h handlers) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var choice struct {
			Header  string   `json:"header,omitempty"`
			Tenants []string `json:"tenants"`
		}
		choice.Tenants = []string{}
		if h.tenantNames != nil {
			choice.Header = s.o.tenancy.header
			if u := users.Of(r.Context()); u != nil {
				names, err := h.tenantNames(r.Context())
				if err != nil {
					s.errors.Fail(w, r, err)
					return
				}
				choice.Tenants = slices.DeleteFunc(names, func(name string) bool { return !u.MayUse(name) })
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": choice}) // the client has gone
	})
}

// apiRoutes returns routes like of that pages of other origins may ask, if --web.cors.origin says so. OPTIONS is answered on each path, as in Prometheus.
func (s *server) apiRoutes(patterns []string, of route) (all []route) {
	origins := s.o.web.origins
	if origins != nil {
		of.serve = request.WithCORS(origins, of.serve)
	}
	preflight := map[string]bool{}
	for _, pattern := range patterns {
		of.pattern = pattern
		all = append(all, of)
		if _, path, _ := strings.Cut(pattern, " "); !preflight[path] {
			preflight[path] = true
			all = append(all, route{pattern: "OPTIONS " + path, serve: request.Preflight(origins)})
		}
	}
	return all
}

// serving returns the handlers of routes.
func (s *server) serving(all []route) served {
	if s.o.web.adminListen == "" {
		return served{all: s.handler(all)}
	}
	without := func(at address) []route {
		return slices.DeleteFunc(slices.Clone(all), func(r route) bool { return r.at == at })
	}
	return served{all: s.handler(without(adminAddress)), admin: s.handler(without(publicAddress))}
}

// handler returns the handler of routes.
func (s *server) handler(all []route) http.Handler {
	mux, prefix := http.NewServeMux(), s.o.web.prefix
	if prefix != "" {
		mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
			to := url.URL{Path: prefix + "/", RawQuery: r.URL.RawQuery}
			http.Redirect(w, r, to.String(), http.StatusFound)
		})
	}
	for _, of := range all {
		h := s.users.Require(of.need, s.errors, withMaxBody(of.body, http.StripPrefix(prefix, of.serve)))
		if s.isFree(of.pattern) {
			h = http.StripPrefix(prefix, of.serve)
		}
		if of.audit {
			h = request.WithAudit(s.logger, h)
		}
		method, path, ok := strings.Cut(of.pattern, " ")
		if !ok {
			method, path = "", of.pattern
		}
		mux.Handle(strings.TrimSpace(method+" "+prefix+path), h)
	}
	known := s.users.Require(users.Need{}, s.errors, mux) // also for what is not there
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.isFree("GET " + strings.TrimPrefix(r.URL.Path, prefix)) {
			mux.ServeHTTP(w, r)
			return
		}
		known.ServeHTTP(w, r)
	})
}

// isFree says whether a client without credentials may ask for a pattern.
func (s *server) isFree(pattern string) bool {
	return s.o.web.freeHealth && (pattern == "GET "+healthyPath || pattern == "GET "+readyPath)
}

// withMaxBody lets next read no more than limit bytes of a body.
func withMaxBody(limit int, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			r = r.WithContext(r.Context())
			r.Body = http.MaxBytesReader(w, r.Body, int64(limit))
		}
		next.ServeHTTP(w, r)
	})
}

// guarded keeps pages from requests of next that change the store: a page of another origin may let a browser send here
// what it likes, without its owner knowing. Senders are no browsers. With the admin API, which can delete all there is,
// the adapter must also be asked by a name of its own, or by a user.
func (s *server) guarded(isAdmin bool, next http.Handler) http.Handler {
	if s.o.adminAPI {
		next = request.WithHosts(s.hosts(), isAdmin, next)
	}
	return http.NewCrossOriginProtection().Handler(next)
}

// hosts are the names of the adapter.
func (s *server) hosts() []string {
	hosts := slices.Clone([]string(s.o.web.allowedHosts))
	if host := s.o.web.external.Host; host != "" {
		hosts = append(hosts, request.HostName(host))
	}
	for _, address := range append(slices.Clone(s.o.listen), s.o.adminAddress()) {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			hosts = append(hosts, request.HostName(host))
		}
	}
	return hosts
}
