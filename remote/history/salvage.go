package history

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/encoding"
	"github.com/prometheus/prometheus/tsdb/fileutil"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/tombstones"
)

// seriesAlign is the alignment of series in an index, in bytes. Their references are positions in units of it.
const seriesAlign = 16

// A salvaged is a block with a damaged index. It has the series whose entries are whole: each has its checksum, and its labels are those of
// symbols, which have one, too. Its index knows no postings but those of all series.
type salvaged struct {
	meta       tsdb.BlockMeta
	index      *salvagedIndex
	chunks     *chunks.Reader
	tombstones tombstones.Reader
}

// salvage reads what is left of a block. damage is what is wrong with it; lost says that, and how much is lost.
func salvage(of *block, damage error) (s *salvaged, lost error, err error) {
	s = &salvaged{meta: of.meta.BlockMeta}
	if s.index, err = openSalvaged(filepath.Join(of.dir, "index")); err != nil {
		return nil, nil, errors.Join(damage, err)
	}
	if s.chunks, err = chunks.NewDirReader(filepath.Join(of.dir, "chunks"), of.pool()); err == nil {
		s.tombstones, _, err = tombstones.ReadTombstones(of.dir)
	}
	if err != nil {
		return nil, nil, errors.Join(damage, err, s.Close())
	}
	found := uint64(len(s.index.refs))
	missing := max(of.meta.Stats.NumSeries, found) - found
	return s, fmt.Errorf("the index of block %s is damaged: %d of its series can be read, %d or more cannot%s: %w", of.dir, found, max(missing, uint64(s.index.gaps)), s.index.after, damage), nil
}

// Index implements tsdb.BlockReader, as the next methods do. What they return is closed with the block.
func (s *salvaged) Index() (tsdb.IndexReader, error) { return s.index, nil }

func (s *salvaged) Chunks() (tsdb.ChunkReader, error) { return openChunks{s.chunks}, nil }

func (s *salvaged) Tombstones() (tombstones.Reader, error) { return s.tombstones, nil }

func (s *salvaged) Meta() tsdb.BlockMeta { return s.meta }

func (s *salvaged) Size() int64 { return 0 }

// Close closes the files.
func (s *salvaged) Close() (err error) {
	if s.chunks != nil {
		err = s.chunks.Close()
	}
	if s.tombstones != nil {
		err = errors.Join(err, s.tombstones.Close())
	}
	return errors.Join(err, s.index.file.Close())
}

// openChunks are chunks that a querier does not close.
type openChunks struct{ tsdb.ChunkReader }

func (openChunks) Close() error { return nil }

// A salvagedIndex is an index of which series and symbols are read, and nothing else.
type salvagedIndex struct {
	tsdb.IndexReader
	file    *fileutil.MmapFile
	symbols *index.Symbols
	decoder index.Decoder
	// refs are the series that can be read, in 8 bytes each, in the order of their labels.
	refs []storage.SeriesRef
	// gaps is how many runs of bytes are no series, after names the series before the first of them.
	gaps  int
	after string
}

// indexBytes are an index.ByteSlice.
type indexBytes []byte

// Len implements index.ByteSlice.
func (b indexBytes) Len() int { return len(b) }

func (b indexBytes) Range(start, end int) []byte { return b[start:end] }

// castagnoli is the polynomial of checksums in an index.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openSalvaged finds the series of an index whose symbols are whole.
func openSalvaged(path string) (x *salvagedIndex, err error) {
	file, err := fileutil.OpenMmapFile(path)
	if err != nil {
		return nil, err
	}
	x = &salvagedIndex{file: file}
	if err := x.find(indexBytes(file.Bytes())); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return x, nil
}

