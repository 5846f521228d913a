package queries

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestReload: a file that changes is read again. If it is wrong then, the rules before stay, and a log line and a metric say so.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var lines bytes.Buffer
	if _, err := OpenBlockFile(path, log.NewNopLogger(), nil); !os.IsNotExist(err) {
		t.Errorf("without a file: %v", err)
	}
	write("= up\n=~ (")
	if _, err := OpenBlockFile(path, log.NewNopLogger(), nil); err == nil || !strings.HasPrefix(err.Error(), "file "+path+", line 2: ") {
		t.Errorf("of a wrong file: %v", err)
	}
	write("= up")
	f, err := OpenBlockFile(path, log.NewLogfmtLogger(&lines), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	want := func(blocked, allowed string, good float64, failure string, logged ...string) {
		t.Helper()
		f.reload()
		f.reload()
		if f.blocks([]string{blocked}) == nil || f.blocks([]string{allowed}) != nil {
			t.Errorf("the rules are %+v", f.State())
		}
		if got := testutil.ToFloat64(f.good); got != good || !strings.Contains(f.State().Error, failure) || (f.State().Error == "") != (failure == "") {
			t.Errorf("the metric is %g, the error %q", got, f.State().Error)
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
	want("up", "down", 1, "")
	write("= down\n= other")
	want("down", "up", 1, "", "level=info", "rules=2")
	write("= up\nup")
	want("down", "up", 0, "line 2: it is no rule", "level=error", "those before stay in force", "line 2")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want("other", "up", 0, "no such file", "level=error", "no such file")
	write("= down\n= other")
	want("down", "up", 1, "", "level=info")
	write("")
	f.reload()
	if s := f.State(); len(s.Rules) > 0 || s.Rules == nil || s.File != path {
		t.Errorf("of an empty file: %+v", s)
	}
}
