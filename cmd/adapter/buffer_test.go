package main

import (
	"strings"
	"testing"

	"github.com/alecthomas/units"
)

// TestBufferSizes: the default limits of log and memory depend on the backend.
func TestBufferSizes(t *testing.T) {
	bigtable := []string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i", "--buffer.enabled"}
	on := func(args ...string) []string { return append(bigtable[:4:4], args...) }
	for _, tt := range []struct {
		name        string
		args        []string
		log, memory units.Base2Bytes
		refused     string
	}{
		{"embedded", nil, 512 * units.MiB, 512 * units.MiB, ""},
		{"embedded, given", []string{"--buffer.max-log=4GiB", "--buffer.max-memory=64MiB"}, 4 * units.GiB, 64 * units.MiB, ""},
		{"Bigtable", bigtable, 12 * units.GiB, 2 * units.GiB, ""},
		{"Bigtable, the log given", on("--buffer.max-log=512MiB"), 512 * units.MiB, 2 * units.GiB, ""},
		{"Bigtable, the memory given", on("--buffer.max-memory=512MB"), 12 * units.GiB, 512 * units.MiB, ""},
		{"the least", []string{"--buffer.max-log=8MiB", "--buffer.max-memory=8MiB"}, 8 * units.MiB, 8 * units.MiB, ""},
		{"no log", []string{"--buffer.max-log=0"}, 0, 0, "--buffer.max-log=0"},
		{"little log", []string{"--buffer.max-log=8191KiB"}, 0, 0, "--buffer.max-log=7MiB1023KiB is too little: give it 8MiB"},
		{"less than no memory", []string{"--buffer.max-memory=-1GiB"}, 0, 0, "--buffer.max-memory=-1GiB"},
		{"little memory on Bigtable", on("--buffer.max-memory=1MiB"), 0, 0, "--buffer.max-memory=1MiB"},
		{"no number", []string{"--buffer.max-memory=much"}, 0, 0, "--buffer.max-memory=much: give a size such as"},
		{"more than there is", []string{"--buffer.max-log=9999999999GiB"}, 0, 0, "--buffer.max-log=9999999999GiB: give a size"},
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
			cfg := bufferConfig(o)
			if cfg.MaxLogBytes != int(tt.log) || cfg.MaxOpenBytes != int(tt.memory) {
				t.Errorf("log %d, memory %d", cfg.MaxLogBytes, cfg.MaxOpenBytes)
			}
			for name, want := range map[string]units.Base2Bytes{"buffer.max-log": tt.log, "buffer.max-memory": tt.memory} {
				if got := o.api.Flags[name]; got != want.String() {
					t.Errorf("the API says --%s=%s, want %s", name, got, want)
				}
			}
		})
	}
}
