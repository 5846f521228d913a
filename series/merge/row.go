package merge

import (
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
)

// A Shape says in which form a Row has the samples of a run.
type Shape int

// The shapes, and the method of Row that returns the run.
const (
	// None is the end of the row: Err says whether all is well.
	None Shape = iota
	// Floats are times and values of as many floats without start timestamps.
	Floats
	// Regular are such floats at times that are all the same step apart: Row.Regular.
	// It comes only if Options ask for it.
	Regular
	// Value is one sample of any other kind: Row.Value.
	Value
	// Chunk is a stored chunk of histograms as it is: Row.Chunk. It comes only if
	// Options ask for it.
	Chunk
)

// Options say what the reader of a row wants besides Floats and Values.
type Options struct {
	// Regular asks for floats at regular times without the times, if they are at
	// least half of chunk.SamplesPerChunk: faster than Floats.
	Regular bool
	// PassChunk, if not nil, says whether a chunk of histograms comes whole, undecoded.
	// It is called for chunks inside the range that no other sample overlaps.
	PassChunk func(chunkenc.Chunk) bool
}

// A Row merges the cells of one METRIC row into samples in order of time: the raw
// cells and the chunks. Of several samples at one time, that of the first of
// series.RawFamilies counts. Without a raw one, that of the chunk with the highest
// stamp counts, and of equal stamps that of the chunk added last. A row is read like
// this, and then the next with the same Row, so that its buffers are used again:
//
//	row.Reset(base, start, limit, options)
//	row.AddChunk(chunk)                     // for each cell of series.FamilyChunk
//	row.AddRaw(family, qualifier, value)    // for each cell of series.RawFamilies
//	for {
//		switch row.Next() {
//		case merge.Floats:                  // row.Floats()
//		case merge.Value:                   // row.Value()
//		case merge.None:                    // row.Err()
//		}
//	}
//
// The order of the families does not matter. A Row refers to the bytes that are
// added until the next Reset. A chunk is decoded when the time of its first
// sample has come; memory follows the chunks that overlap. The zero value is an
// empty row. It is not safe for several goroutines.
type Row struct {
	base, start, limit int64
	options            Options

	// raw are the raw cells of each family, in order of precedence.
	raw [len(series.RawFamilies)]*sampleRun
	// chunks are those that are not yet open, from position opened on.
	chunks []pendingChunk
	opened int
	// heap has the runs with samples left, the one to be next in front.
	heap []*sampleRun
	free []*sampleRun
	// merging says that the raw runs are in the heap and the chunks sorted.
	merging bool

	// current has the current sample, or is nil. All its other samples before
	// bound come before those of any other run.
	current *sampleRun
	bound   int64
	// times and values are the run, if it is of floats; chunk is the run, if it is one.
	// A regular run has no times: it begins at first and has one each step.
	times       []int64
	values      []float64
	first, step int64
	chunk       chunks.Meta
	// valueSpace is where values are put together, timeSpace where times are decoded
	// that are not needed.
	valueSpace []float64
	timeSpace  []int64
	// short is the first position in chunks from which takeRegular may find enough.
	short int
	// previous is the run of the sample before, and follows says that the current
	// sample came next to it in the same run.
	previous *sampleRun
	follows  bool
	err      error
}

// Reset begins with a row in the bucket at base whose samples at times in
// [start, limit), in milliseconds, are wanted. Nothing of the row before is
// left.
func (r *Row) Reset(base, start, limit int64, options Options) {
	for _, run := range r.raw {
		if run != nil {
			clear(run.cells)
			run.ts, run.cells, run.at = run.ts[:0], run.cells[:0], 0
		}
	}
	for _, run := range r.heap {
		r.recycle(run)
	}
	clear(r.chunks)
	*r = Row{
		base: base, start: start, limit: limit, options: options,
		raw: r.raw, chunks: r.chunks[:0], heap: r.heap[:0], free: r.free, timeSpace: r.timeSpace, valueSpace: r.valueSpace,
	}
}

// AddRaw adds a raw cell. The cells of a family come in order of their
// qualifiers. The value is parsed in Next or Value. An error says
// what is wrong with family or qualifier.
func (r *Row) AddRaw(family string, qual, value []byte) error {
	delta, err := series.ParseQualifier(qual)
	if err != nil {
		return fmt.Errorf("family %s: %w", family, err)
	}
	i := slices.Index(series.RawFamilies[:], family)
	if i < 0 {
		return fmt.Errorf("family %q holds no raw samples", family)
	}
	t := r.base + int64(delta)
	if t < r.start || t >= r.limit {
		return nil
	}
	run := r.raw[i]
	if run == nil {
		run = &sampleRun{stamp: rawStamp, order: -i, cells: [][]byte{}}
		r.raw[i] = run
	}
	if n := len(run.ts); n > 0 && run.ts[n-1] >= t {
		return fmt.Errorf("%w: family %s: delta %d after %d", series.ErrCorrupt, family, delta, run.ts[n-1]-r.base)
	}
	run.ts, run.cells = append(run.ts, t), append(run.cells, value)
	return nil
}

