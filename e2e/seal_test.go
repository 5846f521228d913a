package e2e

import (
	"strings"
	"testing"
)

// TestCompact: a compact by itself waits until it has seen the clocks of others,
// a minute, and for its turn, up to half an hour; until then it can be stopped,
// which is no failure. What it seals is shown by TestSealed and package seal, which
// have clocks of their own.
func TestCompact(t *testing.T) {
	b := emulator(t)
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"once", nil},
		{"again and again", []string{"--interval=1m"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startCommand(t, b, append([]string{"compact", "--log.level=debug"}, tt.args...)...)
			p.waitLine(t, "sealing begins when clocks are compared")
			p.terminate(t)
		})
	}
}

// TestCompactRefused: what cannot be compacted is said.
func TestCompactRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		backend func(testing.TB) backend
		args    []string
		want    string
	}{
		{"embedded store", embedded, []string{"compact"}, "--storage.backend=bigtable"},
		{"buffer", inProcess, []string{"compact", "--buffer.enabled"}, "--buffer.enabled"},
		{"sealing beside a buffer", inProcess, []string{"--buffer.enabled", "--seal.enabled"}, "--buffer.enabled"},
		{"other rows", inProcess, []string{"compact", "--schema.resource-label=host"}, "--schema.resource-label"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := tt.backend(t)
			if tt.name == "other rows" {
				startAdapter(t, b)
			}
			code, output := runAdapter(t, b, tt.args...)
			lines := strings.Split(strings.TrimSpace(output), "\n")
			if last := lines[len(lines)-1]; code == 0 || !strings.Contains(last, tt.want) {
				t.Errorf("code %d, last line without %q:\n%s", code, tt.want, output)
			}
		})
	}
}

// TestSealMetrics: adapters on one Bigtable compare clocks, and those without a
// buffer seal.
func TestSealMetrics(t *testing.T) {
	b := emulator(t)
	first, second := startAdapter(t, b), startAdapter(t, b)
	buffered := startAdapter(t, b, "--buffer.enabled", "--buffer.path="+t.TempDir())
	for _, tt := range []struct {
		name  string
		a     *adapter
		seals bool
	}{
		{"first", first, true},
		{"second", second, true},
		{"with a buffer", buffered, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if skew := tt.a.metric(t, "adapter_clock_skew_seconds"); skew < -1 || skew > 1 {
				t.Errorf("clocks of one machine differ by %g s", skew)
			}
			page := mustGet(t, tt.a.url("/metrics"), nil).body
			if has := strings.Contains(page, "\nadapter_seal_holds_lease "); has != tt.seals {
				t.Errorf("adapter_seal_holds_lease is there: %v", has)
			}
		})
	}
	for _, a := range []*adapter{first, second, buffered} {
		a.terminate(t)
	}
}
