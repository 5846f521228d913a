package tenants

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// command runs a subcommand and wants its exit code.
func command(t *testing.T, b harness.Backend, code int, words ...string) (output string) {
	t.Helper()
	got, output := harness.RunCommand(t, b, words...)
	if got != code {
		t.Fatalf("adapter %s ends with %d, want %d:\n%s", strings.Join(words, " "), got, code, output)
	}
	return output
}

// TestDropTenant: of a running adapter a tenant that is silent is dropped and hidden at once, one that is written to is not. A closed store removes the
// rows, says how many they were, and has none left of it; the others are as before.
func TestDropTenant(t *testing.T) {
	b := harness.Embedded(t)
	a := harness.StartAdapter(t, b, "--tenancy", "--tenancy.create", "--web.enable-admin-api")
	gone, stays := tenant{"gone", "wgone", 1}, tenant{"stays", "wstays", 2}
	at := harness.NowMillis()
	for _, n := range []tenant{gone, stays} {
		n.write(t, a, harness.RemoteWrite2(), at)
		n.metadata(t, a, at)
	}
	if out := command(t, b, 1, "tenant", "drop", "gone", "--yes", "--url="+a.URL("")); !strings.Contains(out, "was written to") {
		t.Errorf("a tenant that is written to: %s", out)
	}
	a.Terminate(t)
	a.Rerun(t) // which forgets when it was written to
	command(t, b, 0, "tenant", "create", "other", "--url="+a.URL(""))
	command(t, b, 0, "tenant", "drop", "gone", "--yes", "--url="+a.URL(""))
	for _, path := range []string{"/api/v1/labels", "/federate", "/api/v1/current"} {
		if resp := gone.get(t, a, path, nil); resp.Status != http.StatusForbidden {
			t.Errorf("%s of a dropped tenant: %v", path, resp)
		}
	}
	p := harness.RemoteWrite2()
	if resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), gone.as(p.Header()), p.Encode([]harness.SentSeries{harness.SomeSeries()})); err != nil || resp.Status != http.StatusForbidden {
		t.Errorf("a write to it: %v, %v", resp, err)
	}
	if out := command(t, b, 0, "tenant", "list", "--url="+a.URL("")); !strings.Contains(out, "dropping") {
		t.Errorf("listed is %s", out)
	}
	check(t, a, stays, []tenant{gone}, at)
	a.Terminate(t)

	if out := command(t, b, 0, "tenant", "drop", "gone", "--yes"); !strings.Contains(out, "CURRENT 3, INDEX ") || !strings.Contains(out, "METRIC 3") {
		t.Errorf("removed is %s", out)
	}
	if out := command(t, b, 0, "check", "--tenancy"); !strings.Contains(out, "all is well") {
		t.Errorf("check: %s", out)
	}
	if out := command(t, b, 0, "dump", "--tenancy", "gone,"); strings.Contains(out, "wgone") {
		t.Errorf("rows are left: %s", out)
	}
	a.Rerun(t)
	check(t, a, stays, []tenant{gone}, at)
}

