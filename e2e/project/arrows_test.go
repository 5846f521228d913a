package project

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// module is the path of the adapter's module.
const module = "github.com/promtable/promtable"

// An arrow says what packages may import of our own. Paths are relative to the
// module; "x/..." is x and everything below it.
type arrow struct {
	from string
	// to is for all code, tests for test code in addition.
	to, tests []string
}

// arrows are those of the design: cmd/adapter → remote → index, bucketstore →
// series, never up and never sideways. The first that matches a package counts.
func arrows() []arrow {
	// The tests of a protocol send their requests to all of package remote.
	protocolTests := []string{"series/...", "bucketstore/...", "remote", "remote/engine", "remote/engine/reader", "remote/engine/current", "remote/ingest", "remote/remotetest", "remote/wire/wiretest"}
	return []arrow{
		{"series/...", []string{"series/..."}, nil},
		{"bucketstore/metricset", nil, nil}, // from everywhere but series
		{"index/...", []string{"series/...", "index/..."}, nil},
		{"bucketstore/bigtable/...", []string{"series/...", "bucketstore", "bucketstore/bigtable/..."}, []string{"bucketstore/storetest"}},
		{"bucketstore/disk", nil, nil},
		{"bucketstore/durable", nil, nil},
		{"bucketstore/rowfiles", []string{"series", "bucketstore", "bucketstore/durable"}, []string{"bucketstore/storetest", "series/seriestest"}},
		{"bucketstore/pebble/...", []string{"series/...", "bucketstore", "bucketstore/disk", "bucketstore/pebble/..."}, []string{"bucketstore/storetest"}},
		{"bucketstore/meta", []string{"series/...", "bucketstore"}, []string{"bucketstore/..."}},
		// The model of deletion drives a buffer and what removes rows beneath it.
		{"bucketstore/buffer", []string{"series/...", "bucketstore", "bucketstore/durable", "bucketstore/meta", "bucketstore/rowfiles"}, []string{"bucketstore/...", "remote/jobs/...", "index", "remote/engine/indexrows", "remote/fleet"}},
		{"bucketstore/snapshot/objects", []string{"bucketstore", "bucketstore/durable", "bucketstore/snapshot"}, nil},
		{"bucketstore/snapshot", []string{"bucketstore/durable"}, []string{"series/...", "bucketstore/..."}},
		{"bucketstore/storetest", []string{"series/...", "bucketstore", "bucketstore/meta"}, nil},
		{"bucketstore", []string{"series/..."}, []string{"bucketstore/..."}},
		{"remote/engine/backfill", []string{"series/...", "index", "bucketstore"}, []string{"remote/jobs/...", "remote/timeline/...", "bucketstore/...", "remote/engine", "remote/engine/reader", "remote/engine/indexrows", "remote/ingest"}},
		{"remote/engine/indexrows", []string{"series", "index", "bucketstore"}, nil},
		{"remote/engine/seriescache", []string{"series", "remote/ingest"}, nil},
		{"remote/engine/current", []string{"series/...", "bucketstore"}, nil},
		{"remote/engine/ha", []string{"series/...", "bucketstore", "bucketstore/meta"}, nil},
		{"remote/engine/metadata", []string{"series/...", "bucketstore", "bucketstore/meta", "remote/ingest"}, nil},
		{"remote/engine/eval", []string{"series/rollup", "index/repanic", "remote/scope", "remote/spans"}, []string{"series/...", "bucketstore/...", "remote/engine", "remote/engine/resultcache"}},
		{"remote/engine/resultcache", []string{"bucketstore", "remote/engine/eval", "remote/scope"}, []string{"series/...", "bucketstore/..."}},
		{"remote/engine/reader", []string{"series/...", "index/...", "bucketstore", "remote/timeline", "remote/spans"}, nil},
		{"remote/engine", []string{"series/...", "index/...", "bucketstore", "bucketstore/meta", "remote/engine/...", "remote/ingest", "remote/timeline", "remote/spans"}, []string{"remote/jobs/...", "bucketstore/...", "remote/remotetest", "remote/timeline/..."}},
		{"remote/ingest", nil, nil},
		{"remote/scope", nil, nil},
		{"remote/spans", nil, nil},
		{"remote/rules", []string{"series", "bucketstore", "bucketstore/meta", "bucketstore/metricset", "remote/ingest", "remote/jobs"}, []string{"bucketstore/...", "remote/engine", "remote/engine/..."}},
		{"remote/timeline", []string{"series/rollup", "bucketstore", "bucketstore/meta"}, nil},
		{"remote/timeline/timelinetest", []string{"series/rollup", "remote/timeline"}, nil},
		{"remote/jobs", []string{"series/...", "bucketstore", "bucketstore/meta"}, []string{"bucketstore/..."}},
		{"remote/jobs/jobstest", nil, nil},
		{"remote/jobs/seal", []string{"series/...", "bucketstore", "bucketstore/meta", "remote/jobs", "remote/spans"}, []string{"bucketstore/...", "remote/jobs/jobstest"}},
		{"remote/jobs/downsample", []string{"series/...", "bucketstore", "bucketstore/meta", "remote/jobs", "remote/timeline"}, []string{"bucketstore/...", "remote/jobs/jobstest", "remote/timeline/..."}},
		{"remote/jobs/retention", []string{"series/...", "bucketstore", "bucketstore/meta", "remote/jobs", "remote/timeline"}, []string{"bucketstore/...", "remote/timeline/..."}},
		{"remote/jobs/deletion", []string{"series/...", "bucketstore", "bucketstore/meta", "remote/jobs", "remote/timeline", "bucketstore/buffer"}, []string{"bucketstore/...", "remote/timeline/..."}},
		{"remote/request", []string{"series/...", "bucketstore", "remote/engine/reader", "remote/ingest", "remote/scope", "remote/spans"}, nil},
		{"remote/wire", []string{"series/...", "remote/engine/reader", "remote/engine/seriescache", "remote/ingest", "remote/request"}, []string{"bucketstore/...", "remote/wire/wiretest", "remote/engine"}},
		{"remote/wire/wiretest", []string{"series/...", "bucketstore", "remote/ingest"}, nil},
		{"remote/write", []string{"remote/engine", "remote/ingest", "remote/reload", "remote/request", "remote/wire", "remote/scope"}, protocolTests},
		{"remote/reload", nil, nil},
		{"remote/fleet", []string{"series", "series/rollup", "index", "bucketstore", "bucketstore/meta"}, []string{"bucketstore/...", "remote/engine/indexrows"}},
		{"remote/limits", []string{"series", "index", "remote/ingest", "remote/reload", "remote/request"}, nil},
		{"remote/queries", []string{"series/expr", "remote/reload", "remote/engine/reader", "remote/engine/eval", "remote/request", "remote/scope"}, nil},
		{"remote/read", []string{"series/...", "remote/engine/reader", "remote/engine/eval", "remote/queries", "remote/request", "remote/wire"}, append(protocolTests, "remote/queries")},
		{"remote/federate", []string{"series/expr", "remote/engine/current", "remote/ingest", "remote/request"}, protocolTests},
		{"remote/explain", []string{"series/expr", "remote/engine/reader", "remote/engine/eval", "remote/engine/resultcache", "remote/request"}, protocolTests},
		{"remote/api", []string{"series", "series/expr", "series/rollup", "index", "bucketstore", "remote/engine", "remote/engine/current", "remote/engine/eval", "remote/engine/reader", "remote/engine/resultcache", "remote/ingest", "remote/fleet", "remote/queries", "remote/request", "remote/timeline", "remote/scope", "remote/spans"}, []string{"remote/jobs/...", "series/...", "bucketstore/...", "remote/timeline/...", "remote/remotetest"}},
		{"remote/boards", []string{"series", "bucketstore", "bucketstore/meta", "remote/request", "remote/scope"}, []string{"bucketstore/pebble"}},
		{"remote/history", []string{"bucketstore", "series/...", "bucketstore/meta", "remote/engine", "remote/engine/backfill", "remote/engine/reader", "remote/request", "remote/scope"}, append(protocolTests, "remote/jobs/deletion")},
		{"remote/tenancy", []string{"series", "series/rollup", "index", "bucketstore", "bucketstore/meta", "remote/engine", "remote/engine/current", "remote/engine/eval", "remote/engine/reader", "remote/engine/seriescache", "remote/history", "remote/ingest", "remote/jobs/deletion", "remote/jobs/drop", "remote/request", "remote/scope"}, nil},
		{"remote/users", []string{"series", "remote/request"}, []string{"series/seriestest"}},
		{"remote/jobs/drop", []string{"series", "bucketstore", "bucketstore/meta", "remote/jobs"}, []string{"bucketstore/...", "series/..."}},
		{"remote/ui", nil, nil},
		{"remote/selfscrape", []string{"remote/ingest"}, nil},
		{"remote/export", []string{"series/cell", "bucketstore", "bucketstore/durable"}, []string{"series/..."}},
		{"remote/remotetest", []string{"series/...", "bucketstore/...", "remote", "remote/request", "remote/engine/...", "remote/ingest", "remote/wire/wiretest"}, nil},
		{"remote", []string{"remote/engine", "remote/engine/eval", "remote/history", "remote/queries", "remote/request", "remote/write", "remote/read", "remote/federate", "remote/explain", "remote/timeline"}, append(protocolTests, "remote/timeline/...")},
		{"cmd/adapter/demo", nil, nil},
		{"cmd/adapter/estimate", []string{"series/...", "bucketstore/bigtable", "remote/jobs/retention"}, nil},
		{"cmd/adapter", []string{"series/...", "index/...", "bucketstore/...", "remote/...", "cmd/adapter/demo", "cmd/adapter/estimate", "deploy/prometheus"}, nil},
		{"deploy/prometheus", nil, nil},
		{"e2e/bench", []string{"e2e/harness", "series/...", "index", "bucketstore", "bucketstore/bigtable", "bucketstore/pebble", "remote/engine/backfill", "remote/engine/indexrows"}, nil},
		{"e2e/bigtable", nil, []string{"e2e/harness", "series/...", "bucketstore", "bucketstore/bigtable", "remote/jobs", "remote/jobs/seal", "bucketstore/storetest"}},
		{"e2e/harness", nil, nil},
		{"e2e/...", nil, []string{"e2e/harness"}},
	}
}

