package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/rollup"
)

const commandDump = "dump"

// dumpOptions are the flags and the argument of dump.
type dumpOptions struct {
	table   string
	prefix  string
	samples bool
	limit   int
}

func (o *options) dumpCommand(app *kingpin.Application) {
	c := app.Command(commandDump, "Print rows for people: keys taken apart, times as times. The embedded store must be closed; what its log holds is not shown.")
	var names []string
	for _, spec := range bucketstore.Tables(bucketstore.Retention{}) {
		names = append(names, spec.Table.String())
	}
	c.Flag("table", "The table: "+strings.Join(names, ", ")+".").Default(bucketstore.Metric.String()).EnumVar(&o.dump.table, names...)
	c.Flag("samples", "Print the samples in chunks and rollups, too.").BoolVar(&o.dump.samples)
	c.Flag("limit", "End after this many rows. 0 is no limit.").Default("100").IntVar(&o.dump.limit)
	c.Arg("prefix", "With what the keys of the rows begin, as they are stored: the name of a metric, for example. Default: all.").StringVar(&o.dump.prefix)
}

// dumpRows runs dump.
func dumpRows(ctx context.Context, o *options, logger log.Logger) error {
	existing := o.forExisting()
	existing.readOnly = true
	return existing.withRows(ctx, logger, func(rows bucketstore.Store, schema series.Schema) error { return o.dumpOf(ctx, rows, schema) })
}

func (o *options) dumpOf(ctx context.Context, rows bucketstore.Store, schema series.Schema) error {
	d := &dumper{out: o.out, schema: schema, samples: o.dump.samples}
	request := bucketstore.ScanRequest{Rows: []series.RowRange{series.PrefixRange([]byte(o.dump.prefix))}, Limit: o.dump.limit}
	for _, spec := range bucketstore.Tables(bucketstore.Retention{}) {
		if spec.Table.String() != o.dump.table {
			continue
		}
		request.Table = spec.Table
		for _, f := range spec.Families {
			request.Families = append(request.Families, bucketstore.FamilyRange{Family: f.Name})
		}
		slices.SortFunc(request.Families, func(a, b bucketstore.FamilyRange) int { return strings.Compare(a.Family, b.Family) })
	}
	err := rows.Scan(ctx, request, func(row bucketstore.Row) error { return d.row(request.Table, row) })
	if err == nil && o.dump.limit > 0 && d.rows == o.dump.limit {
		_, err = fmt.Fprintf(o.out, "%d rows are printed; --limit=0 prints all\n", d.rows)
	}
	return err
}

// A dumper prints rows.
type dumper struct {
	out     io.Writer
	schema  series.Schema
	samples bool
	rows    int
	// of takes cells apart into samples.
	of merge.Row
}

func (d *dumper) print(format string, args ...any) error {
	_, err := fmt.Fprintf(d.out, format, args...)
	return err
}

// row prints a row. What cannot be taken apart is printed as it is.
func (d *dumper) row(table bucketstore.Table, row bucketstore.Row) error {
	d.rows++
	base, head := int64(0), ""
	if table == bucketstore.Metric || table == bucketstore.Current {
		base, head = d.series(table, row.Key)
	}
	if table == bucketstore.Index {
		head = d.period(row.Key)
	}
	if err := d.print("%s%s\n", printable(row.Key), head); err != nil {
		return err
	}
	for i := range row.Cells {
		c := &row.Cells[i]
		text, err := d.cell(table, base, c)
		if err != nil {
			text = fmt.Sprintf("%v: %s", err, printable(c.Value))
		}
		if err := d.print("  %-4s %s\n", c.Family, text); err != nil {
			return err
		}
	}
	return nil
}

// series takes the key of a row of METRIC or CURRENT apart.
func (d *dumper) series(table bucketstore.Table, key []byte) (base int64, head string) {
	err := error(nil)
	if table == bucketstore.Metric {
		var of []byte
		if of, base, err = d.schema.ParseRowKey(nil, key); err == nil {
			key, head = of, "  from "+at(base)
		}
	}
	var b labels.ScratchBuilder
	ls, parseErr := d.schema.ParseSeriesKey(key, &b)
	if err = errors.Join(err, parseErr); err != nil {
		return base, fmt.Sprintf("  (%v)", err)
	}
	return base, "  " + ls.String() + head
}

// period says of which index period a row of INDEX is.
func (d *dumper) period(key []byte) string {
	if period, _, err := d.schema.ParsePosting(key); err == nil {
		return "  from " + at(period)
	}
	if period, err := d.schema.ParseNameKey(key); err == nil {
		return "  from " + at(period)
	}
	for _, field := range strings.Split(string(key), ",") {
		if period, ok := series.ParseTime([]byte(field)); ok {
			return "  from " + at(period)
		}
	}
	return ""
}

