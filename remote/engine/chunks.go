package engine

import (
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/series"
)

const (
	// samplesPerChunk is where a chunk is cut: past about 240 samples nothing is
	// gained in size.
	samplesPerChunk = 240
	// histogramChunkBytes is where a chunk of histograms is cut, if it has at
	// least histogramChunkSamples.
	histogramChunkBytes   = 4 << 10
	histogramChunkSamples = 10
)

// A chunkBuilder makes the chunks of one series from its rows.
type chunkBuilder struct {
	chunks  []chunks.Meta
	app     chunkenc.Appender
	samples int
	// inChunk is how many samples the last chunk has.
	inChunk int
	// bytes is what the chunks hold, those under way as of their last row.
	bytes  int
	closed int
}

// append adds a value later than all before.
func (b *chunkBuilder) append(t int64, v series.Value) error {
	b.samples++
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

func (b *chunkBuilder) last() *chunks.Meta { return &b.chunks[len(b.chunks)-1] }

// fits says whether the last chunk can take v. One that has no start timestamps
// cannot take the first, and is left to readers that know of none.
func (b *chunkBuilder) fits(v series.Value) bool {
	if len(b.chunks) == 0 || b.inChunk >= samplesPerChunk {
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
func encoding(v series.Value, withStart bool) chunkenc.Encoding {
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
func (b *chunkBuilder) begin(t int64, v series.Value) error {
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
func (b *chunkBuilder) add(t int64, chunk chunkenc.Chunk, app chunkenc.Appender) {
	if len(b.chunks) > 0 {
		b.closed += len(b.last().Chunk.Bytes())
	}
	b.chunks = append(b.chunks, chunks.Meta{Chunk: chunk, MinTime: t, MaxTime: t})
	b.app, b.inChunk = app, 1
}

// appended takes what became of the last chunk when v was appended: nothing
// new, the same chunk with other buckets, or another chunk, which is begun here
// instead: so it is of the encoding that v needs, and a reset that v tells of is
// told even after a gauge.
func (b *chunkBuilder) appended(t int64, v series.Value, chunk chunkenc.Chunk, recoded bool, app chunkenc.Appender, err error) error {
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
