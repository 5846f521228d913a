package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// TestSnapshotObjects: snapshots of an adapter that serves go to a server that speaks S3, only what is new is sent, also when uploads fail and after a kill; each can be
// restored, and one is verified against the adapter. Two writers at once do not disturb each other.
func TestSnapshotObjects(t *testing.T) {
	t.Parallel() // it waits for a minute
	s3 := harness.StartObjects(t)
	place := "s3://" + s3.Bucket + "/promtable/a"
	b := harness.WithBuffer(harness.Embedded(t), t.TempDir())
	b.Env = append(b.Env, s3.Env()...)
	command := func(words ...string) (int, string) {
		t.Helper()
		return harness.RunCommand(t, b, words...)
	}
	if code, output := command("snapshot", "verify", place); code == 0 || !strings.Contains(output, place+" has no snapshot") {
		t.Errorf("of an empty bucket: %d\n%s", code, output)
	}
	now := harness.NowMillis()
	a := harness.StartAdapter(t, b, "--web.enable-admin-api", "--snapshot.bucket="+place)
	if v := a.Metric(t, "adapter_snapshot_bucket_last_success_timestamp_seconds"); v != 0 {
		t.Errorf("the last snapshot was taken at %v", v)
	}
	names := func(want int) []string {
		t.Helper()
		code, output := command("snapshot", "list", place)
		found := regexp.MustCompile(`(?m)^\d{8}T\d{6}\.\d{3}Z .*$`).FindAllString(output, -1)
		if code != 0 || len(found) != want {
			t.Fatalf("%d snapshots, want %d: %d\n%s", len(found), want, code, output)
		}
		return found
	}
	take := func(words ...string) (sent string) {
		t.Helper()
		code, output := command(append([]string{"snapshot", place, "--url=" + a.URL("")}, words...)...)
		m := regexp.MustCompile(`a snapshot is finished.* bytes=(\d+) sent=(\d+)`).FindStringSubmatch(output)
		if code != 0 || m == nil {
			t.Fatalf("%d\n%s", code, output)
		}
		if m[1] == m[2] {
			return "all"
		}
		return m[2]
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), hourly(now, 99, 50), noise(now))
	if sent := take(); sent != "all" {
		t.Errorf("the first snapshot has sent %s", sent)
	}
	first, _, _ := strings.Cut(names(1)[0], " ")
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), hourly(now, 49, 0))
	s3.Fail(9)
	if sent := take(); sent == "all" {
		t.Errorf("the second snapshot has sent %s", sent)
	}
	names(2)
	file := filepath.Join(t.TempDir(), "objects.yml") // in place of the environment
	text := fmt.Sprintf("type: S3\nconfig: {endpoint: %q, insecure: true, access_key: id, secret_key: secret}\nprefix: promtable\n", strings.TrimPrefix(s3.URL, "http://"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, output := harness.RunCommand(t, harness.Backend{}, "snapshot", "list", "s3://"+s3.Bucket+"/a", "--objstore.config.file="+file); code != 0 || !strings.HasPrefix(output, first) {
		t.Errorf("by a file: %d\n%s", code, output)
	}

	code, output := command("snapshot", "verify", place, "--url="+a.URL(""), "--since=60d", "--days=2")
	if code != 0 || !strings.Contains(output, "all is well") || !strings.Contains(output, "2 days have the same samples as the adapter") || !strings.Contains(output, "verified: ") {
		t.Errorf("%d\n%s", code, output)
	}
	if found := names(2); !strings.Contains(found[0], "not verified") || strings.Contains(found[1], "not verified") {
		t.Errorf("%q", found)
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), harness.SeriesOf(labels.FromStrings("__name__", "late"), harness.PointAt(now-50*hour, 1), harness.PointAt(now-26*hour, 1), harness.PointAt(now-2*hour, 1)))
	if code, output := command("snapshot", "verify", place, "--url="+a.URL(""), "--since=4d", "--days=9"); code == 0 || !strings.Contains(output, "days the adapter has other samples of") {
		t.Errorf("of an adapter with more: %d\n%s", code, output)
	}

	// One is killed amid its uploads. Another is refused while it works, and takes over when it is dead.
	fill(t, a, now)
	s3.Hold(true)
	killed := harness.StartCommand(t, b, "snapshot", place, "--url="+a.URL(""))
	harness.Eventually(t, "it uploads", func() error {
		if s3.Held.Load() == 0 {
			return errors.New("nothing yet")
		}
		return nil
	})
	refused := harness.WithBuffer(harness.Embedded(t), t.TempDir()) // another store, which is closed
	refused.Env = b.Env
	other := harness.StartAdapter(t, refused)
	other.Terminate(t)
	if code, output := harness.RunCommand(t, refused, "snapshot", place); code == 0 || !strings.Contains(output, "another process writes snapshots there") {
		t.Errorf("beside one that writes: %d\n%s", code, output)
	}
	killed.Kill(t)
	s3.Hold(false)
	names(2)
	take("--keep=2") // waits until the lock is stale
	found := names(2)
	if strings.HasPrefix(found[0], first) {
		t.Errorf("the oldest has stayed: %q", found)
	}

	a.Kill(t)
	restored := harness.Backend{Name: "restored", Args: []string{"--storage.path=" + filepath.Join(t.TempDir(), "data")}, Env: b.Env}
	if code, output := harness.RunCommand(t, restored, "restore", place+"/"+first); code == 0 || !strings.Contains(output, "has no snapshot "+first) {
		t.Errorf("one that was removed: %d\n%s", code, output)
	}
	if code, output := harness.RunCommand(t, restored, "restore", place); code != 0 {
		t.Fatalf("%d\n%s", code, output)
	}
	again := harness.StartAdapter(t, restored, "--snapshot.bucket="+place)
	wantHours(t, again, now, 100)
	harness.Eventually(t, "it sees the snapshots", func() error {
		newest, verified := again.Metric(t, "adapter_snapshot_bucket_last_success_timestamp_seconds"), again.Metric(t, "adapter_snapshot_bucket_verified_timestamp_seconds")
		if soon := float64(harness.NowMillis()/1000 - 3600); newest < soon || verified < soon {
			return fmt.Errorf("newest %v, verified %v", newest, verified)
		}
		return nil
	})
	again.Terminate(t)
}

