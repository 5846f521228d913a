package cli

import (
	"path/filepath"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestSnapshot takes snapshots of an adapter that serves, kills it, and restores one of them elsewhere. Then it takes one of
// the closed store.
func TestSnapshot(t *testing.T) {
	b, backups := harness.Embedded(t), t.TempDir()
	now := harness.NowMillis()
	a := harness.StartAdapter(t, b, "--web.enable-admin-api")
	take := func(words ...string) {
		t.Helper()
		words = append([]string{"snapshot", "--keep=2", backups}, words...)
		if code, output := harness.RunCommand(t, b, words...); code != 0 || !harness.ContainsAll(output, []string{"a snapshot is finished"}) {
			t.Fatalf("%d:\n%s", code, output)
		}
	}
	latest := func(want int) string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(backups, "20*"))
		if err != nil || len(found) != want {
			t.Fatalf("snapshots %q, %v", found, err)
		}
		return found[want-1]
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), hourly(now, 99, 50))
	take("--url=http://" + a.Addr)
	first := latest(1)
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), hourly(now, 49, 0))
	if code, output := harness.RunCommand(t, b, "snapshot", backups); code == 0 || !harness.ContainsAll(output, []string{"is in use by", "--url"}) {
		t.Errorf("while an adapter runs: %d:\n%s", code, output)
	}
	a.Kill(t)
	restored := harness.Backend{Name: "restored", Args: []string{"--storage.path=" + t.TempDir()}} // as a mounted disk
	if code, output := harness.RunCommand(t, restored, "restore", first); code != 0 {
		t.Fatalf("%d:\n%s", code, output)
	}
	if code, output := harness.RunCommand(t, restored, "restore", first); code == 0 || !harness.ContainsAll(output, []string{"is not empty"}) {
		t.Errorf("restored twice: %d:\n%s", code, output)
	}
	other := harness.StartAdapter(t, restored)
	n, err := harness.CountOverTime(other, "hourly", now-1000*hour)
	if err != nil || n != 50 {
		t.Errorf("%d samples, %v", n, err)
	}
	other.Terminate(t)

	take() // of the store that was killed: what its log has is in it
	second := latest(2)
	restored.Args = []string{"--storage.path=" + filepath.Join(t.TempDir(), "data"), "--buffer.path=" + filepath.Join(t.TempDir(), "log")}
	if code, output := harness.RunCommand(t, restored, "restore", second); code != 0 {
		t.Fatalf("%d:\n%s", code, output)
	}
	other = harness.StartAdapter(t, restored)
	wantHours(t, other, now, 100)
	other.Terminate(t)
}

// TestSnapshotRefused: of Bigtable there are none, and each error names what is wrong.
func TestSnapshotRefused(t *testing.T) {
	for _, c := range []struct {
		b     harness.Backend
		words []string
		want  string
	}{
		{harness.InProcess(t), []string{"snapshot", t.TempDir()}, "use its own backups"},
		{harness.InProcess(t), []string{"restore", t.TempDir()}, "use its own backups"},
		{harness.InProcess(t), []string{"snapshot", "verify", t.TempDir()}, "use its own backups"},
		{harness.Embedded(t), []string{"snapshot", filepath.Join(t.TempDir(), "missing")}, "missing"},
		{harness.Embedded(t), []string{"snapshot", t.TempDir()}, "no store in data directory"},
		{harness.Embedded(t), []string{"snapshot", "--url=x", t.TempDir()}, "--url=x"},
		{harness.Embedded(t), []string{"restore", t.TempDir()}, "has no file SNAPSHOT"},
	} {
		if code, output := harness.RunCommand(t, c.b, c.words...); code == 0 || !harness.ContainsAll(output, []string{c.want}) {
			t.Errorf("%q: %d:\n%s", c.words, code, output)
		}
	}
	a := harness.StartAdapter(t, harness.InProcess(t), "--web.enable-admin-api")
	answer, err := harness.RoundTrip(t.Context(), "POST", a.URL("/api/v1/admin/tsdb/snapshot"), nil, nil)
	if err != nil || answer.Status != 400 || !harness.ContainsAll(answer.String(), []string{"use its own backups"}) {
		t.Errorf("%s, %v", answer, err)
	}
}
