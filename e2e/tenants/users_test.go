package tenants

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// A user is one of a file. Its name is its token.
type user struct {
	name           string
	roles, tenants []string
}

// may says whether the user has a role, and all tenants of a header.
func (u user) may(role, tenants string) bool {
	for _, name := range strings.Split(tenants, "|") {
		if !slices.Contains(u.tenants, "*") && !slices.Contains(u.tenants, name) {
			return false
		}
	}
	return slices.Contains(u.roles, role) || slices.Contains(u.roles, "admin")
}

// header returns the headers of a request of the user for tenants, if there are any.
func (u user) header(h map[string]string, tenants string) map[string]string {
	if tenants != "" {
		h = tenant{name: tenants}.as(h)
	} else if h == nil {
		h = map[string]string{}
	}
	if u.name != "" {
		h["Authorization"] = "Bearer " + u.name
	}
	return h
}

// writeUsers writes a file of users.
func writeUsers(t *testing.T, path string, all []user) {
	t.Helper()
	text := "users:\n"
	for _, u := range all {
		text += fmt.Sprintf("  %s: {roles: ['%s'], tenants: ['%s'], tokens_sha256: [%x]}\n", u.name, strings.Join(u.roles, "','"), strings.Join(u.tenants, "','"), sha256.Sum256([]byte(u.name)))
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// some returns one or more of texts, at random.
func some(random *rand.Rand, of []string) (chosen []string) {
	for len(chosen) == 0 {
		chosen = slices.DeleteFunc(slices.Clone(of), func(string) bool { return random.IntN(2) == 0 })
	}
	return chosen
}

// TestUsers: random users read and write what their roles and tenants allow, and are refused the rest by name, of several tenants too.
// Nobody sees a word of a tenant that is not theirs.
func TestUsers(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("SEED", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	names := []string{"a", "b", "c"}
	all := []user{{"root", []string{"admin"}, []string{"*"}}, {"ab", []string{"read"}, []string{"a", "b"}}}
	for i := range 4 {
		all = append(all, user{fmt.Sprint("u", i), some(random, []string{"read", "write"}), some(random, names)})
	}
	path := filepath.Join(t.TempDir(), "users.yml")
	writeUsers(t, path, all)
	a := harness.StartAdapter(t, harness.Embedded(t), "--tenancy", "--tenancy.create", "--web.enable-admin-api", "--web.users-file="+path)
	at := harness.NowMillis()
	p := harness.RemoteWrite1()
	write := func(u user, tenants string) harness.Response {
		resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), u.header(p.Header(), tenants), p.Encode([]harness.SentSeries{harness.SomeSeries()}))
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	ask := func(method string, u user, tenants, path string, params url.Values) harness.Response {
		resp, err := harness.RoundTrip(t.Context(), method, a.URL(path)+"?"+params.Encode(), u.header(nil, tenants), nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	words := map[string]string{}
	for i, name := range names {
		words[name] = fmt.Sprint("word-of-", name)
		series := harness.SeriesOf(labels.FromStrings("__name__", "same", "word", words[name]), harness.PointAt(at, float64(i)))
		resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), all[0].header(p.Header(), name), p.Encode([]harness.SentSeries{series}))
		if err != nil || resp.Status != http.StatusNoContent {
			t.Fatal(resp, err)
		}
	}
	asked := asked(at)
	paths := []string{"/api/v1/query", "/api/v1/query_range", "/api/v1/series", "/api/v1/label/word/values"} // of several tenants, too
	for range 150 {
		u, chosen := append(all, user{"stranger", nil, nil}, user{})[random.IntN(len(all)+2)], some(random, names)
		tenants := strings.Join(chosen, "|")
		of := paths[random.IntN(len(paths))]
		resp := ask(http.MethodGet, u, tenants, of, asked[of].params)
		want := http.StatusForbidden
		switch {
		case !slices.ContainsFunc(all, func(other user) bool { return other.name == u.name }):
			want = http.StatusUnauthorized
		case u.may("read", tenants):
			want = http.StatusOK
		}
		if resp.Status != want || want == http.StatusForbidden && !strings.Contains(resp.Body, u.name) {
			t.Errorf("%+v asks %s of %s: %s, want %d", u, of, tenants, resp, want)
		}
		for name, word := range words {
			if isThere := strings.Contains(resp.Body, word); isThere != (want == http.StatusOK && slices.Contains(chosen, name)) {
				t.Errorf("%+v asks %s of %s and is told of %s: %t: %s", u, of, tenants, name, isThere, resp)
			}
		}
		if one := chosen[0]; want != http.StatusUnauthorized {
			want = http.StatusForbidden
			if u.may("write", one) {
				want = http.StatusNoContent
			}
			if resp := write(u, one); resp.Status != want {
				t.Errorf("%+v writes to %s: %s, want %d", u, one, resp, want)
			}
		}
	}
	ab := all[1]
	if resp := ask(http.MethodGet, ab, "a|c|b", "/api/v1/labels", nil); resp.Status != http.StatusForbidden || !strings.Contains(resp.Body, "tenant c") {
		t.Errorf("of one tenant too many: %s", resp)
	}
	if resp := ask(http.MethodPost, ab, "a", "/api/v1/admin/tsdb/delete_series", url.Values{"match[]": {"x"}}); resp.Status != http.StatusForbidden || !strings.Contains(resp.Body, "role admin") {
		t.Errorf("a reader deletes: %s", resp)
	}
	if resp := ask(http.MethodPost, all[0], "a", "/api/v1/admin/tsdb/delete_series", url.Values{"match[]": {"none"}}); resp.Status != http.StatusNoContent {
		t.Errorf("an admin deletes: %s", resp)
	}
	a.WaitLine(t, `msg="admin request" action="POST /api/v1/admin/tsdb/delete_series" status=204 tenant=a selector=`, "user=root")

	// SIGHUP: one is no admin of all tenants any more.
	all[0].tenants = []string{"a"}
	writeUsers(t, path, all)
	if err := syscall.Kill(a.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	a.WaitLine(t, `msg="users are loaded" users=6`)
	for path, want := range map[string]int{"/metrics": 403, "/debug/pprof/cmdline": 403, "/api/v1/admin/tenants": 403, "/api/v1/labels": 200} {
		if resp := ask(http.MethodGet, all[0], "a", path, nil); resp.Status != want {
			t.Errorf("an admin of one tenant asks %s: %s, want %d", path, resp, want)
		}
	}
}

// TestTenantOfUser: with --tenancy.from=user a request has the tenant of its user, and a header cannot name another one.
func TestTenantOfUser(t *testing.T) {
	a, b, both, root := user{"a", []string{"read", "write"}, []string{"ta"}}, user{"b", []string{"read", "write"}, []string{"tb"}}, user{"both", []string{"read"}, []string{"ta", "tb"}}, user{"root", []string{"admin"}, []string{"*"}}
	path := filepath.Join(t.TempDir(), "users.yml")
	writeUsers(t, path, []user{a, b, both, root})
	adapter := harness.StartAdapter(t, harness.Embedded(t), "--tenancy", "--tenancy.create", "--tenancy.from=user", "--web.users-file="+path)
	at, p := harness.NowMillis(), harness.RemoteWrite2()
	for _, u := range []user{a, b} {
		series := harness.SeriesOf(labels.FromStrings("__name__", "same", "word", "word-of-"+u.name), harness.PointAt(at, 1))
		resp, err := harness.Post(t.Context(), adapter.URL("/api/v1/write"), u.header(p.Header(), ""), p.Encode([]harness.SentSeries{series}))
		if err != nil || resp.Status != http.StatusNoContent {
			t.Fatal(resp, err)
		}
	}
	for _, tt := range []struct {
		user   user
		header string
		status int
		says   string
	}{
		{a, "", 200, `["word-of-a"]`},
		{a, "ta", 200, `["word-of-a"]`},
		{a, "tb", 403, `names "tb"`},
		{a, "ta|tb", 403, `names "ta|tb"`},
		{b, "", 200, `["word-of-b"]`},
		{both, "", 403, "not exactly one tenant"},
		{both, "ta", 403, "not exactly one tenant"},
		{root, "ta", 403, "not exactly one tenant"},
		{user{}, "ta", 401, "credentials"},
	} {
		resp, err := harness.RoundTrip(t.Context(), http.MethodGet, adapter.URL("/api/v1/label/word/values"), tt.user.header(nil, tt.header), nil)
		if err != nil || resp.Status != tt.status || !strings.Contains(resp.Body, tt.says) {
			t.Errorf("%s with header %q: %v, %v, want %d %s", tt.user.name, tt.header, resp, err, tt.status, tt.says)
		}
	}
}
