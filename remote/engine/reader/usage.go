package reader

import (
	"context"
	"sync/atomic"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
)

// A Usage counts what is read for a request. It is safe for concurrent use.
type Usage struct {
	series, indexRows, rows, cells, bytes atomic.Int64
}

// Counts are what was read.
type Counts struct {
	// Series is how many series selectors have found.
	Series int64 `json:"series"`
	// IndexRows is how many rows of INDEX were read. What the index has in memory is not read.
	IndexRows int64 `json:"index_rows"`
	// Rows and Cells are those of METRIC, open chunks included. Bytes are those of keys,
	// qualifiers and values.
	Rows  int64 `json:"rows"`
	Cells int64 `json:"cells"`
	Bytes int64 `json:"bytes"`
}

// Add adds what was read elsewhere.
func (c *Counts) Add(other Counts) {
	c.Series += other.Series
	c.IndexRows += other.IndexRows
	c.Rows += other.Rows
	c.Cells += other.Cells
	c.Bytes += other.Bytes
}

// Counts returns what was read so far.
func (u *Usage) Counts() Counts {
	return Counts{u.series.Load(), u.indexRows.Load(), u.rows.Load(), u.cells.Load(), u.bytes.Load()}
}

// usageKey is the key of a *Usage in a context.
type usageKey struct{}

// WithUsage returns a context whose reads u counts.
func WithUsage(ctx context.Context, u *Usage) context.Context {
	return context.WithValue(ctx, usageKey{}, u)
}

// UsageOf returns the usage of a context, or nil if there is none.
func UsageOf(ctx context.Context) *Usage {
	u, _ := ctx.Value(usageKey{}).(*Usage)
	return u
}

// addFound counts what it took to find series. It does nothing on nil.
func (u *Usage) addFound(found *index.Result) {
	if u == nil || found == nil {
		return
	}
	u.series.Add(int64(len(found.Series)))
	for _, list := range found.Lists {
		for _, rows := range list.Rows {
			u.indexRows.Add(int64(rows))
		}
	}
}

// addRows counts the rows of a scan. It does nothing on nil.
func (u *Usage) addRows(read rowCounts) {
	if u == nil {
		return
	}
	u.rows.Add(int64(read.rows))
	u.cells.Add(int64(read.cells))
	u.bytes.Add(int64(read.bytes))
}

// rowCounts counts rows.
type rowCounts struct{ rows, cells, bytes int }

func (c *rowCounts) addRow(row bucketstore.Row) {
	c.rows++
	c.cells += len(row.Cells)
	c.bytes += len(row.Key)
	for i := range row.Cells {
		c.bytes += len(row.Cells[i].Qualifier) + len(row.Cells[i].Value)
	}
}
