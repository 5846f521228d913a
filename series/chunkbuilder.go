package series

import (
	"bytes"
	"slices"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

const (
	// SamplesPerChunk is where a ChunkBuilder cuts a chunk: past about 240 samples nothing is
	// gained in size.
	SamplesPerChunk = 240
	// histogramChunkBytes is where a chunk of histograms is cut, if it has at
	// least histogramChunkSamples.
	histogramChunkBytes   = 4 << 10
	histogramChunkSamples = 10
	// maxDecodedBytes is how many bytes of samples of one series stay decoded:
	// what comes behind them is encoded, and most takes less then.
	maxDecodedBytes = 1 << 20
)

// A TimedChunk is a chunk of upstream's with the times of its first and last
// sample in milliseconds.
type TimedChunk struct {
	Chunk            chunkenc.Chunk
	MinTime, MaxTime int64
}

// A ChunkBuilder makes chunks in upstream's encodings of the values of one
// series. The zero value is empty.
type ChunkBuilder struct {
	// Decoded asks for a FloatChunk of what AppendFloats is given: nothing is
	// encoded for readers that would decode it at once. After a megabyte it is
	// heard no more, so that long series do not fill the memory.
	Decoded bool
	// Chunks are what is made so far, in order of time.
	Chunks []TimedChunk
	app    chunkenc.Appender
	// inChunk is how many samples the last chunk has.
	inChunk int
	// closed is how many bytes all chunks but the last hold.
	closed int
}

// Bytes is what the chunks hold.
func (b *ChunkBuilder) Bytes() int {
	if len(b.Chunks) == 0 {
		return 0
	}
	return b.closed + sizeOf(b.last().Chunk)
}

// sizeOf is what a chunk holds in bytes.
func sizeOf(c chunkenc.Chunk) int {
	if floats, ok := c.(*FloatChunk); ok {
		return floatSize * len(floats.ts)
	}
	return len(c.Bytes())
}

// Append adds a value at t, in milliseconds, later than all before. An error
// means that upstream does not take the value.
func (b *ChunkBuilder) Append(t int64, v Value) error {
	if !b.fits(v) {
		return b.begin(t, v)
	}
	switch {
	case v.Histogram != nil:
		chunk, recoded, app, err := b.app.AppendHistogram(nil, v.Start, t, v.Histogram, false)
		return b.appended(t, v, chunk, recoded, app, err)
	case v.FloatHistogram != nil:
		chunk, recoded, app, err := b.app.AppendFloatHistogram(nil, v.Start, t, v.FloatHistogram, false)
		return b.appended(t, v, chunk, recoded, app, err)
	}
	b.app.Append(v.Start, t, v.Float)
	return b.appended(t, v, nil, false, b.app, nil)
}

// AppendChunk adds a chunk later than all before. It is the builder's from now on,
// and no value is added to it.
func (b *ChunkBuilder) AppendChunk(c TimedChunk) {
	b.add(c.MinTime, c.Chunk, nil)
	b.last().MaxTime = c.MaxTime
}

// isHalfFull says whether a chunk of histograms is at least half as large as Append
// makes them.
func isHalfFull(chunk chunkenc.Chunk) bool {
	n := chunk.NumSamples()
	return 2*n >= SamplesPerChunk || n >= histogramChunkSamples && 2*len(chunk.Bytes()) >= histogramChunkBytes
}

func (b *ChunkBuilder) last() *TimedChunk { return &b.Chunks[len(b.Chunks)-1] }

// AppendFloats adds floats without start timestamps at these times, in
// milliseconds, ascending and later than all before: faster than one by one. It
// keeps no reference to them, nor to space, which is what it has returned the last
// time, or nil: it encodes there.
func (b *ChunkBuilder) AppendFloats(space []byte, ts []int64, vs []float64) []byte {
	for len(ts) > 0 && b.fits(Value{}) { // what has start timestamps can take some without
		b.app.Append(0, ts[0], vs[0])
		b.last().MaxTime = ts[0]
		b.inChunk++
		ts, vs = ts[1:], vs[1:]
	}
	for n := 0; len(ts) > 0; ts, vs = ts[n:], vs[n:] {
		if b.Decoded && b.Bytes() < maxDecodedBytes {
			n = min(len(ts), MaxChunkSamples)
			b.addFull(ts[:n], &FloatChunk{slices.Clone(ts[:n]), slices.Clone(vs[:n])})
			continue
		}
		n = min(len(ts), encodedAtOnce*SamplesPerChunk)
		space = b.addXOR(space, ts[:n], vs[:n])
	}
	return space
}

// encodedAtOnce is how many chunks share one piece of memory.
const encodedAtOnce = 8

// addXOR adds chunks, up to encodedAtOnce.
func (b *ChunkBuilder) addXOR(space []byte, ts []int64, vs []float64) []byte {
	var ends [encodedAtOnce]int
	count := 0
	space = space[:0]
	for at := 0; at < len(ts); at += SamplesPerChunk {
		end := min(at+SamplesPerChunk, len(ts))
		space = AppendXOR(space, ts[at:end], vs[at:end])
		ends[count] = len(space)
		count++
	}
	data, start := bytes.Clone(space), 0
	b.Chunks = slices.Grow(b.Chunks, count)
	for _, end := range ends[:count] {
		n := min(SamplesPerChunk, len(ts))
		b.addFull(ts[:n], xorChunk(data[start:end:end]))
		start, ts = end, ts[n:]
	}
	return space
}

// addFull makes chunk, which has samples at these times and takes no more, the
// last one.
func (b *ChunkBuilder) addFull(ts []int64, chunk chunkenc.Chunk) {
	b.add(ts[0], chunk, nil)
	b.last().MaxTime = ts[len(ts)-1]
}

// xorChunk returns the chunk with these data.
func xorChunk(data []byte) chunkenc.Chunk {
	chunk, err := chunkenc.FromData(chunkenc.EncXOR, data)
	if err != nil {
		panic(err) // of an encoding that upstream does not know
	}
	return chunk
}

// fits says whether the last chunk can take v. One that has no start timestamps
// cannot take the first, and is left to readers that know of none.
func (b *ChunkBuilder) fits(v Value) bool {
	if b.app == nil || b.inChunk >= SamplesPerChunk {
		return false
	}
	chunk := b.last().Chunk
	enc := chunk.Encoding()
	if enc != encoding(v, true) && (enc != encoding(v, false) || v.Start != 0) {
		return false
	}
	isFloat := v.Histogram == nil && v.FloatHistogram == nil
	return isFloat || b.inChunk < histogramChunkSamples || len(chunk.Bytes()) < histogramChunkBytes
}

// encoding returns that of a chunk that v can lie in.
func encoding(v Value, withStart bool) chunkenc.Encoding {
	kind := chunkenc.ValFloat
	switch {
	case v.Histogram != nil:
		kind = chunkenc.ValHistogram
	case v.FloatHistogram != nil:
		kind = chunkenc.ValFloatHistogram
	}
	return kind.ChunkEncoding(withStart, withStart)
}

// begin begins a chunk with v. A chunk of histograms says that the counter was
// reset before it only if the sender has said so: it is not guessed from the
// chunk before.
func (b *ChunkBuilder) begin(t int64, v Value) error {
	chunk, err := chunkenc.NewEmptyChunk(encoding(v, v.Start != 0))
	if err != nil {
		return err
	}
	app, err := chunk.Appender()
	if err != nil {
		return err
	}
	b.add(t, chunk, app)
	switch {
	case v.Histogram != nil:
		_, _, _, err = app.AppendHistogram(nil, v.Start, t, v.Histogram, false)
	case v.FloatHistogram != nil:
		_, _, _, err = app.AppendFloatHistogram(nil, v.Start, t, v.FloatHistogram, false)
	default:
		app.Append(v.Start, t, v.Float)
	}
	return err
}

// add makes chunk, with one sample at t, the last one.
func (b *ChunkBuilder) add(t int64, chunk chunkenc.Chunk, app chunkenc.Appender) {
	if len(b.Chunks) > 0 {
		b.closed += sizeOf(b.last().Chunk)
	}
	b.Chunks = append(b.Chunks, TimedChunk{Chunk: chunk, MinTime: t, MaxTime: t})
	b.app, b.inChunk = app, 1
}

// appended takes what became of the last chunk when v was appended: nothing
// new, the same chunk with other buckets, or another chunk, which is begun here
// instead: so it is of the encoding that v needs, and a reset that v tells of is
// told even after a gauge.
func (b *ChunkBuilder) appended(t int64, v Value, chunk chunkenc.Chunk, recoded bool, app chunkenc.Appender, err error) error {
	switch {
	case err != nil:
		return err
	case chunk != nil && !recoded:
		return b.begin(t, v)
	case chunk != nil:
		b.last().Chunk = chunk
	}
	b.app = app
	b.last().MaxTime = t
	b.inChunk++
	return nil
}
