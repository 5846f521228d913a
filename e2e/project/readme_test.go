package project

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestDocumentedFlags compares the table in docs/configuration.md with --help: the
// same flags, in the same order, with the same defaults.
func TestDocumentedFlags(t *testing.T) {
	help, err := exec.Command(harness.AdapterProgram(t), "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("adapter --help: %v\n%s", err, help)
	}
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	want, got := helpFlags(string(help)), documentedFlags(string(page))
	if len(want) < 20 {
		t.Fatalf("adapter --help names only %d flags:\n%s", len(want), help)
	}
	if w, g := strings.Join(want, "\n"), strings.Join(got, "\n"); w != g {
		t.Errorf("docs/configuration.md has these flags:\n%s\n--help has these:\n%s", g, w)
	}
}

// offSwitches are the switches that are off by default.
var offSwitches = []string{"tenancy", "tenancy.create", "tenancy.keep-label", "web.enable-admin-api", "web.health-without-credentials", "web.read-only-boards", "bigtable.direct-access", "bigtable.client-metrics"}

// helpFlags returns "name default" for each flag of a help text.
func helpFlags(help string) []string {
	line := regexp.MustCompile(`(?m)^ {2,6}(?:-., )?--(\[no-\])?([a-z0-9.-]+)(?:=(\S+))?`)
	var flags []string
	for _, m := range line.FindAllStringSubmatch(help, -1) {
		name, value := m[2], strings.Trim(m[3], `"`)
		switch {
		case name == "help" || name == "version":
			continue
		case m[1] != "":
			value = fmt.Sprint(!slices.Contains(offSwitches, name)) // help does not say
		case value == strings.ToUpper(name):
			value = "" // kingpin prints the name where there is no default
		}
		flags = append(flags, name+" "+value)
	}
	return flags
}

// documentedFlags returns "name default" for each row of the table of flags.
func documentedFlags(page string) []string {
	row := regexp.MustCompile("(?m)^\\| `--([a-z0-9.-]+)` \\| (?:`([^`]*)`)? ?\\|")
	var flags []string
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		flags = append(flags, m[1]+" "+m[2])
	}
	return flags
}
