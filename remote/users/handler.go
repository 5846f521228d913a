package users

import (
	"net/http"
	"slices"
	"strings"

	"github.com/promtable/promtable/remote/request"
)

// A Need is what a request needs of its user.
type Need struct {
	Role Role
	// AllTenants says that the request is about the whole store: in a store with tenants its user needs all of them.
	AllTenants bool
}

// Identify sends a request whose token or certificate has a user on to next, with that user in its context, and all others to passwords. A
// token without a user is answered 401. A certificate counts if it was verified, and the request has no other credentials.
func (f *File) Identify(errors *request.Responder, passwords, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization := r.Header.Get("Authorization")
		scheme, token, _ := strings.Cut(authorization, " ")
		var u *User
		switch {
		case strings.EqualFold(scheme, "Bearer"):
			if u = f.ByToken(strings.TrimSpace(token)); u == nil {
				challenge(w)
				errors.Fail(w, r, request.WithStatus(http.StatusUnauthorized, "the bearer token is not one of --web.users-file"))
				return
			}
		case authorization == "":
			u = f.named(certificateName(r))
		}
		if u == nil {
			passwords.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r.WithContext(With(r.Context(), u)))
	})
}

// WithPassword puts the user of basic auth into the context of a request, if isChecked says that passwords of that name are checked before
// a request comes here.
func (f *File) WithPassword(isChecked func(name string) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, _, ok := r.BasicAuth(); ok && isChecked(name) {
			r = r.WithContext(With(r.Context(), f.named(name)))
		}
		next.ServeHTTP(w, r)
	})
}

// named returns the user of a name that was proven. One that is not in the file has no roles and no tenants. No name is nil.
func (f *File) named(name string) *User {
	if name == "" {
		return nil
	}
	if u := f.ByName(name); u != nil {
		return u
	}
	return &User{Name: name}
}

// certificateName returns the name of the client's certificate: the common name of its subject, else its first DNS name. It is empty
// without a certificate that the server has verified.
func certificateName(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return ""
	}
	leaf := r.TLS.VerifiedChains[0][0]
	if leaf.Subject.CommonName != "" || len(leaf.DNSNames) == 0 {
		return leaf.Subject.CommonName
	}
	return leaf.DNSNames[0]
}

// Require lets next answer requests whose user has what they need. Without a user the answer is a 401, with one that has too little a 403
// that names the user, the role and the path. A nil File lets all requests pass.
func (f *File) Require(need Need, errors *request.Responder, next http.Handler) http.Handler {
	if f == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := Of(r.Context())
		var err error
		switch {
		case u == nil:
			challenge(w)
			err = errNoUser
		case !u.Has(need.Role):
			err = request.WithStatus(http.StatusForbidden, "%s %s needs the role %s, which the user %s does not have", r.Method, request.Abbreviate(r.URL.Path), need.Role, request.Abbreviate(u.Name))
		case f.tenancy && need.AllTenants && !u.AllTenants():
			err = request.WithStatus(http.StatusForbidden, "%s %s needs a user of all tenants, which the user %s is not", r.Method, request.Abbreviate(r.URL.Path), request.Abbreviate(u.Name))
		}
		if err != nil {
			errors.Fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// challenge says which credentials a 401 wants.
func challenge(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	w.Header().Add("WWW-Authenticate", "Basic")
}

// errNoUser is the answer to a request without a user.
var errNoUser = request.WithStatus(http.StatusUnauthorized, "give the credentials of a user of --web.users-file")

// Check returns what returns the tenants of a request as of does, if its user may use them. The error is a 403 that names the first that
// the user may not, or a 401 without a user.
func Check(of func(r *http.Request) ([]string, error)) func(r *http.Request) ([]string, error) {
	return func(r *http.Request) ([]string, error) {
		tenants, err := of(r)
		if err != nil {
			return nil, err
		}
		u := Of(r.Context())
		if u == nil {
			return nil, errNoUser
		}
		for _, name := range tenants {
			if !u.MayUse(name) {
				return nil, request.WithStatus(http.StatusForbidden, "the user %s may not use the tenant %s", request.Abbreviate(u.Name), name)
			}
		}
		return tenants, nil
	}
}

// OwnTenant returns what returns the tenant of the user of a request. The error is a 403 if the user has not exactly one, or if a header
// names another one.
func OwnTenant(header string) func(r *http.Request) ([]string, error) {
	return func(r *http.Request) ([]string, error) {
		u := Of(r.Context())
		switch {
		case u == nil:
			return nil, errNoUser
		case len(u.Tenants) != 1 || u.AllTenants():
			return nil, request.WithStatus(http.StatusForbidden, "the user %s has not exactly one tenant, which --tenancy.from=user takes for that of a request", request.Abbreviate(u.Name))
		}
		for _, name := range r.Header.Values(header) {
			if name != u.Tenants[0] {
				return nil, request.WithStatus(http.StatusForbidden, "the header %s names %s, the tenant of the user %s is %s", header, request.Abbreviate(name), request.Abbreviate(u.Name), u.Tenants[0])
			}
		}
		return slices.Clone(u.Tenants), nil
	}
}
