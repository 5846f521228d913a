package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/bucketstore/disk"
	"github.com/promtable/promtable/remote/history"
)

// hoursText returns the path of a text with samples of 100 hours.
func hoursText(t *testing.T) string {
	t.Helper()
	text := filepath.Join(t.TempDir(), "text")
	var samples bytes.Buffer
	samples.WriteString("# TYPE hours gauge\n")
	first := time.Now().Add(-100 * time.Hour).Unix()
	for hour := range int64(100) {
		fmt.Fprintf(&samples, "hours %d %d\n", hour, first+hour*3600)
	}
	samples.WriteString("# EOF\n")
	if err := os.WriteFile(text, samples.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return text
}

// importText runs an import of a text into a store, with so many bytes of free space, and returns what it printed.
func importText(t *testing.T, ctx context.Context, logger log.Logger, text, dir string, free uint64, args ...string) (string, error) {
	t.Helper()
	o := parse(t, append([]string{"import", "openmetrics", text, "--storage.path=" + dir}, args...)...)
	o.diskUsage = func(string) (disk.Usage, error) { return disk.Usage{Free: free, Total: 200 << 30}, nil }
	var out bytes.Buffer
	o.out = &out
	err := importSamples(ctx, o, logger)
	return out.String(), err
}

// TestImportFullDisk: an import ends where a writer would be refused, and says why. With more space the same command brings all.
func TestImportFullDisk(t *testing.T) {
	text, dir := hoursText(t), filepath.Join(t.TempDir(), "data")
	if output, err := importText(t, t.Context(), log.NewNopLogger(), text, dir, 100); err == nil || !strings.Contains(err.Error(), "100 bytes free") || !strings.Contains(err.Error(), "the same command goes on") {
		t.Errorf("%v\n%s", err, output)
	}
	if output, err := importText(t, t.Context(), log.NewNopLogger(), text, dir, 100<<30); err != nil || !strings.Contains(output, "imported 100 samples") {
		t.Errorf("%v\n%s", err, output)
	}
}

// TestImportStops: an import whose context ends is a failure that says how to go on. A dry run makes no store.
func TestImportStops(t *testing.T) {
	text, dir := hoursText(t), filepath.Join(t.TempDir(), "data")
	if output, err := importText(t, t.Context(), log.NewNopLogger(), text, dir, 100<<30, "--dry-run"); err != nil || !strings.Contains(output, "would import 100 samples") {
		t.Errorf("%v\n%s", err, output)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a dry run has made %s: %v", dir, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stop := log.LoggerFunc(func(pairs ...any) error {
		if slices.Contains(pairs, any("imported a part")) {
			cancel()
		}
		return nil
	})
	if output, err := importText(t, ctx, stop, text, dir, 100<<30); err == nil || !strings.Contains(err.Error(), "stopped before") || !strings.Contains(err.Error(), "the same command goes on") {
		t.Errorf("%v\n%s", err, output)
	}
	if output, err := importText(t, t.Context(), log.NewNopLogger(), text, dir, 100<<30); err != nil || !strings.Contains(output, "1 parts were imported before") {
		t.Errorf("%v\n%s", err, output)
	}
}

// TestImportNothing: an import that stores nothing, or not all series, is a failure that says what it has found, and each time. A file with
// milliseconds where seconds are expected is said to be one.
func TestImportNothing(t *testing.T) {
	dir := t.TempDir()
	at := time.Now().Add(-time.Hour).Unix()
	for i, tt := range []struct {
		samples, want, output string
	}{
		{fmt.Sprintf("a 1 %d000\n", at), "nothing is imported", "look like milliseconds"},
		{fmt.Sprintf("a 1 %d\n", at+1_000_000), "nothing is imported", "--write.max-future"},
		{fmt.Sprintf("a 1 %d\na{x=\"%s\"} 1 %d\n", at, strings.Repeat("y", 5000), at), "1 series can never be stored", "imported 1 samples"},
	} {
		text, store := filepath.Join(dir, fmt.Sprint("text", i)), filepath.Join(dir, fmt.Sprint("store", i))
		if err := os.WriteFile(text, []byte("# TYPE a gauge\n"+tt.samples+"# EOF\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			output, err := importText(t, t.Context(), log.NewNopLogger(), text, store, 100<<30)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(output, tt.output) {
				t.Errorf("%s: %v\n%s", tt.samples[:10], err, output)
			}
		}
	}
	text, store := hoursText(t), filepath.Join(dir, "hours")
	for _, tt := range []struct{ flag, want string }{{"--concurrency=1", "imported 100"}, {"--concurrency=1", "nothing to do"}, {"--again", "imported 100"}} {
		if output, err := importText(t, t.Context(), log.NewNopLogger(), text, store, 100<<30, tt.flag); err != nil || !strings.Contains(output, tt.want) {
			t.Errorf("%s: %v\n%s", tt.flag, err, output)
		}
	}
	// What is not kept, and is with another flag.
	kept := filepath.Join(dir, "kept")
	off := []string{"--retention.resolution-raw=3d", "--retention.resolution-5m=off", "--retention.resolution-1h=off"}
	if output, err := importText(t, t.Context(), log.NewNopLogger(), text, kept, 100<<30, off...); err != nil || !strings.Contains(output, "are before what is kept") {
		t.Errorf("%v\n%s", err, output)
	}
	if output, err := importText(t, t.Context(), log.NewNopLogger(), text, kept, 100<<30); err != nil || strings.Contains(output, "nothing to do") {
		t.Errorf("%v\n%s", err, output)
	}
}

