package chunk

import (
	"slices"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/xor"
)

const (
	// SamplesPerChunk is where a Builder cuts a chunk: past about 240 samples nothing is
	// gained in size.
	SamplesPerChunk = 240
	// RegularSamples is where it cuts what AppendRegular is given. A window of samples
	// each 15 s is one chunk.
	RegularSamples = 600
	// histogramChunkBytes is where a chunk of histograms is cut, if it has at
	// least histogramChunkSamples.
	histogramChunkBytes   = 4 << 10
	histogramChunkSamples = 10
	// maxDecodedBytes is how many bytes of samples of one series stay decoded:
	// what comes behind them is encoded, and most takes less then.
	maxDecodedBytes = 1 << 20
)

// A Builder makes chunks in upstream's encodings of the values of one
// series. The zero value is empty.
type Builder struct {
	// Decoded, if it is not nil, is where a Decoded is made of what AppendFloats is given,
	// for readers that would decode it at once. After a megabyte of samples the builder
	// encodes them all the same, so that long series do not fill the memory.
	Decoded *Space
	// Chunks are what is made so far, in order of time. They have no Ref.
	Chunks []chunks.Meta
	app    chunkenc.Appender
	// inChunk is how many samples the last chunk has.
	inChunk int
	// closed is how many bytes all chunks but the last hold.
	closed int
}

// Bytes is what the chunks hold.
func (b *Builder) Bytes() int {
	if len(b.Chunks) == 0 {
		return 0
	}
	return b.closed + SizeOf(b.last().Chunk)
}

// SizeOf is what a chunk holds in bytes.
func SizeOf(c chunkenc.Chunk) int {
	if floats, ok := c.(*Decoded); ok {
		return floatSize * len(floats.ts)
	}
	return len(c.Bytes())
}

// Append adds a value at t, in milliseconds, later than all before. An error
// means that upstream does not take the value.
func (b *Builder) Append(t int64, v cell.Value) (err error) {
	if !b.fits(v) {
		return b.begin(t, v)
	}
	// What becomes of the last chunk: nothing new, the same chunk with other buckets, or another one.
	var other chunkenc.Chunk
	app, recoded := b.app, false
	switch {
	case v.Histogram != nil:
		other, recoded, app, err = app.AppendHistogram(nil, v.Start, t, v.Histogram, false)
	case v.FloatHistogram != nil:
		other, recoded, app, err = app.AppendFloatHistogram(nil, v.Start, t, v.FloatHistogram, false)
	default:
		app.Append(v.Start, t, v.Float)
	}
	switch {
	case err != nil:
		return err
	case other != nil && !recoded: // begun here, it is of the encoding that v needs, and a reset that v tells of is told even after a gauge
		return b.begin(t, v)
	case other != nil:
		b.last().Chunk = other
	}
	b.app = app
	b.last().MaxTime = t
	b.inChunk++
	return nil
}

// AppendChunk adds a chunk later than all before. It is the builder's from now on,
// and no value is added to it.
func (b *Builder) AppendChunk(c chunks.Meta) {
	b.addFull(c.Chunk, c.MinTime, c.MaxTime)
}

// IsHalfFull says whether a chunk of histograms is at least half as large as Append
// makes them.
func IsHalfFull(chunk chunkenc.Chunk) bool {
	n := chunk.NumSamples()
	return 2*n >= SamplesPerChunk || n >= histogramChunkSamples && 2*len(chunk.Bytes()) >= histogramChunkBytes
}

func (b *Builder) last() *chunks.Meta { return &b.Chunks[len(b.Chunks)-1] }

