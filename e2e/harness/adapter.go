package harness

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// An Adapter is the program under test, running.
type Adapter struct {
	*Process
	command Command
	Addr    string // host:port
}

// StartAdapter starts an adapter on a free port and waits until it serves. It
// does not scrape itself unless args say so: tests compare what it holds with
// what was sent.
func StartAdapter(t testing.TB, b Backend, args ...string) *Adapter {
	t.Helper()
	return StartWithFlags(t, Backend{Args: adapterArgs(b.Args, args), Env: b.Env})
}

// StartWithFlags starts an adapter on a free port, with the flags of b and no
// others, and waits until it serves.
func StartWithFlags(t testing.TB, b Backend) *Adapter {
	t.Helper()
	a := &Adapter{command: Command{Path: AdapterProgram(t), Args: b.Args, Env: b.Env}}
	a.run(t, "127.0.0.1:0")
	return a
}

// adapterArgs joins flags, and turns the scrape of itself off unless they set it.
func adapterArgs(args ...[]string) []string {
	all := slices.Concat(args...)
	if !slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, "--self-scrape-interval") }) {
		all = append(all, "--self-scrape-interval=0s")
	}
	return all
}

// run starts the program on addr and waits until it serves.
func (a *Adapter) run(t testing.TB, addr string) {
	t.Helper()
	c := a.command
	c.Args = append(slices.Clone(c.Args), "--web.listen-address="+addr)
	a.Process = start(t, "adapter", c)
	line := a.WaitLine(t, `msg="ready to serve"`)
	m := regexp.MustCompile(`\baddress=(127\.0\.0\.1:[1-9][0-9]*)\b`).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("no real address in %q", line)
	}
	a.Addr = m[1]
}

// Rerun starts the program again, after it has ended, on the port it had.
func (a *Adapter) Rerun(t testing.TB) {
	t.Helper()
	a.run(t, a.Addr)
}

// URL returns the URL of a path.
func (a *Adapter) URL(path string) string { return "http://" + a.Addr + path }

// Metric returns the value of a metric that has no labels.
func (a *Adapter) Metric(t testing.TB, name string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(MustGet(t, a.URL("/metrics"), nil).Body)
	if m == nil {
		t.Fatalf("no metric %s", name)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// StartCommand starts a subcommand of the adapter.
func StartCommand(t testing.TB, b Backend, words ...string) *Process {
	t.Helper()
	return start(t, "adapter "+words[0], Command{Path: AdapterProgram(t), Args: append(words, b.Args...), Env: b.Env})
}

// RunCommand runs a subcommand of the adapter to its end, and returns its exit
// code and what it printed.
func RunCommand(t testing.TB, b Backend, words ...string) (code int, output string) {
	t.Helper()
	p := StartCommand(t, b, words...)
	code = p.wait(t)
	return code, p.log.text()
}

// MustImport imports lines of OpenMetrics with a timestamp each, through a running adapter with the admin API.
func MustImport(t testing.TB, url string, lines ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "import.txt")
	if err := os.WriteFile(file, []byte(strings.Join(append(lines, "# EOF", ""), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, output := RunCommand(t, Backend{}, "import", "openmetrics", file, "--url="+url); code != 0 {
		t.Fatalf("import: %d\n%s", code, output)
	}
}

// CheckRefused runs the adapter and wants that it ends, with a last line that
// contains all parts.
func CheckRefused(t *testing.T, b Backend, parts ...string) {
	t.Helper()
	code, output := RunAdapter(t, b)
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if last := lines[len(lines)-1]; code == 0 || !ContainsAll(last, parts) || strings.Contains(last, "Server closed") {
		t.Errorf("code %d, last line without %q:\n%s", code, parts, output)
	}
}

// RunAdapter runs the adapter to its end, and returns its exit code and what it
// printed.
func RunAdapter(t testing.TB, b Backend, args ...string) (code int, output string) {
	t.Helper()
	args = append(adapterArgs(b.Args, args), "--web.listen-address=127.0.0.1:0")
	p := start(t, "adapter", Command{Path: AdapterProgram(t), Args: args, Env: b.Env})
	code = p.wait(t)
	return code, p.log.text()
}
