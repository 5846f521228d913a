package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// expandFiles puts the lines of a file in the place of @file, as kingpin does, up to
// the word --.
func expandFiles(args []string) ([]string, error) {
	var words []string
	for len(args) > 0 && args[0] != "--" {
		word := args[0]
		args = args[1:]
		file, ok := strings.CutPrefix(word, "@")
		if !ok {
			words = append(words, word)
			continue
		}
		lines, err := kingpin.ExpandArgsFromFile(file)
		if err != nil {
			return nil, err
		}
		args = append(lines, args...)
	}
	return append(words, args...), nil
}

// checkValues refuses a flag whose value is empty or missing, and a switch with a
// value. kingpin takes an empty value. Because app has a default command, kingpin
// also drops its error about a missing value, and goes on behind the flag.
func checkValues(app *kingpin.ApplicationModel, args []string) error {
	if slices.Contains(args, "--completion-bash") {
		return nil // a shell completes the line: its last word is not finished
	}
	takes := valueFlags(app)
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		name, isFlag := strings.CutPrefix(args[i], "--")
		name, value, hasValue := strings.Cut(name, "=")
		takesValue, known := takes[name]
		if !isFlag || !known {
			continue // a command, -h, or what kingpin refuses
		}
		if !takesValue {
			if hasValue {
				name = strings.TrimPrefix(name, "no-")
				return fmt.Errorf("--%s takes no value: give --%s or --no-%s", name, name, name)
			}
			continue
		}
		if !hasValue { // it is the next word
			i++
			if err := checkNextWord(name, args[i:]); err != nil {
				return err
			}
			value = args[i]
		}
		if value == "" {
			return fmt.Errorf("--%s is empty: give it a value, or leave it out for the default", name)
		}
	}
	return nil
}

// checkNextWord refuses what follows the flag name if kingpin does not take it for
// its value.
func checkNextWord(name string, following []string) error {
	switch {
	case len(following) == 0, strings.HasPrefix(following[0], "--"):
		return fmt.Errorf("--%s needs a value", name)
	case strings.HasPrefix(following[0], "-"):
		return fmt.Errorf("--%s needs a value: write one that begins with a dash as --%s=%s", name, name, following[0])
	}
	return nil
}

// valueFlags returns the names of all flags, those of commands too, and whether they
// take a value. A switch, which takes none, is there as --x and as --no-x.
func valueFlags(app *kingpin.ApplicationModel) map[string]bool {
	flags := slices.Clone(app.Flags)
	for _, command := range app.Commands {
		flags = append(flags, command.Flags...)
	}
	takes := make(map[string]bool)
	for _, flag := range flags {
		takes[flag.Name] = !flag.IsBoolFlag()
		if flag.IsBoolFlag() {
			takes["no-"+flag.Name] = false
		}
	}
	return takes
}
