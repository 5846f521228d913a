package project

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// A unit is a file of systemd: the values of each key, by section and key.
type unit map[string][]string

// readUnit parses a unit of deploy/systemd. It does not support continued lines.
func readUnit(t testing.TB, name string) unit {
	t.Helper()
	u, section := make(unit), ""
	for line := range strings.Lines(mustReadFile(t, filepath.Join(harness.ModuleRoot, "deploy", "systemd", name))) {
		line = strings.TrimSpace(line)
		key, value, isSetting := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = strings.Trim(line, "[]") + "."
		case isSetting && section != "" && !strings.HasSuffix(line, `\`):
			u[section+key] = append(u[section+key], value)
		default:
			t.Fatalf("%s: the test cannot read %q", name, line)
		}
	}
	return u
}

// one returns the value of a key that is there once.
func (u unit) one(t testing.TB, key string) string {
	t.Helper()
	if len(u[key]) != 1 {
		t.Fatalf("%s is %q", key, u[key])
	}
	return u[key][0]
}

// command returns the arguments of the adapter that a service starts.
func (u unit) command(t testing.TB) []string {
	t.Helper()
	words := strings.Fields(u.one(t, "Service.ExecStart"))
	if words[0] != "/usr/local/bin/adapter" {
		t.Fatalf("it starts %s", words[0])
	}
	return words[1:]
}

// TestSystemd runs what the units run, but for addresses and directories, and wants services without rights that they do not need.
func TestSystemd(t *testing.T) {
	service, snapshot := readUnit(t, "promtable.service"), readUnit(t, "promtable-snapshot.service")
	for name, u := range map[string]unit{"promtable": service, "promtable-snapshot": snapshot} {
		for key, want := range map[string]string{
			"User": service.one(t, "Service.User"), "ProtectSystem": "strict", "ProtectHome": "true", "PrivateTmp": "true", "PrivateDevices": "true",
			"NoNewPrivileges": "true", "CapabilityBoundingSet": "",
		} {
			if got := u.one(t, "Service."+key); got != want {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
	}
	if user := service.one(t, "Service.User"); user == "" || user == "root" {
		t.Errorf("user %q", user)
	}
	if timer := readUnit(t, "promtable-snapshot.timer"); timer.one(t, "Timer.OnCalendar") == "" || timer.one(t, "Install.WantedBy") != "timers.target" {
		t.Errorf("timer %v", timer)
	}
	store := "/var/lib/" + service.one(t, "Service.StateDirectory")
	storeFlag := "--storage.path=" + store
	var admin string
	for _, arg := range service.command(t) {
		if address, ok := strings.CutPrefix(arg, "--web.admin-listen-address="); ok {
			admin = address
		}
	}
	operators, data, backup := harness.FreeAddress(t), t.TempDir(), t.TempDir()
	args := without(t, service.command(t), "--web.listen-address=")
	args = append(without(t, without(t, args, "--web.admin-listen-address="), storeFlag), "--web.admin-listen-address="+operators, "--storage.path="+data)
	a := harness.StartWithFlags(t, harness.Backend{Args: args})

	words := without(t, snapshot.command(t), storeFlag)
	writable := strings.Fields(snapshot.one(t, "Service.ReadWritePaths"))
	for i, word := range words {
		if text, ok := strings.CutPrefix(word, "--url="); ok {
			u, err := url.Parse(text)
			if err != nil || u.Hostname() != "localhost" || !strings.HasSuffix(admin, ":"+u.Port()) {
				t.Errorf("snapshots ask %s, the adapter listens on %s for operators", text, admin)
			}
			words[i] = "--url=http://" + operators
		}
	}
	into := words[len(words)-1]
	if !slices.Contains(writable, into) || !slices.Contains(writable, store) {
		t.Errorf("snapshots of %s go to %s, and %q may be written", store, into, writable)
	}
	words[len(words)-1] = backup
	if code, output := harness.RunCommand(t, harness.Backend{}, append(words, "--storage.path="+data)...); code != 0 {
		t.Fatalf("%q: %d\n%s", words, code, output)
	}
	if found, err := filepath.Glob(filepath.Join(backup, "*", "SNAPSHOT")); err != nil || len(found) != 1 {
		t.Errorf("snapshots: %q, %v", found, err)
	}
	a.Terminate(t)
}
