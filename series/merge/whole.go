package merge

import (
	"bytes"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
)

// NextHistogramChunk takes the samples that come next as the chunk that they stand
// in, undecoded, and moves behind it. It returns false if they are not exactly those
// of one chunk of histograms: if it is cut by start or limit, or overlaps something
// else or comes right behind what does, or there are none; and if it is not half as
// large as a chunk.Builder makes them, as a small one is better put together with
// others. It may be asked before each Next and costs little; the current sample is
// lost. The chunk refers to nothing of the row. What it says of resets holds, as no
// other sample lies among its own.
func (r *Row) NextHistogramChunk() (chunk.Meta, bool) {
	if r.opened == len(r.chunks) || !isHistogramChunk(r.chunks[r.opened].Encoding) {
		return chunk.Meta{}, false
	}
	c, ok := r.wholeChunk()
	if !ok || !isHistogramChunk(c.Encoding) || checkHistogramData(c) != nil {
		return chunk.Meta{}, false // what is wrong with it, Next will tell
	}
	whole, err := chunkenc.FromData(chunkenc.Encoding(c.Encoding), c.Data)
	if err != nil || !chunk.IsHalfFull(whole) {
		return chunk.Meta{}, false
	}
	r.pass()
	whole.Reset(bytes.Clone(c.Data))
	return chunk.Meta{Chunk: whole, MinTime: r.base + int64(c.First), MaxTime: r.base + int64(c.Last)}, true
}

// NextRegular takes the samples that come next if they are floats of one dense chunk
// or more, at least half of chunk.SamplesPerChunk, whose times, in milliseconds, are all
// step apart from first on: faster than Floats. Of short chunks it takes as many as
// make a long one, and behind them what is of chunk.EncodingOpen. If there are none it takes
// nothing; the current sample is lost all the same. The values are valid until the
// next call of any method.
func (r *Row) NextRegular() (first, step int64, vs []float64, ok bool) {
	if r.opened < r.short {
		return 0, 0, nil, false
	}
	run, from := regularRun{vs: r.regular[:0]}, r.opened
	for len(run.vs) < enoughRegular {
		c, ok := r.aloneChunk()
		if !ok || !r.addRegular(&run, c) {
			break
		}
		r.opened++
	}
	r.regular = run.vs
	if len(run.vs) < chunk.SamplesPerChunk/2 {
		r.opened, r.short = from, r.opened // Next puts them together with others
		return 0, 0, nil, false
	}
	r.previous = nil
	return run.first, run.step, run.vs, true
}

// enoughRegular is how many samples NextRegular looks for. With one short chunk more
// they still fit one chunk of chunk.Builder.AppendRegular.
const enoughRegular = chunk.RegularSamples * 3 / 4

// A regularRun is floats at times that are step apart from first on. If vs is empty
// first and step say nothing.
type regularRun struct {
	first, step int64
	vs          []float64
}

// addRegular adds those samples of c to run that are wanted. If there are none, or they
// do not fit, it returns false and run stays as it is; if something is wrong with c,
// Next will tell.
func (r *Row) addRegular(run *regularRun, c chunk.Sealed) bool {
	old := len(run.vs)
	first, last := r.base+int64(c.First), r.base+int64(c.Last)
	if old > 0 && first != run.first+run.step*int64(old) {
		return false
	}
	t, step, vs, ok := r.regularValues(c, run)
	n := int64(len(vs) - old)
	if !ok || t != first || t+step*(n-1) != last || old > 0 && step != run.step {
		return false
	}
	from, to := int64(0), n
	if first < r.start { // then it is the first chunk of run
		from = (r.start - first + step - 1) / step
	}
	if last >= r.limit {
		to = (r.limit - first + step - 1) / step
	}
	if from >= to {
		return false
	}
	if old == 0 {
		run.first, run.step = first+from*step, step
	}
	if run.vs = vs[:old+int(to)]; from > 0 {
		run.vs = append(run.vs[:old], run.vs[old+int(from):]...)
	}
	return true
}

// regularValues appends the values of c to those of run, if its times are step apart
// from first on. One of chunk.EncodingOpen is only decoded behind others.
func (r *Row) regularValues(c chunk.Sealed, run *regularRun) (first, step int64, vs []float64, ok bool) {
	switch {
	case c.Encoding == chunk.EncodingDense:
		return dense.DecodeRegular(c.Data, run.vs)
	case c.Encoding != chunk.EncodingOpen || len(run.vs) == 0:
		return 0, 0, run.vs, false
	}
	var err error
	r.times, vs, err = chunk.DecodeOpen(c.Data, r.times[:0], run.vs)
	if err != nil || len(r.times) == 0 {
		return 0, 0, run.vs, false
	}
	if len(r.times) == 1 {
		return r.times[0], run.step, vs, true
	}
	step, ok = dense.RegularStep(r.times)
	return r.times[0], step, vs, ok
}

// pass moves behind the chunk that wholeChunk has returned.
func (r *Row) pass() {
	r.opened++
	r.previous = nil
}

// wholeChunk returns the chunk that holds exactly the samples that come next, if
// one does.
func (r *Row) wholeChunk() (chunk.Sealed, bool) {
	c, ok := r.aloneChunk()
	isCut := ok && (r.base+int64(c.First) < r.start || r.base+int64(c.Last) >= r.limit)
	return c, ok && !isCut
}

// aloneChunk returns the chunk that the samples that come next stand in, if nothing
// else has some before its end. It may be cut by start or limit.
func (r *Row) aloneChunk() (chunk.Sealed, bool) {
	if r.inRun() || r.opened == len(r.chunks) {
		return chunk.Sealed{}, false
	}
	// Where chunks overlap, this is asked for each sample. Another run has
	// something to say in front of the chunk.
	if r.current != nil && r.bound < r.pendingFirst(r.opened) {
		return chunk.Sealed{}, false
	}
	if !r.settle() {
		return chunk.Sealed{}, false
	}
	c := r.chunks[r.opened].Sealed
	last := r.base + int64(c.Last)
	if r.heapTime() <= last || r.pendingFirst(r.opened+1) <= last {
		return chunk.Sealed{}, false
	}
	return c, true
}
