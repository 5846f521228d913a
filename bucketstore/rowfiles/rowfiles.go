// Package rowfiles keeps the files of a log as rows of the table LOG, so that a process with a buffer needs no disk.
//
// A file is its rows, in order of their offsets:
//
//	key     = CRC-32C of the ID of the log, its last 2 bytes, big-endian | ID of the log | ',' | name of the file | ',' |
//	          offset in bytes, uint64, big-endian
//	n       = size of the bytes, uint32, big-endian | random name of the process that wrote the row
//	b       = the bytes
//
// n and b are qualifiers of the family l. The hash spreads logs over the table. What is appended goes into a row that must not exist
// before: so what two processes append to one file is never mixed, and a row without bytes ends a file for all of them, see End. Bytes
// behind such a row, or behind a gap, are not in the file, and without a row at offset 0 there is none.
package rowfiles

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/series"
)

const (
	sizeQualifier  = "n"
	bytesQualifier = "b"

	// maxRow is how many bytes of a file one row has.
	maxRow = 1 << 20
	// requestTimeout bounds each request to the store but the removal of a range.
	requestTimeout = 10 * time.Second
	// dropTimeout bounds the removal of a range of rows.
	dropTimeout = time.Minute
	// fewRows is the number of rows up to which they are removed one by one. Bigtable limits removals of ranges.
	fewRows = 16
)

// ErrTaken says that another process has ended or written a file that this one appends to.
var ErrTaken = errors.New("another process has taken the log")

// A Dir is the files of a log in a store. It is safe for concurrent use; each of its files belongs to one goroutine at a time, but for
// ReadAt. An error of the store is a durable.ErrAway.
type Dir struct {
	store bucketstore.Store
	now   func() time.Time
	id    string
	// prefix begins the keys of all rows.
	prefix []byte
	// token is the random name of the process.
	token string
}

var _ durable.Dir = (*Dir)(nil)

// New returns the files of the log with an ID, of which there may be none yet.
func New(store bucketstore.Store, id string, now func() time.Time) *Dir {
	sum := crc32.Checksum([]byte(id), crc32.MakeTable(crc32.Castagnoli))
	prefix := binary.BigEndian.AppendUint16(nil, uint16(sum))
	return &Dir{store: store, now: now, id: id, prefix: append(append(prefix, id...), ','), token: rand.Text()}
}

// ID is that of the log.
func (d *Dir) ID() string { return d.id }

// Token is the random name of this process in what it writes.
func (d *Dir) Token() string { return d.token }

// Path implements durable.Dir. It is for messages.
func (d *Dir) Path() string { return "table LOG, log " + d.id }

// Make implements durable.Dir. There is nothing to make.
func (d *Dir) Make() error { return nil }

// Sync implements durable.Dir. What was changed is durable already.
func (d *Dir) Sync() error { return nil }

// Lock implements durable.Dir. It locks nothing: the process that makes a log opens it, or the one that has taken it by its row of META,
// and End ends what others append.
func (d *Dir) Lock(string) (unlock func() error, err error) { return func() error { return nil }, nil }

// filePrefix begins the keys of the rows of a file.
func (d *Dir) filePrefix(name string) []byte {
	return append(append(bytes.Clone(d.prefix), name...), ',')
}

func (d *Dir) key(name string, offset int64) []byte {
	return binary.BigEndian.AppendUint64(d.filePrefix(name), uint64(offset))
}

// scan calls fn with a cell of each row of a range.
func (d *Dir) scan(rows series.RowRange, qualifier string, limit int, fn func(key, value []byte) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	var failed error
	err := d.store.Scan(ctx, bucketstore.ScanRequest{
		Table: bucketstore.Log, Rows: []series.RowRange{rows}, Limit: limit,
		Families: []bucketstore.FamilyRange{{Family: series.FamilyLog, Start: []byte(qualifier), Limit: []byte(qualifier + "\x00")}},
	}, func(row bucketstore.Row) error {
		failed = fn(row.Key, row.Cells[0].Value)
		return failed
	})
	if err != nil && failed == nil {
		return away(err)
	}
	return err
}

