package merge

import (
	"github.com/promtable/promtable/series/chunk"
)

// NextChunk is NextHistogramChunk for chunks of all encodings and sizes, with their data
// unchecked: it shows which chunks are taken for whole ones.
func (r *Row) NextChunk() (chunk.Sealed, bool) {
	c, ok := r.wholeChunk()
	if ok {
		r.pass()
	}
	return c, ok
}
