// Package resultcache keeps results of PromQL range queries in memory. A query that is sent
// again, as dashboards do, is evaluated only at the steps that are not cached.
//
//	cache.go    blocks of results, bounded in bytes, and what drops them
//	engine.go   the promql.QueryEngine in front of another one
//	query.go    a query, answered from blocks and evaluations of the steps between them
//	finer.go    blocks made from those of a finer step
//	expr.go     which expressions are cached
//	merge.go    results of consecutive steps, put together
//	metrics.go  metrics
//
// An answer is the one of an evaluation, to the bit, warnings included, but for one: that counter
// resets of native histograms conflict. Upstream's engine sees a reset by the histogram before, so
// this warning depends on where the evaluation begins.
//
// Cached are steps that are closed: all that they read is older than a margin. That is for
// the hit rate only. A sample that is written later, however late, drops what has read its time
// before the write is answered, see Cache.Written.
package resultcache

import (
	"container/list"
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"

	"github.com/promtable/promtable/bucketstore"
)

// DefaultBytes is a sensible bound of a Cache: about 3 million floats, with their labels.
const DefaultBytes = 64 << 20

// A Cache has results of one engine. Those of different tenants are apart, by their scope. It is safe for concurrent use.
type Cache struct {
	maxBytes int64
	metrics  metrics
	// earliest and latest are a range with all times that blocks and running evaluations have
	// read, in milliseconds, inclusive. They change with mu held.
	earliest, latest atomic.Int64

	mu     sync.Mutex
	blocks map[blockKey]*list.Element
	// grids says of each expression how many blocks there are of each step and phase.
	grids map[exprKey]map[gridKey]int
	// order has the blocks, the latest used first.
	order   list.List
	bytes   int64
	running map[*evaluation]struct{}
}

// New returns an empty cache of at most maxBytes. Its metrics are registered with reg, where
// they must not be registered yet; reg may be nil.
func New(maxBytes int64, reg prometheus.Registerer) *Cache {
	c := &Cache{maxBytes: maxBytes, blocks: make(map[blockKey]*list.Element), grids: make(map[exprKey]map[gridKey]int), running: make(map[*evaluation]struct{})}
	c.narrow()
	c.metrics = newMetrics(reg, c)
	return c
}

// span is a range of times in milliseconds, inclusive.
type span struct{ mint, maxt int64 }

// nothing is a span without a time.
var nothing = span{math.MaxInt64, math.MinInt64}

func (s span) isEmpty() bool          { return s.mint > s.maxt }
func (s span) overlaps(o span) bool   { return s.mint <= o.maxt && o.mint <= s.maxt }
func (s span) covering(o span) span   { return span{min(s.mint, o.mint), max(s.maxt, o.maxt)} }
func (s span) including(t int64) span { return span{min(s.mint, t), max(s.maxt, t)} }

// queryKey names a query. A step has the number (t - phase) / step.
type queryKey struct {
	exprKey
	gridKey
}

// exprKey is what the value of a query at a time depends on, besides the samples.
type exprKey struct {
	// scope names the tenants that are asked.
	scope, text string
	lookback    int64 // in milliseconds
}

// gridKey says which times have steps, in milliseconds.
type gridKey struct{ step, phase int64 }

// blockSteps is how many steps a block has at most. The first block of a query that moves on
// is used in part, and the last one is made anew with each query.
const blockSteps = 128

// blockKey names the block with the steps from number*blockSteps on.
type blockKey struct {
	queryKey
	number int64
}

// A block is the result of a query at consecutive steps. It does not change.
type block struct {
	key blockKey
	// steps are those that it has of [number*blockSteps, (number+1)*blockSteps).
	steps steps
	// read is what they read.
	read   span
	matrix promql.Matrix
	// sources are the Config.Sources of the evaluations that they are from.
	sources uint8
}

const (
	// blockOverhead is about what a block takes besides its query and series: itself, its
	// element in the list, and its share of a map that is half full.
	blockOverhead = 512
	// seriesBytes, floatBytes and histogramBytes are those of promql.Series, promql.FPoint and
	// promql.HPoint.
	seriesBytes    = 80
	floatBytes     = 16
	histogramBytes = 16
)

// bytes returns about what b takes in memory. Labels count in full, although blocks share them.
func (b *block) bytes() int64 {
	return blockOverhead + int64(len(b.key.scope)+len(b.key.text)) + bytesOf(b.matrix)
}

// bytesOf returns about what a result takes in memory.
func bytesOf(m promql.Matrix) int64 {
	n := int64(0)
	for i := range m {
		n += seriesBytes + int64(m[i].Metric.ByteSize()) + int64(len(m[i].Floats))*floatBytes
		for _, p := range m[i].Histograms {
			n += histogramBytes + int64(p.H.Size())
		}
	}
	return n
}

// find returns the blocks of a query that have any of some steps, by number, and notes that they are used.
func (c *Cache) find(key queryKey, of steps) map[int64]*block {
	return c.look(key, of, c.order.MoveToFront)
}

// peek is find for what does not use the blocks.
func (c *Cache) peek(key queryKey, of steps) map[int64]*block {
	return c.look(key, of, func(*list.Element) {})
}

