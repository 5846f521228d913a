package users_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/users"
	"github.com/promtable/promtable/series/seriestest"
)

// token is one that is long enough.
const token = "0123456789abcdef0123456789abcdef"

// write writes a file of users, beside a file of tokens.
func write(t *testing.T, text string) (path string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"users.yml": text, "token": "\n" + token + "\n", "short": "secret\n", "empty": "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "open"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "open"), 0o640); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "users.yml")
}

// TestBadFiles: what is wrong in a file is refused, with the user that it is about.
func TestBadFiles(t *testing.T) {
	hash := sha256.Sum256([]byte(token))
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "it has no users"},
		{"no YAML", "users: [", "yaml"},
		{"an unknown key", "users: {a: {role: [read]}}", "field role not found"},
		{"a user twice", "users: {a: {roles: [read], tenants: [x]}, a: {roles: [read], tenants: [x]}}", `"a" already set`},
		{"no name", "users: {'': {roles: [read], tenants: [x]}}", `user "": the name is empty`},
		{"no roles", "users: {a: {tenants: [x]}}", `user "a": it has no roles`},
		{"nothing of a user", "users: {a: }", `user "a": it has no roles`},
		{"an unknown role", "users: {a: {roles: [root], tenants: [x]}}", `user "a": there is no role "root"`},
		{"an empty role", "users: {a: {roles: [''], tenants: [x]}}", `user "a": there is no role ""`},
		{"no tenants", "users: {a: {roles: [read]}}", `user "a": it has no tenants`},
		{"a bad tenant", "users: {a: {roles: [read], tenants: [x|y]}}", `user "a": tenants`},
		{"a bad hash", "users: {a: {roles: [read], tenants: [x], tokens_sha256: [beef]}}", `user "a": tokens_sha256: "beef"`},
		{"a token twice", fmt.Sprintf("users: {a: {roles: [read], tenants: [x], token_file: token, tokens_sha256: [%x]}}", hash), `user "a": it has a token twice`},
		{"no file of tokens", "users: {a: {roles: [read], tenants: [x], token_file: none}}", `user "a": token_file: stat`},
		{"a short token", "users: {a: {roles: [read], tenants: [x], token_file: short}}", "a token of 6 bytes, the least is 32"},
		{"no token", "users: {a: {roles: [read], tenants: [x], token_file: empty}}", "has no tokens"},
		{"an open file", "users: {a: {roles: [read], tenants: [x], token_file: open}}", "which has mode 0640: chmod 600"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := users.Open(write(t, tt.text), true, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %s", err, tt.want)
			} else if strings.Contains(err.Error(), token) {
				t.Errorf("the error has a token: %v", err)
			}
		})
	}
	if _, err := users.Open(write(t, "users: {a: {roles: [read], tenants: [x]}}"), false, nil); err == nil || !strings.Contains(err.Error(), "add --tenancy") {
		t.Errorf("tenants without tenancy: %v", err)
	}
	if _, err := users.Open(filepath.Join(t.TempDir(), "none"), false, nil); err == nil {
		t.Error("a file that is not there is read")
	}
}

// TestReload: a file that is bad changes nothing, a good one holds at once.
func TestReload(t *testing.T) {
	reg := prometheus.NewRegistry()
	path := write(t, "users: {a: {roles: [read], token_file: token}}")
	f, err := users.Open(path, false, reg)
	if err != nil {
		t.Fatal(err)
	}
	isGood := func() float64 {
		all, err := reg.Gather()
		if err != nil || len(all) != 1 || all[0].GetName() != "adapter_users_file_last_reload_successful" {
			t.Fatal(all, err)
		}
		return all[0].GetMetric()[0].GetGauge().GetValue()
	}
	for _, tt := range []struct {
		text  string
		user  string
		isBad bool
	}{
		{"users: {", "a", true},
		{"users: {b: {roles: [write], token_file: token}}", "b", false},
		{"users: {c: {roles: [write], token_file: none}}", "b", true},
	} {
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := f.Reload(); (err != nil) != tt.isBad {
			t.Errorf("%s: %v", tt.text, err)
		}
		if u := f.ByToken(token); u == nil || u.Name != tt.user || f.ByName(tt.user) != u || f.Len() != 1 || (isGood() == 1) == tt.isBad {
			t.Errorf("%s: %v, %v", tt.text, u, isGood())
		}
	}
}

