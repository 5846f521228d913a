package eval

import (
	"context"
	"slices"
	"sync"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/index/repanic"
	"github.com/promtable/promtable/series/rollup"
)

const (
	// batchCost is how much a batch should cost, in samples and steps: about a millisecond. A query that costs less has one
	// goroutine.
	batchCost = 1 << 16
	// firstBatch is how many series the first batch has, maxBatch how many others have at most, and batchBytes how many bytes
	// the columns of a batch take, if there is more than one.
	firstBatch = 8
	maxBatch   = 64
	batchBytes = 256 << 10
	// pointCost is what a point of a rollup costs.
	pointCost = 8
)

// batches evaluate the series of a part in batches, of which some are evaluated at the same time. The columns are collected in the
// order of the series, so that results and errors are those of one goroutine.
type batches struct {
	p       *part
	ctx     context.Context
	cores   *Cores
	collect collector
	names   *names

	// next takes series, or is nil. begun are evaluated or will be, in their order; idle are the others of made.
	next              *batch
	begun, idle, made []*batch
	// size is how many series a batch gets. cost and series are those of the batches that are collected.
	size, cost, series int
	// isConcurrent says that series may be read concurrently.
	isConcurrent bool
	// err has ended the evaluation.
	err error
}

func newBatches(ctx context.Context, p *part) *batches {
	cores, _ := ctx.Value(coresKey{}).(*Cores)
	b := &batches{p: p, ctx: ctx, cores: cores, names: newNames(p), size: firstBatch, isConcurrent: true}
	b.resize()
	return b
}

// evaluate evaluates the series of a set.
func (bs *batches) evaluate(set storage.SeriesSet, collect collector) error {
	bs.collect = collect
	defer bs.wait()
	for bs.err == nil && set.Next() {
		if bs.err != nil { // Next has called finish
			break
		}
		if bs.err = bs.ctx.Err(); bs.err == nil {
			bs.add(set.At())
		}
	}
	bs.finish()
	if bs.err != nil {
		return bs.err
	}
	for _, b := range bs.made {
		bs.p.addEvaluated(&b.part)
	}
	return nil
}

// add adds a series to the next batch, and begins that if it is full.
func (bs *batches) add(s storage.Series) {
	if bs.next == nil {
		bs.next = bs.newBatch()
	}
	if _, ok := s.(FloatSeries); !ok {
		bs.isConcurrent = false
	}
	bs.next.series = append(bs.next.series, s)
	if len(bs.next.series) >= bs.size {
		bs.begin()
	}
}

// newBatch returns an empty batch. If so many are begun that all cores are busy it collects the first of them.
func (bs *batches) newBatch() *batch {
	if len(bs.idle) == 0 && len(bs.made) > bs.cores.count() {
		bs.collectFirst()
	}
	if n := len(bs.idle); n > 0 {
		b := bs.idle[n-1]
		bs.idle = bs.idle[:n-1]
		return b
	}
	b := &batch{part: bs.p.forBatch()}
	b.evaluate = b.part.columnFunc()
	bs.made = append(bs.made, b)
	return b
}

// begin begins the next batch. While the part has cost little it is evaluated at once.
func (bs *batches) begin() {
	b := bs.next
	bs.next, bs.begun = nil, append(bs.begun, b)
	if !bs.isConcurrent || bs.cores.count() == 1 || bs.cost < bs.cores.batchCost {
		for len(bs.begun) > 0 {
			bs.collectFirst()
		}
		return
	}
	b.running.Go(func() { b.err = repanic.Catch(func() error { return bs.run(b) }) })
}

// run evaluates series of a batch that are left.
func (bs *batches) run(b *batch) error {
	return bs.cores.compute(bs.ctx, func() error { return b.run(bs.ctx) })
}

// collectFirst collects the batch that was begun first, when it is evaluated. It evaluates what is left of it.
func (bs *batches) collectFirst() {
	b := bs.begun[0]
	bs.begun = bs.begun[1:]
	b.running.Wait()
	for {
		err := repanic.Rethrow(b.err)
		if bs.err == nil && len(b.columns) > 0 {
			bs.err = bs.cores.compute(bs.ctx, func() error { return bs.collectColumns(b) })
		}
		if bs.err == nil {
			bs.err = err
		}
		if b.columns = b.columns[:0]; bs.err != nil || len(b.series) == b.evaluated {
			break
		}
		b.err = bs.run(b)
	}
	bs.cost, bs.series = bs.cost+b.cost, bs.series+b.evaluated
	bs.resize()
	b.clear()
	bs.idle = append(bs.idle, b)
}

