package bigtable

import (
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestCompact: compact waits until it has compared clocks, for a minute, and for its turn,
// up to half an hour. A stop in that time is no failure. TestSealed and package seal, which
// have clocks of their own, show what it seals.
func TestCompact(t *testing.T) {
	b := harness.Emulator(t)
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"once", nil},
		{"again and again", []string{"--interval=1m"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := harness.StartCommand(t, b, append([]string{"compact", "--log.level=debug"}, tt.args...)...)
			p.WaitLine(t, "sealing begins in half an hour at most")
			p.Terminate(t)
		})
	}
}

// TestCompactRefused: compact says why it cannot run.
func TestCompactRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		backend func(testing.TB) harness.Backend
		args    []string
		want    string
	}{
		{"no embedded store", harness.Embedded, []string{"compact"}, "no store in data directory"},
		{"buffer", harness.InProcess, []string{"compact", "--buffer.enabled"}, "--buffer.enabled"},
		{"sealing beside a buffer", harness.InProcess, []string{"--buffer.enabled", "--seal.enabled"}, "--buffer.enabled"},
		{"other rows", harness.InProcess, []string{"compact", "--schema.resource-label=host"}, "--schema.resource-label"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := tt.backend(t)
			if tt.name == "other rows" {
				harness.StartAdapter(t, b)
			}
			code, output := harness.RunAdapter(t, b, tt.args...)
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
	b := harness.Emulator(t)
	first, second := harness.StartAdapter(t, b), harness.StartAdapter(t, b)
	buffered := harness.StartAdapter(t, b, "--buffer.enabled", "--buffer.path="+t.TempDir())
	for _, tt := range []struct {
		name  string
		a     *harness.Adapter
		seals bool
	}{
		{"first", first, true},
		{"second", second, true},
		{"with a buffer", buffered, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if skew := tt.a.Metric(t, "adapter_clock_skew_seconds"); skew < -1 || skew > 1 {
				t.Errorf("clocks of one machine differ by %g s", skew)
			}
			page := harness.MustGet(t, tt.a.URL("/metrics"), nil).Body
			if has := strings.Contains(page, "\nadapter_seal_holds_lease "); has != tt.seals {
				t.Errorf("adapter_seal_holds_lease is there: %v", has)
			}
		})
	}
	for _, a := range []*harness.Adapter{first, second, buffered} {
		a.Terminate(t)
	}
}