// TestIdentify: a request has the user of its token, of its verified certificate, or of a password that was checked, and no other.
func TestIdentify(t *testing.T) {
	f, err := users.Open(write(t, "users: {token: {roles: [read], token_file: token}, cn: {roles: [read]}, dns.example: {roles: [read]}, alice: {roles: [read]}}"), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	said := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "nobody"
		if u := users.Of(r.Context()); u != nil {
			name = fmt.Sprintf("%s %t, %s", u.Name, u.Has(users.Read), request.ClientOf(r).User)
		}
		fmt.Fprint(w, name)
	})
	errors := request.NewResponder(log.NewNopLogger(), time.Now)
	h := f.Identify(errors, f.WithPassword(func(name string) bool { return name != "unchecked" }, said), said)
	certificate := func(of x509.Certificate, isVerified bool) *tls.ConnectionState {
		s := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{&of}}
		if isVerified {
			s.VerifiedChains = [][]*x509.Certificate{{&of}}
		}
		return s
	}
	cn := x509.Certificate{Subject: pkix.Name{CommonName: "cn"}, DNSNames: []string{"dns.example"}}
	for _, tt := range []struct {
		name, authorization, basic string
		tls                        *tls.ConnectionState
		want                       string
	}{
		{"nothing", "", "", nil, "nobody"},
		{"a token", "Bearer " + token, "", nil, "token true, token"},
		{"a token, in lower case", "bearer  " + token + " ", "", nil, "token true, token"},
		{"a wrong token", "Bearer " + strings.ToUpper(token), "", nil, "401"},
		{"no token", "Bearer", "", nil, "401"},
		{"a wrong token with a certificate", "Bearer x", "", certificate(cn, true), "401"},
		{"another scheme", "Digest x", "", certificate(cn, true), "nobody"},
		{"a certificate", "", "", certificate(cn, true), "cn true, cn"},
		{"a certificate that was not verified", "", "", certificate(cn, false), "nobody"},
		{"a certificate without common name", "", "", certificate(x509.Certificate{DNSNames: []string{"dns.example", "cn"}}, true), "dns.example true, dns.example"},
		{"a certificate without names", "", "", certificate(x509.Certificate{}, true), "nobody"},
		{"a certificate of no user", "", "", certificate(x509.Certificate{Subject: pkix.Name{CommonName: "other"}}, true), "other false, other"},
		{"a password", "", "alice", nil, "alice true, alice"},
		{"a password and a certificate", "", "alice", certificate(cn, true), "alice true, alice"},
		{"a password of no user", "", "bob", nil, "bob false, bob"},
		{"a password that was not checked", "", "unchecked", nil, "nobody"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if tt.authorization != "" {
				r.Header.Set("Authorization", tt.authorization)
			}
			if tt.basic != "" {
				r.SetBasicAuth(tt.basic, "any")
			}
			r.TLS = tt.tls
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			got := w.Body.String()
			if w.Code != http.StatusOK {
				got = fmt.Sprint(w.Code)
			}
			if got != tt.want || (w.Code == http.StatusUnauthorized) != (w.Header().Get("WWW-Authenticate") != "") {
				t.Errorf("%q with %v, want %q", got, w.Header(), tt.want)
			}
		})
	}
}

