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
	// Total is all that was read.
	Total Counts `json:"total"`
	// Rows are the ranges read from METRIC.
	Rows []ExplainedRange `json:"rows"`
	// Parts say what the windows of a query that buckets can answer come from.
	Parts []ExplainedPart `json:"parts,omitempty"`
}

// ExplainedList is one index list: the postings of one matcher.
type ExplainedList struct {
	Matcher string `json:"matcher"`
	Chosen  bool   `json:"chosen"`
	// InMemory is how many of the lists of values and of series that it is made of, by
	// value and index period, were in memory. The rows are those of the others.
	InMemory int `json:"in_memory"`
	// Series is how many series the list had in all index periods, as far as it was in memory or read to its end,
	// before other matchers.
	Series   int              `json:"series"`
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
	// Bytes are, in METRIC, those of keys, qualifiers and values.
	Bytes int `json:"bytes,omitempty"`
}

// Explain answers q like Select, but counts the rows and cells instead of
// returning them.
func (r *Reader) Explain(ctx context.Context, q Query) (*Explanation, error) {
	ranges := []ExplainedRange{}
	x, err := r.explain(ctx, q, true, func(p part, read series.RowRange, counts rowCounts) {
		explained := explainRange(bucketstore.Metric, read, counts)
		explained.Mint, explained.Maxt = p.start, p.limit-1
		ranges = append(ranges, explained)
	})
	if err == nil {
		x.Rows = ranges
	}
	return x, err
}

// Measure is Explain without Rows, so that memory does not follow what is read.
func (r *Reader) Measure(ctx context.Context, q Query) (*Explanation, error) {
	return r.explain(ctx, q, true, nil)
}

// Plan is Measure without a look at METRIC: it finds the series, and Parts are what is planned.
func (r *Reader) Plan(ctx context.Context, q Query) (*Explanation, error) {
	return r.explain(ctx, q, false, nil)
}

// explain reads the rows of METRIC if reads is set.
func (r *Reader) explain(ctx context.Context, q Query, reads bool, onRange func(part, series.RowRange, rowCounts)) (*Explanation, error) {
	usage := &Usage{}
	ctx = WithUsage(ctx, usage)
	q = r.withCut(ctx, q)
	q.Decoded, q.Passing = true, true // as PromQL reads, and nothing is kept
	groups, found, err := r.find(ctx, q)
	if err != nil {
		return nil, err
	}
	var days []foundDays
	for i, reader := range r.readers(groups) {
		if !reads || q.SeriesOnly {
			break
		}
		reader.onRange, reader.days = onRange, make(foundDays)
		days = append(days, reader.days)
		for rest := groups[i].series; len(rest) > 0; {
			read, err := reader.read(ctx, rest, r.metrics)
			if err != nil {
				return nil, err
			}
			rest = rest[len(read.builders):]
			read.release()
		}
	}
	start, limit := q.span()
	return &Explanation{
		Selector: selectorText(q.Matchers),
		Mint:     start,
		Maxt:     limit - 1,
		Lists:    explainLists(found.Lists),
		Series:   len(found.Series),
		Total:    usage.Counts(),
		Parts:    r.partsOf(ctx, q, groups, days),
	}, nil
}

func explainLists(lists []index.ListRead) []ExplainedList {
	explained := make([]ExplainedList, len(lists))
	for i, l := range lists {
		x := ExplainedList{Matcher: "every series", Chosen: l.Complete, InMemory: l.InMemory, Series: l.Series, Ranges: []ExplainedRange{}}
		if l.Matcher != nil {
			x.Matcher = l.Matcher.String()
		}
		for n, r := range l.Ranges {
			x.RowsRead += l.Rows[n]
			x.Ranges = append(x.Ranges, explainRange(bucketstore.Index, r, rowCounts{rows: l.Rows[n], cells: l.Rows[n]}))
		}
		explained[i] = x
	}
	return explained
}

func explainRange(table bucketstore.Table, r series.RowRange, read rowCounts) ExplainedRange {
	return ExplainedRange{Table: table.String(), Start: string(r.Start), Limit: string(r.Limit), Rows: read.rows, Cells: read.cells, Bytes: read.bytes}
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

// rangeCounts counts the rows of a scan for a usage. If report is set, it is called with those
// of each range; the ranges come in order.
type rangeCounts struct {
	rowCounts
	// total counts all rows.
	total  int
	usage  *Usage
	ranges []series.RowRange
	report func(series.RowRange, rowCounts)
}

func (c *rangeCounts) addRow(row bucketstore.Row) {
	switch {
	case c.report != nil:
		for limit := c.ranges[0].Limit; len(limit) > 0 && bytes.Compare(row.Key, limit) >= 0; limit = c.ranges[0].Limit {
			c.endRange()
		}
	case c.usage == nil:
		return
	}
	c.total++
	c.rowCounts.addRow(row)
}

func (c *rangeCounts) endRange() {
	c.report(c.ranges[0], c.rowCounts)
	c.usage.addRows(c.rowCounts)
	c.ranges, c.rowCounts = c.ranges[1:], rowCounts{}
}

// endScan ends the ranges that are left.
func (c *rangeCounts) endScan() {
	for c.report != nil && len(c.ranges) > 0 {
		c.endRange()
	}
	c.usage.addRows(c.rowCounts)
}
