package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/ui"
)

// webOptions are the flags that say where the adapter stands among other servers, and what they mean.
type webOptions struct {
	externalURL, routePrefix, corsOrigin string
	// allowedHosts are names that the adapter has beside those of externalURL and --web.listen-address, and localhost.
	allowedHosts commaList
	// traceURL is where exemplars lead, see ui.Config.
	traceURL string
	// readOnlyBoards refuses changes of boards.
	readOnlyBoards bool
	// usersFile, if set, is a file of users. adminListen is the address for operators, if they have one of their own.
	usersFile, adminListen string
	// freeHealth says that a client without credentials may ask whether the adapter is healthy and ready.
	freeHealth bool

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
	if o.traceURL != "" {
		if err := ui.CheckTraceURL(o.traceURL); err != nil {
			return fmt.Errorf("--web.trace-url=%s: %w", o.traceURL, err)
		}
	}
	return o.checkHosts()
}

// adminAddress returns the address at which operators reach the adapter, as it is given.
func (o *options) adminAddress() string { return cmp.Or(o.web.adminListen, o.listen[0]) }

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