// cell says what a cell has.
func (d *dumper) cell(table bucketstore.Table, base int64, c *bucketstore.Cell) (string, error) {
	switch {
	case table == bucketstore.Current:
		v, err := cell.Parse(c.Value)
		return at(c.Time) + "  " + valueText(v), err
	case table != bucketstore.Metric:
		return strings.TrimSpace(fmt.Sprintf("%s  at %s  %s", printable(c.Qualifier), at(c.Time), printable(c.Value))), nil
	}
	if r := rollup.ResolutionOf(c.Family); r != rollup.Raw {
		return d.rollup(base, r, c)
	}
	switch c.Family {
	case series.FamilyChunk:
		return d.chunk(base, c)
	case series.FamilyCount:
		n, err := bucketstore.ParseSum(c.Value)
		return fmt.Sprintf("%s  %d writes", day(base, c), n), err
	case series.FamilyExemplar:
		var b labels.ScratchBuilder
		e, err := cell.ParseExemplar(base, c.Qualifier, c.Value, &b)
		return fmt.Sprintf("%s  %s %v", at(e.Ts), e.Labels, e.Value), err
	}
	delta, err := series.ParseQualifier(c.Qualifier)
	if err != nil {
		return "", err
	}
	v, err := cell.Parse(c.Value)
	text := at(base+int64(delta)) + "  " + valueText(v)
	if c.Family == series.FamilyLate {
		text += "  arrived at " + at(c.Time)
	}
	return text, err
}

func day(base int64, c *bucketstore.Cell) string {
	return time.UnixMilli(rollup.DayOfCell(base, c.Qualifier)).UTC().Format(time.DateOnly)
}

// encodings are the names of the encodings of chunks.
var encodings = map[byte]string{chunk.EncodingDense: "dense", chunk.EncodingOpen: "open"}

func (d *dumper) chunk(base int64, c *bucketstore.Cell) (string, error) {
	sealed, err := chunk.Parse(c.Qualifier, c.Value)
	if err != nil {
		return "", err
	}
	name, ok := encodings[sealed.Encoding]
	if !ok {
		name = chunkenc.Encoding(sealed.Encoding).String()
	}
	text := fmt.Sprintf("%s to %s  %s, stamp %d, %d bytes", at(base+int64(sealed.First)), at(base+int64(sealed.Last)), name, sealed.Stamp, len(sealed.Data))
	if !d.samples {
		return text, nil
	}
	d.of.Reset(base, base, base+series.Period, merge.Options{})
	d.of.AddChunk(sealed)
	var all strings.Builder
	for {
		switch d.of.Next() {
		case merge.None:
			return text + all.String(), d.of.Err()
		case merge.Floats:
			ts, vs := d.of.Floats()
			for i := range ts {
				fmt.Fprintf(&all, "\n         %s  %s", at(ts[i]), floatText(vs[i]))
			}
		default:
			t, v, err := d.of.Value()
			if err != nil {
				return text + all.String(), err
			}
			fmt.Fprintf(&all, "\n         %s  %s", at(t), valueText(v))
		}
	}
}

func (d *dumper) rollup(base int64, r rollup.Resolution, c *bucketstore.Cell) (string, error) {
	of := rollup.DayOfCell(base, c.Qualifier)
	text := fmt.Sprintf("%s  of %d writes, %d bytes", day(base, c), c.Time-of-rollup.Day, len(c.Value))
	switch {
	case len(c.Value) == 0:
		return text + ", no samples", nil
	case !rollup.HasBuckets(c.Value):
		return text + ", only samples tell what it has", nil
	case !d.samples:
		return text, nil
	}
	var points rollup.Points
	points.Reset(0, rollup.Windows{})
	if err := points.AppendCell(r, of, c.Value, of, of+rollup.Day); err != nil {
		return text, err
	}
	if points.IsEstimated {
		text += ", estimates of a downsampled block"
	}
	var all strings.Builder
	for i, t := range points.Times {
		fmt.Fprintf(&all, "\n         %s  %s", at(t), floatText(points.Values[i]))
	}
	return text + all.String(), nil
}

// at returns a time, in milliseconds, as text.
func at(t int64) string { return time.UnixMilli(t).UTC().Format("2006-01-02T15:04:05.000Z") }

func valueText(v cell.Value) string {
	text := floatText(v.Float)
	if v.Histogram != nil {
		text = v.Histogram.String()
	} else if v.FloatHistogram != nil {
		text = v.FloatHistogram.String()
	}
	if v.Start != 0 {
		text += "  since " + at(v.Start)
	}
	return text
}

// floatText returns a value, with its bits if it is no number.
func floatText(v float64) string {
	if !math.IsNaN(v) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprintf("NaN (%016x)", math.Float64bits(v))
}

// printable returns text as it is, and other bytes quoted.
func printable(b []byte) string {
	if utf8.Valid(b) && !strings.ContainsFunc(string(b), func(r rune) bool { return !strconv.IsPrint(r) }) {
		return string(b)
	}
	return strconv.Quote(string(b))
}
