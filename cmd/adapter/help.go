package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// serverFlags says which flags of the server matter to a command and its subcommands, by the first word of its name.
// A name that ends with * is for all flags that begin with it.
var serverFlags = map[string]string{
	commandServe:     "all",
	commandDemo:      "all but --storage.backend, --storage.path, --bigtable.* and --buffer.path",
	commandCompact:   anyStore + ", --retention.*, --buffer.*, --seal.rows-per-second, --seal.workers, --rollup.rows-per-second, --log.*",
	"buffer":         anyStore + ", --log.*",
	commandDelete:    openedStore,
	commandImport:    openedStore,
	commandCheck:     anyStore + ", --buffer.enabled, --buffer.path, --log.*",
	"schema":         "--storage.backend, --bigtable.*, --schema.resource-label, --retention.*, --log.*",
	commandEstimate:  "--schema.resource-label, --retention.*, --buffer.max-log, --buffer.max-memory, --write.cached-series, --index.written-series, --current.flush-interval, --log.*",
	commandSnapshot:  "--storage.*, --schema.resource-label, --retention.*, --buffer.*, --log.*",
	commandRestore:   "--storage.path, --buffer.path, --log.*",
	commandDigest:    openedStore,
	"export":         openedStore,
	commandDump:      anyStore + ", --log.*",
	commandHeal:      openedStore + ", --read.max-series",
	commandExemplars: "--tenant, --log.*",
	commandCopy:      openedStore + ", --read.max-series",
	"retention":      "--retention.*",
	"tenant":         openedStore,
	commandDoctor:    "--tenant, --log.*",
	"rules":          "--tenant, --log.*",
	commandRelabel:   "--limits.file, --tenant, --log.*",
}

const (
	// anyStore are the flags of commands that open the rows of a store.
	anyStore = "--storage.*, --bigtable.*, --schema.resource-label, --tenancy, --tenant"
	// openedStore are those of commands that open a store as serving does.
	openedStore = anyStore + ", --retention.*, --buffer.*, --log.*"
)

// usageTemplate is kingpin's default for the adapter itself. Of a command it shows what belongs to it, and names the server's flags only.
const usageTemplate = `{{define "Args"}}{{range .Args}} {{if not .Required}}[{{end}}<{{.Name}}>{{if .Value|IsCumulative}}...{{end}}{{if not .Required}}]{{end}}{{end}}{{end -}}

{{define "Usage"}}{{if .FlagSummary}} {{.FlagSummary}}{{end}}{{end -}}

{{define "Commands" -}}
{{range .FlattenedCommands -}}
{{.FullCommand}}{{if .Default}}*{{end}}{{template "Usage" .}}{{template "Args" .}}
{{.Help|Wrap 4}}
{{end}}{{end -}}

{{with .Context.SelectedCommand -}}
{{$own := CommandFlags $.Context.Flags -}}
usage: {{$.App.Name}} {{.FullCommand}}{{template "Usage" $own}}{{template "Args" $.Context}}{{if .Commands}} <command> [<args> ...]{{end}}

{{.Help|Wrap 0}}
{{if $.Context.Args -}}
Args:
{{$.Context.Args|ArgsToTwoColumns|FormatTwoColumns}}
{{end -}}
{{if $own.Flags -}}
Flags:
{{$own.Flags|FlagsToTwoColumns|FormatTwoColumns}}
{{end -}}
{{if .Commands -}}
Subcommands:
{{template "Commands" . -}}
{{end -}}
{{with ServerFlags . -}}
{{printf "Flags of the server are taken, too: adapter --help explains them. These matter here: %s." . | Wrap 0 -}}
{{end -}}
{{else -}}
usage: {{.App.Name}}{{template "Usage" .App}} <command> [<args> ...]

{{.App.Help|Wrap 0}}

Flags:
{{.Context.Flags|FlagsToTwoColumns|FormatTwoColumns}}
Commands:
{{template "Commands" .App}}
{{end -}}
`

// setUsage makes the help of a command show what belongs to it.
func setUsage(app *kingpin.Application) {
	app.UsageTemplate(usageTemplate).UsageFuncs(map[string]any{
		"CommandFlags": func(all []*kingpin.FlagModel) *kingpin.FlagGroupModel {
			server := flagNames(app.Model().Flags)
			isOther := func(f *kingpin.FlagModel) bool { return f.Hidden || slices.Contains(server, f.Name) }
			return &kingpin.FlagGroupModel{Flags: slices.DeleteFunc(slices.Clone(all), isOther)}
		},
		"ServerFlags": func(c *kingpin.CmdModel) string {
			first, _, _ := strings.Cut(c.FullCommand, " ")
			return serverFlags[first]
		},
	})
}

// flagNames returns the names of flags that are shown. A switch is there as x and as no-x.
func flagNames(flags []*kingpin.FlagModel) (names []string) {
	for _, flag := range flags {
		if flag.Hidden {
			continue
		}
		names = append(names, flag.Name)
		if flag.IsBoolFlag() {
			names = append(names, "no-"+flag.Name)
		}
	}
	return names
}
