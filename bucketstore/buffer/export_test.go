package buffer

// Kill ends b as the death of the process would: nothing is sealed and the log stays
// unchanged. The store stays open.
func (b *Buffer) Kill() {
	b.stop()
	close(b.requests)
	b.committing.Wait()
	b.done.Wait()
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	if b.log.file != nil {
		b.log.file.Close()
		b.log.synced.close()
	}
	b.dir.Close()
}

// Sweep sweeps once.
func (b *Buffer) Sweep() { b.sweep() }

// SeriesCount is the number of series in memory.
func (b *Buffer) SeriesCount() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.refs)
}

// SegmentName is the name of the file of a segment.
var SegmentName = segmentName

// Sealing is the number of sealed chunks that are not in the store.
func (b *Buffer) Sealing() int {
	b.sealing.mu.Lock()
	defer b.sealing.mu.Unlock()
	return int(b.sealing.added - b.sealing.stored)
}

// OpenBytes is the memory of open chunks, as counted and as measured.
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

// SyncLog syncs the log once.
func (b *Buffer) SyncLog() { b.syncLog() }
