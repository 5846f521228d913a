package buffer

import (
	"bytes"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
)

// A rowBatch gathers cells by row.
type rowBatch struct {
	at   map[string]int
	muts []bucketstore.Mutation
}

func newRowBatch() *rowBatch { return &rowBatch{at: make(map[string]int)} }

// add adds an operation on the row with this key, of which it keeps no reference.
func (b *rowBatch) add(key []byte, op bucketstore.Op) {
	at, ok := b.at[string(key)]
	if !ok {
		at = len(b.muts)
		b.at[string(key)] = at
		b.muts = append(b.muts, bucketstore.Mutation{Key: bytes.Clone(key)})
	}
	b.muts[at].Ops = append(b.muts[at].Ops, op)
}

// mutations returns one mutation for each row, in order of keys, which stores write faster.
func (b *rowBatch) mutations() []bucketstore.Mutation {
	slices.SortFunc(b.muts, func(x, y bucketstore.Mutation) int { return bytes.Compare(x.Key, y.Key) })
	return b.muts
}

// A chunkEncoder makes cells of open chunks.
type chunkEncoder struct {
	bucketstore.ChunkEncoder
	space []byte // what the open cells of appendOpen refer to
	// points, times and floats are samples on their way to the ChunkEncoder.
	points []point
	times  []int64
	floats []float64
}

// encode returns the cells of c, in order of time. It is one cell if all values are floats
// and fit into a chunk.
func (e *chunkEncoder) encode(c *openChunk) (cells []bucketstore.Cell, err error) {
	e.Begin(c.stamp)
	if c.mixed || c.unsorted {
		e.points = c.allPoints(e.points[:0])
		err = addPoints(&e.Splitter, e.points)
	} else {
		e.times, e.floats = c.floats(e.times[:0], e.floats[:0])
		err = e.AddFloats(e.times, e.floats)
	}
	if err != nil {
		return nil, err
	}
	return e.Cells()
}

// appendOpen appends the cells of c for a reader: its parts, and the raw samples, each in
// order of time. They refer to c and to e, until reset.
func (e *chunkEncoder) appendOpen(cells []bucketstore.Cell, c *openChunk) ([]bucketstore.Cell, error) {
	cells = slices.AppendSeq(cells, c.partCells)
	if !c.mixed && !c.rawUnsorted && c.rawCount <= chunk.MaxSamples {
		return append(cells, e.openCell(c)), nil
	}
	raw, err := e.encodeRaw(c)
	return append(cells, raw...), err
}

// encodeRaw returns the cells of the raw samples of c, in order of time.
func (e *chunkEncoder) encodeRaw(c *openChunk) ([]bucketstore.Cell, error) {
	raw := *c
	raw.parts, raw.unsorted = "", c.rawUnsorted
	return e.encode(&raw)
}

// addPoints adds points, which are in order of time, to s.
func addPoints(s *chunk.Splitter, points []point) error {
	for _, p := range points {
		if p.value == nil {
			if err := s.AddFloats([]int64{p.t}, []float64{p.float()}); err != nil {
				return err
			}
			continue
		}
		v, err := cell.Parse(p.value)
		if err == nil {
			err = s.Add(p.t, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openCell returns what is raw in c, which are floats in order, as it is: the reader
// decodes it.
func (e *chunkEncoder) openCell(c *openChunk) (cell bucketstore.Cell) {
	first, last := c.window+int64(c.rawFirst), c.window+int64(c.t)
	cell, e.space = bucketstore.AppendChunkCell(e.space, chunk.Sealed{Encoding: chunk.EncodingOpen, Stamp: c.stamp, Data: c.raw}, first, last)
	return cell
}

// reset makes the cells of appendOpen invalid.
func (e *chunkEncoder) reset() { e.space = e.space[:0] }