// A client is a library for a store, and the packages that may import it.
type client struct {
	path        string
	code, tests []string
}

func clients() []client {
	const bigtable = "bucketstore/bigtable"
	return []client{
		{"github.com/cockroachdb/pebble", []string{"bucketstore/pebble"}, []string{"bucketstore/pebble"}},
		{"cloud.google.com/go/bigtable", []string{bigtable, bigtable + "/bigtabletest", "e2e/harness"}, []string{bigtable}},
		// The client speaks the protocol; only test doubles answer it.
		{"cloud.google.com/go/bigtable/apiv2/bigtablepb", []string{bigtable + "/bigtabletest"}, []string{bigtable}},
	}
}

// A goPackage is what go list says of a package.
type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// name is the path in the module.
func (p goPackage) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

func (p goPackage) testImports() []string { return slices.Concat(p.TestImports, p.XTestImports) }

func listPackages(t testing.TB) []goPackage {
	t.Helper()
	var all []byte
	for _, dir := range []string{".", "e2e/bench", "e2e/otlp", "e2e/thanos"} { // the modules that have packages
		out, err := harness.GoOutput(dir, "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, out...)
	}
	var packages []goPackage
	for dec := json.NewDecoder(bytes.NewReader(all)); ; {
		var p goPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// matches says whether a package is one of the patterns.
func matches(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		dir, tree := strings.CutSuffix(pattern, "/...")
		return name == dir || tree && strings.HasPrefix(name, dir+"/")
	})
}

// TestArrows checks direct imports: then the arrows hold over any number of steps.
func TestArrows(t *testing.T) {
	used := map[string]bool{}
	for _, p := range listPackages(t) {
		i := slices.IndexFunc(arrows(), func(a arrow) bool { return matches(p.name(), []string{a.from}) })
		if i < 0 {
			t.Errorf("no arrow begins at %s", p.name())
			continue
		}
		a := arrows()[i]
		used[a.from] = true
		if a.from != "series/..." && a.from != "bucketstore/metricset" {
			a.to = append(a.to, "bucketstore/metricset")
		}
		checkImports(t, p.name(), p.Imports, a.to)
		checkImports(t, p.name()+" (tests)", p.testImports(), append(slices.Concat(a.to, a.tests), p.name()))
	}
	for _, a := range arrows() {
		if !used[a.from] {
			t.Errorf("no package for the arrow from %s", a.from)
		}
	}
}

func checkImports(t *testing.T, from string, imports, allowed []string) {
	t.Helper()
	for _, path := range imports {
		name, ours := strings.CutPrefix(path, module+"/")
		if ours && !matches(name, allowed) {
			t.Errorf("%s imports %s", from, name)
		}
	}
}

// TestClients: each store's library is imported in one directory.
func TestClients(t *testing.T) {
	packages := listPackages(t)
	for _, c := range clients() {
		t.Run(c.path, func(t *testing.T) {
			found := 0
			uses := func(path string) bool { return path == c.path || strings.HasPrefix(path, c.path+"/") }
			for _, p := range packages {
				if slices.ContainsFunc(p.Imports, uses) {
					found++
					if !matches(p.name(), c.code) {
						t.Errorf("%s imports it", p.name())
					}
				}
				if slices.ContainsFunc(p.testImports(), uses) && !matches(p.name(), c.tests) {
					t.Errorf("tests of %s import it", p.name())
				}
			}
			if found == 0 {
				t.Error("no package imports it")
			}
		})
	}
}

// TestLinked: what decodes and reads links neither PromQL nor Kubernetes, of which upstream's discovery of targets has much.
func TestLinked(t *testing.T) {
	heavy := []string{"github.com/prometheus/prometheus/promql", "github.com/prometheus/prometheus/promql/parser", "github.com/prometheus/prometheus/discovery/...", "k8s.io/..."}
	for _, dir := range []string{"remote/ingest", "remote/wire", "remote/request", "remote/engine/reader", "remote/engine/seriescache"} {
		out, err := harness.GoOutput(".", "list", "-deps", "./"+dir)
		if err != nil {
			t.Fatal(err)
		}
		for path := range strings.FieldsSeq(string(out)) {
			if matches(path, heavy) {
				t.Errorf("%s links %s", dir, path)
			}
		}
	}
}

// TestNoAliases: a type has one name.
func TestNoAliases(t *testing.T) {
	err := filepath.WalkDir("../..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, isType := n.(*ast.TypeSpec)
			if isType && spec.Assign.IsValid() && ast.IsExported(spec.Name.Name) {
				t.Errorf("%s: %s is an alias", file, spec.Name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestParsers: text of PromQL is parsed within limits, everywhere.
func TestParsers(t *testing.T) {
	root := "../.."
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		if dir, _ := filepath.Rel(root, filepath.Dir(file)); err == nil && dir != "series/expr" && bytes.Contains(text, []byte("parser.NewParser(")) {
			t.Errorf("%s makes a parser of its own: take that of series/expr", file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnlyHTTP: the end-to-end tests do not import our code, except for the files that need
// the emulator (the conformance suite, a sealer with its own clock, and readers of METRIC and
// META), and for a benchmark that fills a store.
func TestOnlyHTTP(t *testing.T) {
	exceptions := []string{"bench/churn.go", "bench/fill.go", "bigtable/conformance_test.go", "bigtable/clock_test.go", "bigtable/leave_test.go", "bigtable/sealed_test.go"}
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			ours := strings.Contains(spec.Path.Value, module) && spec.Path.Value != strconv.Quote(module+"/e2e/harness")
			if ours && !slices.Contains(exceptions, strings.TrimPrefix(file, "../")) {
				t.Errorf("%s imports %s", file, spec.Path.Value)
			}
		}
	}
}
