package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
)

// encodingStored is that of a storedChunk. Prometheus and Thanos have no such encoding.
const encodingStored = chunkenc.Encoding(0xfe)

// An opaqueChunk is a chunk of a frame that is no chunk of Prometheus: it has no samples of its own.
type opaqueChunk struct {
	encoding chunkenc.Encoding
	data     []byte
}

// Bytes implements chunkenc.Chunk.
func (c *opaqueChunk) Bytes() []byte { return c.data }

// Encoding implements chunkenc.Chunk.
func (c *opaqueChunk) Encoding() chunkenc.Encoding { return c.encoding }

// Appender implements chunkenc.Chunk. There is none.
func (*opaqueChunk) Appender() (chunkenc.Appender, error) {
	return nil, errors.New("this chunk is only read")
}

// Iterator implements chunkenc.Chunk. It has no samples.
func (*opaqueChunk) Iterator(chunkenc.Iterator) chunkenc.Iterator { return chunkenc.NewNopIterator() }

// NumSamples implements chunkenc.Chunk.
func (*opaqueChunk) NumSamples() int { return 0 }

// Compact implements chunkenc.Chunk.
func (*opaqueChunk) Compact() {}

// Reset implements chunkenc.Chunk.
func (c *opaqueChunk) Reset(stream []byte) { c.data = stream }

// A storedChunk is a cell of another adapter, see reader.Stored: a chunk, an exemplar, a rollup, or a current sample. The MinTime beside it is the
// time in its qualifier, or that of the current sample.
//
// Bytes has the family and the qualifier, each after its size as a uvarint, and the value.
type storedChunk struct {
	opaqueChunk
	cell bucketstore.Cell
}

// newStoredChunk returns the chunk whose Bytes are data.
func newStoredChunk(data []byte) (*storedChunk, error) {
	c := &storedChunk{opaqueChunk: opaqueChunk{encodingStored, data}}
	family, rest, ok := cutSized(data)
	if ok {
		c.cell.Family = string(family)
		c.cell.Qualifier, c.cell.Value, ok = cutSized(rest)
	}
	if !ok {
		return nil, fmt.Errorf("a stored cell of %d bytes is not whole", len(data))
	}
	return c, nil
}

// cutSized cuts bytes after their size from the front of data.
func cutSized(data []byte) (cut, rest []byte, ok bool) {
	size, n := binary.Uvarint(data)
	if n <= 0 || size > uint64(len(data)-n) {
		return nil, nil, false
	}
	end := n + int(size)
	return data[n:end:end], data[end:], true
}

// metaOf returns a cell as a chunk.
func metaOf(c reader.StoredCell) chunks.Meta {
	data := binary.AppendUvarint(nil, uint64(len(c.Family)))
	data = binary.AppendUvarint(append(data, c.Family...), uint64(len(c.Qualifier)))
	data = append(append(data, c.Qualifier...), c.Value...)
	at := c.Time
	if c.Family != series.FamilyCurrent {
		at = c.Base + int64(binary.BigEndian.Uint32(c.Qualifier))
	}
	return chunks.Meta{Chunk: &storedChunk{opaqueChunk{encodingStored, data}, c.Cell}, MinTime: at, MaxTime: at}
}

// seriesOfStored returns a series of cells.
func seriesOfStored(s reader.Stored) *listSeries {
	l := &listSeries{labels: s.Labels}
	for _, c := range s.Cells {
		l.chunks = append(l.chunks, metaOf(c))
	}
	return l
}

// storedOf returns the cells of a series, all of which are a storedChunk.
func storedOf(s storage.ChunkSeries) (all []chunks.Meta, err error) {
	it := s.Iterator(nil)
	for it.Next() {
		if _, ok := it.At().Chunk.(*storedChunk); !ok {
			return nil, fmt.Errorf("series %s: a chunk of encoding %d where cells are expected", s.Labels(), it.At().Chunk.Encoding())
		}
		all = append(all, it.At())
	}
	return all, it.Err()
}

// isSameCell says whether two cells hold the same. The stamps of chunks do not count.
func isSameCell(a, b chunks.Meta) bool {
	one, other := a.Chunk.(*storedChunk).cell, b.Chunk.(*storedChunk).cell
	if a.MinTime != b.MinTime || one.Family != other.Family {
		return false
	}
	if one.Family != series.FamilyChunk {
		return bytes.Equal(one.Qualifier, other.Qualifier) && bytes.Equal(one.Value, other.Value)
	}
	first, err := chunk.Parse(one.Qualifier, one.Value)
	second, otherErr := chunk.Parse(other.Qualifier, other.Value)
	return err == nil && otherErr == nil && first.Encoding == second.Encoding && first.Last == second.Last && bytes.Equal(first.Data, second.Data)
}

