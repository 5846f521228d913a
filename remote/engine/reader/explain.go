package reader

import (
	"bytes"
	"context"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// Explanation says what it takes to answer a selector. It is made to be read
// as JSON.
type Explanation struct {
	Selector string `json:"selector"`
	// Mint and Maxt are the range that is read, in milliseconds, inclusive.
	Mint int64 `json:"mint"`
	Maxt int64 `json:"maxt"`
	// Lists are the index lists of the matchers. One of them is the answer: the shortest
	// in memory, or of those that were read side by side the one that ended first.
	Lists []ExplainedList `json:"lists"`
	// Series is how many series match.
	Series int `json:"series"`
	// Rows are the ranges read from METRIC.
	Rows []ExplainedRange `json:"rows"`
}

// ExplainedList is one index list: the postings of one matcher.
type ExplainedList struct {
	Matcher string `json:"matcher"`
	Chosen  bool   `json:"chosen"`
	// InMemory is how many of the lists of values and of series that it is made of, by
	// value and index period, were in memory. The rows are those of the others.
	InMemory int              `json:"in_memory"`
	Ranges   []ExplainedRange `json:"ranges"`
	RowsRead int              `json:"rows_read"`
}

// ExplainedRange is a range of rows and what reading it met.
type ExplainedRange struct {
	Table string `json:"table"`
	// Start and Limit are keys, the range is [Start, Limit).
	Start string `json:"start"`
	Limit string `json:"limit"`
	// Mint and Maxt are, in METRIC, the times read of each row, in milliseconds,
	// inclusive: a row is read in slices.
	Mint int64 `json:"mint,omitempty"`
	Maxt int64 `json:"maxt,omitempty"`
	// Rows and Cells are what was read of the range.
	Rows  int `json:"rows"`
	Cells int `json:"cells"`
}

// Explain answers q like Select, but counts the rows and cells instead of
// returning them.
func (r *Reader) Explain(ctx context.Context, q Query) (*Explanation, error) {
	found, err := r.Find(ctx, q)
	if err != nil {
		return nil, err
	}
	start, limit := q.Span()
	x := &Explanation{
		Selector: selectorText(q.Matchers),
		Mint:     start,
		Maxt:     limit - 1,
		Lists:    explainLists(found.Lists),
		Series:   len(found.Series),
		Rows:     []ExplainedRange{},
	}
	if q.SeriesOnly {
		return x, nil
	}
	reader := r.newBatchReader(q)
	reader.onRange = func(p part, read series.RowRange, rows, cells int) {
		explained := explainRange(bucketstore.Metric, read, rows, cells)
		explained.Mint, explained.Maxt = p.start, p.limit-1
		x.Rows = append(x.Rows, explained)
	}
	for rest := found.Series; len(rest) > 0; {
		read, err := reader.read(ctx, rest, r.metrics)
		if err != nil {
			return nil, err
		}
		rest = rest[len(read.builders):]
	}
	return x, nil
}

func explainLists(lists []index.ListRead) []ExplainedList {
	explained := make([]ExplainedList, len(lists))
	for i, l := range lists {
		x := ExplainedList{Matcher: "every series", Chosen: l.Complete, InMemory: l.InMemory, Ranges: []ExplainedRange{}}
		if l.Matcher != nil {
			x.Matcher = l.Matcher.String()
		}
		for n, r := range l.Ranges {
			x.RowsRead += l.Rows[n]
			x.Ranges = append(x.Ranges, explainRange(bucketstore.Index, r, l.Rows[n], l.Rows[n]))
		}
		explained[i] = x
	}
	return explained
}

func explainRange(table bucketstore.Table, r series.RowRange, rows, cells int) ExplainedRange {
	return ExplainedRange{Table: table.String(), Start: string(r.Start), Limit: string(r.Limit), Rows: rows, Cells: cells}
}

func selectorText(ms []*labels.Matcher) string {
	texts := make([]string, len(ms))
	for i, m := range ms {
		texts[i] = m.String()
	}
	return "{" + strings.Join(texts, ",") + "}"
}

// SelectorName names a selector in an error message, cut after 256 bytes.
func SelectorName(ms []*labels.Matcher) string {
	const limit = 256
	text := selectorText(ms)
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// rangeCounts counts the rows and cells of each range of a scan, which come in
// order, and reports them. It does nothing without report.
type rangeCounts struct {
	ranges      []series.RowRange
	report      func(r series.RowRange, rows, cells int)
	rows, cells int
}

func newRangeCounts(ranges []series.RowRange, report func(series.RowRange, int, int)) *rangeCounts {
	return &rangeCounts{ranges: ranges, report: report}
}

func (c *rangeCounts) addRow(row bucketstore.Row) {
	if c.report == nil {
		return
	}
	for limit := c.ranges[0].Limit; len(limit) > 0 && bytes.Compare(row.Key, limit) >= 0; limit = c.ranges[0].Limit {
		c.endRange()
	}
	c.rows++
	c.cells += len(row.Cells)
}

func (c *rangeCounts) endRange() {
	c.report(c.ranges[0], c.rows, c.cells)
	c.ranges, c.rows, c.cells = c.ranges[1:], 0, 0
}

// endScan reports the ranges that are left.
func (c *rangeCounts) endScan() {
	for c.report != nil && len(c.ranges) > 0 {
		c.endRange()
	}
}
