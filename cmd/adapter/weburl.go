package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/tenancy"
	"github.com/promtable/promtable/remote/ui"
)

// webOptions are the flags that say where the adapter stands among other servers, and what they mean.
type webOptions struct {
	externalURL, routePrefix, corsOrigin string
	// allowedHosts are names that the adapter has beside that of externalURL and localhost.
	allowedHosts commaList

	// external is externalURL. It has no host if the flag is only a path, and no slash at its end.
	external url.URL
	// prefix is what the paths of all endpoints begin with: nothing, or /one or /one/more.
	prefix string
	// origins are those of other pages that may ask the API. It is nil if there are none.
	origins *regexp.Regexp
}

// segments are those of a prefix. They mean the same in a URL and in a pattern of http.ServeMux.
var segments = regexp.MustCompile(`^(/[A-Za-z0-9._~!$&'()*+,;=:@-]+)*$`)

// check reads the flags.
func (o *webOptions) check() error {
	external, err := url.Parse(o.externalURL)
	switch {
	case err != nil:
		return fmt.Errorf("--web.external-url: %w", err)
	case external.Host == "" && (external.Scheme != "" || external.Opaque != "" || !strings.HasPrefix(o.externalURL+"/", "/")),
		external.Host != "" && external.Scheme != "http" && external.Scheme != "https":
		return fmt.Errorf("--web.external-url=%s: give a URL such as https://metrics.example/promtable/, or its path", o.externalURL)
	case external.User != nil || external.RawQuery != "" || external.ForceQuery || external.Fragment != "":
		return errors.New("--web.external-url: give it without user, query and fragment")
	}
	external.Path = strings.TrimRight(external.Path, "/")
	if err := checkPath("web.external-url", external.Path); err != nil {
		return err
	}
	o.external, o.prefix = *external, external.Path
	if o.routePrefix != "" {
		o.prefix = strings.TrimRight("/"+strings.Trim(o.routePrefix, "/"), "/")
		if err := checkPath("web.route-prefix", o.prefix); err != nil {
			return err
		}
	}
	if o.corsOrigin != "" {
		if o.origins, err = regexp.Compile(`^(?s:` + o.corsOrigin + `)$`); err != nil {
			return fmt.Errorf("--web.cors.origin: %w", err)
		}
	}
	return o.checkHosts()
}

// checkHosts reads --web.allowed-hosts.
func (o *webOptions) checkHosts() error {
	for i, host := range o.allowedHosts {
		name := request.HostName(host)
		if u, err := url.Parse("http://" + host); err != nil || u.Host != host || u.Port() != "" || name == "" {
			return fmt.Errorf("--web.allowed-hosts=%s: give names such as metrics.example, without port and path", host)
		}
		o.allowedHosts[i] = name
	}
	return nil
}

func checkPath(flag, text string) error {
	if !segments.MatchString(text) || path.Clean("/"+text) != "/"+strings.TrimPrefix(text, "/") {
		return fmt.Errorf("--%s: the path %s has parts that a prefix cannot have: use letters, digits, - and _ or .", flag, text)
	}
	return nil
}

// own is the URL at which this machine reaches the adapter, without a slash at its end.
func (s *server) own() string { return s.scheme + "://" + s.address("localhost") + s.o.web.prefix }

// link is the URL under which others reach the adapter, without a slash at its end.
func (s *server) link() string {
	external := s.o.web.external
	switch {
	case external.Host != "":
		return external.String()
	case external.Path != "":
		return s.scheme + "://" + s.address("localhost") + external.Path
	}
	return s.own()
}

// routes are the routes of a server, below a prefix.
type routes struct {
	*http.ServeMux
	prefix string
}

// newRoutes returns no routes but the one from / to the prefix.
func (s *server) newRoutes() routes {
	r := routes{http.NewServeMux(), s.o.web.prefix}
	if r.prefix != "" {
		r.HandleFunc("GET /{$}", func(w http.ResponseWriter, req *http.Request) {
			to := url.URL{Path: r.prefix + "/", RawQuery: req.URL.RawQuery}
			http.Redirect(w, req, to.String(), http.StatusFound)
		})
	}
	return r
}

// handle serves a pattern of http.ServeMux below the prefix. h sees paths without the prefix.
func (r routes) handle(pattern string, h http.Handler) {
	method, path, ok := strings.Cut(pattern, " ")
	if !ok {
		method, path = "", pattern
	}
	r.Handle(strings.TrimSpace(method+" "+r.prefix+path), http.StripPrefix(r.prefix, h))
}

// handlers are what the server serves: remote write and read, the HTTP API, and the page.
type handlers struct {
	protocols, queries, page http.Handler
	// tenants lists, makes and drops tenants. It is nil in a store without tenants, and without the admin API.
	tenants http.Handler
}

// routes returns the routes of the protocols, the HTTP API and the page, and
// operatorRoutes.
func (s *server) routes(h handlers) http.Handler {
	r := s.newRoutes()
	r.handle("/", s.guarded(h.protocols))
	for _, pattern := range api.AdminPatterns() {
		r.handle(pattern, s.guarded(h.queries))
	}
	if h.tenants != nil {
		for _, pattern := range tenancy.AdminPatterns() {
			r.handle(pattern, s.guarded(h.tenants))
		}
	}
	for _, pattern := range ui.Patterns() {
		r.handle(pattern, h.page)
	}
	s.apiRoutes(r, api.Patterns(), h.queries)
	s.apiRoutes(r, remote.QueryPatterns(), h.protocols)
	s.operatorRoutes(r)
	return r
}

// guarded keeps pages from requests of next that change the store: a page of another origin may let a browser send here
// what it likes, without its owner knowing. Senders are no browsers. With the admin API, which can delete all there is,
// the adapter must also be asked by a name of its own.
func (s *server) guarded(next http.Handler) http.Handler {
	if s.o.adminAPI {
		isAdmin := func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/v1/admin/") }
		next = request.WithHosts(s.o.web.hosts(), isAdmin, next)
	}
	return http.NewCrossOriginProtection().Handler(next)
}

// hosts are the names of the adapter.
func (o *webOptions) hosts() []string {
	hosts := slices.Clone([]string(o.allowedHosts))
	if o.external.Host != "" {
		hosts = append(hosts, request.HostName(o.external.Host))
	}
	return hosts
}

// apiRoutes adds routes that pages of other origins may ask, if --web.cors.origin says so.
func (s *server) apiRoutes(r routes, patterns []string, h http.Handler) {
	origins := s.o.web.origins
	if origins != nil {
		h = request.WithCORS(origins, h)
	}
	preflight := map[string]bool{}
	for _, pattern := range patterns {
		r.handle(pattern, h)
		if _, path, _ := strings.Cut(pattern, " "); origins != nil && !preflight[path] {
			preflight[path] = true
			r.handle("OPTIONS "+path, request.Preflight(origins))
		}
	}
}
