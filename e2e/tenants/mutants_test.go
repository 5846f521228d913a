package tenants

import (
	"flag"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

var runMutants = flag.Bool("mutants", false, "run the tests of each mutant, which takes some minutes")

var (
	apart = [2]string{"./e2e/tenants", "TestApart/embedded"}
	keys  = [2]string{"./series", "."}
)

// A mutant is a harness.Mutant.
type mutant struct {
	File, Old, New string
	Tests          [2]string
}

// mutants are the adapter with one place changed that keeps tenants apart.
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

// TestMutants: each place that keeps tenants apart is where it is said to be and, with -mutants, an adapter without it fails a test.
func TestMutants(t *testing.T) {
	var all []harness.Mutant
	for _, m := range mutants() {
		all = append(all, harness.Mutant(m))
	}
	harness.CheckMutants(t, *runMutants, all)
}
