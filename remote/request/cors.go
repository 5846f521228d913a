package request

import (
	"net/http"
	"regexp"
	"strings"
)

// WithCORS lets pages of the origins that match read the answers of next. It does not let them send the credentials that
// the browser keeps. next does not see the origin, and so adds no headers for it.
func WithCORS(origins *regexp.Regexp, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allowOrigin(w, origins, r) {
			w.Header().Set("Access-Control-Expose-Headers", "Date, Retry-After, X-Promtable-Resolution, X-Promtable-Series")
		}
		if r.Header.Get("Origin") != "" {
			r = r.Clone(r.Context())
			r.Header.Del("Origin")
		}
		next.ServeHTTP(w, r)
	})
}

// Preflight answers the question of a browser whether a page of another origin may ask: by GET or POST, with a body of a
// form and with basic auth, if its origin matches. Nil origins are none.
func Preflight(origins *regexp.Regexp) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origins != nil && allowOrigin(w, origins, r) {
			w.Header().Set("Access-Control-Allow-Methods", strings.Join([]string{http.MethodGet, http.MethodPost, http.MethodOptions}, ", "))
			w.Header().Set("Access-Control-Allow-Headers", "Accept, Authorization, Cache-Control, Content-Type, Origin")
			w.Header().Set("Access-Control-Max-Age", "600")
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// allowOrigin says in the answer that the origin of r may read it, if it may.
func allowOrigin(w http.ResponseWriter, origins *regexp.Regexp, r *http.Request) bool {
	w.Header().Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" || !origins.MatchString(origin) {
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", origin)
	return true
}
