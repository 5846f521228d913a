package rollup_test

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/promtable/promtable/series/golden"
	"github.com/promtable/promtable/series/rollup"
)

// columnNames are what the columns of a cell are, in order.
var columnNames = [...]string{
	"number of the bucket", "flags", "samples", "kept between", "time of the first", "first", "sum", "time of the last", "last", "changes", "resets",
	"times between", "between", "markers",
}

// The columns that follow, of cells of floats and of histograms.
var (
	floatColumns     = []string{"known", "tails", "times of tails", "values of tails"}
	histogramColumns = []string{"known", "chunks"}
)

// TestGolden pins the bytes of cells of each resolution, which has a directory of golden files. The input of a case is one of golden.Samples, and its output
// are the bytes of the cell, column by column. A last line "without" has the times whose buckets are removed of it. If it begins with a line of histograms and their kind, the
// values are those that name a histogram. After a line of aggregates and their span the cell is that of aggregates of the samples.
func TestGolden(t *testing.T) {
	for _, r := range rollup.Downsampled {
		t.Run(r.String(), func(t *testing.T) {
			golden.RunDir(t, filepath.Join("testdata", r.String()), func(t *testing.T, input string) string { return goldenCell(t, r, input) })
		})
	}
}

// goldenCell returns the output of a case.
func goldenCell(t *testing.T, r rollup.Resolution, input string) string {
	input, removed, isRemoved := strings.Cut(input, "\nwithout ")
	ts, vs := golden.Samples(t, input)
	var e rollup.Encoder
	cell := e.Append(nil, r, rollup.DayOf(ts[0]), ts, vs)
	more := floatColumns
	if _, kind, ok := strings.Cut(input, "\nhistograms "); ok {
		kind, _, _ = strings.Cut(kind, "\n")
		cell, more = encodeHistograms(t, r, rollup.DayOf(ts[0]), namedHistograms(t, kind, ts, vs)), histogramColumns
	}
	head := 3
	if _, text, ok := strings.Cut(input, "\naggregates "); ok {
		cell, more, head = encodeAggregates(t, r, ts, vs, text), nil, 2
	}
	if isRemoved {
		cell = without(t, cell, r, rollup.DayOf(ts[0]), removed)
	}
	var out strings.Builder
	buckets, n := binary.Uvarint(cell[head:])
	fmt.Fprintf(&out, "kind %02x, flags %02x, ", cell[0], cell[1])
	if head > 2 {
		fmt.Fprintf(&out, "known %02x, ", cell[2])
	}
	fmt.Fprintf(&out, "%d buckets: % x\n", buckets, cell[head:head+n])
	rest := cell[head+n:]
	for _, name := range append(columnNames[:len(columnNames):len(columnNames)], more...) {
		size, n := binary.Uvarint(rest)
		fmt.Fprintf(&out, "  %-20s  % x", name, rest[:n])
		if size > 0 {
			fmt.Fprintf(&out, "  % x", rest[n:n+int(size)])
		}
		out.WriteString("\n")
		rest = rest[n+int(size):]
	}
	if len(rest) > 0 {
		t.Errorf("% x is left", rest)
	}
	return out.String()
}

// encodeAggregates returns the cell of aggregates of spans, in milliseconds.
func encodeAggregates(t *testing.T, r rollup.Resolution, ts []int64, vs []float64, text string) []byte {
	t.Helper()
	text, _, _ = strings.Cut(text, "\n")
	span, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var e rollup.AggregateEncoder
	e.Begin(rollup.DayOf(ts[0]))
	for _, a := range aggregatesOf(ts, vs, span, 0) {
		if !e.Add(a) {
			t.Fatalf("%v is not added", a)
		}
	}
	return e.Append(nil, r)
}

// without returns a cell without the buckets of the times that a text has, as start and limit.
func without(t *testing.T, cell []byte, r rollup.Resolution, day int64, removed string) []byte {
	t.Helper()
	var start, limit int64
	var e rollup.Encoder
	_, err := fmt.Sscan(removed, &start, &limit)
	if err == nil {
		cell, err = e.Without(cell, r, day, start, limit)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cell
}
