package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// A walk is a page of docs whose commands are run, in other directories and at other addresses.
type walk struct {
	*testing.T
	dir     string
	replace *strings.Replacer
	// served are adapters that the page has started, the last one last.
	served []*harness.Process
}

// run runs a block of commands, one after the other. Those that start an adapter go on, and a question about what comes with time is asked again.
func (w *walk) run(block string) {
	w.Helper()
	var plain []string
	flush := func() {
		if len(plain) > 0 {
			if output, err := w.shell(strings.Join(plain, "\n")); err != nil {
				w.Fatalf("%s\n%v\n%s", strings.Join(plain, "\n"), err, output)
			}
		}
		plain = nil
	}
	for line := range strings.Lines(block) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "adapter --storage.path="):
			flush()
			words := strings.Fields(w.replace.Replace(line))[1:]
			p := harness.StartCommand(w, harness.Backend{}, append(words, "--self-scrape-interval=1s")...)
			p.WaitLine(w, `msg="ready to serve"`)
			w.served = append(w.served, p)
		case strings.HasPrefix(line, "openssl ") && !hasProgram("openssl"):
			flush()
			dir := w.replace.Replace("/etc/promtable")
			writeCertificate(w, dir)
			plain = append(plain, "cd "+dir, "mv cert.pem tls.crt", "mv key.pem tls.key")
		case strings.HasPrefix(line, "adapter doctor"), strings.Contains(line, "query=count(up)"):
			flush()
			harness.Eventually(w, line, func() error {
				output, err := w.shell(line)
				if err == nil && !strings.Contains(output, "Nothing is wrong.") && !strings.Contains(output, `"value":`) {
					err = errors.New("nothing is found")
				}
				if err != nil {
					return fmt.Errorf("%w: %s", err, output)
				}
				return nil
			})
		default:
			plain = append(plain, line)
		}
	}
	flush()
}

