package request

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// HostName returns the name in the header Host, or in a URL: without port and brackets, in lower
// case and without a dot at its end.
func HostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// WithHosts refuses requests to hosts of other names than those given, localhost and IP addresses:
// a page of a site whose name is made to lead to this machine is of the same origin as the adapter,
// for a browser. No site can have an address as its name. Requests that carry no Origin are only
// looked at if always is set: those that change something have one, from browsers. A request of a user
// may name any host: a browser has no credentials for the name of another site.
func WithHosts(names []string, always bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (r.Header.Get("Origin") != "" || always) && !HasUser(r.Context()) && !isAllowedHost(names, r.Host) {
			http.Error(w, fmt.Sprintf("host %s is not known to be this adapter's: name it by --web.allowed-hosts", Abbreviate(r.Host)), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isAllowedHost(names []string, host string) bool {
	name := HostName(host)
	if name == "localhost" || slices.Contains(names, name) {
		return true
	}
	address, _, _ := strings.Cut(name, "%") // a zone
	_, err := netip.ParseAddr(address)
	return err == nil
}
