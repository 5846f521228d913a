package tenancy

import (
	"net/http"
	"strings"

	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/scope"
)

// DefaultHeader is the header that names the tenants of a request: that of Mimir and Loki.
const DefaultHeader = "X-Scope-OrgID"

// NeedsHeader is the header of an answer to a request that does not name its tenant.
const NeedsHeader = "X-Promtable-Needs-Tenant"

// Handler lets next answer requests of tenants that there are. find returns the tenants of a request, or an error with the status of the
// answer. A tenant that is not there is a 403, unless Config.Create is set: then a read finds nothing of it, and a write makes it.
func (t *Engines) Handler(find func(*http.Request) ([]string, error), errors *request.Responder, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenants, err := find(r)
		if err == nil {
			err = t.check(r, tenants)
		}
		if err != nil {
			if request.Status(r.Context(), request.Remote, err) == http.StatusUnauthorized {
				w.Header().Set(NeedsHeader, "true") // for the page, which asks its user
			}
			errors.Fail(w, r, err)
			return
		}
		request.Note(r.Context(), "tenant", strings.Join(tenants, "|"))
		next.ServeHTTP(w, r.WithContext(scope.With(r.Context(), tenants)))
	})
}

// FromHeader returns what finds the tenants that a header names. Without the header the error is a 401.
func FromHeader(header string) func(*http.Request) ([]string, error) {
	return func(r *http.Request) ([]string, error) {
		values := r.Header.Values(header)
		switch {
		case len(values) == 0 || len(values) == 1 && values[0] == "":
			return nil, request.WithStatus(http.StatusUnauthorized, "name the tenant in the header %s", header)
		case len(values) > 1:
			return nil, request.BadRequest("the header %s is there %d times", header, len(values))
		}
		return Parse(values[0])
	}
}

// check returns a 403 if a tenant cannot be asked.
func (t *Engines) check(r *http.Request, tenants []string) error {
	for _, name := range tenants {
		if _, err := t.Engine(r.Context(), name); err != nil {
			return err
		}
	}
	return nil
}
