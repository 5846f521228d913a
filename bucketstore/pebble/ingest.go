package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/bucketstore"
)

const (
	// ingestBytes is the size from which a batch becomes a table of its own. New series
	// arrive by the thousand, each in a dozen similar rows. Sorted and compressed they take
	// a tenth of their size in the log, and then no memory.
	ingestBytes = 256 << 10
	// ingestMetric multiplies it for METRIC: chunks shrink little, and many small tables of
	// one day are compacted more often than a few large ones.
	ingestMetric = 16

	ingestDirectory = "ingest"

	// spaceBytes is the size of one allocation for cells.
	spaceBytes = 256 << 10
)

// prepareIngest removes the files of a process that died.
func prepareIngest(fs vfs.FS, dir string) error {
	path := fs.PathJoin(dir, ingestDirectory)
	if err := errors.Join(fs.RemoveAll(path), fs.MkdirAll(path, 0o750)); err != nil {
		return fmt.Errorf("data directory %q: %w", dir, err)
	}
	return nil
}

// isIngestible says whether muts should be ingested: many cells, and nothing else.
func (s *Store) isIngestible(t *table, muts []bucketstore.Mutation) bool {
	least := s.ingestBytes
	if t.name == bucketstore.Metric {
		least *= ingestMetric
	}
	size := 0
	for i := range muts {
		for j := range muts[i].Ops {
			op := &muts[i].Ops[j]
			if op.Kind != bucketstore.SetCell && op.Kind != bucketstore.Add {
				return false
			}
			size += len(muts[i].Key) + len(op.Qualifier) + len(op.Value)
		}
	}
	return size >= least
}

// errDamagedPlace says that a table cannot be ingested because of damage where it would lie.
var errDamagedPlace = errors.New("damage where a table would lie")

// checkPlace reads what Pebble will read to find the level of a table that begins with this
// key. If that is damaged a flush may read it, fail, and be retried for ever.
func (s *Store) checkPlace(key []byte) error {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: key})
	if err != nil {
		return err
	}
	iter.First()
	if err := iter.Close(); pebble.IsCorruptionError(err) {
		return errDamagedPlace
	}
	return nil
}

// ingest writes cells as tables of their own, one for each layer, which Pebble ingests. They
// become visible and durable together. Where the store is damaged they go through the log, which reads nothing.
func (s *Store) ingest(ctx context.Context, t *table, muts []bucketstore.Mutation) error {
	start := time.Now()
	e := newEncoder(t, nil)
	paths, err := s.writeTables(e.cells(muts))
	if err == nil {
		err = s.checkRoom()
	}
	isIngested := false
	if err == nil {
		isIngested, err = s.ingestTables(ctx, e, paths)
	}
	switch {
	case errors.Is(err, errDamagedPlace), err == nil && !isIngested:
		return errors.Join(s.applyBlind(ctx, t, muts), removeIfThere(s.fs, paths...))
	case errors.Is(err, errStillIngesting):
		return err
	case err != nil:
		return errors.Join(fmt.Errorf("ingest a table: %w", err), removeIfThere(s.fs, paths...))
	}
	s.metrics.commits.Observe(time.Since(start).Seconds())
	return nil
}

// ingestRoom is how much space, in bytes, an ingestion leaves on the disk: Pebble writes to its manifest, and may begin a file of its log.
const ingestRoom = 1 << 20

// checkRoom returns an error if there is no room for an ingestion whose tables are written. Pebble may wait in it for a flush, so none begins
// while flushes have no space.
func (s *Store) checkRoom() error {
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err == nil && usage.AvailBytes < ingestRoom {
		return fmt.Errorf("%d bytes are free where %d are needed: %w", usage.AvailBytes, ingestRoom, syscall.ENOSPC)
	}
	return s.guard.checkSpace()
}

// errStillIngesting says that an ingestion was not waited for: it may end well or not.
var errStillIngesting = errors.New("an ingestion has not ended")

// ingestTables lets Pebble ingest tables, unless a checkpoint is being made. It returns early when ctx ends.
func (s *Store) ingestTables(ctx context.Context, e *encoder, paths []string) (isIngested bool, err error) {
	type outcome struct {
		isIngested bool
		err        error
	}
	done := make(chan outcome, 1)
	s.waiting.Go(func() {
		s.ingesting.RLock()
		defer s.ingesting.RUnlock()
		if s.checkpointing.Load() {
			done <- outcome{}
			return
		}
		s.columns.RLock()
		defer s.columns.RUnlock()
		e.addWritten()
		done <- outcome{true, s.db.Ingest(context.WithoutCancel(ctx), paths)}
	})
	select {
	case o := <-done:
		return o.isIngested, o.err
	case <-ctx.Done():
		return false, fmt.Errorf("%w: %w", errStillIngesting, ctx.Err())
	}
}