// TestImportDeleted: what was imported, and is deleted then, is imported again by the same command; what a deletion does not touch is not
// read again. A deletion that is not finished is finished first, as it would remove what is imported.
func TestImportDeleted(t *testing.T) {
	for name, finish := range map[string]bool{"finished": true, "pending": false} {
		t.Run(name, func(t *testing.T) {
			text, dir := hoursText(t), filepath.Join(t.TempDir(), "data")
			mustPrint := func(want string) {
				t.Helper()
				if output, err := importText(t, t.Context(), log.NewNopLogger(), text, dir, 100<<30); err != nil || !strings.Contains(output, want) {
					t.Fatalf("want %q: %v\n%s", want, err, output)
				}
			}
			mustPrint("imported 100 samples")
			end := time.Now().Add(-99*time.Hour + time.Minute).UTC().Format(time.RFC3339) // two samples of the first part
			o := parse(t, "delete", "--match=hours", "--end="+end, "--yes", "--storage.path="+dir)
			ctx, cancel := context.WithCancel(t.Context())
			var out io.Writer = new(bytes.Buffer)
			if !finish { // it says "removing them" when they are hidden
				out = writerFunc(func(p []byte) (int, error) {
					if bytes.Contains(p, []byte("removing them")) {
						cancel()
					}
					return len(p), nil
				})
			}
			o.out = out
			if err := deleteSamples(ctx, o, log.NewNopLogger()); (err == nil) != finish {
				t.Fatal(err)
			}
			cancel()
			mustPrint("were imported before")
			mustPrint("nothing to do")
			o = parse(t, "delete", "--match=hours", "--yes", "--storage.path="+dir)
			var plan bytes.Buffer
			o.out = &plan
			if err := deleteSamples(t.Context(), o, log.NewNopLogger()); err != nil || !strings.Contains(plan.String(), " 100 samples") {
				t.Errorf("after all: %v\n%s", err, &plan)
			}
		})
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestImportHeaders: imports of two tenants of a source are not the same, in whatever order their headers are given.
func TestImportHeaders(t *testing.T) {
	for _, from := range []string{"remote-read", "victoriametrics"} {
		id := func(headers ...string) string {
			args := []string{"import", from, "http://localhost:1", "--start=1"}
			for _, header := range headers {
				args = append(args, "--header="+header)
			}
			source, id, err := parse(t, args...).source(t.Context(), log.NewNopLogger())
			if err != nil {
				t.Fatal(err)
			}
			if err := source.Close(); err != nil {
				t.Error(err)
			}
			return id
		}
		plain, a, b := id(), id("X-Scope-OrgID=a", "x=y"), id("X-Scope-OrgID=b", "x=y")
		if plain == a || a == b {
			t.Errorf("%s: IDs %s, %s and %s", from, plain, a, b)
		}
		if other := id("x=y", "X-Scope-OrgID=a"); other != a {
			t.Errorf("%s: IDs %s and %s of the same headers", from, a, other)
		}
	}
}

// TestRemoteSource: a series that a server divides between two frames is one for digest, copy and export.
func TestRemoteSource(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
		frames := remote.NewChunkedWriter(w, w.(http.Flusher))
		for at := range int64(2) {
			c := chunkenc.NewXORChunk()
			app, err := c.Appender()
			if err != nil {
				t.Error(err)
				return
			}
			app.Append(0, at, 1)
			frame, err := (&prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{{
				Labels: []prompb.Label{{Name: "__name__", Value: "a"}},
				Chunks: []prompb.Chunk{{MinTimeMs: at, MaxTimeMs: at, Type: prompb.Chunk_XOR, Data: c.Bytes()}},
			}}}).Marshal()
			if err == nil {
				_, err = frames.Write(frame)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}))
	defer server.Close()
	from, err := remoteSource(history.Server{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	set, err := from(t.Context(), 0, 10, allSeries()[0])
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for set.Next() {
		n++
	}
	if set.Err() != nil || n != 1 {
		t.Errorf("%d series, %v", n, set.Err())
	}
}

// TestImportFlags: flags that do not go together are refused.
func TestImportFlags(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"blocks"}, "required argument 'dir'"},
		{[]string{"blocks", filepath.Join(dir, "missing")}, "missing"},
		{[]string{"blocks", dir, "--match={"}, "--match={"},
		{[]string{"blocks", dir, "--start=2", "--end=1"}, "--start is after --end"},
		{[]string{"blocks", dir, "--samples-per-second=-1"}, "--samples-per-second=-1"},
		{[]string{"blocks", dir, "--concurrency=-1"}, "--concurrency is negative"},
		{[]string{"blocks", dir, "--dry-run", "--url=http://x"}, "leave --url out"},
	} {
		if _, err := parseFlags(append([]string{"import"}, tt.args...)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
}
