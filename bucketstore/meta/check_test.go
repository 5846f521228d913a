package meta_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// metaKinds returns the constants of package series that are keys, or kinds of rows, of META: by name, with their values.
func metaKinds(t *testing.T) map[string]string {
	t.Helper()
	packages, err := parser.ParseDir(token.NewFileSet(), "../../series", func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, 0)
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[string]string)
	ast.Inspect(packages["series"], func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		for i := 0; ok && i < len(spec.Values); i++ {
			if value, isText := spec.Values[i].(*ast.BasicLit); isText && strings.HasPrefix(strings.ToLower(spec.Names[i].Name), "meta") {
				if kinds[spec.Names[i].Name], err = strconv.Unquote(value.Value); err != nil {
					t.Fatal(err)
				}
			}
		}
		return true
	})
	if len(kinds) < 12 {
		t.Fatalf("found only %v", kinds)
	}
	return kinds
}

// TestCheckRow: every kind of row of META that package series names has a check, which takes what is stored and finds what is not.
func TestCheckRow(t *testing.T) {
	const someDay = "1600000000000"
	missing := metaKinds(t)
	for _, tt := range []struct {
		key, value string
		// wrong are other values and keys that must be found.
		wrong, wrongKeys []string
	}{
		{"schema", `{"format":1,"resource_labels":["host"],"tenancy":false,"identity":"A"}`, []string{"", "{", `{"format":1,"tenancy":2}`, `{"format":1,"resource_labels":["host"],"tenancy":false}`}, []string{"schema,a"}},
		{"horizon", `{"raw":5}`, []string{"", "[]", `{"raw":"a"}`}, []string{"horizon,a"}},
		{"clock", `{"time":5,"buffered":true}`, []string{"", "5"}, nil},
		{"seal", `{"holder":"a","token":"","expires":5,"window":7}`, []string{"", "5", `{"expires":"a"}`}, nil},
		{"rollup", `{"writes":1,"begun":5,"made":5}`, []string{"", "[]"}, nil},
		{"delete", `{"holder":"a","token":"","expires":5}`, []string{"", "[]"}, nil},
		{"rules", `{"holder":"a","token":"","expires":5}`, []string{"", "[]"}, nil},
		{"log,ID", `{"host":"a","path":"/b","seen":5,"bytes":6}`, []string{"", "{", `{"seen":"a"}`}, []string{"log"}},
		{"stamp,ID", `{"stamp":5}`, []string{"", `{"stamp":"a"}`}, []string{"stamp"}},
		{"forgotten,ID", `{"at":5}`, []string{"", `{"at":"a"}`}, []string{"forgotten"}},
		{"delete,ID", `{"matchers":[{"name":"a","type":"=","value":"b"}],"start":1,"limit":2,"at":3,"stamp":4}`, []string{"", `{"start":"a"}`}, nil},
		{"delete,ID,LOG", `{"stamp":4,"passed":true}`, []string{"", `{"passed":4}`}, nil},
		{"rules,ID", `{"rules":[{"matchers":[],"cuts":{"raw":5},"gone":{}}]}`, []string{"", `{"rules":5}`}, nil},
		{"late," + someDay, "7Q4ZK2XB", nil, []string{"late", "late,", "late,5", "late,x" + someDay[1:], "late," + someDay + "0"}},
		{"seal," + someDay, "1600000000001", []string{"", "x", "{}"}, []string{"seal,5"}},
		{"import,ID", `{"parts":[{"id":"a"}]}`, []string{"", `{"parts":5}`}, []string{"import", "import,a,b"}},
		{"metadata,up", `{"type":"gauge","unit":"","help":"h"}`, []string{"", "5", `{"help":5}`}, []string{"metadata"}},
		{"tenant,a", `{"created":1,"dropping":2,"removed":{"METRIC":3}}`, []string{"", "5", `{"created":"a"}`}, []string{"tenant"}},
		{"recorded,/etc/rules.yml;node", `{"done":{"5f":5},"ok":{"5f":5}}`, []string{"", "5"}, []string{"recorded"}},
		{"board,node a", `{"title":"Node","panels":[]}`, []string{"", "5"}, []string{"board"}},
		{"ha,cluster", `{"replica":"a","elected":1,"heartbeat":2}`, []string{"", "5"}, []string{"ha"}},
	} {
		kind, _, _ := strings.Cut(tt.key, ",")
		maps.DeleteFunc(missing, func(_, value string) bool { return value == kind })
		check := func(schema series.Schema, key, value string) error {
			return meta.CheckRow(schema, bucketstore.Row{Key: []byte(key), Cells: []bucketstore.Cell{
				{Family: series.FamilyMeta, Value: []byte(tt.value)}, {Family: series.FamilyMeta, Value: []byte(value)},
			}})
		}
		if err := check(series.Schema{}, tt.key, tt.value); err != nil {
			t.Errorf("%s: %v", tt.key, err)
		}
		for _, value := range tt.wrong {
			if err := check(series.Schema{}, tt.key, value); err == nil {
				t.Errorf("%s: nothing is found in %q", tt.key, value)
			}
		}
		for _, key := range tt.wrongKeys {
			if err := check(series.Schema{}, key, tt.value); !errors.Is(err, series.ErrCorrupt) {
				t.Errorf("key %q: %v", key, err)
			}
		}
	}
	for name := range missing {
		t.Errorf("rows series.%s are not in this test, and so may have no check", name)
	}
}

// TestCheckRowOfTenant: in a store with tenants the rows of each begin with it, and those for all do not.
func TestCheckRowOfTenant(t *testing.T) {
	schema, err := series.Schema{}.ForTenant("a,b")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{`a\,b,metadata,up`: true, "log,ID": true, "metadata,up": false, "other,metadata,up": false, `a\,b,log,ID`: false} {
		err := meta.CheckRow(schema, bucketstore.Row{Key: []byte(key), Cells: []bucketstore.Cell{{Value: []byte("{}")}}})
		if (err == nil) != want {
			t.Errorf("%q: %v", key, err)
		}
	}
}