func removeIfThere(fs vfs.FS, paths ...string) (err error) {
	for _, path := range paths {
		if removeErr := fs.Remove(path); !errors.Is(removeErr, os.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	return err
}

// A storedCell is a stored key and value, one after the other, and its position among all
// cells.
type storedCell struct {
	both    []byte
	keySize int32
	order   int32
}

func (c *storedCell) key() []byte   { return c.both[:c.keySize] }
func (c *storedCell) value() []byte { return c.both[c.keySize:] }

// compareCells orders by key, then by position.
func compareCells(a, b storedCell) int {
	if c := bytes.Compare(a.key(), b.key()); c != 0 {
		return c
	}
	return int(a.order - b.order)
}

// cells yields the stored cells of muts, in order, without overwritten ones. Each is valid
// until the next.
func (e *encoder) cells(muts []bucketstore.Mutation) iter.Seq[storedCell] {
	if keys, ok := e.dayKeysInOrder(muts); ok {
		return e.cellsByDay(muts, keys)
	}
	var space []byte
	cells := make([]storedCell, 0, len(muts))
	for i := range muts {
		cells = e.appendCells(cells, &muts[i], func(size int) []byte {
			if len(space) < size {
				space = make([]byte, max(size, spaceBytes))
			}
			both := space[:size:size]
			space = space[size:]
			return both
		})
	}
	slices.SortFunc(cells, compareCells)
	return slices.Values(dropOverwritten(cells))
}

// A dayKey is a layer and a day, in the order of stored keys.
type dayKey uint64

func newDayKey(l *layer, day uint32) dayKey { return dayKey(l.number)<<32 | dayKey(day) }

// dayKeysInOrder returns the layers and days of muts if they are one cell of each row, in order
// of keys.
func (e *encoder) dayKeysInOrder(muts []bucketstore.Mutation) (keys []dayKey, ok bool) {
	keys = make([]dayKey, len(muts))
	for i := range muts {
		if len(muts[i].Ops) != 1 || i > 0 && bytes.Compare(muts[i-1].Key, muts[i].Key) >= 0 {
			return nil, false
		}
		op := &muts[i].Ops[0]
		l := e.table.layerOf(op.Family)
		keys[i] = newDayKey(l, 0)
		if l.calendar != nil {
			keys[i] = newDayKey(l, l.bucketOf(muts[i].Key).day(op.Qualifier))
		}
	}
	return keys, true
}

// cellsByDay yields the cells of muts, which are in order but for their layers and days.
func (e *encoder) cellsByDay(muts []bucketstore.Mutation, keys []dayKey) iter.Seq[storedCell] {
	return func(yield func(storedCell) bool) {
		var both []byte
		for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
			l, day := e.table.layers[key>>32], uint32(key)
			if l.calendar != nil {
				e.written[l.number] = insertDay(e.written[l.number], day)
			}
			for i := range muts {
				if keys[i] != key {
					continue
				}
				op := &muts[i].Ops[0]
				both = appendColumn(appendRow(appendHead(both[:0], l.first, day), muts[i].Key), op.Family, op.Qualifier)
				keySize := len(both)
				both = slices.Grow(both, timeSize+len(op.Value))[:keySize+timeSize+len(op.Value)]
				putCell(both[keySize:], op.Time, op.Value)
				if !yield(storedCell{both: both, keySize: int32(keySize)}) {
					return
				}
			}
		}
	}
}

// appendCells appends the stored cells of mut, in order. space allocates each.
func (e *encoder) appendCells(cells []storedCell, mut *bucketstore.Mutation, space func(size int) []byte) []storedCell {
	e.enter(mut.Key)
	for i := range mut.Ops {
		op := &mut.Ops[i]
		e.setWrittenDay(op)
		keySize := e.columnSize(op)
		both := space(keySize + timeSize + len(op.Value))
		appendColumn(append(both[:0], e.row...), op.Family, op.Qualifier)
		putCell(both[keySize:], op.Time, op.Value)
		cells = append(cells, storedCell{both, int32(keySize), int32(len(cells))})
	}
	return cells
}

// dropOverwritten keeps of cells with one key the one with the greatest time, and of equal
// times the last, or their sum.
func dropOverwritten(cells []storedCell) []storedCell {
	kept := cells[:0]
	for _, c := range cells {
		last := len(kept) - 1
		switch {
		case last < 0 || !bytes.Equal(kept[last].key(), c.key()):
			kept = append(kept, c)
		case isSum(c.key()) && bytes.Equal(c.value()[:timeSize], kept[last].value()[:timeSize]):
			_ = addTo(kept[last].value()[timeSize:], c.value()[timeSize:]) // CheckOp has parsed both
		case bytes.Compare(c.value()[:timeSize], kept[last].value()[:timeSize]) >= 0:
			kept[last] = c
		}
	}
	return kept
}

// writeTables writes cells to new files, durably, one for each layer, and returns their paths. A
// table of several layers would lie over all that is between them.
func (s *Store) writeTables(cells iter.Seq[storedCell]) (paths []string, err error) {
	var w *sstable.Writer
	layer := byte(0)
	for c := range cells {
		if first := c.key()[0]; first != layer {
			if err = closeTable(w); err == nil {
				err = s.checkPlace(c.key())
			}
			if err != nil {
				return paths, err
			}
			layer = first
			paths = append(paths, s.fs.PathJoin(s.dir, ingestDirectory, strconv.FormatUint(s.ingested.Add(1), 10)+".sst"))
			file, err := s.fs.Create(paths[len(paths)-1], vfs.WriteCategoryUnspecified)
			if err != nil {
				return paths, err
			}
			w = sstable.NewWriter(objstorageprovider.NewFileWritable(file), s.tableOptions)
		}
		if err := w.Merge(c.key(), c.value()); err != nil {
			return paths, errors.Join(err, w.Close())
		}
	}
	return paths, closeTable(w)
}

// closeTable closes w, unless it is nil.
func closeTable(w *sstable.Writer) error {
	if w == nil {
		return nil
	}
	return w.Close()
}
