package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-kit/log"
)

// TestRelabel: each series is shown with what the rules of its tenant make of it, and a line that is none is named.
func TestRelabel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yml")
	text := `
defaults:
  metric_relabel_configs:
  - {source_labels: [__name__], regex: "debug_.*", action: drop}
  - {regex: pod, action: labeldrop}
overrides:
  a:
    metric_relabel_configs:
    - {source_labels: [env], regex: "(.+)", target_label: zone, replacement: "z-$1"}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args           []string
		in, want, fail string
	}{
		{nil, "debug_x{a=\"1\"}\n\nup{pod=\"p\",job=\"j\"}\nup\n",
			"{__name__=\"debug_x\", a=\"1\"} is dropped by rule 1\n{__name__=\"up\", job=\"j\", pod=\"p\"} becomes {__name__=\"up\", job=\"j\"}\n{__name__=\"up\"} stays\n", ""},
		{[]string{"--tenant=a"}, "debug_x{env=\"e\"}\n", "{__name__=\"debug_x\", env=\"e\"} becomes {__name__=\"debug_x\", env=\"e\", zone=\"z-e\"}\n", ""},
		{nil, "up\nup{\n", "{__name__=\"up\"} stays\n", "line 2: "},
		{[]string{"--no-dry-run"}, "", "", "stored series keep their labels"},
	} {
		o, err := parseFlags(append([]string{"relabel", "--limits.file=" + path}, tt.args...))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		o.in, o.out = strings.NewReader(tt.in), &out
		err = relabelSeries(t.Context(), o, log.NewNopLogger())
		if out.String() != tt.want || (err == nil) != (tt.fail == "") || err != nil && !strings.Contains(err.Error(), tt.fail) {
			t.Errorf("%q gives\n%s%v\nwant\n%s%s", tt.in, out.String(), err, tt.want, tt.fail)
		}
	}
	if err := os.WriteFile(path, []byte("overrides: {a: {metric_relabel_configs: [{action: labeldrop, source_labels: [x]}]}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parseFlags([]string{"relabel", "--limits.file=" + path, "--tenant=a"})
	if err == nil {
		err = relabelSeries(t.Context(), o, log.NewNopLogger())
	}
	if err == nil || !strings.Contains(err.Error(), "overrides: a: metric_relabel_configs: rule 1: labeldrop action requires") {
		t.Errorf("of a wrong rule: %v", err)
	}
}