// AppendFloats adds floats without start timestamps at these times, in
// milliseconds, ascending and later than all before: faster than one by one. It
// keeps no reference to them. Chunks are made in space, which is nil or what a call
// has returned, of any builder: the part of it that is still free.
func (b *Builder) AppendFloats(space []byte, ts []int64, vs []float64) []byte {
	for len(ts) > 0 && b.fits(cell.Value{}) { // what has start timestamps can take some without
		b.app.Append(0, ts[0], vs[0])
		b.last().MaxTime = ts[0]
		b.inChunk++
		ts, vs = ts[1:], vs[1:]
	}
	for n := 0; len(ts) > 0; ts, vs = ts[n:], vs[n:] {
		if b.Decoded != nil && b.Bytes() < maxDecodedBytes {
			n = min(len(ts), MaxSamples)
			b.addFull(b.Decoded.decoded(ts[:n], vs[:n]), ts[0], ts[n-1])
			continue
		}
		n = min(len(ts), encodedAtOnce*SamplesPerChunk)
		space = b.addXOR(space, ts[:n], vs[:n])
	}
	return space
}

const (
	// encodedAtOnce is how many chunks are one object in memory.
	encodedAtOnce = 8

	// spaceBytes is how much memory is taken at once for what is encoded. A chunk
	// of floats at regular times is smaller than minSpace.
	spaceBytes = 32 << 10
	minSpace   = 12 * SamplesPerChunk
)

// addXOR adds chunks, up to encodedAtOnce, and returns the rest of space.
func (b *Builder) addXOR(space []byte, ts []int64, vs []float64) []byte {
	made := make([]chunkenc.XORChunk, (len(ts)+SamplesPerChunk-1)/SamplesPerChunk)
	b.Chunks = slices.Grow(b.Chunks, len(made))
	for i := range made {
		space = withRoom(space, minSpace)
		n := min(SamplesPerChunk, len(ts))
		data := xor.Append(space, ts[:n], vs[:n])
		made[i].Reset(slices.Clip(data))
		b.addFull(&made[i], ts[0], ts[n-1])
		space = data[len(data):]
		ts, vs = ts[n:], vs[n:]
	}
	return space
}

// AppendRegular is AppendFloats of floats at times from t on that are step apart, in
// milliseconds. It makes chunks of them alone, up to RegularSamples each, and ignores
// Decoded.
func (b *Builder) AppendRegular(space []byte, t, step int64, vs []float64) []byte {
	made := make([]chunkenc.XORChunk, (len(vs)+RegularSamples-1)/RegularSamples)
	for i := range made {
		n := len(vs) / (len(made) - i) // all of them alike
		space = withRoom(space, n*minSpace/SamplesPerChunk)
		data := xor.AppendRegular(space, t, step, vs[:n])
		made[i].Reset(slices.Clip(data))
		next := t + int64(n)*step
		b.addFull(&made[i], t, next-step)
		space, t, vs = data[len(data):], next, vs[n:]
	}
	return space
}

// withRoom returns space, or another if it has less than so many bytes.
func withRoom(space []byte, size int) []byte {
	if cap(space) >= size {
		return space[:0]
	}
	return make([]byte, 0, spaceBytes)
}

// addFull makes chunk, which has samples from mint to maxt and takes no more, the
// last one.
func (b *Builder) addFull(chunk chunkenc.Chunk, mint, maxt int64) {
	b.add(mint, chunk, nil)
	b.last().MaxTime = maxt
}

// fits says whether the last chunk can take v. One without start timestamps does not
// take a value that has one: readers of older versions can still read it.
func (b *Builder) fits(v cell.Value) bool {
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
func encoding(v cell.Value, withStart bool) chunkenc.Encoding {
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
func (b *Builder) begin(t int64, v cell.Value) error {
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
func (b *Builder) add(t int64, chunk chunkenc.Chunk, app chunkenc.Appender) {
	if len(b.Chunks) > 0 {
		b.closed += SizeOf(b.last().Chunk)
	}
	b.Chunks = append(b.Chunks, chunks.Meta{Chunk: chunk, MinTime: t, MaxTime: t})
	b.app, b.inChunk = app, 1
}
