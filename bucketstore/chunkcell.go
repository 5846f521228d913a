package bucketstore

import (
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
)

// ChunkCell returns the cell of METRIC that holds a sealed chunk: data in this encoding,
// with this stamp. Its samples lie in one window, from mint to maxt, in milliseconds and
// inclusive. The cell does not refer to data.
func ChunkCell(encoding byte, stamp, mint, maxt int64, data []byte) Cell {
	c, _ := AppendChunkCell(make([]byte, 0, len(data)+8+chunk.QualifierSize), chunk.Sealed{Encoding: encoding, Stamp: stamp, Data: data}, mint, maxt)
	return c
}

// AppendChunkCell is ChunkCell, but the cell refers to what is appended to dst.
func AppendChunkCell(dst []byte, sealed chunk.Sealed, mint, maxt int64) (c Cell, appended []byte) {
	_, first := series.Split(mint)
	_, last := series.Split(maxt)
	at := len(dst)
	dst = chunk.Append(dst, sealed)
	end := len(dst)
	dst = chunk.AppendQualifier(dst, first, last, dst[at:])
	return Cell{
		Family:    series.FamilyChunk,
		Qualifier: dst[end:len(dst):len(dst)],
		Time:      maxt,
		Value:     dst[at:end:end],
	}, dst
}