// TestRights: random users may send what their roles and tenants let them, and nothing else: a request passes if the role is theirs, or they are
// admins, if it needs all tenants only with those, and if each of its tenants is theirs.
func TestRights(t *testing.T) {
	random := seriestest.NewRand(t)
	names, roles := []string{"a", "b", "c", "d"}, []string{"read", "write", "admin"}
	some := func(of []string, least int) (chosen []string) {
		for len(chosen) < least {
			chosen = slices.DeleteFunc(slices.Clone(of), func(string) bool { return random.IntN(2) == 0 })
		}
		return chosen
	}
	errors := request.NewResponder(log.NewNopLogger(), time.Now)
	for range 100 {
		type rights struct{ roles, tenants []string }
		all, text := map[string]rights{}, "users:\n"
		for i := range 1 + random.IntN(5) {
			u := rights{some(roles, 1), some(names, 1)}
			if random.IntN(4) == 0 {
				u.tenants = []string{"*"}
			}
			name := fmt.Sprint("u", i)
			all[name] = u
			hash := sha256.Sum256([]byte(name))
			text += fmt.Sprintf("  %s: {roles: [%s], tenants: ['%s'], tokens_sha256: [%s]}\n", name, strings.Join(u.roles, ","), strings.Join(u.tenants, "','"), hex.EncodeToString(hash[:]))
		}
		f, err := users.Open(write(t, text), true, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			name := fmt.Sprint("u", random.IntN(6))
			u, isUser := all[name]
			need := users.Need{Role: users.Role(append([]string{""}, roles...)[random.IntN(4)]), AllTenants: random.IntN(3) == 0}
			asked := some(names, 1)
			ofAll := slices.Contains(u.tenants, "*")
			role := need.Role == users.None || slices.Contains(u.roles, string(need.Role)) || slices.Contains(u.roles, "admin")
			offender := ""
			for _, tenant := range asked {
				if offender == "" && !ofAll && !slices.Contains(u.tenants, tenant) {
					offender = tenant
				}
			}
			want, says := http.StatusOK, []string{strings.Join(asked, "|")}
			switch {
			case !isUser:
				want, says = http.StatusUnauthorized, nil
			case !role:
				want, says = http.StatusForbidden, []string{"GET", `"/some/path"`, "role " + string(need.Role), name}
			case need.AllTenants && !ofAll:
				want, says = http.StatusForbidden, []string{`"/some/path"`, "all tenants", name}
			case offender != "":
				want, says = http.StatusForbidden, []string{name, "tenant " + offender}
			}
			find := users.Check(func(*http.Request) ([]string, error) { return asked, nil })
			last := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				found, err := find(r)
				if err != nil {
					errors.Fail(w, r, err)
					return
				}
				fmt.Fprint(w, strings.Join(found, "|"))
			})
			r, w := httptest.NewRequest(http.MethodGet, "/some/path", nil), httptest.NewRecorder()
			r.Header.Set("Authorization", "Bearer "+name)
			required := f.Require(need, errors, last)
			f.Identify(errors, required, required).ServeHTTP(w, r)
			body := w.Body.String()
			if w.Code != want {
				t.Fatalf("%+v asks for %+v of %v: %d %s, want %d", u, need, asked, w.Code, body, want)
			}
			for _, part := range says {
				if !strings.Contains(body, part) {
					t.Errorf("%q lacks %s", body, part)
				}
			}
			r.Header.Set("X-Scope-OrgID", names[random.IntN(len(names))])
			if random.IntN(2) == 0 {
				r.Header.Del("X-Scope-OrgID")
			}
			own, err := users.OwnTenant("X-Scope-OrgID")(r.WithContext(users.With(r.Context(), &users.User{Name: name, Tenants: u.tenants})))
			named := r.Header.Get("X-Scope-OrgID")
			if isOne := len(u.tenants) == 1 && !ofAll && (named == "" || named == u.tenants[0]); (err == nil) != isOne || isOne && !slices.Equal(own, u.tenants) {
				t.Errorf("the tenant of %+v is %v, %v", u, own, err)
			}
		}
	}
	var none *users.File
	if h := http.NotFoundHandler(); none.Require(users.Need{Role: users.Admin}, errors, h) == nil {
		t.Error("without users nothing is served")
	}
}
