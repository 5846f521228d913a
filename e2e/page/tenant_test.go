//go:build browser

package page

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestPageTenant: in a store with tenants the page asks for one, remembers it, and shows what that one has. In a store without it asks for none.
func TestPageTenant(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t), "--tenancy", "--tenancy.create")
	for tenant, name := range map[string]string{"one": "of_one", "two": "of_two"} {
		protocol := harness.RemoteWrite1()
		header := protocol.Header()
		header["X-Scope-OrgID"] = tenant
		resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), header, protocol.Encode([]harness.SentSeries{{Labels: []string{"__name__", name}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), 1)}}}))
		if err != nil || resp.Status != http.StatusNoContent {
			t.Fatal(resp, err)
		}
	}
	p := startBrowser(t, a.Addr) // it is refused at first
	p.load("tab", "cardinality")
	p.await(`document.querySelector("#tenants").checkVisibility() && document.body.innerText.includes("Choose one above")`)
	for _, tenant := range []string{"one", "two"} {
		p.enter("#tenants input", tenant)
		for _, name := range []string{"one", "two"} {
			p.await(`(` + shown + `.innerText.includes("of_` + name + `")) === ` + fmt.Sprint(tenant == name))
		}
		p.reload()
		p.await(shown + `.innerText.includes("of_` + tenant + `") && document.querySelector("#tenants input").value === "` + tenant + `"`)
	}

	plain := newPage(t, startPaged(t))
	plain.load("tab", "cardinality")
	plain.await(`!document.querySelector("#tenants").checkVisibility()`)
}
