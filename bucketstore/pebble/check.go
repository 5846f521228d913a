package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/block/blockkind"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/series"
)

// A DamagedTable is a table of which a part cannot be read.
type DamagedTable struct {
	// Name is that of the file, in the directory of the store.
	Name string
	// Err says what is wrong with it.
	Err error
	// Missing says that there is no such file.
	Missing bool
	// Lost says what cannot be read: the tables, days and rows, and where older values and
	// deleted cells may come back.
	Lost []string
	// LostBytes is how many bytes of the file that is, at most.
	LostBytes uint64

	info pebble.SSTableInfo
	// level is where the table stands.
	level int
	// blocks are the damaged blocks with cells. If whole is set nothing can be read, and if
	// deletions is set only what the table deletes cannot.
	blocks           []damagedBlock
	whole, deletions bool
}

// A damagedBlock holds the stored keys in (after, last]. A nil after is the first block.
type damagedBlock struct{ after, last []byte }

// CheckTables reads every block of every table and compares its checksum, and returns the
// tables that are damaged. It calls progress after each block with its size. What is not in
// tables yet, Pebble has read from its log when the store was opened.
func (s *Store) CheckTables(ctx context.Context, progress func(bytes int64)) (damaged []DamagedTable, err error) {
	levels, err := s.db.SSTables()
	if err != nil {
		return nil, fmt.Errorf("%w: the manifest names a table that is missing: %v", series.ErrCorrupt, err)
	}
	for level, tables := range levels {
		for _, info := range tables {
			name := fmt.Sprintf("%s.sst", info.FileNum) // our options make no virtual tables
			d := DamagedTable{Name: name, Missing: s.missing[name], info: info, level: level}
			if d.Err = s.checkTable(ctx, &d, progress); ctx.Err() != nil {
				return damaged, ctx.Err()
			}
			if errors.Is(d.Err, os.ErrPermission) {
				return nil, d.Err
			}
			if d.Err != nil {
				d.Err = fmt.Errorf("%w: %s", series.ErrCorrupt, inOneLine.Replace(d.Err.Error()))
				d.describe(levels)
				damaged = append(damaged, d)
			}
		}
	}
	return damaged, nil
}

// inOneLine joins the lines of an error. A reader without the database gives each table the
// number 0.
var inOneLine = strings.NewReplacer("\n", "; ", "table 000000", "table")

// checkTable returns what is wrong with the table of d, and notes in d what cannot be read.
func (s *Store) checkTable(ctx context.Context, d *DamagedTable, progress func(bytes int64)) (err error) {
	d.whole, d.LostBytes = true, d.info.Size
	if d.Missing {
		return errors.New("the file is missing")
	}
	path := s.fs.PathJoin(s.dir, d.Name)
	if info, err := s.fs.Stat(path); err != nil {
		return err
	} else if size := uint64(info.Size()); size != d.info.Size {
		return fmt.Errorf("the file has %d bytes, and should have %d", size, d.info.Size)
	}
	t, err := openTable(ctx, s.fs, path, s.readerOptions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.reader.Close()) }()
	layout, err := t.reader.Layout()
	if err != nil {
		return err
	}
	d.whole, d.LostBytes = false, 0
	bad := make(map[uint64]bool) // offsets of damaged blocks with cells
	for _, b := range slices.Concat(dataBlocks(layout), []block.Handle{layout.RangeDel, layout.RangeKey}, layout.ValueBlock, []block.Handle{layout.ValueIndex}) {
		if b.Length == 0 {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		progress(int64(b.Length))
		blockErr := t.checkBlock(b)
		if blockErr == nil {
			continue
		}
		err = errors.Join(err, blockErr)
		d.LostBytes += b.Length
		switch b {
		case layout.RangeDel:
			d.deletions = true
		case layout.RangeKey, layout.ValueIndex: // this store has none
			d.whole = true
		default:
			bad[b.Offset] = true
		}
	}
	if len(bad) > 0 {
		d.blocks, d.whole = t.damagedBlocks(ctx, layout, bad)
	}
	return err
}

func dataBlocks(l *sstable.Layout) (handles []block.Handle) {
	for _, b := range l.Data {
		handles = append(handles, b.Handle)
	}
	return handles
}

// A tableFile is the file of a table, read without the database. What the disk cannot read is
// damage for the reader.
type tableFile struct {
	file   vfs.File
	size   int64
	reader *sstable.Reader
	block  []byte // space for a block
}

// openTable opens a table. Closing its reader closes the file.
func openTable(ctx context.Context, fs vfs.FS, path string, opts sstable.ReaderOptions) (*tableFile, error) {
	file, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	var unread error
	readable, err := sstable.NewSimpleReadable(unreadableFile{file, func(err error) { unread = err }})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	reader, err := sstable.NewReader(ctx, readable, opts)
	if err != nil {
		return nil, errors.Join(unread, err, readable.Close())
	}
	return &tableFile{file: file, size: info.Size(), reader: reader}, nil
}