// TestSnapshotPlaces: what names no place is refused with a sentence.
func TestSnapshotPlaces(t *testing.T) {
	b := harness.Embedded(t)
	file := filepath.Join(t.TempDir(), "objects.yml")
	if err := os.WriteFile(file, []byte("type: GCS\nconfig: {bucket: other}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := harness.StartAdapter(t, b)
	a.Terminate(t)
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"snapshot", "ftp://x/y"}, "give a directory, s3://… or gs://…"},
		{[]string{"snapshot", "s3://"}, "give a directory, or a URL such as s3://bucket/directory"},
		{[]string{"snapshot", "s3://b/20260102T033000.000Z"}, "leave the name of the snapshot out"},
		{[]string{"snapshot", "s3://b/x", "--objstore.config.file=" + file}, "its type is GCS"},
		{[]string{"snapshot", "list", "gs://b/x", "--objstore.config.file=" + file}, "names another bucket, other"},
		{[]string{"snapshot", "verify", "--days=-1", "s3://b/x"}, "--days is negative"},
		{[]string{"snapshot", "list", "/tmp"}, "give a directory"},
	} {
		if code, output := harness.RunCommand(t, b, c.words...); code == 0 || !strings.Contains(output, c.want) {
			t.Errorf("%q: %d\n%s", c.words, code, output)
		}
	}
	dir := t.TempDir()
	if code, output := harness.RunCommand(t, b, "snapshot", "file://"+dir); code != 0 {
		t.Errorf("%d\n%s", code, output)
	}
	if code, output := harness.RunCommand(t, b, "snapshot", "verify", dir); code != 0 || !strings.Contains(output, "verified: "+dir) {
		t.Errorf("the newest in a directory: %d\n%s", code, output)
	}
}

// noise is a series whose samples take room.
func noise(now int64) harness.SentSeries {
	s := harness.SeriesOf(labels.FromStrings("__name__", "noise"))
	for i := range int64(20_000) {
		s.Points = append(s.Points, harness.Point{T: now - (20_000-i)*15_000, Bits: uint64(i) * 0x9e3779b97f4a7c15})
	}
	return s
}

// fill writes so much that a snapshot of it takes several uploads.
func fill(t *testing.T, a *harness.Adapter, now int64) {
	t.Helper()
	for n := range 5 {
		s := noise(now)
		s.Labels = slices.Concat(s.Labels, []string{"n", fmt.Sprint(n)})
		harness.RemoteWrite2().MustSend(t, a.URL("/write"), s)
	}
}
