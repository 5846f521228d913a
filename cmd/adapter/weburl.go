package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/ui"
)

// webOptions are the flags that say where the adapter stands among other servers, and what they mean.
type webOptions struct {
	externalURL, routePrefix, corsOrigin string

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
type handlers struct{ protocols, queries, page http.Handler }

// routes returns the routes of the protocols, the HTTP API and the page, and
// operatorRoutes.
func (s *server) routes(h handlers) http.Handler {
	r := s.newRoutes()
	// A page of another origin may let a browser send here what it likes, without its owner knowing: nothing that
	// changes the store. Senders are no browsers.
	guard := http.NewCrossOriginProtection()
	r.handle("/", guard.Handler(h.protocols))
	for _, pattern := range api.AdminPatterns() {
		r.handle(pattern, guard.Handler(h.queries))
	}
	for _, pattern := range ui.Patterns() {
		r.handle(pattern, h.page)
	}
	s.apiRoutes(r, api.Patterns(), h.queries)
	s.apiRoutes(r, remote.QueryPatterns(), h.protocols)
	s.operatorRoutes(r)
	return r
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
