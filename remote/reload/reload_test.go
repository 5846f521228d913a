package reload_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/promtable/promtable/remote/reload"
)

// TestMain wants no goroutine to outlive the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReload: a file that changes is read again. If it is wrong then, the value before stays, and a log line and a metric say so.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "number")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var lines bytes.Buffer
	good := prometheus.NewGauge(prometheus.GaugeOpts{Name: "good"})
	cfg := reload.Config[int]{
		Path: path, Logger: log.NewLogfmtLogger(&lines), Good: good,
		Parse: func(text []byte) (int, error) { return strconv.Atoi(string(text)) },
	}
	if _, err := reload.Open(cfg); !os.IsNotExist(err) {
		t.Errorf("without a file: %v", err)
	}
	write("one")
	if _, err := reload.Open(cfg); err == nil || !strings.HasPrefix(err.Error(), "file "+path+", ") || !errors.Is(err, strconv.ErrSyntax) {
		t.Errorf("of a wrong file: %v", err)
	}
	write("1")
	f, err := reload.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := func(value int, isGood float64, failure string, logged ...string) {
		t.Helper()
		f.Reload()
		f.Reload()
		got, err := f.Value()
		if got != value || (err == nil) != (failure == "") || err != nil && !strings.Contains(err.Error(), failure) {
			t.Errorf("%d, %v; want %d, %q", got, err, value, failure)
		}
		if got := testutil.ToFloat64(good); got != isGood {
			t.Errorf("the metric is %g", got)
		}
		if text := lines.String(); strings.Count(text, "\n") != min(1, len(logged)) {
			t.Errorf("logged is %q", text)
		}
		for _, part := range logged {
			if !strings.Contains(lines.String(), part) {
				t.Errorf("%q lacks %q", lines.String(), part)
			}
		}
		lines.Reset()
	}
	want(1, 1, "")
	write("2")
	want(2, 1, "", "level=info", path)
	write("two")
	want(2, 0, "invalid syntax", "level=error", "before stays in force", path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want(2, 0, "no such file", "level=error", "no such file")
	write("2")
	want(2, 1, "", "level=info")
	if f.Path() != path {
		t.Errorf("path %s", f.Path())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.Run(ctx) // returns
}
