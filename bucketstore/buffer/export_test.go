package buffer

import "github.com/promtable/promtable/bucketstore"

// Kill ends b as the death of the process would: nothing is sealed and the log stays
// unchanged. The store stays open.
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

// A RowFileRow is a row in a row file.
type RowFileRow struct {
	Table bucketstore.Table
	bucketstore.Mutation
}

// AppendRowFile appends a row file.
func AppendRowFile(dst []byte, binding Binding, rows []RowFileRow) ([]byte, error) {
	var failing []*failingRow
	for _, row := range rows {
		failing = append(failing, &failingRow{FailingRow: bucketstore.FailingRow{Table: row.Table, Key: row.Key}, ops: row.Ops})
	}
	return appendRowFile(dst, binding, failing)
}

// ParseRowFile parses a row file.
func ParseRowFile(content []byte) (rows []RowFileRow, err error) {
	failing, err := parseRowFile(content)
	for _, row := range failing {
		rows = append(rows, RowFileRow{row.Table, row.mutation()})
	}
	return rows, err
}

// AppendFrameBody appends body to the one frame of a row file.
func AppendFrameBody(content, body []byte) []byte {
	content = append(content, body...)
	putFrameHead(content[headSize:])
	return content
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
