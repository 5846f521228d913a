package buffer

import (
	"context"
	"runtime"

	"github.com/promtable/promtable/series"
)

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
		if r.late != nil {
			held += lateMapBytes
		}
	}
	return b.openBytes, held
}

// Register updates what META says of the log.
func (b *Buffer) Register(ctx context.Context) error { return b.register(ctx) }

// SyncLog syncs the log once.
func (b *Buffer) SyncLog() { b.syncLog() }

// LateMemory is the memory of so many late chunks without samples, as counted and as the
// heap has it.
func LateMemory(seriesCount, chunks int) (counted, held int) {
	b := new(Buffer)
	refs := make([]ref, seriesCount)
	before := heapBytes()
	for i := range refs {
		for n := range chunks {
			b.lateChunk(&refs[i], int64(n)*series.Window)
		}
	}
	held = heapBytes() - before
	runtime.KeepAlive(refs)
	return b.openBytes, held
}

func heapBytes() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