// look returns blocks, and calls met for each with mu held.
func (c *Cache) look(key queryKey, of steps, met func(*list.Element)) map[int64]*block {
	found := make(map[int64]*block)
	c.mu.Lock()
	defer c.mu.Unlock()
	for number := range of.blocks() {
		if e, ok := c.blocks[blockKey{key, number}]; ok {
			met(e)
			found[number] = e.Value.(*block)
		}
	}
	return found
}

// An evaluation is one that runs, and whose results are to be cached.
type evaluation struct {
	scope string
	read  span
	// stale says that a sample was written into what it reads.
	stale bool
}

// begin notes that an evaluation begins to read. Its results are cached if no sample is
// written there meanwhile. The caller calls end.
func (c *Cache) begin(scope string, read span) *evaluation {
	e := &evaluation{scope: scope, read: read}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[e] = struct{}{}
	c.widen(read)
	return e
}

// end ends an evaluation.
func (c *Cache) end(e *evaluation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, e)
}

// add caches a block with results of e, in place of before, whose steps it may have, too. before
// may be nil. Nothing is cached if e is stale, or if before is not there any more.
func (c *Cache) add(e *evaluation, b, before *block) {
	bytes := b.bytes()
	c.mu.Lock()
	defer c.mu.Unlock()
	old, found := c.blocks[b.key]
	if e.stale || found != (before != nil) || found && old.Value != before || bytes > c.maxBytes {
		return
	}
	if found {
		c.remove(old)
	}
	c.blocks[b.key] = c.order.PushFront(b)
	c.count(b.key.queryKey, 1)
	c.bytes += bytes
	c.widen(b.read)
	for c.bytes > c.maxBytes {
		c.remove(c.order.Back())
		c.metrics.droppedForSpace.Inc()
	}
}

// remove removes a block, with mu held.
func (c *Cache) remove(e *list.Element) {
	b := c.order.Remove(e).(*block)
	delete(c.blocks, b.key)
	c.count(b.key.queryKey, -1)
	c.bytes -= b.bytes()
}

// count adds n to the number of blocks of a query, with mu held.
func (c *Cache) count(key queryKey, n int) {
	grids := c.grids[key.exprKey]
	if grids == nil {
		grids = make(map[gridKey]int)
		c.grids[key.exprKey] = grids
	}
	if grids[key.gridKey] += n; grids[key.gridKey] == 0 {
		delete(grids, key.gridKey)
	}
	if len(grids) == 0 {
		delete(c.grids, key.exprKey)
	}
}

// widen widens earliest and latest, with mu held.
func (c *Cache) widen(read span) {
	all := span{c.earliest.Load(), c.latest.Load()}.covering(read)
	c.earliest.Store(all.mint)
	c.latest.Store(all.maxt)
}

// narrow sets earliest and latest to what there is, with mu held.
func (c *Cache) narrow() {
	all := nothing
	for e := c.order.Front(); e != nil; e = e.Next() {
		all = all.covering(e.Value.(*block).read)
	}
	for e := range c.running {
		if !e.stale {
			all = all.covering(e.read)
		}
	}
	c.earliest.Store(all.mint)
	c.latest.Store(all.maxt)
}

// Written drops what queries that ask a tenant have read of the time of any of the samples, of whatever series. The tenant
// is empty in a store without tenants. It must be called
// when reads find the samples, or may find them, and before the write is answered. It costs a
// pass over the samples, and takes no lock if all are later, or earlier, than anything cached.
func (c *Cache) Written(tenant string, samples []bucketstore.Sample) {
	// An evaluation that has not found the samples began before, so that its range is in these.
	all := span{c.earliest.Load(), c.latest.Load()}
	if all.isEmpty() {
		return
	}
	written := nothing
	for i := range samples {
		if t := samples[i].T; t >= all.mint && t <= all.maxt {
			written = written.including(t)
		}
	}
	if !written.isEmpty() {
		c.WrittenBetween(tenant, written.mint, written.maxt)
	}
}

// WrittenBetween is Written for samples at some of the times from mint to maxt, in milliseconds, inclusive.
func (c *Cache) WrittenBetween(tenant string, mint, maxt int64) {
	c.drop(span{mint, maxt}, func(scope string) bool { return asks(scope, tenant) })
}

// asks says whether queries of a scope ask a tenant.
func asks(scope, tenant string) bool {
	return scope == tenant || strings.Contains("|"+scope+"|", "|"+tenant+"|")
}

// Drop drops everything: for changes of what is stored that are no writes of samples. It must
// be called when reads find the change.
func (c *Cache) Drop() {
	c.drop(span{math.MinInt64, math.MaxInt64}, func(string) bool { return true })
}

// DropEvery drops everything at an interval, until ctx ends: where some changes are not told.
func (c *Cache) DropEvery(ctx context.Context, interval time.Duration) {
	for bucketstore.Sleep(ctx, interval) == nil {
		c.Drop()
	}
}

// drop drops what has read any time of written, of the scopes that isOf says.
func (c *Cache) drop(written span, isOf func(scope string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := range c.running {
		e.stale = e.stale || e.read.overlaps(written) && isOf(e.scope)
	}
	for e := c.order.Front(); e != nil; {
		next := e.Next()
		if b := e.Value.(*block); b.read.overlaps(written) && isOf(b.key.scope) {
			c.remove(e)
			c.metrics.droppedByWrites.Inc()
		}
		e = next
	}
	c.narrow()
}

// heldBytes returns what all blocks take.
func (c *Cache) heldBytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}
