package reader

import (
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
)

// A chunkBuilder makes the chunks of one series from its rows.
type chunkBuilder struct {
	chunk.Builder
	samples int
	// bytes is what the chunks hold, as of the last row.
	bytes int
	// rollups are those of days, ordered by resolution and then by day, and rollupBytes what they hold. hasRollups says
	// that not all are empty.
	rollups     []rollupCell
	rollupBytes int
	hasRollups  bool
}

// append adds a value later than all before.
func (b *chunkBuilder) append(t int64, v cell.Value) error {
	b.samples++
	return b.Append(t, v)
}

// appendChunk adds a chunk later than all before.
func (b *chunkBuilder) appendChunk(c chunks.Meta) {
	b.samples += c.Chunk.NumSamples()
	b.AppendChunk(c)
}