func away(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", durable.ErrAway, err)
}

// Names implements durable.Dir. It is one request for each name.
func (d *Dir) Names() (names []string, err error) {
	rest := series.PrefixRange(d.prefix)
	for {
		var name string
		exists := false
		err := d.scan(rest, sizeQualifier, 1, func(key, value []byte) error {
			inside := key[len(d.prefix):]
			end := bytes.IndexByte(inside, ',')
			if end < 0 || len(inside) != end+1+8 {
				return fmt.Errorf("%w: %q is no row of a file", series.ErrCorrupt, key)
			}
			name = string(inside[:end])
			size, _, err := parseSize(key, value)
			exists = size > 0 && binary.BigEndian.Uint64(inside[end+1:]) == 0
			return err
		})
		if err != nil || name == "" {
			return names, err
		}
		if exists {
			names = append(names, name)
		}
		rest.Start = series.PrefixRange(d.filePrefix(name)).Limit
	}
}

// parseSize parses a cell n.
func parseSize(key, value []byte) (size int64, writer string, err error) {
	if len(value) < 4 {
		return 0, "", fmt.Errorf("%w: the size of the bytes in row %q", series.ErrCorrupt, key)
	}
	return int64(binary.BigEndian.Uint32(value)), string(value[4:]), nil
}

// A piece is the bytes of a row.
type piece struct{ offset, size int64 }

// pieces returns those of a file, in order, and its size. ended says that a row without bytes follows.
func (d *Dir) pieces(name string) (all []piece, size int64, ended bool, err error) {
	gap := false
	err = d.scan(series.PrefixRange(d.filePrefix(name)), sizeQualifier, 0, func(key, value []byte) error {
		n, _, err := parseSize(key, value)
		offset := int64(binary.BigEndian.Uint64(key[len(key)-8:]))
		switch gap = gap || offset != size || ended; {
		case err != nil || gap:
		case n == 0:
			ended = true
		default:
			all, size = append(all, piece{offset, n}), size+n
		}
		return err
	})
	return all, size, ended, err
}

// Open implements durable.Dir.
func (d *Dir) Open(name string, flag int) (durable.File, error) {
	if name == "" || strings.Contains(name, ",") {
		return nil, fmt.Errorf("%q cannot be the name of a file: %w", name, os.ErrInvalid)
	}
	pieces, size, _, err := d.pieces(name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case size == 0 && flag&os.O_CREATE == 0:
		return nil, fmt.Errorf("%s: %w", name, os.ErrNotExist)
	case size > 0 && flag&os.O_EXCL != 0:
		return nil, fmt.Errorf("%s: %w", name, os.ErrExist)
	case size > 0 && flag&os.O_TRUNC != 0:
		if err := d.Remove(name); err != nil {
			return nil, err
		}
		pieces, size = nil, 0
	}
	return &file{dir: d, name: name, pieces: pieces, size: size}, nil
}

// Remove implements durable.Dir. The first row goes first, so that a file is there or not.
func (d *Dir) Remove(name string) error {
	pieces, size, _, err := d.pieces(name)
	if err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	if size == 0 {
		return fmt.Errorf("remove %s: %w", name, os.ErrNotExist)
	}
	one := pieces
	if len(pieces) > fewRows {
		one = pieces[:1]
	}
	for _, p := range one {
		if err := d.apply(d.key(name, p.offset), bucketstore.Op{Kind: bucketstore.DeleteFamily, Family: series.FamilyLog}); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	if len(pieces) <= fewRows {
		return nil
	}
	return d.drop(series.PrefixRange(d.filePrefix(name)))
}

// RemoveAll removes all files.
func (d *Dir) RemoveAll() error { return d.drop(series.PrefixRange(d.prefix)) }

// RemoveEnded removes all files, and leaves what End has written until it is too old: another process may still try to append.
func (d *Dir) RemoveEnded() error {
	names, err := d.Names()
	for _, name := range names {
		_, size, ended, piecesErr := d.pieces(name)
		if err = errors.Join(err, piecesErr); err != nil {
			break
		}
		if ended { // not a range of a prefix, and so removed row by row
			err = d.drop(series.RowRange{Start: d.key(name, 0), Limit: d.key(name, size)})
		} else {
			err = d.Remove(name)
		}
	}
	return err
}

func (d *Dir) drop(rows series.RowRange) error {
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	return away(d.store.Drop(ctx, bucketstore.Log, rows))
}

func (d *Dir) apply(key []byte, ops ...bucketstore.Op) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	return away(d.store.Apply(ctx, bucketstore.Log, []bucketstore.Mutation{{Key: key, Ops: ops}}))
}