// AddChunk adds a chunk. Chunks come in order of their qualifiers, as from the
// store: of equal stamps the later one counts. What is wrong with the data shows
// in Next.
func (r *Row) AddChunk(c chunk.Sealed) {
	if r.base+int64(c.Last) < r.start || r.base+int64(c.First) >= r.limit {
		return
	}
	r.chunks = append(r.chunks, pendingChunk{c, len(r.chunks)})
}

// Next moves to the next run of samples and returns its shape. Nothing may be added
// after the first Next. What the run consists of is valid until the next call, but for
// Values and Chunks, which refer to nothing of the row.
func (r *Row) Next() Shape {
	switch {
	case r.err != nil:
		return None
	case r.options.PassChunk != nil && r.takeChunk():
		return Chunk
	case r.options.Regular && r.takeRegular():
		return Regular
	case !r.nextSample():
		return None
	case r.takeFloats():
		return Floats
	}
	return Value
}

// Err returns what ended the row early: a series.ErrCorrupt.
func (r *Row) Err() error { return r.err }

// Floats returns a run of Floats: one value or more, and their times in milliseconds.
func (r *Row) Floats() (ts []int64, vs []float64) { return r.times, r.values }

// Regular returns a run of Regular: values at times from first on that are step apart,
// in milliseconds.
func (r *Row) Regular() (first, step int64, vs []float64) { return r.first, r.step, r.values }

// Chunk returns a run of Chunk. What it says of counter resets is true, because no
// other sample overlaps it.
func (r *Row) Chunk() chunks.Meta { return r.chunk }

// Value returns a run of Value: one sample and its time in milliseconds. An error is a
// series.ErrCorrupt; the samples behind it can still be read.
func (r *Row) Value() (t int64, v cell.Value, err error) {
	switch run := r.current; {
	case run.cells != nil:
		if v, err = cell.Parse(run.cells[run.at]); err != nil {
			err = fmt.Errorf("family %s, delta %d: %w", series.RawFamilies[-run.order], run.t()-r.base, err)
		}
	case len(run.vs) == 0:
		v = run.histogram(r.follows)
	default:
		v = cell.Value{Start: run.starts[run.at], Float: run.vs[run.at]}
	}
	return r.current.t(), v, err
}

// takeFloats makes a run of the current sample and those that come next in the same
// family or chunk, and moves to the last of them. It returns false if the current
// sample is no float or has a start timestamp.
func (r *Row) takeFloats() bool {
	run := r.current
	if run.cells != nil {
		return r.takeRawFloats(run)
	}
	if len(run.vs) == 0 {
		return false
	}
	n := max(1, countBefore(run.ts[run.at:], r.bound)) // another run may have a sample at this very time
	if len(run.starts) > 0 {
		if n = startless(run.starts[run.at : run.at+n]); n == 0 {
			return false
		}
	}
	r.times, r.values = run.ts[run.at:run.at+n], run.vs[run.at:run.at+n]
	run.at += n - 1
	return true
}

// countBefore returns how many of ts, which ascend and are not empty, lie before
// bound. Mostly that is all of them, or few.
func countBefore(ts []int64, bound int64) int {
	if ts[len(ts)-1] < bound {
		return len(ts)
	}
	end := 1
	for end < len(ts) && ts[end] < bound {
		end *= 2
	}
	n, _ := slices.BinarySearch(ts[end/2:min(end, len(ts))], bound)
	return end/2 + n
}

// startless returns how many of starts are unknown, up to the first that is not.
func startless(starts []int64) int {
	for i, start := range starts {
		if start != 0 {
			return i
		}
	}
	return len(starts)
}

// maxRawFloats is how many raw cells make a run: it bounds the memory that holds them
// decoded.
const maxRawFloats = 1024

// takeRawFloats is takeFloats of raw cells.
func (r *Row) takeRawFloats(run *sampleRun) bool {
	values, i := r.valueSpace[:0], run.at
	for {
		v, start, ok := cell.Float(run.cells[i])
		if !ok || start != 0 {
			break
		}
		values = append(values, v)
		if i++; i == len(run.ts) || run.ts[i] >= r.bound || len(values) == maxRawFloats {
			break
		}
	}
	if len(values) == 0 {
		return false
	}
	r.times, r.values, r.valueSpace = run.ts[run.at:i], values, values
	run.at = i - 1
	return true
}
