package main

import (
	"fmt"

	"github.com/alecthomas/kingpin/v2"
)

// suggest adds the nearest flag or command to an error of kingpin about a word of args that is neither.
func suggest(app *kingpin.Application, args []string, err error) error {
	at, refused := app.ParseContext(args)
	if refused == nil || at == nil {
		return err
	}
	word, prefix, names := at.Peek(), "", []string(nil)
	switch word.Type {
	case kingpin.TokenLong:
		prefix, names = "--", flagNames(app.Model().Flags)
		for _, element := range at.Elements {
			if command, ok := element.Clause.(*kingpin.CmdClause); ok {
				names = append(names, flagNames(command.Model().Flags)...)
			}
		}
	case kingpin.TokenArg:
		commands := app.Model().Commands
		if c := at.SelectedCommand; c != nil && !c.Model().Default {
			commands = c.Model().Commands
		}
		for _, command := range commands {
			names = append(names, command.Name)
		}
	}
	if name := nearest(word.Value, names); name != "" {
		return fmt.Errorf("%w: did you mean %s%s?", err, prefix, name)
	}
	return err
}

// suggestHelp returns an error if the words behind the command help, at which the parser is, name no command.
func suggestHelp(app *kingpin.Application, at *kingpin.ParseContext) error {
	var args []string
	for _, element := range at.Elements {
		if _, ok := element.Clause.(*kingpin.ArgClause); ok {
			args = append(args, *element.Value)
		}
	}
	_, err := app.ParseContext(args)
	return suggest(app, args, err)
}

// nearest returns the first of the names with the least distance to word. It returns nothing if more than a third of the name's letters are
// wrong, or if word is a name, which stands in the wrong place then.
func nearest(word string, names []string) (found string) {
	var least int
	for _, name := range names {
		if max(len(word)-len(name), len(name)-len(word)) > len(name)/3 {
			continue // nor is the distance of a long word computed
		}
		d := distance(word, name)
		if d == 0 {
			return ""
		}
		if d <= len(name)/3 && (found == "" || d < least) {
			found, least = name, d
		}
	}
	return found
}

// distance returns how many letters are missing, too many, wrong, or swapped with the next one: the Damerau-Levenshtein distance in which no
// letter is changed twice.
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		for j := range d[i] {
			if i == 0 || j == 0 {
				d[i][j] = i + j
				continue
			}
			changed := 1
			if a[i-1] == b[j-1] {
				changed = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+changed)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
