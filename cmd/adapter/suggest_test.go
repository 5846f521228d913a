package main

import (
	"strings"
	"testing"
)

// TestSuggestions: the error about a mistyped flag or command ends with the nearest one that may stand there.
func TestSuggestions(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"a letter is missing", []string{"--storage.pth=x"}, "unknown long flag '--storage.pth': did you mean --storage.path?"},
		{"a letter too many", []string{"--bufffer.path", "x"}, "unknown long flag '--bufffer.path': did you mean --buffer.path?"},
		{"two are swapped", []string{"compact", "--intervla=5s"}, "unknown long flag '--intervla': did you mean --interval?"},
		{"another character", []string{"--log-level=info"}, "unknown long flag '--log-level': did you mean --log.level?"},
		{"a switch", []string{"--rolup.enabled"}, "unknown long flag '--rolup.enabled': did you mean --rollup.enabled?"},
		{"a switch that is off", []string{"--no-rolup.enabled"}, "unknown long flag '--no-rolup.enabled': did you mean --no-rollup.enabled?"},
		{"no switch", []string{"--no-storage.path"}, "unknown long flag '--no-storage.path': did you mean --storage.path?"},
		{"of a file", []string{"@" + flagFile(t, "--log.level=info\n--storage.pth=x\n")}, "unknown long flag '--storage.pth': did you mean --storage.path?"},
		{"behind a value like a flag", []string{"--storage.path=--storage.pth", "--log.levl=info"}, "unknown long flag '--log.levl': did you mean --log.level?"},
		{"of the server, behind a command", []string{"compact", "--storage.pth=x"}, "unknown long flag '--storage.pth': did you mean --storage.path?"},
		{"of a command", []string{"delete", "--mach=up"}, "unknown long flag '--mach': did you mean --match?"},
		{"of the command above", []string{"import", "blocks", "--strat=5", "."}, "unknown long flag '--strat': did you mean --start?"},
		{"of a subcommand", []string{"export", "blocks", "--block-durations=2h", "."}, "unknown long flag '--block-durations': did you mean --block-duration?"},
		{"of another command", []string{"compact", "--mach=up"}, "unknown long flag '--mach'"},
		{"too short", []string{"compact", "--x"}, "unknown long flag '--x'"},
		{"nothing like it", []string{"--tsdb.retention=15d"}, "unknown long flag '--tsdb.retention'"},
		{"a short flag", []string{"-x"}, "unknown short flag '-x'"},

		{"a command", []string{"improt"}, "unexpected improt: did you mean import?"},
		{"the nearer of two commands", []string{"epxort"}, "unexpected epxort: did you mean export?"},
		{"a command behind a flag", []string{"--log.level=info", "compct"}, "unexpected compct: did you mean compact?"},
		{"a command before a flag", []string{"compct", "--interval=5s"}, "unexpected compct: did you mean compact?"},
		{"a subcommand", []string{"import", "bloks"}, `expected command but got "bloks": did you mean blocks?`},
		{"a subcommand with help", []string{"import", "bloks", "--help"}, `expected command but got "bloks": did you mean blocks?`},
		{"a subcommand of another command", []string{"import", "appply"}, `expected command but got "appply"`},
		{"no command", []string{"prometheus"}, "unexpected prometheus"},
		{"a command in the wrong place", []string{"serve", "import"}, "unexpected import"},
		{"no subcommand", []string{"import"}, "must select a subcommand of 'import'"},
		{"a required flag is missing", []string{"delete"}, "required flag(s) '--match' not provided"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := parseFlags(tt.args); err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

// TestNearest: of the names whose distance is at most a third of their letters the nearest is found, and of several the first.
func TestNearest(t *testing.T) {
	for _, tt := range []struct{ word, names, want string }{
		{"abc", "abd", "abd"},
		{"abc", "add", ""},
		{"ab", "ac", ""},
		{"ab", "abc", "abc"},
		{"abcd", "abc", "abc"},
		{"acb", "abc", "abc"},
		{"xac", "abc", ""},
		{"bxc", "abc", ""},
		{"abcdef", "badcef", "badcef"},
		{"abcdef", "badcfe", ""},
		{"abcdef", "xxcdef abcdex", "abcdex"},
		{"abcdef", "abcdex abcdey", "abcdex"},
		{"abc", "abd abc", ""},
		{"", "a abc", ""},
		{"abc", "", ""},
		{strings.Repeat("a", 1<<20), "aaaaaa", ""},
	} {
		if got := nearest(tt.word, strings.Fields(tt.names)); got != tt.want {
			t.Errorf("%.20s of %s: %q, want %q", tt.word, tt.names, got, tt.want)
		}
	}
}
