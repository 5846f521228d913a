package buffer

// Kill ends b as the death of the process would: nothing is sealed and the log
// stays as it is. The store stays open.
func (b *Buffer) Kill() {
	b.stop()
	close(b.requests)
	b.committing.Wait()
	b.done.Wait()
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	b.log.file.Close()
	b.dir.Close()
}

// Sweep looks for what the clock, memory or the log wants sealed.
func (b *Buffer) Sweep() { b.sweep() }

// Known is how many series are in memory.
func (b *Buffer) Known() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.refs)
}

// SegmentName is the name of the file of a segment.
var SegmentName = segmentName

// Sealing is how many chunks are on their way to the store.
func (b *Buffer) Sealing() int {
	b.sealing.mu.Lock()
	defer b.sealing.mu.Unlock()
	return int(b.sealing.added - b.sealing.stored)
}

// OpenBytes is how much memory open chunks hold, as it was counted and as it is.
func (b *Buffer) OpenBytes() (counted, held int) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, r := range b.refs {
		for c := range r.open {
			held += c.size()
		}
	}
	return b.openBytes, held
}
