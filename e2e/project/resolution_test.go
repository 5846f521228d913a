package project

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// oneDay is a row for the table of resolutions. series/rollup/testdata has the golden bytes of its cells.
const oneDay = `	{name: "1d", span: Day, layer: 8, layerSpan: series.Period, maxResets: 8, cost: 100},
`

// TestAddResolution: a row is all that another resolution takes. Tests of what is made, stored, read, planned and expired at each resolution run in
// binaries whose table has one of a day.
func TestAddResolution(t *testing.T) {
	const file = "series/rollup/resolution.go"
	path := filepath.Join("..", "..", filepath.FromSlash(file))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, table, ok := strings.Cut(string(text), "\nvar table = [...]resolution{\n")
	rows, after, isWhole := strings.Cut(table, "\n}\n")
	if !ok || !isWhole {
		t.Fatalf("%s has no table", file)
	}
	dir := t.TempDir()
	longer := filepath.Join(dir, "resolution.go")
	text = []byte(before + "\nvar table = [...]resolution{\n" + rows + "\n" + oneDay + "}\n" + after)
	if err := os.WriteFile(longer, text, 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.FromSlash(file): longer}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STORETEST_PERCENT", "10") // of the rounds of random tests
	for name, run := range map[string]string{
		"series/rollup":      ".",
		"bucketstore/pebble": "^TestConformance$/^tiny_tables_in_memory$/^(as_old_as|older_than)_",
		"remote/engine":      "^(TestEveryResolution|TestRollups)$",
	} {
		out, err := harness.GoOutput(".", "test", "-vet=off", "-overlay="+filepath.Join(dir, "overlay.json"), "-run="+run, "./"+name)
		if err != nil {
			t.Errorf("%s\n%v", out, err)
		}
	}
}
