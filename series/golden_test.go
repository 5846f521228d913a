package series_test

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

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

var update = flag.Bool("update", false, "rewrite the golden files: a change of the stored format")

// TestGolden pins the stored bytes. A file in testdata is a list of cases
// with an empty line between them:
//
//	# comment
//	command [resource=a,b] [tenancy]
//	input lines
//	----
//	output lines
//
// An input line is a word and its arguments: texts in Go syntax, "abc"*3 being
// "abcabcabc" and + joining two, or numbers.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".golden"), func(t *testing.T) { runGoldenFile(t, file) })
	}
}

func runGoldenFile(t *testing.T, file string) {
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
		c := newGoldenCase(t, input)
		c.run()
		got := strings.TrimRight(c.out.String(), "\n")
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

// goldenCase is one case: the schema and input of its first part, and what it
// has written so far.
type goldenCase struct {
	t       *testing.T
	command string
	schema  series.Schema
	tenant  string
	ls      labels.Labels
	args    [][]string
	out     strings.Builder
}

func newGoldenCase(t *testing.T, input string) *goldenCase {
	c := &goldenCase{t: t}
	var pairs, resource []string
	var tenancy bool
	for line := range strings.Lines(input) {
		line = strings.TrimSuffix(line, "\n")
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case word == "#":
		case c.command == "":
			c.command = word
			for option := range strings.FieldsSeq(rest) {
				names, ok := strings.CutPrefix(option, "resource=")
				if ok {
					resource = strings.Split(names, ",")
				}
				tenancy = tenancy || option == "tenancy"
			}
		case word == "tenant":
			c.tenant = c.texts(rest)[0]
		case word == "label":
			pairs = append(pairs, c.texts(rest)...)
		default:
			c.args = append(c.args, append([]string{word}, c.texts(rest)...))
		}
	}
	c.schema = newSchema(t, resource, tenancy)
	c.ls = labels.FromStrings(pairs...)
	return c
}

// texts reads the arguments of an input line.
func (c *goldenCase) texts(rest string) []string {
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
				c.t.Fatal(err)
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

func (c *goldenCase) run() {
	switch c.command {
	case "series":
		c.dump("series key", c.seriesKey())
	case "row":
		c.rows()
	case "value":
		for _, arg := range c.args {
			v := c.float(arg[0])
			fmt.Fprintf(&c.out, "%-24s %x\n", arg[0], series.AppendFloat(nil, v))
		}
	case "qualifier":
		for _, arg := range c.args {
			delta, err := strconv.ParseUint(arg[0], 10, 32)
			if err != nil {
				c.t.Fatal(err)
			}
			fmt.Fprintf(&c.out, "%-24d %x\n", delta, series.AppendQualifier(nil, uint32(delta)))
		}
	case "start":
		for _, arg := range c.args {
			v := series.Value{Start: c.int(arg[1]), Float: c.float(arg[0])}
			fmt.Fprintf(&c.out, "%s since %d\n%s", arg[0], v.Start, hex.Dump(series.AppendValue(nil, v)))
		}
	case "histogram":
		for i, v := range someHistograms() {
			fmt.Fprintf(&c.out, "histogram %d since %d\n%s", i, v.Start, hex.Dump(series.AppendValue(nil, v)))
		}
	case "exemplar":
		for _, arg := range c.args {
			x := exemplar.Exemplar{Labels: labels.FromStrings(arg[2:]...), Value: c.float(arg[1])}
			value := series.AppendExemplar(nil, x)
			c.dump("qualifier", series.AppendExemplarQualifier(nil, uint32(c.int(arg[0])), value))
			c.dump("value", value)
		}
	case "meta":
		for _, arg := range c.args {
			key, err := c.schema.AppendMetaKey(nil, c.tenant, arg[0], arg[1])
			c.must(err)
			c.dump("key", key)
		}
	case "chunk":
		c.chunks()
	case "index":
		c.index()
	default:
		c.t.Fatalf("unknown command %q", c.command)
	}
}

func (c *goldenCase) seriesKey() []byte { return appendSeriesKey(c.t, c.schema, c.tenant, c.ls) }

// rows writes a row key, when it is another one than before, and a line for
// each sample: qualifier, value, time.
func (c *goldenCase) rows() {
	var last string
	for _, arg := range c.args {
		t, err := strconv.ParseInt(arg[1], 10, 64)
		if err != nil {
			c.t.Fatal(err)
		}
		base, delta := series.Split(t)
		key := c.schema.AppendRowKey(nil, c.seriesKey(), base)
		if string(key) != last {
			c.dump("row key", key)
			last = string(key)
		}
		fmt.Fprintf(&c.out, "cell  %x  %x  | delta %d, value %s\n",
			series.AppendQualifier(nil, delta), series.AppendFloat(nil, c.float(arg[2])), delta, arg[2])
	}
}

// index writes the rows that each label of the set has in a period.
func (c *goldenCase) index() {
	period, err := strconv.ParseInt(c.args[0][1], 10, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	c.ls.Range(func(l labels.Label) {
		posting, err := c.schema.AppendPosting(nil, c.tenant, l.Name, l.Value, period, c.seriesKey())
		c.must(err)
		value, err := c.schema.AppendValueKey(nil, c.tenant, l.Name, l.Value, period)
		c.must(err)
		name, err := c.schema.AppendNameKey(nil, c.tenant, l.Name, period)
		c.must(err)
		c.dump("posting", posting)
		c.dump("value", value)
		c.dump("name", name)
	})
}

func (c *goldenCase) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *goldenCase) int(text string) int64 {
	v, err := strconv.ParseInt(text, 10, 64)
	c.must(err)
	return v
}

// float reads a number, or the bits of one if it begins with 0x.
func (c *goldenCase) float(text string) float64 {
	if digits, ok := strings.CutPrefix(text, "0x"); ok {
		bits, err := strconv.ParseUint(digits, 16, 64)
		c.must(err)
		return math.Float64frombits(bits)
	}
	v, err := strconv.ParseFloat(text, 64)
	c.must(err)
	return v
}

func (c *goldenCase) dump(what string, b []byte) {
	fmt.Fprintf(&c.out, "%s, %d bytes\n%s", what, len(b), hex.Dump(b))
}
