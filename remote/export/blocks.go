package export

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/fileutil"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/tombstones"

	"github.com/promtable/promtable/bucketstore/durable"
)

// DefaultBlockSpan is how long a block is, in milliseconds, aligned to a multiple of it: as long as those that Prometheus writes first.
const DefaultBlockSpan = int64(2 * time.Hour / time.Millisecond)

const (
	// unfinished ends the name of a block that is being written. TSDBs leave such directories out, and remove them.
	unfinished = ".promtable.tmp-for-creation"
	// mark begins the hint in the meta.json of a block that says of which export it is, and from when to when it has all samples.
	mark = "promtable-export:"
)

// Blocks writes a selection to blocks in a directory, which exists. Blocks of the same selection that are there, from an export that was
// interrupted, are left as they are.
type Blocks struct {
	From      Source
	Selection Selection
	// Dir is the directory.
	Dir string
	// Span is how long a block is, in milliseconds. 0 is DefaultBlockSpan.
	Span int64
	// Name tells sources and selectors apart: blocks of another name are not those of this export.
	Name string
	// Report, if set, is called after each block.
	Report func(Progress)

	progress Progress
}

// Run writes the blocks, one after the other. It holds the labels of the series of one block. The error is an ErrNothing if there
// are no samples.
func (b *Blocks) Run(ctx context.Context) (Progress, error) {
	b.progress = Progress{}
	if b.Span == 0 {
		b.Span = DefaultBlockSpan
	}
	if err := b.Selection.check(); err != nil {
		return b.progress, err
	}
	done, err := b.finished()
	if err != nil {
		return b.progress, err
	}
	for start := b.Selection.Mint - mod(b.Selection.Mint, b.Span); start <= b.Selection.Maxt; start += b.Span {
		meta, isThere := done[start]
		if before := meta.ULID; !isThere || !slices.Contains(meta.Compaction.Hints, b.hint(start)) {
			if meta, err = b.write(ctx, start); err == nil && isThere { // that was of a shorter time, such as up to the now of then
				err = os.RemoveAll(filepath.Join(b.Dir, before.String()))
			}
			if err != nil {
				return b.progress, fmt.Errorf("block from %s: %w", time.UnixMilli(start).UTC().Format(time.RFC3339), err)
			}
		}
		b.progress.Series += int64(meta.Stats.NumSeries)
		b.progress.Samples += int64(meta.Stats.NumSamples)
		b.progress.Upto = start + b.Span
		if b.Report != nil {
			b.Report(b.progress)
		}
	}
	if b.progress.Samples == 0 {
		return b.progress, ErrNothing
	}
	return b.progress, nil
}

// hint says of which export a block is, and from when to when it has all samples.
func (b *Blocks) hint(start int64) string {
	return fmt.Sprintf("%s%s %d %d", mark, b.Name, max(start, b.Selection.Mint), min(start+b.Span-1, b.Selection.Maxt))
}

// mod returns the distance from the multiple of span that is before t or t itself.
func mod(t, span int64) int64 { return ((t % span) + span) % span }

// finished returns the blocks of this export that are there, by their start, also those of other times.
func (b *Blocks) finished() (map[int64]tsdb.BlockMeta, error) {
	done := make(map[int64]tsdb.BlockMeta)
	entries, err := os.ReadDir(b.Dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), unfinished) {
			if err := os.RemoveAll(filepath.Join(b.Dir, entry.Name())); err != nil {
				return nil, err
			}
			continue
		}
		text, err := os.ReadFile(filepath.Join(b.Dir, entry.Name(), "meta.json"))
		if err != nil {
			continue // something else
		}
		var meta tsdb.BlockMeta
		if json.Unmarshal(text, &meta) == nil && meta.MaxTime-meta.MinTime == b.Span && slices.ContainsFunc(meta.Compaction.Hints, func(hint string) bool { return strings.HasPrefix(hint, mark+b.Name+" ") }) {
			done[meta.MinTime] = meta
		}
	}
	return done, nil
}