// lackingRows returns which cells of one series another one lacks, and whether they hold the same. other may be nil. Chunks have later stamps than what the other
// one has of their windows.
func lackingRows(one, other storage.ChunkSeries) (lacking []chunks.Meta, isSame bool, err error) {
	first, err := storedOf(one)
	if err != nil || other == nil {
		return first, other == nil && len(first) == 0, err
	}
	second, err := storedOf(other)
	if err != nil {
		return nil, false, err
	}
	if slices.EqualFunc(first, second, isSameCell) {
		return nil, true, nil
	}
	type place struct {
		t                 int64
		family, qualifier string
	}
	at := func(m chunks.Meta) place {
		c := m.Chunk.(*storedChunk).cell
		if c.Family == series.FamilyChunk { // whose qualifier has a checksum of the stamp
			return place{m.MinTime, c.Family, ""}
		}
		return place{m.MinTime, c.Family, string(c.Qualifier)}
	}
	has, stamps := make(map[place]chunks.Meta, len(second)), make(map[int64]int64)
	for _, m := range second {
		has[at(m)] = m
		w := series.WindowOf(m.MinTime)
		stamps[w] = max(stamps[w], stampOf(m)+1)
	}
	for _, m := range first {
		if found, ok := has[at(m)]; !ok || !isSameCell(m, found) {
			lacking = append(lacking, withStamp(m, stamps[series.WindowOf(m.MinTime)]))
		}
	}
	// Chunks may differ in how they are cut, or in what they say of counter resets.
	a, err := contentOf(first)
	if err != nil {
		return nil, false, fmt.Errorf("series %s: %w", one.Labels(), err)
	}
	b, err := contentOf(second)
	if err != nil {
		return nil, false, fmt.Errorf("series %s: %w", other.Labels(), err)
	}
	return lacking, bytes.Equal(a, b), nil
}

// stampOf returns the stamp of a chunk. Of another cell it is 0.
func stampOf(m chunks.Meta) int64 {
	c := m.Chunk.(*storedChunk).cell
	sealed, err := chunk.Parse(c.Qualifier, c.Value)
	if err != nil || c.Family != series.FamilyChunk {
		return 0
	}
	return sealed.Stamp
}

// withStamp returns a chunk with at least this stamp, and other cells, and what is no chunk, as they are.
func withStamp(m chunks.Meta, least int64) chunks.Meta {
	c := m.Chunk.(*storedChunk).cell
	sealed, err := chunk.Parse(c.Qualifier, c.Value)
	if err != nil || c.Family != series.FamilyChunk || sealed.Stamp >= least {
		return m
	}
	base, _ := series.Split(m.MinTime)
	return metaOf(reader.StoredCell{Base: base, Cell: bucketstore.ChunkCell(sealed.Encoding, least, m.MinTime, base+int64(sealed.Last), sealed.Data)})
}

// contentOf returns the samples of chunks, and all other cells, as bytes that are the same in whatever chunks the samples are.
func contentOf(all []chunks.Meta) (content []byte, err error) {
	var row merge.Row
	for _, m := range all {
		c := m.Chunk.(*storedChunk)
		if c.cell.Family != series.FamilyChunk {
			content = append(binary.BigEndian.AppendUint64(content, uint64(m.MinTime)), c.data...)
			continue
		}
		sealed, err := chunk.Parse(c.cell.Qualifier, c.cell.Value)
		if err != nil {
			return nil, err
		}
		base, _ := series.Split(m.MinTime)
		row.Reset(base, base, base+series.Period, merge.Options{})
		row.AddChunk(sealed)
		for shape := row.Next(); shape != merge.None; shape = row.Next() {
			if shape == merge.Floats {
				times, values := row.Floats()
				for i, t := range times {
					content = cell.Append(binary.BigEndian.AppendUint64(content, uint64(t)), cell.Value{Float: values[i]})
				}
				continue
			}
			t, v, err := row.Value()
			if err != nil {
				return nil, err
			}
			v.ForgetResets()
			content = cell.Append(binary.BigEndian.AppendUint64(content, uint64(t)), v)
		}
		if err := row.Err(); err != nil {
			return nil, err
		}
	}
	return content, nil
}

// LackingRows is Lacking of a CopyConfig whose source and target are adapters.
func LackingRows(target, source storage.ChunkSeries, _ Unit) (storage.ChunkSeries, error) {
	lacking, isSame, err := lackingRows(source, target)
	if err != nil || isSame || len(lacking) == 0 {
		return nil, err
	}
	return &listSeries{source.Labels(), lacking}, nil
}

// SameRows says whether two adapters have the same in a unit. pace, if set, is given what is read of the first one.
func SameRows(ctx context.Context, from, to *Rows, u Unit, pace func(context.Context, storage.ChunkSeriesSet) storage.ChunkSeriesSet) (isSame bool, err error) {
	one, err := from.Open(ctx, u)
	if err != nil {
		return false, fmt.Errorf("source: %w", err)
	}
	defer func() { err = errors.Join(err, one.Close()) }()
	other, err := to.Open(ctx, u)
	if err != nil {
		return false, fmt.Errorf("target: %w", err)
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	read := storage.ChunkSeriesSet(one)
	if pace != nil {
		read = pace(ctx, one)
	}
	for isSame = true; isSame && read.Next(); {
		if isSame = other.Next() && labels.Equal(read.At().Labels(), other.At().Labels()); !isSame {
			break
		}
		if _, isSame, err = lackingRows(read.At(), other.At()); err != nil {
			return false, err
		}
	}
	isSame = isSame && !other.Next()
	if err := read.Err(); err != nil {
		return false, fmt.Errorf("source: %w", err)
	}
	if err := other.Err(); err != nil {
		return false, fmt.Errorf("target: %w", err)
	}
	return isSame, nil
}

// NumSamples implements chunkenc.Chunk.
func (c *storedChunk) NumSamples() int {
	sealed, err := chunk.Parse(c.cell.Qualifier, c.cell.Value)
	switch {
	case c.cell.Family != series.FamilyChunk || err != nil:
		return 0
	case sealed.Encoding == chunk.EncodingDense:
		n, _ := binary.Uvarint(sealed.Data)
		return int(n)
	case len(sealed.Data) < 2:
		return 0
	}
	return int(binary.BigEndian.Uint16(sealed.Data))
}