// checkBlock compares the checksum of a block. Pebble's own comparison looks for the bit to
// flip back, which takes the square of the size.
func (t *tableFile) checkBlock(b block.Handle) error {
	size := int(b.Length) + block.TrailerLen
	if cap(t.block) < size {
		t.block = make([]byte, size)
	}
	content := t.block[:size]
	if _, err := t.file.ReadAt(content, int64(b.Offset)); err != nil {
		return fmt.Errorf("block of %d bytes at byte %d: %w", b.Length, b.Offset, err)
	}
	var sum block.Checksummer
	sum.Init(t.reader.BlockReader().ChecksumType())
	if sum.Checksum(content[:b.Length], content[b.Length]) != binary.LittleEndian.Uint32(content[b.Length+1:]) {
		return fmt.Errorf("the block of %d bytes at byte %d has another checksum", b.Length, b.Offset)
	}
	return nil
}

// damagedBlocks returns the blocks with these offsets. If there are others than those of
// cells, or the index cannot be read, the whole table is damaged.
func (t *tableFile) damagedBlocks(ctx context.Context, layout *sstable.Layout, bad map[uint64]bool) (blocks []damagedBlock, whole bool) {
	var before []byte
	for _, h := range layout.Index {
		content, err := t.reader.BlockReader().Read(ctx, block.NoReadEnv, nil, h, blockkind.SSTableIndex, colblk.InitIndexBlockMetadata)
		if err != nil {
			return nil, true
		}
		var index colblk.IndexIter
		if err := index.InitHandle(t.reader.Comparer, content, sstable.NoTransforms); err != nil {
			return nil, true
		}
		for valid := index.First(); valid; valid = index.Next() {
			separator := bytes.Clone(index.Separator())
			if b, err := index.BlockHandleWithProperties(); err != nil {
				return nil, true
			} else if bad[b.Offset] {
				blocks = append(blocks, damagedBlock{before, separator})
			}
			before = separator
		}
		_ = index.Close() // it returns no error
	}
	return blocks, len(blocks) < len(bad)
}

// describe fills in what is lost. levels are all tables.
func (d *DamagedTable) describe(levels [][]pebble.SSTableInfo) {
	smallest, largest := d.info.Smallest.UserKey, d.info.Largest.UserKey
	if d.whole {
		d.addLost(levels, smallest, largest)
		return
	}
	for _, b := range d.blocks { // separators may be outside the table
		after, last := b.after, b.last
		if after == nil {
			after = smallest
		}
		if bytes.Compare(last, largest) > 0 {
			last = largest
		}
		d.addLost(levels, after, last)
	}
	if d.deletions {
		d.Lost = append(d.Lost, "which cells were deleted, so that some may come back: "+describeRange(smallest, largest))
	}
}

// addLost adds the stored keys from first to last to what is lost. A table beneath may have
// older versions of them.
func (d *DamagedTable) addLost(levels [][]pebble.SSTableInfo, first, last []byte) {
	lost := describeRange(first, last)
	for level, tables := range levels {
		isBeneath := func(t pebble.SSTableInfo) bool {
			return (level > d.level || level == 0 && d.level == 0 && t.SmallestSeqNum < d.info.LargestSeqNum) && t.FileNum != d.info.FileNum &&
				bytes.Compare(t.Smallest.UserKey, last) <= 0 && bytes.Compare(first, t.Largest.UserKey) <= 0
		}
		if slices.ContainsFunc(tables, isBeneath) {
			lost += ", where older values and deleted cells may come back"
			break
		}
	}
	d.Lost = append(d.Lost, lost)
}

// describeRange describes the stored keys from first to last by tables, days and rows.
func describeRange(first, last []byte) string {
	from, row := describeKey(first)
	to, lastRow := describeKey(last)
	if from == to {
		return fmt.Sprintf("%s, rows %q to %q", from, row, lastRow)
	}
	return fmt.Sprintf("%s, row %q, to %s, row %q", from, row, to, lastRow)
}

// describeKey returns the table, layer and day of a stored key, or of the front of one, in
// words, and the row.
func describeKey(key []byte) (where, row string) {
	if len(key) == 0 {
		return "the store", ""
	}
	table, layer := tableOf(key[0])
	if where = table.String(); layer != "" {
		where = fmt.Sprintf("%s (%s)", table, layer)
	}
	head := headSize(key[0])
	if len(key) < head {
		return where, ""
	}
	if c := calendarOf(key[0]); c != nil {
		if day := dayOf(key, key[0]); day <= c.last() {
			where += " of " + time.UnixMilli(int64(day)*c.span).UTC().Format(time.DateOnly)
		}
	}
	text, _, _ := bytes.Cut(key[head:], rowEnd)
	return where, string(text)
}
