// Package golden compares the bytes of the stored format with files, for tests.
package golden

import (
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

var update = flag.Bool("update", false, "rewrite the golden files: a change of the stored format")

// Run pins stored bytes. Each file testdata/*.golden is a list of cases with an
// empty line between them:
//
//	input lines
//	----
//	output lines
//
// It compares what run writes for the input of a case with the output, or replaces
// that if the test has the flag -update.
func Run(t *testing.T, run func(t *testing.T, input string) string) { RunDir(t, "testdata", run) }

// RunDir is Run for the files of another directory.
func RunDir(t *testing.T, dir string, run func(t *testing.T, input string) string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.golden"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files in %s: %v", dir, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".golden"), func(t *testing.T) { runFile(t, file, run) })
	}
}

func runFile(t *testing.T, file string, run func(t *testing.T, input string) string) {
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var now []string
	for i, text := range strings.Split(strings.TrimSpace(string(old)), "\n\n") {
		input, want, ok := strings.Cut(text, "\n----")
		if !ok {
			t.Fatalf("case %d has no ----:\n%s", i, text)
		}
		got := strings.TrimRight(run(t, input), "\n")
		if want = strings.TrimPrefix(want, "\n"); got != want && !*update {
			t.Errorf("%s\n---- got\n%s\n---- want\n%s", input, got, want)
		}
		now = append(now, input+"\n----\n"+got)
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(now, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A Case is one case of a golden file whose input is a command:
//
//	# comment
//	command [resource=a,b]
//	input lines
//
// An input line is a word and its arguments: texts in Go syntax, "abc"*3 being
// "abcabcabc" and + joining two, or numbers. A line of tenant is that of the Schema,
// those of label are the Labels, all others the Args.
type Case struct {
	*testing.T
	Command string
	Schema  series.Schema
	Labels  labels.Labels
	Args    [][]string
	// Out is what the case has written so far.
	Out strings.Builder
}

// Commands is Run for files whose cases are commands.
func Commands(t *testing.T, commands map[string]func(c *Case)) {
	Run(t, func(t *testing.T, input string) string {
		c := newCase(t, input)
		run := commands[c.Command]
		if run == nil {
			t.Fatalf("unknown command %q", c.Command)
		}
		run(c)
		return c.Out.String()
	})
}

func newCase(t *testing.T, input string) *Case {
	c := &Case{T: t}
	var pairs, resource []string
	tenant := ""
	for line := range strings.Lines(input) {
		line = strings.TrimSuffix(line, "\n")
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case word == "#":
		case c.Command == "":
			c.Command = word
			for option := range strings.FieldsSeq(rest) {
				if names, ok := strings.CutPrefix(option, "resource="); ok {
					resource = strings.Split(names, ",")
				}
			}
		case word == "tenant":
			tenant = c.texts(rest)[0]
		case word == "label":
			pairs = append(pairs, c.texts(rest)...)
		default:
			c.Args = append(c.Args, append([]string{word}, c.texts(rest)...))
		}
	}
	var err error
	c.Schema, err = series.NewSchema(resource)
	c.Must(err)
	if tenant != "" {
		c.Schema, err = c.Schema.ForTenant(tenant)
		c.Must(err)
	}
	c.Labels = labels.FromStrings(pairs...)
	return c
}

// texts reads the arguments of an input line.
func (c *Case) texts(rest string) []string {
	var texts []string
	for join := false; rest != ""; rest = strings.TrimLeft(rest, " ") {
		text, times := "", 1
		if quoted, err := strconv.QuotedPrefix(rest); err == nil {
			text, _ = strconv.Unquote(quoted)
			rest = rest[len(quoted):]
		} else {
			text, rest, _ = strings.Cut(rest, " ")
		}
		if strings.HasPrefix(rest, "*") {
			var n string
			n, rest, _ = strings.Cut(rest[1:], " ")
			var err error
			if times, err = strconv.Atoi(n); err != nil {
				c.Fatal(err)
			}
		}
		if text = strings.Repeat(text, times); join {
			texts[len(texts)-1] += text
		} else {
			texts = append(texts, text)
		}
		rest, join = strings.CutPrefix(strings.TrimLeft(rest, " "), "+")
	}
	return texts
}

// Samples reads a case that is
//
//	# comment
//	times first +distance +distance*number
//	values number number*number
func Samples(t *testing.T, input string) (ts []int64, vs []float64) {
	c := &Case{T: t}
	for line := range strings.Lines(input) {
		words := strings.Fields(line)
		for _, word := range words[1:] {
			number, times, repeated := strings.Cut(word, "*")
			n := 1
			if repeated {
				n = int(c.Int(times))
			}
			for range n {
				switch words[0] {
				case "times":
					next := c.Int(strings.TrimPrefix(number, "+"))
					if len(ts) > 0 {
						next += ts[len(ts)-1]
					}
					ts = append(ts, next)
				case "values":
					vs = append(vs, c.Float(number))
				}
			}
		}
	}
	return ts, vs
}

// Must ends the test if there is an error.
func (c *Case) Must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// Int reads an integer.
func (c *Case) Int(text string) int64 {
	v, err := strconv.ParseInt(text, 10, 64)
	c.Must(err)
	return v
}

// Float reads a number, or the bits of one if it begins with 0x.
func (c *Case) Float(text string) float64 {
	if digits, ok := strings.CutPrefix(text, "0x"); ok {
		bits, err := strconv.ParseUint(digits, 16, 64)
		c.Must(err)
		return math.Float64frombits(bits)
	}
	v, err := strconv.ParseFloat(text, 64)
	c.Must(err)
	return v
}

// Dump writes bytes, and what they are.
func (c *Case) Dump(what string, b []byte) {
	fmt.Fprintf(&c.Out, "%s, %d bytes\n%s", what, len(b), hex.Dump(b))
}
