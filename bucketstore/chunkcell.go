package bucketstore

import (
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
)

// ChunkCell returns the cell of METRIC that holds a sealed chunk: data in this encoding,
// with this stamp. Its samples lie in one window, from mint to maxt, in milliseconds and
// inclusive. The cell does not refer to data.
func ChunkCell(encoding byte, stamp, mint, maxt int64, data []byte) Cell {
	_, first := series.Split(mint)
	_, last := series.Split(maxt)
	value := chunk.Append(make([]byte, 0, len(data)+8), chunk.Sealed{Encoding: encoding, Stamp: stamp, Data: data})
	return Cell{
		Family:    series.FamilyChunk,
		Qualifier: chunk.AppendQualifier(nil, first, last, value),
		Time:      maxt,
		Value:     value,
	}
}
