package series

import "github.com/prometheus/prometheus/tsdb/chunkenc"

const (
	// SamplesPerChunk is where a ChunkBuilder cuts a chunk: past about 240 samples nothing is
	// gained in size.
	SamplesPerChunk = 240
	// histogramChunkBytes is where a chunk of histograms is cut, if it has at
	// least histogramChunkSamples.
	histogramChunkBytes   = 4 << 10
	histogramChunkSamples = 10
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
	return b.closed + len(b.last().Chunk.Bytes())
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

func (b *ChunkBuilder) last() *TimedChunk { return &b.Chunks[len(b.Chunks)-1] }

// AppendFloats adds floats without start timestamps at these times, in
// milliseconds, ascending and later than all before: faster than one by one.
func (b *ChunkBuilder) AppendFloats(ts []int64, vs []float64) {
	for len(ts) > 0 && b.fits(Value{}) { // what has start timestamps can take some without
		b.app.Append(0, ts[0], vs[0])
		b.last().MaxTime = ts[0]
		b.inChunk++
		ts, vs = ts[1:], vs[1:]
	}
	for len(ts) > 0 {
		n := min(len(ts), SamplesPerChunk)
		chunk, err := chunkenc.FromData(chunkenc.EncXOR, AppendXOR(nil, ts[:n], vs[:n]))
		if err != nil {
			panic(err) // of an encoding that upstream does not know
		}
		b.add(ts[0], chunk, nil)
		b.last().MaxTime = ts[n-1]
		ts, vs = ts[n:], vs[n:]
	}
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
		b.closed += len(b.last().Chunk.Bytes())
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
