package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryFlagNeedsItsValue: for every flag, an error names it when its value is empty or
// missing.
func TestEveryFlagNeedsItsValue(t *testing.T) {
	o, err := parseFlags(nil)
	if err != nil {
		t.Fatal(err)
	}
	switches := []string{"rollup.enabled", "bigtable.client-metrics", "bigtable.create-tables", "bigtable.direct-access", "buffer.enabled", "seal.enabled", "web.enable-admin-api", "web.health-without-credentials", "web.read-only-boards", "tenancy", "tenancy.create", "tenancy.keep-label", "auto-gomemlimit"}
	commands := map[string][]string{"interval": {commandCompact}, "match": {commandDelete}, "start": {commandDelete}, "end": {commandDelete}}
	names := slices.Collect(maps.Keys(commands))
	for name := range o.api.Flags {
		if !slices.Contains(switches, name) {
			names = append(names, name)
		}
	}
	if len(names) < 30 {
		t.Fatalf("only %d flags take a value: %s", len(names), names)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			flag := "--" + name
			for _, tt := range []struct {
				args []string
				want string
			}{
				{[]string{flag + "="}, flag + " is empty: give it a value, or leave it out for the default"},
				{[]string{flag, ""}, flag + " is empty: give it a value, or leave it out for the default"},
				{[]string{flag}, flag + " needs a value"},
				{[]string{flag, "--log.level=info"}, flag + " needs a value"},
				{[]string{flag, "--no-buffer.enabled"}, flag + " needs a value"},
			} {
				args := append(slices.Clone(commands[name]), tt.args...)
				if _, err := parseFlags(args); err == nil || err.Error() != tt.want {
					t.Errorf("%q: error %v, want %s", args, err, tt.want)
				}
			}
		})
	}
}

// TestValuesRefused: the error names the first wrong flag.
func TestValuesRefused(t *testing.T) {
	file := flagFile(t, "--log.level=info\n--storage.path\n")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no duration", []string{"--write.timeout=abc"}, "--write.timeout=abc: "},
		{"no number", []string{"--read.max-series", "many"}, "--read.max-series=many: "},
		{"no size", []string{"--buffer.max-log=large"}, "--buffer.max-log=large: give a size"},
		{"no such backend", []string{"--storage.backend=disk"}, "--storage.backend=disk: "},
		{"no duration of a command", []string{"compact", "--interval=often"}, "--interval=often: "},
		{"the second of two is empty", []string{"--web.listen-address=:0", "--web.listen-address="}, "--web.listen-address is empty"},
		{"the second of two is missing", []string{"--web.listen-address=:0", "--web.listen-address"}, "--web.listen-address needs a value"},
		{"before a command", []string{"--storage.path=", "serve"}, "--storage.path is empty"},
		{"behind a command", []string{"serve", "--storage.path="}, "--storage.path is empty"},
		{"of the command", []string{"compact", "--interval", "--storage.backend=bigtable"}, "--interval needs a value"},
		{"two are wrong", []string{"--storage.path", "--log.level="}, "--storage.path needs a value"},
		{"before --", []string{"--storage.path", "--", "serve"}, "--storage.path needs a value"},
		{"before a short flag", []string{"--storage.path", "-h"}, "--storage.path needs a value: write one that begins with a dash as --storage.path=-h"},
		{"a negative number", []string{"--read.max-series", "-1"}, "--read.max-series needs a value: write one that begins with a dash as --read.max-series=-1"},
		{"a dash", []string{"--storage.path", "-"}, "--storage.path needs a value: write one that begins with a dash as --storage.path=-"},
		{"in a file", []string{"@" + file}, "--storage.path needs a value"},
		{"in a file, before another flag", []string{"@" + file, "--log.format=json"}, "--storage.path needs a value"},
		{"no such file", []string{"@" + file + ".none"}, file + ".none"},
		{"an empty switch", []string{"--buffer.enabled="}, "--buffer.enabled takes no value: give --buffer.enabled or --no-buffer.enabled"},
		{"a switch with a value", []string{"--buffer.enabled=false"}, "--buffer.enabled takes no value: give --buffer.enabled or --no-buffer.enabled"},
		{"a switch that is off, with a value", []string{"--no-buffer.enabled=true"}, "--buffer.enabled takes no value: give --buffer.enabled or --no-buffer.enabled"},
		{"an unknown flag", []string{"--storage.pth="}, "unknown long flag '--storage.pth'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := parseFlags(tt.args); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

func TestValuesTaken(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		path   string
		listen []string
	}{
		{"nothing", nil, "./data", []string{":9201"}},
		{"one word", []string{"--storage.path=x"}, "x", []string{":9201"}},
		{"two words", []string{"--storage.path", "x", "--web.listen-address", ":1"}, "x", []string{":1"}},
		{"a value in each form", []string{"--web.listen-address=:1", "--web.listen-address", ":2", "--storage.path=x"}, "x", []string{":1", ":2"}},
		{"dashes in one word", []string{"--storage.path=--log.level="}, "--log.level=", []string{":9201"}},
		{"equals signs", []string{"--storage.path", "=", "--web.listen-address==="}, "=", []string{"=="}},
		{"a value like a command", []string{"--storage.path", "compact"}, "compact", []string{":9201"}},
		{"behind a command", []string{"serve", "--storage.path", "x"}, "x", []string{":9201"}},
		{"behind a switch", []string{"--no-buffer.enabled", "--storage.path", "x"}, "x", []string{":9201"}},
		{"a command behind --", []string{"--storage.path", "x", "--", "serve"}, "x", []string{":9201"}},
		{"of a file", []string{"@" + flagFile(t, "# a comment\n--storage.path\nx\n"), "--web.listen-address=:1"}, "x", []string{":1"}},
		{"of a file in a file", []string{"@" + flagFile(t, "@"+flagFile(t, "--storage.path")), "x"}, "x", []string{":9201"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := parseFlags(tt.args)
			if err != nil {
				t.Fatal(err)
			}
			if o.path != tt.path || !slices.Equal(o.listen, tt.listen) {
				t.Errorf("path %q, addresses %q", o.path, o.listen)
			}
		})
	}
}

// flagFile returns a file of text.
func flagFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "flags")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
