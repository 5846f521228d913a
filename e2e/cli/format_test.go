package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/e2e/harness"
)

var updateFormat = flag.Bool("update", false, "write the golden directory of rollups anew, and the answers from it")

const (
	// formatFolder has a directory of the format that the first release writes. cmd/adapter: TestFormats opens others.
	formatFolder = "testdata/format-1.0"
	// rolledFrom is the first second of what rolled.tar.gz has: three days, of which rollups alone are kept.
	rolledFrom, rolledDays = 1735689600, 3
)

// rolledArgs let the adapter keep rollups of what is older.
var rolledArgs = []string{"--retention.resolution-raw=90d", "--self-scrape-interval=0s"}

// TestFormatOfRollups: the program opens a copy of a directory that the first release wrote, and all its answers from
// rollups are what they were, to the last digit, at each of two starts. A float is printed with as many digits as tell its bits.
func TestFormatOfRollups(t *testing.T) {
	golden := filepath.Join(formatFolder, "rolled.answers")
	if *updateFormat {
		writeRolled(t)
	}
	dir := filepath.Join(t.TempDir(), "data")
	unpackRolled(t, dir)
	b := harness.Backend{Name: "embedded", Args: append([]string{"--storage.path=" + dir}, rolledArgs...)}
	for range 2 {
		a := harness.StartAdapter(t, b)
		got := rolledAnswers(t, a)
		a.Terminate(t)
		if *updateFormat {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Fatalf("the answers are\n%s\nwant\n%s", got, want)
		}
	}
}

// writeRolled imports three days of samples, makes rollups of them, and removes the samples.
func writeRolled(t *testing.T) {
	t.Helper()
	var text strings.Builder
	text.WriteString("# TYPE rolled_gauge gauge\n")
	awkward := []string{"0", "-0", "+Inf", "0.1", "5e-324", "-1.7976931348623157e+308", "NaN"}
	const interval = 60
	for i := range int64(rolledDays * 86400 / interval) {
		value := fmt.Sprint(float64(i*7919%1000) / 7)
		if i > 1440 && i < 1440+600 { // half a day
			value = awkward[i/60%int64(len(awkward))]
		}
		fmt.Fprintf(&text, "rolled_gauge{host=\"a,b\",zone=\"ä\"} %s %d\n", value, rolledFrom+i*interval)
	}
	text.WriteString("# TYPE rolled counter\n")
	for i := range int64(rolledDays * 86400 / interval) {
		fmt.Fprintf(&text, "rolled_total{host=\"one\"} %d %d\n", i%1000*3, rolledFrom+i*interval)
	}
	text.WriteString("# EOF\n")
	file, dir := filepath.Join(t.TempDir(), "text"), filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	b := harness.Backend{Name: "embedded", Args: []string{"--storage.path=" + dir, rolledArgs[0]}}
	for _, words := range [][]string{{"import", "openmetrics", file}, {"compact"}} { // which makes rollups and removes samples
		if code, output := harness.RunCommand(t, b, words...); code != 0 {
			t.Fatalf("%s: %d\n%s", words[0], code, output)
		}
	}
	packRolled(t, dir)
}

// packRolled packs the directory.
func packRolled(t *testing.T, dir string) {
	t.Helper()
	var packed bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(zipped)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == "RESERVE" { // space for a full disk, 64 MiB
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))})
		}
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	})
	if err := errors.Join(err, w.Close(), zipped.Close(), os.WriteFile(filepath.Join(formatFolder, "rolled.tar.gz"), packed.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// unpackRolled unpacks the golden directory.
func unpackRolled(t *testing.T, dir string) {
	t.Helper()
	packed, err := os.Open(filepath.Join(formatFolder, "rolled.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(unzipped); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		path := filepath.Join(dir, filepath.FromSlash(head.Name))
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// rolledAnswers asks for all that rollups tell of the directory, and for its labels.
func rolledAnswers(t *testing.T, a *harness.Adapter) string {
	t.Helper()
	var text strings.Builder
	note := func(path string, query url.Values) http.Header {
		t.Helper()
		target := path + "?" + query.Encode()
		resp := harness.MustGet(t, a.URL(target), nil)
		if resp.Status != http.StatusOK {
			t.Fatalf("%s: %v", target, resp)
		}
		fmt.Fprintf(&text, "%s\n%s\n\n", target, strings.TrimSpace(resp.Body))
		return resp.Header
	}
	limits := url.Values{"start": {fmt.Sprint(rolledFrom)}, "end": {fmt.Sprint(rolledFrom + rolledDays*86400)}}
	for _, query := range []string{
		"sum_over_time(rolled_gauge[1h])", "count_over_time(rolled_gauge[1h])", "min_over_time(rolled_gauge[1h])", "max_over_time(rolled_gauge[1h])",
		"avg_over_time(rolled_gauge[1h])", "last_over_time(rolled_gauge[1h])", "increase(rolled_total[1h])", "rate(rolled_total[5m])", "resets(rolled_total[1d])",
	} {
		step := 3600
		if strings.Contains(query, "5m") {
			step = 6900 // no multiple of an hour
		}
		header := note("/api/v1/query_range", url.Values{
			"query": {query}, "step": {fmt.Sprint(step)},
			"start": {fmt.Sprint(rolledFrom + step)}, "end": {fmt.Sprint(rolledFrom + int(rolledDays*24*time.Hour/time.Second))},
		})
		if got := header.Get("X-Promtable-Resolution"); !strings.Contains(got, "1h") && !strings.Contains(got, "5m") {
			t.Errorf("%s is answered from %q", query, got)
		}
	}
	note("/api/v1/series", url.Values{"match[]": {`{__name__=~"rolled.*"}`}, "start": limits["start"], "end": limits["end"]})
	note("/api/v1/label/zone/values", limits)
	return text.String()
}
