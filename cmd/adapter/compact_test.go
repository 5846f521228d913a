package main

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSealFlags: the default of sealing depends on backend and buffer.
func TestSealFlags(t *testing.T) {
	bigtable := []string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}
	on := func(args ...string) []string { return append(bigtable[:3:3], args...) }
	for _, tt := range []struct {
		name    string
		args    []string
		command string
		enabled bool
		refused string
	}{
		{"embedded", nil, commandServe, false, ""},
		{"embedded, without a buffer", []string{"--no-buffer.enabled"}, commandServe, false, ""},
		{"embedded, sealing", []string{"--seal.enabled"}, "", false, "--storage.backend=bigtable"},
		{"Bigtable", bigtable, commandServe, true, ""},
		{"Bigtable, told to serve", on("serve"), commandServe, true, ""},
		{"Bigtable, not sealing", on("--no-seal.enabled"), commandServe, false, ""},
		{"Bigtable with a buffer", on("--buffer.enabled"), commandServe, false, ""},
		{"Bigtable with a buffer, sealing", on("--buffer.enabled", "--seal.enabled"), "", false, "--buffer.enabled"},
		{"compact with a buffer", on("compact", "--buffer.enabled"), "", false, "--buffer.enabled"},
		{"no rows", on("--seal.rows-per-second=0"), "", false, "--seal.rows-per-second"},
		{"compact", on("compact"), commandCompact, true, ""},
		{"compact, the flags behind", append([]string{"compact", "--interval=1m"}, bigtable...), commandCompact, true, ""},
		{"compact an embedded store", []string{"compact"}, "", false, "--storage.backend=bigtable"},
		{"compact backwards", on("compact", "--interval=-1m"), "", false, "--interval"},
		{"interval of nothing", on("--interval=1m"), "", false, "interval"},
		{"unknown command", []string{"compress"}, "", false, "compress"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := parseFlags(tt.args)
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("error %v does not name %s", err, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if o.command != tt.command || o.seal.enabled != tt.enabled {
				t.Errorf("command %s, sealing %v", o.command, o.seal.enabled)
			}
			if got, want := o.api.Flags["seal.enabled"], strconv.FormatBool(tt.enabled); got != want {
				t.Errorf("the API says %s, want %s", got, want)
			}
			if strings.Contains(tt.name, "behind") && o.seal.interval != time.Minute {
				t.Errorf("interval %s", o.seal.interval)
			}
		})
	}
}
