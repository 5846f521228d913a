package tenants

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

var runMutants = flag.Bool("mutants", false, "run the tests of each mutant, which takes some minutes")

// A mutant is the program with one place changed that keeps tenants apart.
type mutant struct {
	file, old, new string
	// tests are a package and a pattern of tests, one of which fails.
	tests [2]string
}

var (
	apart = [2]string{"./e2e/tenants", "TestApart/embedded"}
	keys  = [2]string{"./series", "."}
)

func mutants() []mutant {
	return []mutant{
		// The keys of each table.
		{"series/rowkey.go", "appendEscaped(append(dst, s.tenant...), ls.Get(", "appendEscaped(dst, ls.Get(", apart},
		{"series/rowkey.go", "appendEscaped([]byte(s.tenant), name, false)", "appendEscaped(nil, name, false)", keys},
		{"series/indexkey.go", "append(append(dst, s.tenant...), kind, ',')", "append(dst, kind, ',')", apart},
		{"series/indexkey.go", "!ok || !bytes.HasPrefix(seriesKey, []byte(s.tenant))", "!ok || !bytes.HasPrefix(seriesKey, nil)", [2]string{"./series", "Posting|Tenant"}},
		{"series/metakey.go", "append(append(append(dst, s.tenant...), kind...), ',')", "append(append(dst, kind...), ',')", apart},
		{"series/metakey.go", "PrefixRange([]byte(s.tenant + kind + \",\"))", "PrefixRange([]byte(kind + \",\"))", apart},
		{"series/tenant.go", "string(append(appendEscaped(nil, tenant, false), ','))", `"all,"`, apart},
		{"series/tenant.go", "len(key) < len(s.tenant) || string(key[:len(s.tenant)]) != s.tenant", "len(key) < len(s.tenant)", keys},
		// Which engine answers.
		{"remote/scope/scope.go", `strings.Join(Tenants(ctx), "|")`, `""`, apart},
		{"remote/tenancy/engines.go", "if e := t.open[name]; e != nil {", "for _, e := range t.open {", apart},
		{"remote/tenancy/engines.go", "t.cfg.Schema.ForTenant(name)", `t.cfg.Schema.ForTenant("a")`, apart},
		{"remote/tenancy/engines.go", "case of.Name == \"\":\n", "case false:\n", [2]string{"./e2e/tenants", "TestNames"}},
		{"remote/tenancy/engines.go", "case !of.InUse():\n", "case false:\n", [2]string{"./e2e/tenants", "TestDropTenant"}},
		{"remote/tenancy/merged.go", "return b.Set(series.TenantLabel, tenant).Labels()", "return b.Labels()", [2]string{"./e2e/tenants", "TestSeveral"}},
		{"remote/tenancy/merged.go", "return !m.Matches(of.name) })", "return false })", [2]string{"./e2e/tenants", "TestSeveral"}},
		// Who may ask.
		{"remote/users/users.go", "return u.AllTenants() || slices.Contains(u.Tenants, tenant)", "return true", [2]string{"./e2e/tenants", "TestUsers"}},
		{"remote/users/handler.go", "if name != u.Tenants[0] {", "if false {", [2]string{"./e2e/tenants", "TestTenantOfUser"}},
		// What is kept for each in memory.
		{"remote/engine/resultcache/engine.go", "exprKey{scope.Of(ctx), ", "exprKey{\"\", ", apart},
		{"remote/engine/resultcache/cache.go", `return scope == tenant || strings.Contains("|"+scope+"|", `, `return strings.Contains("||", `, [2]string{"./remote/engine/resultcache", "Tenants"}},
		{"remote/queries/queries.go", "if r.tenants == tenants {", "if tenants == tenants {", [2]string{"./remote/queries", "."}},
		{"remote/queries/queries.go", "r == nil || r.tenants != scope.Of(ctx)", "r == nil", [2]string{"./remote/queries", "."}},
		{"remote/write/otlpdelta.go", "if s := d.byTenant[tenant]; s != nil {", "for _, s := range d.byTenant {", [2]string{"./remote/write", "DeltaTenants"}},
		{"remote/write/otlp.go", "h.deltas.of(scope.Of(ctx))", `h.deltas.of("")`, [2]string{"./e2e/tenants", "TestDeltas"}},
		{"remote/api/status.go", "if isOfAnother(m, scope.Of(r.Context())) {", "if false {", apart},
		{"cmd/adapter/tenants.go", "err == nil && name == tenant", "err == nil && name != \"\"", [2]string{"./cmd/adapter", "FailingOfTenant"}},
		// What jobs do with the rows of all.
		{"remote/jobs/deletion/record.go", "foreign: d.Tenant != schema.Tenant()", "foreign: false", [2]string{"./remote/jobs/deletion", "."}},
		{"remote/jobs/deletion/record.go", "schema.ForTenant(d.Tenant)", `schema.ForTenant("a.b")`, apart},
		{"remote/jobs/deletion/records.go", "Tenant: tenant, ", "", apart},
		{"remote/jobs/drop/drop.go", "r.cfg.Schema.ForTenant(t.Name)", `r.cfg.Schema.ForTenant("other")`, [2]string{"./e2e/tenants", "TestDropTenant"}},
		{"remote/jobs/drop/drop.go", "if d.Tenant == tenant {", "{", [2]string{"./remote/jobs/drop", "."}},
		{"remote/jobs/tenants.go", "schema.ForTenant(name)", `schema.ForTenant(names[0] + name[:0])`, [2]string{"./remote/jobs/...", "Tenants"}},
		{"remote/jobs/seal/late.go", "schema.ForTenant(name)", `schema.ForTenant("b" + name[:0])`, [2]string{"./remote/jobs/seal", "."}},
	}
}

// TestMutants: each place that keeps tenants apart is where it is said to be and, with -mutants, a program without it fails a test.
func TestMutants(t *testing.T) {
	for _, m := range mutants() {
		source, err := os.ReadFile(filepath.Join(harness.ModuleRoot, m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), m.old); n != 1 {
			t.Errorf("%s has %q %d times, want once", m.file, m.old, n)
		} else if *runMutants {
			t.Run(m.file, func(t *testing.T) { testMutant(t, m, strings.Replace(string(source), m.old, m.new, 1)) })
		}
	}
}

func testMutant(t *testing.T, m mutant, source string) {
	dir := t.TempDir()
	root, err := filepath.Abs(harness.ModuleRoot)
	if err != nil {
		t.Fatal(err)
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): changed}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{changed: []byte(source), overlay: replace} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	// The program of the tests is built by them, in a folder of its own: it is changed like they are.
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-run", m.tests[1], m.tests[0])
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-overlay="+overlay, "GOCACHE="+strings.TrimSpace(string(cache)), "XDG_CACHE_HOME="+dir)
	output, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "--- FAIL") {
		t.Errorf("%s with %q for %q: go %s: %v\n%.1000s", m.file, m.new, m.old, strings.Join(cmd.Args[1:], " "), err, output)
	}
}
