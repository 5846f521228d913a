package series

// NextChunk is NextHistogramChunk for chunks of all encodings and sizes, with their data
// unchecked: it shows which chunks are taken for whole ones.
func (r *RowSamples) NextChunk() (Chunk, bool) {
	c, ok := r.wholeChunk()
	if ok {
		r.pass()
	}
	return c, ok
}