// collectColumns collects the columns of a batch.
func (bs *batches) collectColumns(b *batch) error {
	bs.p.warnings.Merge(b.part.warnings)
	b.part.warnings = nil
	first := b.evaluated - len(b.columns)
	for i := range b.columns {
		c := &b.columns[i]
		if err := bs.hold(c.held); err != nil {
			return err
		}
		if c.isEmpty() {
			continue
		}
		if err := bs.p.collect(bs.collect, bs.names, b.series[first+i].Labels(), &c.column); err != nil {
			return err
		}
	}
	return nil
}

// hold notes what was held to evaluate a series, and no longer is.
func (bs *batches) hold(bytes int) error {
	if bytes == 0 {
		return nil
	}
	defer Hold(bs.ctx, -bytes, bs.p.vector.String())
	if err := Hold(bs.ctx, bytes, bs.p.vector.String()); err != nil {
		return &evaluationError{err}
	}
	return nil
}

// finish evaluates and collects all series that were added.
func (bs *batches) finish() {
	if bs.next != nil && bs.err == nil {
		bs.begin()
	}
	for len(bs.begun) > 0 && bs.err == nil {
		bs.collectFirst()
	}
}

// wait waits until nothing is evaluated.
func (bs *batches) wait() {
	for _, b := range bs.begun {
		b.running.Wait()
	}
}

// resize sets the size of batches by what series have cost so far.
func (bs *batches) resize() {
	most := min(maxBatch, batchBytes/(pointSize*max(1, bs.p.grid.count)))
	if bs.cost > 0 {
		bs.size = bs.cores.batchCost * bs.series / bs.cost
	}
	bs.size = max(1, min(bs.size, most))
}

// A batch is some series, which one goroutine evaluates.
type batch struct {
	// part is a copy of the part, for this batch alone. evaluate evaluates floats with it, and read is memory for them.
	part     part
	evaluate func(*samples, *column)
	read     samples
	series   []storage.Series
	// columns are those of the series before the one at evaluated, which are not collected.
	columns   []heldColumn
	evaluated int
	// cost is what the evaluated series have cost.
	cost int
	// running waits for the goroutine, if there is one, and err is what has ended it.
	running sync.WaitGroup
	err     error
}

// A heldColumn is a column, and how many bytes were held to evaluate it.
type heldColumn struct {
	column
	held int
}

// forBatch returns a copy of p that evaluates apart from it.
func (p *part) forBatch() part {
	c := *p
	c.input, c.points, c.helper = make(promql.Matrix, 1), nil, promql.EvalNodeHelper{}
	c.known, c.warnings, c.counts = rollup.Points{}, nil, newCounts(p.grid.count)
	if p.absent != nil {
		absent := *p.absent
		absent.begin(p.grid.count)
		c.absent = &absent
	}
	return c
}

// addEvaluated adds what a copy has counted and noted. Its warnings are added before, in the order of series.
func (p *part) addEvaluated(c *part) {
	p.isWide, p.isUnknown, p.isEstimated = p.isWide || c.isWide, p.isUnknown || c.isUnknown, p.isEstimated || c.isEstimated
	for i := range c.counts.total {
		p.counts.add(i, int(c.counts.total[i]), int(c.counts.read[i]))
		if p.absent != nil {
			p.absent.unknown[i] = p.absent.unknown[i] || c.absent.unknown[i]
		}
	}
}

// run evaluates series that are left. Histograms are large: a column of them costs as much as a batch, and after it run returns.
func (b *batch) run(ctx context.Context) error {
	for b.evaluated < len(b.series) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.evaluateNext(); err != nil {
			return err
		}
		if c := &b.columns[len(b.columns)-1]; c.histograms != nil {
			b.cost += batchCost
			return nil
		}
	}
	return nil
}

// evaluateNext evaluates the next series.
func (b *batch) evaluateNext() (err error) {
	s, p := b.series[b.evaluated], &b.part
	n := len(b.columns)
	b.columns = slices.Grow(b.columns, 1)[:n+1] // which has the columns of batches before
	c := &b.columns[n]
	if c.has == nil {
		c.column = newColumn(p.grid.count)
	}
	c.clear()
	p.input[0].Metric = s.Labels()
	var cost int
	if c.held, cost, err = p.evaluateOne(s, &b.read, b.evaluate, &c.column); err != nil {
		b.columns = b.columns[:n]
		return err
	}
	b.cost += cost + p.grid.count
	b.evaluated++
	return nil
}

// clear empties the batch. It keeps its memory.
func (b *batch) clear() {
	clear(b.series)
	b.series, b.columns = b.series[:0], b.columns[:0]
	b.evaluated, b.cost, b.err = 0, 0, nil
}
