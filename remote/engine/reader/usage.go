package reader

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series/rollup"
)

// A Usage counts what is read for a request. It is safe for concurrent use.
type Usage struct {
	series, indexRows, rows, cells, bytes atomic.Int64
	daysNotRolled, raw                    atomic.Int64
	widened                               atomic.Bool
	cached                                atomic.Uint32
	// MaxSeries, if set, says whether selectors may find so many series, and then more. It is set before anything is read.
	MaxSeries func(series, more int64) error
	// days are the rollups of a series and day, by resolution.
	days [rollup.NumResolutions]atomic.Int64
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
	// Days5m and Days1h are how many rollups of a series and day were read in place of its samples, of the finest resolution and of coarser
	// ones, and DaysNotRolled how many were wanted and were not there, or not right: samples were read.
	Days5m        int64 `json:"rollup_days_5m,omitempty"`
	Days1h        int64 `json:"rollup_days_1h,omitempty"`
	DaysNotRolled int64 `json:"rollup_days_missing,omitempty"`
	// Raw says that samples were read, and Widened that windows were widened to buckets, because samples are no longer
	// kept.
	Raw     bool `json:"raw,omitempty"`
	Widened bool `json:"widened,omitempty"`
}

// Add adds what was read elsewhere.
func (c *Counts) Add(other Counts) {
	c.Series += other.Series
	c.IndexRows += other.IndexRows
	c.Rows += other.Rows
	c.Cells += other.Cells
	c.Bytes += other.Bytes
	c.Days5m += other.Days5m
	c.Days1h += other.Days1h
	c.DaysNotRolled += other.DaysNotRolled
	c.Raw = c.Raw || other.Raw
	c.Widened = c.Widened || other.Widened
}

// Counts returns what was read so far.
func (u *Usage) Counts() Counts {
	c := Counts{
		Series: u.series.Load(), IndexRows: u.indexRows.Load(), Rows: u.rows.Load(), Cells: u.cells.Load(), Bytes: u.bytes.Load(),
		Days5m: u.days[rollup.Finest].Load(), DaysNotRolled: u.daysNotRolled.Load(), Raw: u.raw.Load() > 0, Widened: u.widened.Load(),
	}
	for _, coarser := range rollup.Downsampled[1:] {
		c.Days1h += u.days[coarser].Load()
	}
	return c
}

// Origin returns the resolutions that were read so far, and those that the cached results that were used came from. It returns none of nil.
func (u *Usage) Origin() (all rollup.Origin) {
	if u == nil {
		return 0
	}
	all = rollup.Origin(u.cached.Load())
	if u.raw.Load() > 0 {
		all |= rollup.Raw.Origin()
	}
	for _, r := range rollup.Downsampled {
		if u.days[r].Load() > 0 {
			all |= r.Origin()
		}
	}
	return all
}

// AddCached notes that cached results were used, and what they came from. It does nothing on nil.
func (u *Usage) AddCached(from rollup.Origin) {
	if u != nil {
		u.cached.Or(uint32(from))
	}
}

// Resolutions names the Origin, such as "raw,1h", with "widened" at the end if windows were.
func (u *Usage) Resolutions() string {
	names := u.Origin().Names()
	if u.widened.Load() {
		names = append(names, "widened")
	}
	return strings.Join(names, ",")
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

// addFound counts what it took to find series. The error is one of MaxSeries. It does nothing on nil.
func (u *Usage) addFound(found *index.Result) (err error) {
	if u == nil || found == nil {
		return nil
	}
	all := u.series.Add(int64(len(found.Series)))
	for _, list := range found.Lists {
		for _, rows := range list.Rows {
			u.indexRows.Add(int64(rows))
		}
	}
	if u.MaxSeries != nil {
		return u.MaxSeries(all-int64(len(found.Series)), int64(len(found.Series)))
	}
	return nil
}

// addPlan notes how windows are read. It does nothing on nil.
func (u *Usage) addPlan(p *rollup.Plan) {
	if p.Widens() {
		u.addWidened()
	}
}

// addWidened notes that a window is widened. It does nothing on nil.
func (u *Usage) addWidened() {
	if u != nil {
		u.widened.Store(true)
	}
}

// addRollups counts the rollups of days. It does nothing on nil.
func (u *Usage) addRollups(r rollup.Resolution, days int) {
	if u != nil {
		u.days[r].Add(int64(days))
	}
}

// addNotRolled counts days without a rollup that is right. It does nothing on nil.
func (u *Usage) addNotRolled(days int) {
	if u != nil {
		u.daysNotRolled.Add(int64(days))
	}
}

// addRaw notes that rows of samples were read. It does nothing on nil.
func (u *Usage) addRaw(rows int) {
	if u != nil {
		u.raw.Add(int64(rows))
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
