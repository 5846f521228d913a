package seal

import (
	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
	"github.com/promtable/promtable/series/merge"
)

// An encoder makes chunk cells of the samples of a window. It is used for one
// window after the other.
type encoder struct {
	stamp int64
	cells []bucketstore.Cell
	// times and floats are a run of floats, others one of other values.
	times  []int64
	floats []float64
	others chunk.Builder
}

// encode returns the cells of chunks with these samples in order of
// time. They are valid until the next call.
func (e *encoder) encode(samples *merge.Row, stamp int64) ([]bucketstore.Cell, error) {
	e.stamp, e.cells = stamp, e.cells[:0]
	e.times, e.floats, e.others = e.times[:0], e.floats[:0], chunk.Builder{}
	for samples.Next() {
		if samples.IsFloat() && samples.Start() == 0 {
			e.flushOthers()
			e.addFloat(samples.T(), samples.Float())
			continue
		}
		e.flushFloats()
		v, err := samples.Value()
		if err == nil {
			err = e.others.Append(samples.T(), v)
		}
		if err != nil {
			return nil, err
		}
	}
	e.flushFloats()
	e.flushOthers()
	return e.cells, samples.Err()
}

func (e *encoder) addFloat(t int64, v float64) {
	if len(e.times) == dense.MaxSamples {
		e.flushFloats()
	}
	e.times, e.floats = append(e.times, t), append(e.floats, v)
}

func (e *encoder) flushFloats() {
	if n := len(e.times); n > 0 {
		e.addChunk(chunk.EncodingDense, e.times[0], e.times[n-1], dense.Append(nil, e.times, e.floats))
		e.times, e.floats = e.times[:0], e.floats[:0]
	}
}

func (e *encoder) flushOthers() {
	for _, c := range e.others.Chunks {
		e.addChunk(byte(c.Chunk.Encoding()), c.MinTime, c.MaxTime, c.Chunk.Bytes())
	}
	e.others = chunk.Builder{}
}

func (e *encoder) addChunk(encoding byte, mint, maxt int64, data []byte) {
	e.cells = append(e.cells, bucketstore.ChunkCell(encoding, e.stamp, mint, maxt, data))
}
