package reader

import (
	"fmt"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
)

// A rowReader turns rows into samples, one row after the other.
type rowReader struct {
	samples merge.Row
	// times and floats are a run of floats that flush gives to a builder.
	times  []int64
	floats []float64
	// space is memory in which builders encode chunks.
	space []byte
}

// maxRun is how many samples a run of floats has before it is flushed: whole chunks of
// the builder. A run can exceed it by the samples of one stored chunk.
const maxRun = 8 * chunk.SamplesPerChunk

// reset begins a row, whose samples in [start, limit) are read, in milliseconds. The
// cells must not change until all samples are read.
func (r *rowReader) reset(base, start, limit int64, cells []bucketstore.Cell, options merge.Options) error {
	r.samples.Reset(base, start, limit, options)
	for _, cell := range cells {
		if cell.Family != series.FamilyChunk {
			if err := r.samples.AddRaw(cell.Family, cell.Qualifier, cell.Value); err != nil {
				return err
			}
			continue
		}
		sealed, err := chunk.Parse(cell.Qualifier, cell.Value)
		if err != nil {
			return err
		}
		r.samples.AddChunk(sealed)
	}
	return nil
}

// appendTo appends the samples of a row in [start, limit) to b. Rows come in time
// order.
func (r *rowReader) appendTo(b *chunkBuilder, base, start, limit int64, cells []bucketstore.Cell) error {
	options := merge.Options{Regular: b.Decoded == nil, PassChunk: chunk.IsHalfFull}
	if err := r.reset(base, start, limit, cells, options); err != nil {
		return err
	}
	for {
		switch r.samples.Next() {
		case merge.Floats:
			times, floats := r.samples.Floats()
			r.times, r.floats = append(r.times, times...), append(r.floats, floats...)
			if n := len(r.times); n >= maxRun {
				r.flush(b, n-n%maxRun)
			}
		case merge.Regular:
			r.flush(b, len(r.times))
			first, step, floats := r.samples.Regular()
			r.space = b.AppendRegular(r.space, first, step, floats)
			b.samples += len(floats)
		case merge.Chunk:
			r.flush(b, len(r.times))
			b.appendChunk(r.samples.Chunk())
		case merge.Value:
			r.flush(b, len(r.times))
			t, v, err := r.samples.Value()
			if err == nil {
				err = b.append(t, v)
			}
			if err != nil {
				return fmt.Errorf("at %d: %w", t, err)
			}
		default:
			r.flush(b, len(r.times))
			b.bytes = b.Bytes()
			return r.samples.Err()
		}
	}
}

// flush gives the first n floats of the run to b.
func (r *rowReader) flush(b *chunkBuilder, n int) {
	r.space = b.AppendFloats(r.space, r.times[:n], r.floats[:n])
	b.samples += n
	r.times, r.floats = append(r.times[:0], r.times[n:]...), append(r.floats[:0], r.floats[n:]...)
}