// find reads the symbols, and finds the series after them.
func (x *salvagedIndex) find(b indexBytes) error {
	if len(b) < index.HeaderLen || b[index.HeaderLen-1] != index.FormatV2 {
		return errors.New("the index has no header of format 2")
	}
	symbols, err := index.NewSymbols(b, index.FormatV2, index.HeaderLen)
	if err != nil {
		return fmt.Errorf("the symbols of the index, which all its labels are made of, are damaged: %w", err)
	}
	x.symbols = symbols
	x.decoder = index.Decoder{LookupSymbol: func(_ context.Context, o uint32) (string, error) { return symbols.Lookup(o) }}
	at := index.HeaderLen + 4 + int(binary.BigEndian.Uint32(b[index.HeaderLen:])) + 4
	end := len(b)
	if toc, err := index.NewTOCFromByteSlice(b); err == nil {
		end = int(toc.LabelIndices)
	}
	var builder labels.ScratchBuilder
	inGap := false
	for at = align(at); at < end; {
		size, err := x.entry(b, at, &builder)
		if err == nil {
			x.refs, inGap, at = append(x.refs, storage.SeriesRef(at/seriesAlign)), false, align(at+size)
			continue
		}
		if !inGap && end < len(b) { // without its end the section looks as if more followed
			if x.gaps++; x.gaps == 1 && len(x.refs) > 0 {
				x.after = fmt.Sprintf(", the first after %s", builder.Labels())
			}
		}
		inGap, at = true, at+seriesAlign
	}
	return nil
}

func align(at int) int { return (at + seriesAlign - 1) / seriesAlign * seriesAlign }

// entry returns how long an entry of a series is, and its labels in builder, which stay if it is none.
func (x *salvagedIndex) entry(b indexBytes, at int, builder *labels.ScratchBuilder) (size int, err error) {
	d := encoding.NewDecbufUvarintAt(b, at, castagnoli)
	if d.Err() != nil || d.Len() == 0 {
		return 0, cmp.Or(d.Err(), error(encoding.ErrInvalidSize))
	}
	_, n := binary.Uvarint(b[at:])
	size = n + d.Len() + crc32.Size
	return size, x.decoder.Series(d.Get(), builder, new([]chunks.Meta))
}

// Postings implements tsdb.IndexReader: it returns all series.
func (x *salvagedIndex) Postings(context.Context, string, ...string) (index.Postings, error) {
	return index.NewListPostings(x.refs), nil
}

func (*salvagedIndex) SortedPostings(p index.Postings) index.Postings { return p }

func (x *salvagedIndex) Series(ref storage.SeriesRef, builder *labels.ScratchBuilder, metas *[]chunks.Meta) error {
	d := encoding.NewDecbufUvarintAt(indexBytes(x.file.Bytes()), int(ref)*seriesAlign, castagnoli)
	if d.Err() != nil {
		return d.Err()
	}
	return x.decoder.Series(d.Get(), builder, metas)
}

func (*salvagedIndex) Close() error { return nil }

// checkIndex reads all series of a block, and all postings of a selection, each of which has a checksum.
func checkIndex(ctx context.Context, b tsdb.BlockReader, sel Selection) (err error) {
	reader, err := b.Index()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	name, value := index.AllPostingsKey()
	all, err := reader.Postings(ctx, name, value)
	if err != nil {
		return fmt.Errorf("list of all series: %w", err)
	}
	var builder labels.ScratchBuilder
	for all.Next() {
		if err := reader.Series(all.At(), &builder, nil); err != nil {
			return err
		}
	}
	if err := all.Err(); err != nil {
		return err
	}
	for _, ms := range sel.Matchers {
		some, err := tsdb.PostingsForMatchers(ctx, reader, ms...)
		if err == nil {
			err = some.Err()
		}
		if err != nil {
			return fmt.Errorf("series of --match: %w", err)
		}
	}
	return nil
}

// A matchingSet has the series of a set that match.
type matchingSet struct {
	storage.ChunkSeriesSet
	sel Selection
}

func (s matchingSet) Next() bool {
	for s.ChunkSeriesSet.Next() {
		if s.sel.matches(s.At().Labels()) {
			return true
		}
	}
	return false
}
