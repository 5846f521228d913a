package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// expandFiles replaces @file by the lines of the file, as kingpin does, up to the word --.
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

// checkValues returns the names of the flags that are given. It refuses flags with an empty,
// missing or malformed value, and switches with a value. The error names the flag. kingpin accepts an empty value, and does not name a flag
// with a malformed one. With a default command, kingpin also drops the error about a
// missing value.
func checkValues(app *kingpin.ApplicationModel, args []string) (given map[string]bool, err error) {
	if slices.Contains(args, "--completion-bash") {
		return nil, nil // a shell completes the line: its last word is not finished
	}
	flags := flagsByName(app)
	given = make(map[string]bool)
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		name, isFlag := strings.CutPrefix(args[i], "--")
		name, value, hasValue := strings.Cut(name, "=")
		flag, exists := flags[name]
		if !isFlag || !exists {
			continue // a command, -h, or a word that kingpin refuses
		}
		given[flag.Name] = true
		if flag.IsBoolFlag() {
			if hasValue {
				name = strings.TrimPrefix(name, "no-")
				return nil, fmt.Errorf("--%s takes no value: give --%s or --no-%s", name, name, name)
			}
			continue
		}
		if !hasValue { // it is the next word
			i++
			if err := checkNextWord(name, args[i:]); err != nil {
				return nil, err
			}
			value = args[i]
		}
		if value == "" {
			return nil, fmt.Errorf("--%s is empty: give it a value, or leave it out for the default", name)
		}
		if err := checkValue(flag, value); err != nil {
			return nil, fmt.Errorf("--%s=%s: %w", name, value, err)
		}
	}
	return given, nil
}

// checkValue refuses a value that the flag cannot be set to.
func checkValue(flag *kingpin.FlagModel, value string) error {
	if repeatable, ok := flag.Value.(interface{ IsCumulative() bool }); ok && repeatable.IsCumulative() {
		return nil // values are strings, and Set would add one
	}
	return flag.Value.Set(value)
}

// checkNextWord refuses a word after the flag that kingpin would not take as its value.
func checkNextWord(name string, following []string) error {
	switch {
	case len(following) == 0, strings.HasPrefix(following[0], "--"):
		return fmt.Errorf("--%s needs a value", name)
	case strings.HasPrefix(following[0], "-"):
		return fmt.Errorf("--%s needs a value: write one that begins with a dash as --%s=%s", name, name, following[0])
	}
	return nil
}

// flagsByName returns all flags, those of commands too. A switch is there as --x and as
// --no-x.
func flagsByName(app *kingpin.ApplicationModel) map[string]*kingpin.FlagModel {
	all := slices.Clone(app.Flags)
	for _, command := range app.FlattenedCommands() {
		all = append(all, command.Flags...)
	}
	flags := make(map[string]*kingpin.FlagModel)
	for _, flag := range all {
		flags[flag.Name] = flag
		if flag.IsBoolFlag() {
			flags["no-"+flag.Name] = flag
		}
	}
	return flags
}
