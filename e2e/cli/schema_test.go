package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestSchemaApply changes the ages at which Bigtable deletes, shorter and longer. An adapter with a shorter retention starts only after that, so
// that it hides nothing that others keep. A retention that is lengthened shows nothing of what the shorter one let Bigtable delete. With rollups
// no day may be lost that has none; then none are made.
func TestSchemaApply(t *testing.T) {
	const all, raw = 20 * 24, "--retention.resolution-raw="
	withRollups := harness.Emulator(t)
	b := withRollups
	b.Args = append(slices.Clip(b.Args), "--retention.resolution-5m=off", "--retention.resolution-1h=off")
	run := func(wantCode int, parts []string, flags ...string) {
		t.Helper()
		code, output := harness.RunCommand(t, b, append([]string{"schema", "apply"}, flags...)...)
		if code != wantCode || !harness.ContainsAll(output, parts) {
			t.Fatalf("schema apply %v: code %d, want %d and %q:\n%s", flags, code, wantCode, parts, output)
		}
	}
	now := harness.NowMillis()
	serve := func(hours int, warning string, flags ...string) {
		t.Helper()
		a := harness.StartAdapter(t, b, flags...)
		wantHours(t, a, now, hours)
		if warning != "" {
			a.WaitLine(t, warning)
		}
		a.Terminate(t)
	}

	run(0, []string{"METRIC", "missing", "nothing was changed"}, "--dry-run")
	run(0, []string{"created family r3 of METRIC"}, "--yes")
	a := harness.StartAdapter(t, b, "--no-bigtable.create-tables")
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), hourly(now, all-1, 0))
	a.Terminate(t)

	refused := func(flags ...string) {
		t.Helper()
		code, output := harness.RunCommand(t, b, append(flags, "--web.listen-address=127.0.0.1:0")...)
		if code != 1 || !harness.ContainsAll(output, []string{"--retention.resolution-raw: this adapter would keep 3d", "all adapters of the store keep for ever", "run adapter schema apply"}) {
			t.Errorf("a start with %v: code %d:\n%s", flags, code, output)
		}
	}
	for _, flag := range []string{"--dry-run", "--yes"} {
		refused(raw + "3d")
		if code, output := harness.RunCommand(t, withRollups, "schema", "apply", flag, raw+"3d"); code != 1 || !strings.Contains(output, "days would be lost, for they have no rollup yet: ") {
			t.Errorf("days without rollups: code %d:\n%s", code, output)
		}
	}
	run(0, []string{"each adapter keeps 3d now, and will keep for ever"}, "--yes")
	for range 2 { // A dry run changes nothing, and neither does a run that cannot ask.
		run(0, []string{"cells older than 10d", "which are kept for ever now", "nothing was changed"}, "--dry-run", raw+"3d")
	}
	run(1, []string{"not confirmed; nothing was changed"}, raw+"3d") // the input is empty
	refused(raw + "3d")
	serve(all, "")
	run(0, []string{"changed family c of METRIC", "changed family i of INDEX"}, "--yes", raw+"3d")
	run(0, []string{"nothing to apply: all is as wanted"}, "--yes", raw+"3d")
	serve(3*24, "", raw+"3d")

	serve(10*24-1, `to_keep_more="adapter schema apply"`, raw+"30d") // the horizon is an hour ahead of the age
	run(0, []string{"cells will be kept for 37d, and not be deleted at the age of 10d", "stays hidden: the horizon"}, "--yes", raw+"30d")
	run(0, []string{"nothing to apply"}, "--yes", raw+"30d")
	serve(10*24-1, "", raw+"30d")

	embedded := harness.Embedded(t)
	if code, output := harness.RunCommand(t, embedded, "schema", "apply"); code != 0 || !strings.Contains(output, "nothing to apply: the embedded store") {
		t.Errorf("code %d:\n%s", code, output)
	}
}
