package acceptance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestCompliance wants every MUST, SHOULD and MAY of the suite to pass.
func TestCompliance(t *testing.T) {
	suite := harness.ComplianceProgram(t)
	for _, open := range []func(testing.TB) harness.Backend{harness.Embedded, harness.Emulator} {
		b := open(t)
		t.Run(b.Name, func(t *testing.T) {
			a := harness.StartAdapter(t, b)
			config := filepath.Join(t.TempDir(), "config.yml")
			text := fmt.Sprintf("remote_write:\n  - name: adapter\n    url: %s\n", a.URL("/api/v1/write"))
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(suite, "-test.v")
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "PROMETHEUS_RW2_COMPLIANCE_CONFIG_FILE="+config)
			output, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("the suite: %v", err)
			}
			count := func(pattern string) int {
				return len(regexp.MustCompile(`(?m)`+pattern).FindAllIndex(output, -1))
			}
			for _, line := range regexp.MustCompile(`(?m)^ *--- (FAIL|SKIP): .*$`).FindAllString(string(output), -1) {
				t.Error(strings.TrimSpace(line))
			}
			if must, passed := count(`rfcLevel MUST$`), count(`^ *--- PASS: `); must < 50 || passed < 300 {
				t.Errorf("%d tests passed, %d of them for a MUST: that is not the whole suite\n%s", passed, must, output)
			}
			t.Logf("%d passed, levels: %d MUST, %d SHOULD, %d MAY", count(`^ *--- PASS: `),
				count(`rfcLevel MUST$`), count(`rfcLevel SHOULD$`), count(`rfcLevel MAY$`))
		})
	}
}
