package e2e

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// An adapter is the program under test, running.
type adapter struct {
	*process
	command command
	addr    string // host:port
}

// startAdapter starts an adapter on a free port and waits until it serves. It
// does not scrape itself unless args say so: tests compare what it holds with
// what was sent.
func startAdapter(t testing.TB, b backend, args ...string) *adapter {
	t.Helper()
	return startExactly(t, backend{args: adapterArgs(b.args, args), env: b.env})
}

// startExactly starts an adapter on a free port, with the flags of b and no
// others, and waits until it serves.
func startExactly(t testing.TB, b backend) *adapter {
	t.Helper()
	a := &adapter{command: command{path: adapterProgram(t), args: b.args, env: b.env}}
	a.run(t, "127.0.0.1:0")
	return a
}

// adapterArgs joins flags, and turns the scrape of itself off unless they turn it on.
func adapterArgs(args ...[]string) []string {
	all := slices.Concat(args...)
	if !slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, "--self-scrape-interval") }) {
		all = append(all, "--self-scrape-interval=0s")
	}
	return all
}

// run starts the program on addr and waits until it serves.
func (a *adapter) run(t testing.TB, addr string) {
	t.Helper()
	c := a.command
	c.args = append(slices.Clone(c.args), "--web.listen-address="+addr)
	a.process = start(t, "adapter", c)
	line := a.waitLine(t, `msg="ready to serve"`)
	m := regexp.MustCompile(`\baddress=(127\.0\.0\.1:[1-9][0-9]*)\b`).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("no real address in %q", line)
	}
	a.addr = m[1]
}

// rerun starts the program again, after it has ended, on the port it had.
func (a *adapter) rerun(t testing.TB) {
	t.Helper()
	a.run(t, a.addr)
}

// url returns the URL of a path.
func (a *adapter) url(path string) string { return "http://" + a.addr + path }

// metric returns the value of a metric that has no labels.
func (a *adapter) metric(t testing.TB, name string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(mustGet(t, a.url("/metrics"), nil).body)
	if m == nil {
		t.Fatalf("no metric %s", name)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