// Rename implements durable.Dir. A file of up to a row is replaced at once; a larger one is there when its first row is.
func (d *Dir) Rename(from, to string) error {
	content, err := durable.ReadFile(d, from)
	if err != nil {
		return err
	}
	replaced, _, _, err := d.pieces(to)
	if err != nil {
		return err
	}
	last := max(0, len(content)-1) / maxRow * maxRow
	for offset := last; offset >= 0; offset -= maxRow {
		if err := d.put(to, int64(offset), content[offset:min(len(content), offset+maxRow)]); err != nil {
			return fmt.Errorf("rename %s to %s: %w", from, to, err)
		}
	}
	for _, p := range replaced {
		if p.offset < int64(len(content)) {
			continue
		}
		if err := d.apply(d.key(to, p.offset), bucketstore.Op{Kind: bucketstore.DeleteFamily, Family: series.FamilyLog}); err != nil {
			return err
		}
	}
	return d.Remove(from)
}

// cells returns the operations that write the cells of a row.
func (d *Dir) cells(b []byte) []bucketstore.Op {
	now := d.now().UnixMilli()
	size := append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), d.token...)
	ops := []bucketstore.Op{{Kind: bucketstore.SetCell, Family: series.FamilyLog, Qualifier: []byte(sizeQualifier), Time: now, Value: size}}
	if len(b) > 0 {
		ops = append(ops, bucketstore.Op{Kind: bucketstore.SetCell, Family: series.FamilyLog, Qualifier: []byte(bytesQualifier), Time: now, Value: b})
	}
	return ops
}

// put writes a row, whatever it has. The cells of before go first: they may have later times.
func (d *Dir) put(name string, offset int64, b []byte) error {
	return d.apply(d.key(name, offset), append([]bucketstore.Op{{Kind: bucketstore.DeleteFamily, Family: series.FamilyLog}}, d.cells(b)...)...)
}

// add writes a row that must not exist, and returns how many bytes it has then: those of an earlier call that had no answer may be fewer.
// It is an ErrTaken if the row is that of another process.
func (d *Dir) add(name string, offset int64, b []byte) (size int64, err error) {
	key := d.key(name, offset)
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	added, err := d.store.CheckAndApply(ctx, bucketstore.Log,
		bucketstore.Condition{Family: series.FamilyLog, Qualifier: []byte(sizeQualifier), Absent: true},
		bucketstore.Mutation{Key: key, Ops: d.cells(b)})
	if err == nil && added {
		return int64(len(b)), nil
	}
	found, writer := false, ""
	readErr := d.scan(series.SingleRow(key), sizeQualifier, 0, func(key, value []byte) (err error) {
		found = true
		size, writer, err = parseSize(key, value)
		return err
	})
	switch {
	case readErr != nil:
		return 0, errors.Join(away(err), readErr)
	case found && writer == d.token:
		return size, nil
	case found || err == nil: // or it was there, and is removed
		return 0, fmt.Errorf("%s at byte %d: %w", name, offset, ErrTaken)
	}
	return 0, away(err)
}

// End makes it impossible to append to a file, which need not exist, for all processes, this one included. It says whether it did: else
// the file was appended to meanwhile, and has another end.
func (d *Dir) End(name string) (done bool, err error) {
	_, size, ended, err := d.pieces(name)
	if err != nil || ended {
		return err == nil, err
	}
	_, err = d.add(name, size, nil)
	if errors.Is(err, ErrTaken) {
		return false, nil
	}
	return err == nil, err
}