// write writes the block from start on. There is none if it has no samples.
func (b *Blocks) write(ctx context.Context, start int64) (meta tsdb.BlockMeta, err error) {
	meta = tsdb.BlockMeta{ULID: ulid.MustNew(ulid.Timestamp(time.UnixMilli(max(start, 0))), rand.Reader), MinTime: start, MaxTime: start + b.Span, Version: 1}
	meta.Compaction = tsdb.BlockMetaCompaction{Level: 1, Sources: []ulid.ULID{meta.ULID}, Hints: []string{b.hint(start)}}
	dir := filepath.Join(b.Dir, meta.ULID.String())
	building := dir + unfinished
	defer func() { err = errors.Join(err, os.RemoveAll(building)) }()
	if err := os.Mkdir(building, 0o750); err != nil {
		return meta, err
	}
	found, err := b.writeChunks(ctx, &meta, building)
	if err != nil || len(found) == 0 {
		return meta, err
	}
	if err := writeIndex(ctx, filepath.Join(building, "index"), found); err != nil {
		return meta, err
	}
	// Prometheus opens a block without this file, but takes no snapshot of it.
	if _, err := tombstones.WriteFile(slog.New(slog.DiscardHandler), building, tombstones.NewMemTombstones()); err != nil {
		return meta, err
	}
	text, err := json.MarshalIndent(meta, "", "\t")
	if err != nil {
		return meta, err
	}
	if err := durable.WriteFile(durable.OS(building), "meta.json", text); err != nil {
		return meta, err
	}
	return meta, fileutil.Replace(building, dir)
}

// An indexed is a series of a block, whose chunks are written.
type indexed struct {
	labels labels.Labels
	chunks []chunks.Meta
}

// segmentSize is how many bytes a file of chunks has at most, and takes while it is written. By default it would be 512 MiB, also for a block of
// few samples.
const segmentSize = 64 << 20

// writeChunks writes the chunks of a block, and returns its series, sorted.
func (b *Blocks) writeChunks(ctx context.Context, meta *tsdb.BlockMeta, dir string) (found []indexed, err error) {
	mint, maxt := max(meta.MinTime, b.Selection.Mint), min(meta.MaxTime-1, b.Selection.Maxt)
	set, err := b.Selection.series(ctx, b.From, mint, maxt)
	if err != nil {
		return nil, err
	}
	w, err := chunks.NewWriter(filepath.Join(dir, "chunks"), chunks.WithSegmentSize(segmentSize))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	var it chunks.Iterator
	for set.Next() {
		one := set.At()
		it = storage.NewSeriesToChunkEncoder(clipped{one, mint, maxt}).Iterator(it)
		var metas []chunks.Meta
		for it.Next() {
			metas = append(metas, it.At())
		}
		if err := it.Err(); err != nil {
			return nil, fmt.Errorf("series %s: %w", one.Labels(), err)
		}
		if len(metas) == 0 {
			continue
		}
		if err := w.WriteChunks(metas...); err != nil {
			return nil, err
		}
		count(&meta.Stats, metas)
		found = append(found, indexed{one.Labels().Copy(), metas})
	}
	return found, set.Err()
}

// floats are the encodings of chunks of floats.
var floats = []chunkenc.Encoding{chunkenc.EncXOR, chunkenc.EncXOR2}

// count counts the chunks of a series, and forgets their bytes.
func count(s *tsdb.BlockStats, metas []chunks.Meta) {
	s.NumSeries++
	s.NumChunks += uint64(len(metas))
	for i := range metas {
		n := uint64(metas[i].Chunk.NumSamples())
		if s.NumSamples += n; slices.Contains(floats, metas[i].Chunk.Encoding()) {
			s.NumFloatSamples += n
		} else {
			s.NumHistogramSamples += n
		}
		metas[i].Chunk = nil
	}
}

// writeIndex writes the index of a block.
func writeIndex(ctx context.Context, path string, found []indexed) (err error) {
	w, err := index.NewWriter(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	symbols := make(map[string]struct{})
	for _, s := range found {
		s.labels.Range(func(l labels.Label) {
			symbols[l.Name], symbols[l.Value] = struct{}{}, struct{}{}
		})
	}
	for _, symbol := range slices.Sorted(maps.Keys(symbols)) {
		if err := w.AddSymbol(symbol); err != nil {
			return err
		}
	}
	for i, s := range found {
		if err := w.AddSeries(storage.SeriesRef(i+1), s.labels, s.chunks...); err != nil {
			return fmt.Errorf("series %s: %w", s.labels, err)
		}
	}
	return nil
}
