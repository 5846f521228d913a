package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/remote/users"
)

// TestSecurityTable compares the table of endpoints in docs/security.md with the routes of an adapter that has all of them.
func TestSecurityTable(t *testing.T) {
	o, err := parseFlags([]string{"--web.enable-admin-api", "--tenancy", "--web.users-file=x", "--web.admin-listen-address=localhost:0"})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{o: o, logger: log.NewNopLogger(), reg: prometheus.NewRegistry(), users: &users.File{}}
	methods := map[string][]string{}
	for _, r := range s.routes(handlers{tenants: namedHandler("tenants")}) {
		method, path, ok := strings.Cut(r.pattern, " ")
		if !ok {
			t.Errorf("the route %s is of any method", r.pattern)
		}
		if method == http.MethodOptions { // below the table
			if r.need != (users.Need{}) || r.body != 0 || r.at != publicAddress {
				t.Errorf("%s needs %+v, reads %d bytes, at %d", r.pattern, r.need, r.body, r.at)
			}
			continue
		}
		role := cmp.Or(string(r.need.Role), "any")
		if r.need.AllTenants {
			role += ", all tenants"
		}
		body, ok := map[int]string{0: "none", maxForm: "10 MiB", o.remote.MaxBodyBytes: "`--write.max-body-bytes`", unbounded(0): "frames of 64 MiB"}[r.body]
		if !ok {
			t.Errorf("a bound of %d has no name", r.body)
		}
		key := fmt.Sprintf("| `%s` | %s | %s | %s |", strings.TrimSuffix(path, "{$}"), role, body, []string{"public", "operators", "both"}[r.at])
		methods[key] = append(methods[key], method)
	}
	var want []string
	for _, key := range slices.Sorted(maps.Keys(methods)) {
		slices.Sort(methods[key])
		want = append(want, "| "+strings.Join(methods[key], ", ")+" "+key)
	}
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| method | path | role | body | address |\n|---|---|---|---|---|\n"
	_, rest, _ := strings.Cut(string(text), head)
	table, _, _ := strings.Cut(rest, "\n\n")
	if got := strings.Split(table, "\n"); !slices.Equal(got, want) {
		t.Errorf("the table of docs/security.md is not that of the routes, which is\n%s%s", head, strings.Join(want, "\n"))
	}
}
