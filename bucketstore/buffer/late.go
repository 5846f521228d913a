package buffer

// A late chunk is an open chunk of a window before the two latest ones of its series, or too
// far in the future. A sender that fills in old data has many of them. The clock seals them
// when no more samples come, wherever their windows lie.

// Memory of late chunks beside their samples. The first one of a series was measured with 304
// bytes, 8 of them with 136 each, and 1,000 with 149 each.
const (
	// lateBytes is about the memory of a late chunk, and of its entry in ref.late.
	lateBytes = 152
	// lateMapBytes is about the memory of ref.late.
	lateMapBytes = 160
)

// lateChunk returns the late chunk of a window of r, with mu held.
func (b *Buffer) lateChunk(r *ref, window int64) *openChunk {
	c, ok := r.late[window]
	if !ok {
		c = &openChunk{window: window}
		b.addLate(r, c)
	}
	return c
}

// addLate makes c a late chunk of r, with mu held.
func (b *Buffer) addLate(r *ref, c *openChunk) {
	if r.late == nil {
		r.late = make(map[int64]*openChunk)
		b.openBytes += lateMapBytes
	}
	r.late[c.window] = c
	c.late = true
	b.openBytes += lateBytes
}

// removeLate removes an empty late chunk of r, with mu held.
func (b *Buffer) removeLate(r *ref, c *openChunk) {
	if delete(r.late, c.window); len(r.late) == 0 {
		r.late = nil
		b.openBytes -= lateMapBytes
	}
	b.openBytes -= c.size()
}

// leaveOlder gives up the older window of r because window opens, with mu held. A chunk with
// samples of the current request becomes a late one, which the rest of it may still need.
func (b *Buffer) leaveOlder(r *ref, window int64) {
	b.seal(r, r.late[window]) // it was in the future
	if r.older == nil || r.older.stamp != b.applied {
		b.seal(r, r.older)
		return
	}
	b.addLate(r, r.older)
	r.older = nil
}
