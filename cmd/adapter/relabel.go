package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/remote/limits"
	"github.com/promtable/promtable/series/expr"
)

// commandRelabel is the subcommand that shows what rules make of series.
const commandRelabel = "relabel"

func (o *options) relabelCommand(app *kingpin.Application) {
	c := app.Command(commandRelabel, "Show what the relabelling rules of --limits.file make of series, which are read from the standard input, one in a line, such as up{job=\"a\"}. No store is opened.")
	c.Flag("dry-run", "Only show it, which is all that there is.").Default("true").BoolVar(&o.dryRelabel)
}

// relabelSeries runs the subcommand.
func relabelSeries(_ context.Context, o *options, _ log.Logger) error {
	switch {
	case o.limitsFile == "":
		return errors.New("give the file of the rules with --limits.file")
	case !o.dryRelabel:
		return errors.New("--no-dry-run: stored series keep their labels: rules are for what is written")
	}
	relabel, err := limits.ReadRelabel(o.limitsFile, o.tenancy.of)
	if err != nil {
		return fmt.Errorf("--limits.file: %w", err)
	}
	return printRelabelled(o.in, o.out, relabel)
}

// printRelabelled writes a line for each series.
func printRelabelled(in io.Reader, out io.Writer, relabel limits.Relabel) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	p := expr.NewParser(parser.Options{})
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		ls, err := p.ParseMetric(line)
		if err != nil {
			return fmt.Errorf("line %d: %q is no series: %w", n, line, err)
		}
		switch made, dropped := relabel(ls); {
		case dropped > 0:
			_, err = fmt.Fprintf(out, "%s is dropped by rule %d\n", ls, dropped)
		case made.String() == ls.String():
			_, err = fmt.Fprintf(out, "%s stays\n", ls)
		default:
			_, err = fmt.Fprintf(out, "%s becomes %s\n", ls, made)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}