// A file is an open file. What is written is durable after Sync alone.
type file struct {
	dir    *Dir
	name   string
	pieces []piece
	// size is the size in rows, and appended what follows.
	size     int64
	appended []byte
	// whole is the content of a file that is written by WriteAt. It is nil if there is nothing to write.
	whole []byte
}

// Write appends. It never fails.
func (f *file) Write(p []byte) (int, error) {
	f.appended = append(f.appended, p...)
	return len(p), nil
}

// WriteAt replaces bytes of a file that begins empty and has at most one row.
func (f *file) WriteAt(p []byte, offset int64) (int, error) {
	end := offset + int64(len(p))
	if end > maxRow || len(f.appended) > 0 {
		return 0, fmt.Errorf("write %s at byte %d: %w", f.name, offset, os.ErrInvalid)
	}
	if n := end - int64(len(f.whole)); n > 0 {
		f.whole = append(f.whole, make([]byte, n)...)
	}
	return copy(f.whole[offset:], p), nil
}

// Sync implements durable.File. After a durable.ErrAway what was written may be durable in part, and stays written: another Sync goes on.
func (f *file) Sync() error {
	if f.whole != nil {
		return f.dir.put(f.name, 0, f.whole)
	}
	for len(f.appended) > 0 {
		n, err := f.dir.add(f.name, f.size, f.appended[:min(maxRow, len(f.appended))])
		if err != nil {
			return fmt.Errorf("append to %s: %w", f.name, err)
		}
		f.pieces, f.size = append(f.pieces, piece{f.size, n}), f.size+n
		f.appended = f.appended[n:]
	}
	f.appended = nil
	return nil
}

// ReadAt implements io.ReaderAt, of what was durable when the file was opened, or was synced since.
func (f *file) ReadAt(p []byte, offset int64) (n int, err error) {
	end := min(offset+int64(len(p)), f.size)
	i := sort.Search(len(f.pieces), func(i int) bool { return f.pieces[i].offset+f.pieces[i].size > offset })
	if i < len(f.pieces) && offset < end {
		rows := series.RowRange{Start: f.dir.key(f.name, f.pieces[i].offset), Limit: f.dir.key(f.name, end)}
		err = f.dir.scan(rows, bytesQualifier, 0, func(key, value []byte) error {
			at := int64(binary.BigEndian.Uint64(key[len(key)-8:]))
			if i == len(f.pieces) || at != f.pieces[i].offset || int64(len(value)) != f.pieces[i].size {
				return fmt.Errorf("%w: rows of %s at byte %d changed while they were read", series.ErrCorrupt, f.name, at)
			}
			n += copy(p[n:], value[max(0, offset-at):])
			i++
			return nil
		})
		if err == nil && int64(n) != end-offset {
			err = fmt.Errorf("%w: %s has %d of %d bytes from byte %d on", series.ErrCorrupt, f.name, n, end-offset, offset)
		}
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Truncate removes the bytes from size on, durably. Nothing can be appended by this File after it.
func (f *file) Truncate(size int64) error {
	for i := len(f.pieces) - 1; i >= 0 && f.pieces[i].offset+f.pieces[i].size > size; i-- {
		p := f.pieces[i]
		if p.offset >= size {
			if err := f.dir.apply(f.dir.key(f.name, p.offset), bucketstore.Op{Kind: bucketstore.DeleteFamily, Family: series.FamilyLog}); err != nil {
				return err
			}
			continue
		}
		kept := make([]byte, size-p.offset)
		if _, err := f.ReadAt(kept, p.offset); err != nil {
			return err
		}
		if err := f.dir.put(f.name, p.offset, kept); err != nil {
			return err
		}
	}
	return nil
}

// Close implements io.Closer.
func (f *file) Close() error { return nil }

// Stat implements durable.File. Only the size is there.
func (f *file) Stat() (fs.FileInfo, error) { return info{size: f.size, name: f.name}, nil }

type info struct {
	fs.FileInfo
	name string
	size int64
}

func (i info) Name() string { return i.name }
func (i info) Size() int64  { return i.size }
