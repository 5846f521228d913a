package boards

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a board. MaxBytes is of its JSON, which is one cell.
const (
	MaxBytes       = 256 << 10
	maxName        = 100
	maxPanels      = 300
	maxExpressions = 20
	maxVariables   = 20
	maxTitle       = 300
)

// A Board is several panels, which are shown beside each other.
type Board struct {
	Title     string     `json:"title"`
	Variables []Variable `json:"variables,omitempty"`
	Panels    []Panel    `json:"panels"`
}

// A Variable stands for a value that readers choose: $name in expressions. The values are those of a label, of all series or of those of Metric, or Values.
type Variable struct {
	Name   string   `json:"name"`
	Label  string   `json:"label,omitempty"`
	Metric string   `json:"metric,omitempty"`
	Values []string `json:"values,omitempty"`
	// Regex, if set, is a regular expression of JavaScript: values without it are left out, and the others are its first group, if it has one.
	Regex string `json:"regex,omitempty"`
}

// A Panel shows the results of expressions.
type Panel struct {
	Title string   `json:"title"`
	Kind  string   `json:"kind"`
	Exprs []string `json:"exprs"`
	// Mode and Unit are those of a graph of the page.
	Mode string `json:"mode,omitempty"`
	Unit string `json:"unit,omitempty"`
	// Wide panels are as wide as the board.
	Wide bool `json:"wide,omitempty"`
}

// kinds are those of panels.
var kinds = []string{"graph", "stat", "table"}

// parse reads the JSON of a board. The error says what is wrong with it.
func parse(text []byte) (b Board, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&b); err != nil {
		return b, fmt.Errorf("a board is JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return b, errors.New("there is something behind the JSON of the board")
	}
	return b, b.check()
}

func (b *Board) check() error {
	if err := checkTitle(b.Title); err != nil {
		return err
	}
	switch {
	case len(b.Panels) > maxPanels:
		return fmt.Errorf("it has %d panels, and a board has at most %d", len(b.Panels), maxPanels)
	case len(b.Variables) > maxVariables:
		return fmt.Errorf("it has %d variables, and a board has at most %d", len(b.Variables), maxVariables)
	}
	for i, v := range b.Variables {
		if err := v.check(); err != nil {
			return fmt.Errorf("variable %d: %w", i+1, err)
		}
	}
	for i, p := range b.Panels {
		if err := p.check(); err != nil {
			return fmt.Errorf("panel %d: %w", i+1, err)
		}
	}
	return nil
}

func checkTitle(title string) error {
	if utf8.RuneCountInString(title) > maxTitle {
		return fmt.Errorf("its title has more than %d characters", maxTitle)
	}
	return nil
}

func (v *Variable) check() error {
	isWord := v.Name != "" && strings.IndexFunc(v.Name, func(r rune) bool {
		return r != '_' && !(r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)))
	}) < 0
	switch {
	case !isWord || len(v.Name) > maxName:
		return fmt.Errorf("its name %q has something else than letters, digits and _", v.Name)
	case (v.Label == "") == (len(v.Values) == 0):
		return errors.New("it has a label or values, one of them")
	}
	return nil
}

func (p *Panel) check() error {
	if err := checkTitle(p.Title); err != nil {
		return err
	}
	switch {
	case !slices.Contains(kinds, p.Kind):
		return fmt.Errorf("its kind is %q, not one of %s", p.Kind, strings.Join(kinds, ", "))
	case len(p.Exprs) == 0 || len(p.Exprs) > maxExpressions:
		return fmt.Errorf("it has %d expressions, not 1 to %d", len(p.Exprs), maxExpressions)
	case slices.Contains(p.Exprs, ""):
		return errors.New("one of its expressions is empty")
	}
	return nil
}

// checkName returns an error unless a board may have this name, which is a segment of a path.
func checkName(name string) error {
	switch {
	case name == "" || name == "." || name == "..", strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == '\\' || unicode.IsControl(r) }), !utf8.ValidString(name):
		return fmt.Errorf("%q is no name of a board: use characters but / and \\", name)
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Errorf("the name of a board has at most %d characters", maxName)
	}
	return nil
}
