package buffer

import (
	"bytes"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
)

// A rowBatch gathers chunk cells by row.
type rowBatch struct {
	schema series.Schema
	at     map[string]int
	muts   []bucketstore.Mutation
	key    []byte
	chunks chunkEncoder
}

func newRowBatch(schema series.Schema) *rowBatch {
	return &rowBatch{schema: schema, at: make(map[string]int)}
}

// addChunk adds the cells of a chunk of the series with this key.
func (b *rowBatch) addChunk(seriesKey string, c *openChunk) error {
	base, _ := series.Split(c.window)
	b.key = b.schema.AppendRowKey(b.key[:0], viewString(seriesKey), base)
	at, ok := b.at[string(b.key)]
	if !ok {
		at = len(b.muts)
		key := append([]byte(nil), b.key...)
		b.at[string(key)] = at
		b.muts = append(b.muts, bucketstore.Mutation{Key: key})
	}
	cells, err := b.chunks.encode(c)
	for _, cell := range cells {
		b.muts[at].Ops = append(b.muts[at].Ops, bucketstore.Op{
			Kind: bucketstore.SetCell, Family: cell.Family, Qualifier: cell.Qualifier, Time: cell.Time, Value: cell.Value,
		})
	}
	return err
}

// mutations returns one mutation for each row, in order of keys, which stores write faster.
func (b *rowBatch) mutations() []bucketstore.Mutation {
	slices.SortFunc(b.muts, func(x, y bucketstore.Mutation) int { return bytes.Compare(x.Key, y.Key) })
	return b.muts
}

// A chunkEncoder makes cells of open chunks.
type chunkEncoder struct {
	space  []byte // what the cells of appendOpen refer to
	points []point
	times  []int64
	floats []float64
	data   []byte
}

// encode returns the cells of c, in order of time. It is one cell if all values are floats
// and fit into a chunk.
func (e *chunkEncoder) encode(c *openChunk) (cells []bucketstore.Cell, err error) {
	if c.mixed || c.unsorted {
		e.points = c.allPoints(e.points[:0])
		return e.appendPoints(nil, e.points, c.stamp)
	}
	e.times, e.floats = c.floats(e.times[:0], e.floats[:0])
	return e.appendFloats(nil, c.stamp), nil
}

// appendOpen appends the cells of c for a reader: its parts, and the raw samples, each in
// order of time. They refer to c and to e, until reset.
func (e *chunkEncoder) appendOpen(cells []bucketstore.Cell, c *openChunk) ([]bucketstore.Cell, error) {
	cells = c.appendPartCells(cells)
	if !c.mixed && !c.rawUnsorted && c.rawCount <= chunk.MaxSamples {
		return append(cells, e.openCell(c)), nil
	}
	e.points = c.points(e.points[:0])
	if c.rawUnsorted {
		e.points = sorted(e.points)
	}
	return e.appendPoints(cells, e.points, c.stamp)
}

// appendPoints appends the cells of points, which are in order of time: one for each run of
// floats or of other values.
func (e *chunkEncoder) appendPoints(cells []bucketstore.Cell, points []point, stamp int64) (_ []bucketstore.Cell, err error) {
	for len(points) > 0 {
		n := 0
		for n < len(points) && (points[n].value == nil) == (points[0].value == nil) {
			n++
		}
		if points[0].value == nil {
			e.takePoints(points[:n])
			cells = e.appendFloats(cells, stamp)
		} else if cells, err = appendOthers(cells, points[:n], stamp); err != nil {
			return nil, err
		}
		points = points[n:]
	}
	return cells, nil
}

// takePoints copies points to times and floats.
func (e *chunkEncoder) takePoints(points []point) {
	e.times, e.floats = e.times[:0], e.floats[:0]
	for _, p := range points {
		e.times, e.floats = append(e.times, p.t), append(e.floats, p.float())
	}
}

// appendFloats appends the cells of times and floats: one if they fit into a chunk.
func (e *chunkEncoder) appendFloats(cells []bucketstore.Cell, stamp int64) []bucketstore.Cell {
	for ts, vs := e.times, e.floats; len(ts) > 0; {
		n := min(len(ts), chunk.MaxSamples)
		e.data = dense.Append(e.data[:0], ts[:n], vs[:n])
		cells = append(cells, bucketstore.ChunkCell(chunk.EncodingDense, stamp, ts[0], ts[n-1], e.data))
		ts, vs = ts[n:], vs[n:]
	}
	return cells
}

// openCell returns what is raw in c, which are floats in order, as it is: the reader
// decodes it.
func (e *chunkEncoder) openCell(c *openChunk) (cell bucketstore.Cell) {
	first, last := c.window+int64(c.rawFirst), c.window+int64(c.t)
	cell, e.space = bucketstore.AppendChunkCell(e.space, chunk.EncodingOpen, c.stamp, first, last, c.raw)
	return cell
}

// reset makes the cells of appendOpen invalid.
func (e *chunkEncoder) reset() { e.space = e.space[:0] }

// appendOthers appends the cells of histograms and of floats with a start timestamp, in
// upstream's encodings.
func appendOthers(cells []bucketstore.Cell, points []point, stamp int64) ([]bucketstore.Cell, error) {
	var builder chunk.Builder
	for _, p := range points {
		v, err := cell.Parse(p.value)
		if err == nil {
			err = builder.Append(p.t, v)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, c := range builder.Chunks {
		cells = append(cells, bucketstore.ChunkCell(byte(c.Chunk.Encoding()), stamp, c.MinTime, c.MaxTime, c.Chunk.Bytes()))
	}
	return cells, nil
}
