package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
)

// helpOf returns the help of a command, on lines that are not wrapped.
func helpOf(t *testing.T, command ...string) string {
	t.Helper()
	t.Setenv("COLUMNS", "2000")
	var out bytes.Buffer
	new(options).newApplication().UsageWriter(&out).Usage(command)
	return out.String()
}

// describedFlag finds the lines of a help that begin the description of a flag.
var describedFlag = regexp.MustCompile(`(?m)^ +(?:-., )?--(?:\[no-\])?([a-z0-9.-]+)`)

// TestCommandHelp: the help of each command describes what it does, its arguments and flags, those of the command above it, too, and its
// subcommands, in this order. Its last line names flags of the server; none of them is described.
func TestCommandHelp(t *testing.T) {
	app := new(options).newApplication().Model()
	if len(app.Commands) < 15 {
		t.Fatalf("only %d commands", len(app.Commands))
	}
	server := flagNames(app.Flags)
	var check func(c *kingpin.CmdModel, above []*kingpin.FlagModel)
	check = func(c *kingpin.CmdModel, above []*kingpin.FlagModel) {
		flags := slices.Concat(above, c.Flags)
		t.Run(c.FullCommand, func(t *testing.T) {
			help := helpOf(t, strings.Fields(c.FullCommand)...)
			own, last, _ := strings.Cut(help, "\nFlags of the server are taken, too: adapter --help explains them. These matter here: ")
			for _, pattern := range describedBy(c, flags) {
				at := regexp.MustCompile("(?m)" + pattern).FindStringIndex(own)
				if at == nil {
					t.Fatalf("no %s, in this order, in\n%s", pattern, help)
				}
				own = own[at[1]:]
			}
			for _, m := range describedFlag.FindAllStringSubmatch(help, -1) {
				if slices.Contains(server, m[1]) {
					t.Errorf("--%s, a flag of the server, is described", m[1])
				}
			}
			checkNamedFlags(t, server, last)
		})
		for _, sub := range c.Commands {
			check(sub, flags)
		}
	}
	for _, c := range app.Commands {
		if c.Name != "help" {
			check(c, nil)
		}
	}
}

// describedBy returns patterns of what the help of a command has to describe.
func describedBy(c *kingpin.CmdModel, flags []*kingpin.FlagModel) []string {
	quoted := regexp.QuoteMeta
	patterns := []string{`\Ausage: adapter ` + c.FullCommand + `\b`, `^` + quoted(c.Help) + `$`}
	for _, arg := range c.Args {
		patterns = append(patterns, `^  \[?<`+arg.Name+`>\]? +`+quoted(arg.Help)+`$`)
	}
	for _, flag := range flags {
		patterns = append(patterns, `^  --(\[no-\])?`+quoted(flag.Name)+`\b.*\s+`+quoted(flag.Help)+`$`)
	}
	for _, sub := range c.Commands {
		patterns = append(patterns, `^`+sub.FullCommand+`\b.*\n +`+quoted(sub.Help)+`$`)
	}
	return patterns
}

// checkNamedFlags wants one line, whose flags are flags of the server, or begin some of them.
func checkNamedFlags(t *testing.T, server []string, line string) {
	t.Helper()
	if text, isLine := strings.CutSuffix(line, ".\n"); !isLine || text == "" || strings.Contains(text, "\n") {
		t.Errorf("the last line does not name the flags of the server: %q", line)
	}
	for _, m := range regexp.MustCompile(`--([a-z0-9.-]*[a-z0-9])(\.\*)?`).FindAllStringSubmatch(line, -1) {
		isNamed := func(flag string) bool {
			return flag == m[1] && m[2] == "" || m[2] != "" && strings.HasPrefix(flag, m[1]+".")
		}
		if !slices.ContainsFunc(server, isNamed) {
			t.Errorf("the server has no flag %s", m[0])
		}
	}
}

// TestAdapterHelp: the help of the adapter describes each flag of the server, and lists each command.
func TestAdapterHelp(t *testing.T) {
	app := new(options).newApplication().Model()
	help := helpOf(t)
	var described []string
	for _, m := range describedFlag.FindAllStringSubmatch(help, -1) {
		described = append(described, m[1])
	}
	var want []string
	for _, flag := range app.Flags {
		if flag.Hidden {
			continue
		}
		want = append(want, flag.Name)
		if flag.Name != "help" && !strings.Contains(help, " "+flag.Help+"\n") {
			t.Errorf("what --%s does is missing", flag.Name)
		}
	}
	if !slices.Equal(described, want) {
		t.Errorf("the flags %q are described, want %q", described, want)
	}
	_, commands, _ := strings.Cut(help, "\nCommands:\n")
	for _, c := range app.FlattenedCommands() {
		if !regexp.MustCompile(`(?m)^`+c.FullCommand+`\b`).MatchString(commands) || !strings.Contains(commands, c.Help) {
			t.Errorf("%s is missing", c.FullCommand)
		}
	}
	if t.Failed() {
		t.Log(help)
	}
}
