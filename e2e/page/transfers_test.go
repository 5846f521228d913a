//go:build browser

package page

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestPageTransfers: Status shows an import that runs, how far it is, and stops it when it has asked; then the command ends and says so, and the same command goes on.
func TestPageTransfers(t *testing.T) {
	t.Parallel()
	a := startPaged(t, "--web.enable-admin-api")
	p := newPage(t, a)
	p.open("tab", "status")
	if got := p.texts("h2"); strings.Contains(strings.Join(got, "\n"), "Imports") {
		t.Errorf("without an import there is %q", got)
	}
	var text strings.Builder
	const series, samples = 50, 200
	for n := range series {
		for i := range samples {
			fmt.Fprintf(&text, "moved{n=\"%d\"} %d %d\n", n, i, harness.NowMillis()/1000-3600+int64(i))
		}
	}
	text.WriteString("# EOF\n")
	file := filepath.Join(t.TempDir(), "moved.txt")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	command := []string{"import", "openmetrics", file, "--url=" + a.URL("")}
	running := harness.StartCommand(t, harness.Backend{}, append(command, "--samples-per-second=20")...)
	row := fmt.Sprintf(`[...%s.querySelectorAll("tr")].find((r) => r.cells[1].innerText === %q)`, shown, file)
	p.await(`/^Running/.test(` + row + `?.cells[6].innerText)`)
	cells := evaluate[[]string](p, `[...`+row+`.cells].map((c) => c.innerText.trim())`)
	if len(cells) != 8 || cells[0] != "Import" || cells[2] != "0 of 1" || cells[5] != "0" || cells[7] != "Stop" {
		t.Errorf("the import is listed as %q", cells)
	}
	open := func() {
		t.Helper()
		evaluate[bool](p, `(() => { `+row+`.querySelector("button").click(); return true })()`)
		if got := evaluate[string](p, `document.querySelector("dialog.confirm").innerText`); !harness.ContainsAll(got, []string{"Stop this import?", file, "goes on with the rest"}) {
			t.Errorf("the page asks %q", got)
		}
	}
	p.eachLook(func(look string) {
		p.open("tab", "status")
		p.await(row + ` !== undefined`)
		p.shoot("transfers-" + look)
		p.checkContrast("imports, " + look)
		p.checkAxe("imports, " + look)
		open()
		p.answerDialog(":first-child")
	})
	if running.State() != nil {
		t.Fatal("an import that may run on has ended")
	}
	open()
	p.answerDialog(":last-child")
	running.WaitUndone(t)
	if got := running.Printed(); !strings.Contains(got, "stopped by an operator of the adapter; what is imported stays, and the same command goes on with the rest") {
		t.Errorf("the command says %s", got)
	}
	p.await(`/stopped by an operator/.test(` + row + `?.cells[6].innerText)`)
	if code, output := harness.RunCommand(t, harness.Backend{}, command...); code != 0 || !strings.Contains(output, fmt.Sprintf("imported %d samples", series*samples)) {
		t.Errorf("the same command: %d\n%s", code, output)
	}
	p.await(fmt.Sprintf(`[...%s.querySelectorAll("tr")].some((r) => r.cells[6]?.innerText === "Done" && r.cells[3].innerText === "10,000")`, shown))
}
