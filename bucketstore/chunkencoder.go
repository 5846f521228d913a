package bucketstore

import (
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
	"github.com/promtable/promtable/series/merge"
)

// A ChunkEncoder makes chunk cells of samples of a window. It is used for one window after
// another; its zero value is ready.
type ChunkEncoder struct {
	stamp int64
	cells []Cell
	// times and floats are a run of floats, others a run of other values.
	times  []int64
	floats []float64
	others chunk.Builder
}

// Encode returns the chunk cells with this stamp of these samples, in order of time. The slice
// is valid until the next call, the cells in it for ever.
func (e *ChunkEncoder) Encode(samples *merge.Row, stamp int64) ([]Cell, error) {
	e.stamp, e.cells = stamp, e.cells[:0]
	e.times, e.floats, e.others = e.times[:0], e.floats[:0], chunk.Builder{}
	for {
		switch samples.Next() {
		case merge.Floats:
			e.flushOthers()
			e.addFloats(samples.Floats())
		case merge.Value:
			e.flushFloats()
			t, v, err := samples.Value()
			if err == nil {
				err = e.others.Append(t, v)
			}
			if err != nil {
				return nil, err
			}
		default:
			e.flushFloats()
			e.flushOthers()
			return e.cells, samples.Err()
		}
	}
}

func (e *ChunkEncoder) addFloats(ts []int64, vs []float64) {
	for len(ts) > 0 {
		if len(e.times) == dense.MaxSamples {
			e.flushFloats()
		}
		n := min(len(ts), dense.MaxSamples-len(e.times))
		e.times, e.floats = append(e.times, ts[:n]...), append(e.floats, vs[:n]...)
		ts, vs = ts[n:], vs[n:]
	}
}

func (e *ChunkEncoder) flushFloats() {
	if n := len(e.times); n > 0 {
		e.addChunk(chunk.EncodingDense, e.times[0], e.times[n-1], dense.Append(nil, e.times, e.floats))
		e.times, e.floats = e.times[:0], e.floats[:0]
	}
}

func (e *ChunkEncoder) flushOthers() {
	for _, c := range e.others.Chunks {
		e.addChunk(byte(c.Chunk.Encoding()), c.MinTime, c.MaxTime, c.Chunk.Bytes())
	}
	e.others = chunk.Builder{}
}

func (e *ChunkEncoder) addChunk(encoding byte, mint, maxt int64, data []byte) {
	e.cells = append(e.cells, ChunkCell(encoding, e.stamp, mint, maxt, data))
}
