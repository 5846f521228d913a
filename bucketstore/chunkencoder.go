package bucketstore

import (
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
)

// A ChunkEncoder makes chunk cells of samples of a window. It is used for one window after
// another; its zero value is ready.
type ChunkEncoder struct {
	// Splitter takes the samples between Begin and Cells.
	chunk.Splitter
	// Reuse says that the cells are valid until the next Begin only: their memory is used again.
	Reuse bool
	stamp int64
	cells []Cell
	space []byte
}

// Begin begins a window, whose cells get this stamp.
func (e *ChunkEncoder) Begin(stamp int64) {
	e.stamp, e.cells, e.space = stamp, e.cells[:0], e.space[:0]
	e.Reset()
	if e.Seal == nil {
		e.Seal = e.addChunk
	}
}

// Cells returns the chunk cells of the samples, in order of time. The slice is valid until the next
// Begin, the cells in it for ever unless Reuse is set.
func (e *ChunkEncoder) Cells() ([]Cell, error) {
	err := e.Flush()
	return e.cells, err
}

// Encode returns the chunk cells with this stamp of these samples, as Cells does.
func (e *ChunkEncoder) Encode(samples *merge.Row, stamp int64) ([]Cell, error) {
	e.Begin(stamp)
	for {
		var err error
		switch samples.Next() {
		case merge.Floats:
			err = e.AddFloats(samples.Floats())
		case merge.Value:
			t, v, valueErr := samples.Value()
			if err = valueErr; err == nil {
				err = e.Add(t, v)
			}
		default:
			if err := samples.Err(); err != nil {
				return nil, err
			}
			return e.Cells()
		}
		if err != nil {
			return nil, err
		}
	}
}

func (e *ChunkEncoder) addChunk(encoding byte, mint, maxt int64, data []byte) error {
	var c Cell
	if e.Reuse {
		c, e.space = AppendChunkCell(e.space, chunk.Sealed{Encoding: encoding, Stamp: e.stamp, Data: data}, mint, maxt)
	} else {
		c = ChunkCell(encoding, e.stamp, mint, maxt, data)
	}
	e.cells = append(e.cells, c)
	return nil
}
