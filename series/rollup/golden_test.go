package rollup_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/promtable/promtable/series/golden"
	"github.com/promtable/promtable/series/rollup"
)

// columnNames are what the columns of a cell are, in order.
var columnNames = [...]string{
	"number of the bucket", "flags", "samples", "kept between", "time of the first", "first", "sum", "time of the last", "last", "changes", "resets",
	"times between", "between", "markers", "chunks",
}

// TestGolden pins the bytes of cells. The input of a case is one of golden.Samples, and its output
// are the bytes of the cell at each resolution, column by column. A last line "without" has the times whose buckets are removed of it. If it begins with a line of histograms and their kind, the
// values are those that name a histogram.
func TestGolden(t *testing.T) {
	golden.Run(t, func(t *testing.T, input string) string {
		input, removed, isRemoved := strings.Cut(input, "\nwithout ")
		ts, vs := golden.Samples(t, input)
		var out strings.Builder
		var e rollup.Encoder
		for _, r := range rollup.Resolutions {
			cell := e.Append(nil, r, rollup.DayOf(ts[0]), ts, vs)
			names := columnNames[:14]
			if _, kind, ok := strings.Cut(input, "\nhistograms "); ok {
				kind, _, _ = strings.Cut(kind, "\n")
				cell, names = encodeHistograms(t, r, rollup.DayOf(ts[0]), namedHistograms(t, kind, ts, vs)), columnNames[:]
			}
			if isRemoved {
				cell = without(t, cell, r, rollup.DayOf(ts[0]), removed)
			}
			buckets, n := binary.Uvarint(cell[2:])
			fmt.Fprintf(&out, "%s: kind %02x, flags %02x, %d buckets: % x\n", r, cell[0], cell[1], buckets, cell[2:2+n])
			rest := cell[2+n:]
			for _, name := range names {
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
		}
		return out.String()
	})
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
