package merge

import (
	"bytes"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
)

// takeChunk takes the next samples as one stored chunk of histograms, undecoded, and
// moves behind it. It returns false if the chunk is cut by start or limit, if it
// overlaps other samples, or if Options.PassChunk refuses it. It is called before each
// sample and costs little.
func (r *Row) takeChunk() bool {
	if r.opened == len(r.chunks) || !isHistogramChunk(r.chunks[r.opened].Encoding) {
		return false
	}
	c, ok := r.aloneChunk()
	mint, maxt := r.base+int64(c.First), r.base+int64(c.Last)
	if !ok || mint < r.start || maxt >= r.limit {
		return false
	}
	whole, err := HistogramChunk(c.Encoding, c.Data)
	if err != nil || !r.options.PassChunk(whole) {
		return false // what is wrong with it shows when it is decoded
	}
	r.opened++
	r.previous = nil
	whole.Reset(bytes.Clone(c.Data))
	r.chunk = chunks.Meta{Chunk: whole, MinTime: mint, MaxTime: maxt}
	return true
}

// HistogramChunk returns the chunk with data of an encoding of histograms. Upstream's iterator may fail over the data, but
// does not panic. The error is for data that begin with what no chunk does.
func HistogramChunk(encoding byte, data []byte) (chunkenc.Chunk, error) {
	if err := checkHistogramData(encoding, data); err != nil {
		return nil, err
	}
	return chunkenc.FromData(chunkenc.Encoding(encoding), data)
}

// takeRegular takes the next samples if they are floats at regular times, at least
// half of chunk.SamplesPerChunk. They come from one dense chunk or more: of short
// chunks it takes as many as make a long one, and an open chunk behind them.
// Otherwise it takes nothing and returns false.
func (r *Row) takeRegular() bool {
	if r.opened < r.short {
		return false
	}
	run, from := regularRun{vs: r.valueSpace[:0]}, r.opened
	for len(run.vs) < enoughRegular {
		c, ok := r.aloneChunk()
		if !ok || !r.addRegular(&run, c) {
			break
		}
		r.opened++
	}
	r.valueSpace = run.vs
	if len(run.vs) < chunk.SamplesPerChunk/2 {
		r.opened, r.short = from, r.opened // as Floats they are put together with others
		return false
	}
	r.previous = nil
	r.first, r.step, r.values = run.first, run.step, run.vs
	return true
}

// enoughRegular is how many samples takeRegular looks for. With one short chunk more
// they still fit one chunk of Builder.AppendRegular.
const enoughRegular = chunk.RegularSamples * 3 / 4

// A regularRun is floats at times that are step apart from first on. If vs is empty
// first and step say nothing.
type regularRun struct {
	first, step int64
	vs          []float64
}

// addRegular adds those samples of c to run that are wanted. If there are none, or they
// do not fit, it returns false and run stays as it is; what is wrong with c shows when
// it is decoded.
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
	r.timeSpace, vs, err = chunk.DecodeOpen(c.Data, r.timeSpace[:0], run.vs)
	if err != nil || len(r.timeSpace) == 0 {
		return 0, 0, run.vs, false
	}
	if len(r.timeSpace) == 1 {
		return r.timeSpace[0], run.step, vs, true
	}
	step, ok = dense.RegularStep(r.timeSpace)
	return r.timeSpace[0], step, vs, ok
}

// aloneChunk returns the chunk that has the next samples, if no other chunk and no raw
// cell has a sample before its end. It may be cut by start or limit.
func (r *Row) aloneChunk() (chunk.Sealed, bool) {
	if r.inRun() || r.opened == len(r.chunks) {
		return chunk.Sealed{}, false
	}
	// Where chunks overlap, aloneChunk is called for each sample: the common answer
	// comes first. Another run has a sample in front of the chunk.
	if r.current != nil && r.bound < r.pendingFirst(r.opened) {
		return chunk.Sealed{}, false
	}
	if !r.passCurrent() {
		return chunk.Sealed{}, false
	}
	c := r.chunks[r.opened].Sealed
	last := r.base + int64(c.Last)
	if r.heapTime() <= last || r.pendingFirst(r.opened+1) <= last {
		return chunk.Sealed{}, false
	}
	return c, true
}