// TestIntoTenant: copy brings the samples of a store without tenants into a tenant of another one, which serves or is closed.
func TestIntoTenant(t *testing.T) {
	from := harness.StartAdapter(t, harness.Embedded(t))
	at := harness.NowMillis() - 3_600_000
	sent := harness.SeriesOf(labels.FromStrings("__name__", "moved", "job", "x"), harness.PointAt(at, 1), harness.PointAt(at+15_000, 2))
	harness.RemoteWrite2().MustSend(t, from.URL("/api/v1/write"), sent)
	start := "--start=" + harness.FormatSeconds(at-1000)

	b := harness.Embedded(t)
	to := harness.StartAdapter(t, b, "--tenancy", "--web.enable-admin-api")
	command(t, b, 0, "tenant", "create", "one", "--url="+to.URL(""))
	command(t, b, 0, "tenant", "create", "two", "--url="+to.URL(""))
	for range 2 { // the second finds that both are the same
		command(t, b, 0, "copy", "--from="+from.URL(""), "--to="+to.URL(""), "--into-tenant=one", start)
	}
	to.Terminate(t)
	command(t, b, 1, "copy", "--from="+from.URL(""), "--tenancy", start)
	command(t, b, 1, "copy", "--from="+from.URL(""), "--tenancy", "--into-tenant=none", start)
	command(t, b, 0, "copy", "--from="+from.URL(""), "--tenancy", "--into-tenant=two", start)
	to.Rerun(t)
	for _, name := range []string{"one", "two"} {
		query := url.Values{"query": {"sum_over_time(moved[1m])"}, "time": {harness.FormatSeconds(at + 20_000)}}
		if resp := (tenant{name: name}).get(t, to, "/api/v1/query", query); !strings.Contains(resp.Body, `"3"`) {
			t.Errorf("%s has %s", name, resp.Body)
		}
	}
	command(t, b, 0, "copy", "--from="+to.URL(""), "--from-tenant=one", "--to="+to.URL(""), "--into-tenant=two", start)
}

// TestImportTenants: the blocks of each tenant of Mimir come into the tenant of that name, into a closed store and by an adapter that serves. The labels that Mimir gives
// to a block are not those of series.
func TestImportTenants(t *testing.T) {
	const first = int64(1_700_000_000_000)
	folder := func(name string, value int) string {
		t.Helper()
		text, dir := filepath.Join(t.TempDir(), "text"), filepath.Join(t.TempDir(), name)
		var b bytes.Buffer
		b.WriteString("# TYPE brought gauge\n")
		for i := range int64(100) {
			fmt.Fprintf(&b, "brought{of=%q} %d %s\n", name, value, harness.FormatSeconds(first+i*15_000))
		}
		b.WriteString("# EOF\n")
		if err := os.WriteFile(text, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		harness.CreateBlocks(t, text, dir)
		metas, err := filepath.Glob(filepath.Join(dir, "*", "meta.json"))
		if err != nil || len(metas) == 0 {
			t.Fatalf("no blocks: %v", err)
		}
		for i, meta := range metas {
			text, err := os.ReadFile(meta)
			if err == nil {
				mimir := fmt.Sprintf(`,"thanos":{"labels":{"__org_id__":%q,"__compactor_shard_id__":"%d_of_%d"}}}`, name, i+1, len(metas))
				err = os.WriteFile(meta, []byte(strings.TrimSuffix(strings.TrimSpace(string(text)), "}")+mimir), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	b := harness.Embedded(t)
	a := harness.StartAdapter(t, b, "--tenancy", "--web.enable-admin-api")
	for _, name := range []string{"one", "two"} {
		command(t, b, 0, "tenant", "create", name, "--url="+a.URL(""))
	}
	one, two := folder("one", 1), folder("two", 2)
	command(t, b, 0, "import", "blocks", one, "--tenancy", "--tenant=one", "--url="+a.URL(""))
	a.Terminate(t)
	command(t, b, 1, "import", "blocks", two, "--tenancy")
	command(t, b, 1, "import", "blocks", two, "--tenancy", "--tenant=none")
	command(t, b, 0, "import", "blocks", two, "--tenancy", "--tenant=two")
	a.Rerun(t)
	for value, name := range map[int]string{1: "one", 2: "two"} {
		at := harness.FormatSeconds(first + 99*15_000)
		n := tenant{name: name}
		if resp := n.get(t, a, "/api/v1/query", url.Values{"query": {"sum_over_time(brought[1h])"}, "time": {at}}); !strings.Contains(resp.Body, fmt.Sprintf(`"metric":{"of":%q},`, name)) || !strings.Contains(resp.Body, fmt.Sprintf(`"%d"]`, 100*value)) || strings.Count(resp.Body, `"metric"`) != 1 {
			t.Errorf("%s has %s", name, resp.Body)
		}
	}
}
