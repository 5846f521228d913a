// Package index says which series there are. It writes the INDEX rows of a new
// series and turns matchers and a time range into series keys. Package series says
// which bytes the rows have. Index reads and writes them through an interface of two
// methods, and depends on no store.
//
//	what to write for a new series       write.go, batch.go
//	what was written                     written.go, rowset.go
//	and for the next period              prewrite.go
//	limits of new series                 limit.go
//	what is missing                      check.go
//	lists in memory                      memory.go
//	what is written goes to them         added.go
//	and what other processes write       learn.go
//	matchers to lists                    plan.go
//	reading lists                        load.go
//	the shortest list, and its series    select.go
//	label names and values               labels.go
//	counts of series                     cardinality.go
//	and how they differ                  compare.go
//	metric names, and what there is      names.go
package index

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/series"
)

// A Row is one row of the INDEX table: a key, the value of its only cell, and
// the time of that cell in milliseconds.
type Row struct {
	Key   []byte
	Value []byte
	Time  int64
}

// rows is the INDEX table.
type rows interface {
	// PutRows writes rows, which are in order of keys. They are durable when it
	// returns without an error. It keeps no reference to them.
	PutRows(ctx context.Context, rows []Row) error

	// ScanRows calls fn with key and value of each row of the ranges, in order of keys.
	// The ranges are ascending and do not overlap. It ends after limit rows unless limit
	// is 0. The bytes are valid only during the call. An error of fn ends the scan and
	// is returned unchanged.
	ScanRows(ctx context.Context, ranges []series.RowRange, limit int, fn func(key, value []byte) error) error
}

// Config says how an Index works.
type Config struct {
	// Schema says which keys there are, and of which tenant.
	Schema series.Schema

	// ParallelLists is how many lists a Select reads a page of at the same time. 0
	// is 1: then no list is read after one that has ended.
	ParallelLists int

	// AtomicPuts says that the rows of one PutRows become visible at one instant and
	// survive a crash all or not at all. Then commit marks are written with the other
	// rows, and not after them.
	AtomicPuts bool

	// WrittenSeries is how many series are remembered as written, each in the running
	// index period and the next, at 40 to 50 bytes, and up to 13 for label values and
	// names. Series beyond that are looked up when they come, by point reads. 0 is
	// 2,000,000.
	WrittenSeries int

	// MaxMemory is how many bytes of lists are kept in memory. 0 is DefaultMemory.
	MaxMemory int
	// Exclusive says that no other process writes the table. Then lists in memory are
	// good for ever, because they get all that this Index writes.
	Exclusive bool
	// Refresh is how old a list in memory may be if other processes write: after that
	// time what they have written is found. 0 is that no list is kept.
	Refresh time.Duration
	// Now is the clock for Refresh. nil is time.Now.
	Now func() time.Time

	// Limits may be nil.
	Limits Limits

	// Indexed, if set, is called with each series that this Index has written to a period, or has found there when it was to be written,
	// when its rows are durable and before Write returns. It must not keep the key.
	Indexed func(period int64, seriesKey []byte)
	// Sync, if set, is called before an answer about times before limit, in milliseconds, is read, so that Learn and Forget are called with
	// what other processes have written up to then. Its error ends the call and is returned unchanged.
	Sync func(ctx context.Context, limit int64) error
	// Told, if set, says after Sync whether Learn was called with all that processes which take samples have written. Then lists may be
	// toldRefreshes times as old: what commands import and jobs remove is found by then.
	Told func() bool

	// Registerer may be nil.
	Registerer prometheus.Registerer
}

// Index writes and reads the INDEX table. It is safe for concurrent use.
type Index struct {
	schema  series.Schema
	rows    rows
	writer  writer
	limits  Limits
	tallies tallies
	memory  *memory
	metrics metrics
	lists   int
	atomic  bool
	indexed func(period int64, seriesKey []byte)
	sync    func(ctx context.Context, limit int64) error
	told    func() bool
	// counting holds a token while a call of Cardinality without selectors runs.
	counting chan struct{}
	// batches are *batch that are empty.
	batches sync.Pool
}

// DefaultWrittenSeries is how many series an Index remembers as written.
const DefaultWrittenSeries = 10_000_000

// New returns the index in these rows.
func New(cfg Config, rows rows) *Index {
	if cfg.WrittenSeries <= 0 {
		cfg.WrittenSeries = DefaultWrittenSeries
	}
	m := newMetrics(cfg.Registerer)
	x := &Index{
		schema: cfg.Schema, rows: rows, writer: newWriter(cfg.WrittenSeries, m), memory: newMemory(cfg), metrics: m, lists: max(1, cfg.ParallelLists), atomic: cfg.AtomicPuts,
		indexed: cfg.Indexed, sync: cfg.Sync, told: cfg.Told, limits: cfg.Limits, tallies: tallies{of: make(map[int64]*tally)},
		counting: make(chan struct{}, 1),
		batches:  sync.Pool{New: func() any { return newBatch() }},
	}
	registerKnownSeries(cfg.Registerer, &x.writer)
	return x
}