func hasProgram(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

func (w *walk) shell(script string) (string, error) {
	cmd := exec.CommandContext(w.Context(), "sh", "-e", "-c", w.replace.Replace(script))
	cmd.Dir, cmd.Env = w.dir, append(os.Environ(), "PATH="+w.dir+":"+os.Getenv("PATH"))
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// write writes a file that the page shows, whose first line is a comment with its path, or adds to one.
func (w *walk) write(block string) {
	w.Helper()
	head, text, _ := strings.Cut(block, "\n")
	path, adds := strings.CutPrefix(strings.TrimPrefix(head, "# "), "add to ")
	path = w.replace.Replace(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.Fatal(err)
	}
	before := []byte(nil)
	if adds {
		var err error
		if before, err = os.ReadFile(path); err != nil {
			w.Fatal(err)
		}
	}
	if err := os.WriteFile(path, append(before, w.replace.Replace(text)...), 0o600); err != nil {
		w.Fatal(err)
	}
}

// TestHour goes through docs/first-hour.md with a real Prometheus, and then again as who comes from Mimir.
func TestHour(t *testing.T) {
	page, err := os.ReadFile("../../docs/first-hour.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```(sh|sh mimir|yaml)\n(.+?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 12 {
		t.Fatalf("the page has %d blocks", len(blocks))
	}
	p := harness.StartPrometheus(t, "--web.enable-admin-api", "--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=10y")
	now := harness.NowMillis()
	start := now - 30*24*time.Hour.Milliseconds()
	for from := start; from < now-3*time.Hour.Milliseconds(); from += time.Hour.Milliseconds() { // what Prometheus has of before
		var batch []harness.SentSeries
		for i := range 5 {
			s := harness.SeriesOf(labels.FromStrings("__name__", "requests_total", "i", fmt.Sprint(i)))
			for at := from; at < from+time.Hour.Milliseconds(); at += 60_000 {
				s.Points = append(s.Points, harness.PointAt(at, float64(at-start)/1000))
			}
			batch = append(batch, s)
		}
		harness.RemoteWrite2().MustSend(t, p.URL("/api/v1/write"), batch...)
	}
	p.Configure(t, harness.ScrapeConfig(harness.Job{Name: "prometheus", Targets: []string{p.Addr}}))
	p.AwaitScrapes(t, 1, harness.NowMillis()) // which begin later: a head that has a sample of now takes none of before

	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	port := func() string {
		_, port, _ := strings.Cut(harness.FreeAddress(t), ":")
		return port
	}
	public, operators := port(), port()
	w := &walk{T: t, dir: dir, replace: strings.NewReplacer(
		"/etc/promtable", dir+"/etc/promtable", "/etc/prometheus", dir+"/etc/prometheus", "/var/lib/promtable", dir+"/var/promtable", "/var/lib/prometheus", p.Data(),
		"/backup/promtable", dir+"/backup", "/tmp/promtable-restored", dir+"/restored", "/mimir/", dir+"/mimir/",
		"localhost:9090", p.Addr, "=:9201", "=127.0.0.1:"+public, "localhost:9201", "localhost:"+public, "=localhost:9202", "=127.0.0.1:"+operators, "localhost:9202", "localhost:"+operators,
		"2026-01-01T00:00:00Z", harness.FormatSeconds(start), "2026-02-01T00:00:00Z", harness.FormatSeconds(now-60_000),
		"adapter estimate ", "adapter estimate --measure-for=3s ",
	)}
	must(os.Symlink(harness.AdapterProgram(t), filepath.Join(dir, "adapter")))
	must(os.Symlink(harness.PromtoolProgram(t), filepath.Join(dir, "promtool")))
	must(os.MkdirAll(dir+"/etc/prometheus/promtable", 0o755))
	must(os.Symlink(p.ConfigFile(), dir+"/etc/prometheus/prometheus.yml"))
	for _, name := range []string{"alerts.yml", "rules.yml"} {
		text, err := os.ReadFile(filepath.Join(harness.ModuleRoot, "deploy", "prometheus", name))
		must(err)
		must(os.WriteFile(filepath.Join(dir, "etc", "prometheus", "promtable", name), text, 0o600))
	}
	for _, block := range blocks {
		switch block[1] {
		case "sh":
			w.run(block[2])
		case "yaml":
			w.write(block[2])
		}
	}
	found, err := p.API("/api/v1/targets", nil)
	if err != nil || !strings.Contains(string(found), `"health":"up"`) || strings.Contains(string(found), `"health":"down"`) {
		t.Errorf("targets: %s, %v", found, err)
	}

	w.served[0].Terminate(t)
	must(os.CopyFS(filepath.Join(dir, "mimir", "team-a"), os.DirFS(snapshotDir(t, p.Data()))))
	users := filepath.Join(dir, "etc", "promtable", "users.yml")
	text, err := os.ReadFile(users)
	must(err)
	changed := regexp.MustCompile(`roles: \[(write, read|read)\]`).ReplaceAllString(string(text), "$0, tenants: [team-a]")
	changed = strings.Replace(changed, "roles: [admin]", "roles: [admin], tenants: ['*']", 1)
	must(os.WriteFile(users, []byte(changed), 0o600))
	i := slices.IndexFunc(blocks, func(b []string) bool { return strings.HasPrefix(b[2], "adapter --storage.path=") })
	w.run(strings.Replace(strings.TrimSpace(blocks[i][2]), "/var/lib/promtable", "/var/lib/promtable-of-tenants", 1) + " --tenancy")
	for _, block := range blocks {
		if block[1] == "sh mimir" {
			w.run(block[2])
		}
	}
	w.run(`adapter digest --tenant=team-a --start=2026-01-01T00:00:00Z --end=2026-02-01T00:00:00Z --match=requests_total --url=https://localhost:9201/api/v1/read --http.config.file=/etc/promtable/operator.yml > tenant.digest
adapter digest --start=2026-01-01T00:00:00Z --end=2026-02-01T00:00:00Z --match=requests_total --url=http://localhost:9090/api/v1/read > prometheus.digest
diff prometheus.digest tenant.digest
test $(wc -l < tenant.digest) -gt 20`)
}

// snapshotDir returns the directory of the snapshot that a Prometheus has.
func snapshotDir(t testing.TB, data string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(data, "snapshots", "*"))
	if err != nil || len(all) != 1 {
		t.Fatalf("%d snapshots, %v", len(all), err)
	}
	return all[0]
}
