package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"

	"github.com/promtable/promtable/series"
)

// maxPlainSpan is how long a block may be whose units are all opened. Of a longer one, which has wrong times, only units with chunks are.
const maxPlainSpan = 64 * UnitSpan

// maxBlockTime is so far from the last number that no unit up to it ends beyond that. Samples after series.MaxTime, as those with times in
// nanoseconds are, are only invalid; the other ones of their block are imported.
const maxBlockTime = math.MaxInt64 / 4

// Blocks is the blocks of TSDBs: of Prometheus, Thanos or Mimir, compacted or not. Series that several blocks have are merged.
type Blocks struct {
	dirs []string
	sel  Selection
	all  []*block
	// open are the blocks that are open.
	open  map[*block]openBlock
	files BlockFiles
}

// BlockFiles are the files of blocks that are elsewhere. Their directories have no file but meta.json at first.
type BlockFiles interface {
	// Fetch brings the files of a block to its directory, and Drop removes them. A Fetch that has failed may be called again.
	Fetch(ctx context.Context, dir string) error
	Drop(dir string) error
}

// onDisk are the files of blocks that are there.
type onDisk struct{}

func (onDisk) Fetch(context.Context, string) error { return nil }
func (onDisk) Drop(string) error                   { return nil }

// An openBlock is a *tsdb.Block, or a *salvaged.
type openBlock interface {
	tsdb.BlockReader
	Close() error
}

// A Selection is what to read of a source.
type Selection struct {
	// Matchers are selectors, of which a series must match one. None is all series.
	Matchers [][]*labels.Matcher
	// Mint and Maxt are in milliseconds, inclusive.
	Mint, Maxt int64
}

// A block is a folder with a block.
type block struct {
	dir  string
	meta blockMeta
	// external are the labels that Thanos has for all series, key is their text.
	external labels.Labels
	key      string
	// err says why the block cannot be opened, lost what of its index cannot be read.
	err, lost error
}

// blockMeta is meta.json, with what Thanos and Mimir add.
type blockMeta struct {
	tsdb.BlockMeta
	Thanos struct {
		Labels     map[string]string `json:"labels"`
		Downsample struct {
			Resolution int64 `json:"resolution"`
		} `json:"downsample"`
	} `json:"thanos"`
}

// NewBlocks returns the blocks in dirs. Each is a block, or a folder of blocks.
func NewBlocks(dirs []string, sel Selection) *Blocks {
	return NewRemoteBlocks(dirs, onDisk{}, sel)
}

// NewRemoteBlocks returns the blocks in dirs, whose files are elsewhere: each is there while it is open, for units of its time.
func NewRemoteBlocks(dirs []string, files BlockFiles, sel Selection) *Blocks {
	return &Blocks{dirs: dirs, sel: sel, open: make(map[*block]openBlock), files: files}
}

// Parallel implements Source.
func (*Blocks) Parallel() bool { return false }

// Units implements Source. It opens no block, unless its times are odd.
func (b *Blocks) Units(ctx context.Context, rolled int64) (units []Unit, damaged []error, err error) {
	g := grid{rolled, UnitSpan}
	known := make(map[string]string)
	for _, dir := range b.dirs {
		folders, err := blockFolders(dir)
		if err != nil {
			return nil, damaged, err
		}
		end := int64(math.MinInt64)
		for _, folder := range folders {
			found, err := readBlock(folder)
			if err != nil {
				damaged = append(damaged, err)
				continue
			}
			id := found.meta.ULID.String()
			if other, ok := known[id]; ok {
				if other != folder {
					damaged = append(damaged, &LeftOut{fmt.Errorf("%s is the same block as %s, which is imported", folder, other)})
				}
				continue
			}
			known[id] = folder
			b.all = append(b.all, found)
			end = max(end, found.meta.MaxTime)
		}
		if err := checkHead(ctx, dir, end, b.sel); err != nil {
			damaged = append(damaged, err)
		}
	}
	byStart := make(map[int64][]*block)
	for _, found := range b.all {
		if err := found.onlySamples(rolled); err != nil {
			damaged = append(damaged, err)
		}
		starts, err := b.starts(ctx, g, found)
		if err != nil {
			damaged = append(damaged, err)
		}
		for _, start := range starts {
			byStart[start] = append(byStart[start], found)
		}
	}
	for _, start := range slices.Sorted(maps.Keys(byStart)) {
		from, limit := g.at(start)
		var samples float64
		var ids []string
		for _, of := range byStart[start] {
			m := of.meta
			overlap := min(limit, m.MaxTime) - max(from, m.MinTime)
			samples += float64(m.Stats.NumSamples) * float64(max(overlap, 0)) / (float64(m.MaxTime) - float64(m.MinTime))
			ids = append(ids, m.ULID.String())
		}
		slices.Sort(ids)
		if u, ok := g.unit(start, int64(samples), b.sel, ids...); ok {
			units = append(units, u)
		}
	}
	return units, damaged, nil
}

// starts returns where the units begin that a block may have samples of.
func (b *Blocks) starts(ctx context.Context, g grid, of *block) (starts []int64, err error) {
	first, last := max(of.meta.MinTime, b.sel.Mint), min(of.meta.MaxTime-1, b.sel.Maxt)
	if of.span() > 0 {
		first, last = max(first, 1), min(last, g.rolled)
	}
	if uint64(of.meta.MaxTime-of.meta.MinTime) > uint64(maxPlainSpan) { // the difference may be more than an int64 holds
		return b.occupied(ctx, g, of)
	}
	for t := first; t <= last; {
		start, limit := g.at(t)
		starts, t = append(starts, start), limit
	}
	return starts, nil
}

// occupied returns where the units begin that a block has chunks of.
func (b *Blocks) occupied(ctx context.Context, g grid, of *block) ([]int64, error) {
	opened, err := b.openBlock(ctx, of)
	if err != nil {
		return nil, err
	}
	reader, err := opened.Index()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	name, value := index.AllPostingsKey()
	postings, err := reader.Postings(ctx, name, value)
	if err != nil {
		return nil, err
	}
	found := make(map[int64]bool)
	var builder labels.ScratchBuilder
	var metas []chunks.Meta
	for postings.Next() {
		if err := reader.Series(postings.At(), &builder, &metas); err != nil {
			return nil, fmt.Errorf("block %s: %w", of.dir, err)
		}
		for _, m := range metas {
			for t := max(m.MinTime, -series.MaxTime); t <= min(m.MaxTime, series.MaxTime); {
				start, limit := g.at(t)
				found[start], t = true, limit
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), postings.Err()
}

// blockFolders returns the folders of a directory that look as if they were blocks: the directory itself, or those in it.
func blockFolders(dir string) (folders []string, err error) {
	if _, err := os.Stat(filepath.Join(dir, "meta.json")); err == nil {
		return []string{dir}, nil
	}
	// The name of a block is a ULID, and while it is written or removed that is followed by a dot and more.
	isBlock := regexp.MustCompile(`^[0-9A-HJKMNP-TV-Z]{26}($|\.)`)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if isBlock.MatchString(e.Name()) && e.IsDir() {
			folders = append(folders, filepath.Join(dir, e.Name()))
		}
	}
	if len(folders) == 0 {
		return nil, fmt.Errorf("%s has no blocks: give a block, or a directory with blocks, such as that of --storage.tsdb.path of Prometheus, or a snapshot of it", dir)
	}
	return folders, nil
}

// readBlock reads the meta.json of a block. The error is a sentence.
func readBlock(dir string) (*block, error) {
	if strings.Contains(filepath.Base(dir), ".") {
		return nil, &LeftOut{fmt.Errorf("%s is a block that is being written or removed: import again when it is there", dir)}
	}
	text, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, &LeftOut{fmt.Errorf("%s has no meta.json: the block is not complete; import again when it is", dir)}
	}
	b := &block{dir: dir}
	if err == nil {
		err = json.Unmarshal(text, &b.meta)
	}
	switch m := b.meta; {
	case err != nil:
		return nil, fmt.Errorf("%s has a damaged meta.json: %w", dir, err)
	case m.Version != 1:
		return nil, fmt.Errorf("%s has format %d, this program knows 1", dir, m.Version)
	case b.span() != 0 && !isThanosSpan(b.span()):
		return nil, fmt.Errorf("%s is downsampled to %s, which is no resolution of this program", dir, time.Duration(b.span())*time.Millisecond)
	case m.MaxTime > maxBlockTime:
		return nil, fmt.Errorf("%s has a damaged meta.json: its end, %d, is no time in milliseconds", dir, m.MaxTime)
	case m.MinTime >= m.MaxTime:
		return nil, fmt.Errorf("%s has a damaged meta.json: it ends at %d and begins at %d", dir, m.MaxTime, m.MinTime)
	}
	// Names that begin with __ are those of Mimir, about the block and not about its series.
	maps.DeleteFunc(b.meta.Thanos.Labels, func(name, _ string) bool { return strings.HasPrefix(name, "__") })
	b.external = labels.FromMap(b.meta.Thanos.Labels)
	b.key = b.external.String()
	return b, nil
}

// openBlock returns a block, opened once. The error is a sentence.
func (b *Blocks) openBlock(ctx context.Context, of *block) (openBlock, error) {
	if opened, ok := b.open[of]; ok {
		return opened, nil
	}
	if of.err != nil {
		return nil, of.err
	}
	if err := b.files.Fetch(ctx, of.dir); err != nil {
		return nil, &Temporary{err}
	}
	opened, err := openWhole(ctx, of, b.sel)
	if err != nil && ctx.Err() == nil {
		var left *salvaged
		if left, of.lost, err = salvage(of, err); err == nil {
			opened = left
		}
	}
	if ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	if err != nil {
		of.err = fmt.Errorf("block %s is damaged, or gone: %w", of.dir, errors.Join(err, b.files.Drop(of.dir)))
		return nil, of.err
	}
	b.open[of] = opened
	return opened, nil
}

// openWhole opens a block whose index is whole.
func openWhole(ctx context.Context, of *block, sel Selection) (openBlock, error) {
	opened, err := tsdb.OpenBlock(slog.New(slog.DiscardHandler), of.dir, of.pool(), nil)
	if err != nil {
		return nil, err
	}
	if err := checkIndex(ctx, opened, sel); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

// Open implements Source. One unit may be open at a time, and no earlier one follows a later one.
func (b *Blocks) Open(ctx context.Context, u Unit) (*Reading, error) {
	for of, opened := range b.open {
		if of.meta.MaxTime <= u.Start {
			delete(b.open, of)
			if err := errors.Join(opened.Close(), b.files.Drop(of.dir)); err != nil {
				return nil, err
			}
		}
	}
	r := new(Reading)
	var queriers []storage.ChunkQuerier
	r.Close = func() (err error) {
		for _, q := range queriers {
			err = errors.Join(err, q.Close())
		}
		return err
	}
	// Blocks with other external labels have other series.
	groups := make(map[string][]storage.ChunkSeriesSet)
	external := make(map[string]labels.Labels)
	merge := make(map[string]storage.VerticalChunkSeriesMergeFunc)
	for _, of := range b.in(u) {
		opened, err := b.openBlock(ctx, of)
		if errors.As(err, new(*Temporary)) {
			return nil, errors.Join(err, r.Close())
		}
		var q storage.ChunkQuerier
		if err == nil {
			q, err = tsdb.NewBlockChunkQuerier(opened, u.Start, u.Limit-1)
		}
		if err != nil {
			r.Damaged = append(r.Damaged, err)
			continue
		}
		queriers = append(queriers, q)
		if of.lost != nil {
			r.Damaged = append(r.Damaged, of.lost)
		}
		external[of.key], merge[of.key] = of.external, mergeSamples
		if of.span() > 0 {
			merge[of.key] = storage.NewConcatenatingChunkSeriesMerger()
		}
		hints := &storage.SelectHints{Start: u.Start, End: u.Limit - 1, DisableTrimming: true}
		for _, ms := range b.sel.selectors() {
			ms, ok := withoutExternal(ms, of.external)
			switch {
			case !ok:
			case of.lost == nil:
				groups[of.key] = append(groups[of.key], q.Select(ctx, true, hints, ms...))
			default:
				set := q.Select(ctx, true, hints, Selection{}.selectors()[0]...)
				groups[of.key] = append(groups[of.key], matchingSet{set, Selection{Matchers: [][]*labels.Matcher{ms}}})
			}
		}
	}
	all := &chain{}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		all.sets = append(all.sets, mergeSets(groups[key], merge[key]))
		all.external = append(all.external, external[key])
	}
	r.ChunkSeriesSet = all
	return r, nil
}

// in returns the blocks that a unit is read from.
func (b *Blocks) in(u Unit) (of []*block) {
	byKey := make(map[string][]*block)
	for _, found := range b.all {
		if found.meta.MinTime < u.Limit && found.meta.MaxTime > u.Start && (u.Rolled || found.span() == 0) {
			byKey[found.key] = append(byKey[found.key], found)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		of = append(of, chosen(byKey[key], u.Start, u.Limit)...)
	}
	return of
}

// Close implements Source.
func (b *Blocks) Close() (err error) {
	for _, opened := range b.open {
		err = errors.Join(err, opened.Close())
	}
	return err
}

// selectors returns the selectors, at least one.
func (s Selection) selectors() [][]*labels.Matcher {
	if len(s.Matchers) > 0 {
		return s.Matchers
	}
	name, value := index.AllPostingsKey()
	return [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchEqual, name, value)}}
}

// withoutExternal returns the matchers on labels that are not external. It is not ok if one does not match an external label.
func withoutExternal(ms []*labels.Matcher, external labels.Labels) (rest []*labels.Matcher, ok bool) {
	for _, m := range ms {
		switch {
		case !external.Has(m.Name):
			rest = append(rest, m)
		case !m.Matches(external.Get(m.Name)):
			return nil, false
		}
	}
	if len(rest) == 0 {
		return Selection{}.selectors()[0], true
	}
	return rest, true
}

// mergeSamples merges the chunks of a series that several sets have, so that each sample is there once.
var mergeSamples = storage.NewCompactingChunkSeriesMerger(storage.ChainedSeriesMerge)

// mergeSets returns the series of sets, each once.
func mergeSets(sets []storage.ChunkSeriesSet, merge storage.VerticalChunkSeriesMergeFunc) storage.ChunkSeriesSet {
	if len(sets) == 1 {
		return sets[0]
	}
	return storage.NewMergeChunkSeriesSet(sets, 0, merge)
}

// A chain is one set after the other, each with its external labels.
type chain struct {
	storage.ChunkSeriesSet
	sets     []storage.ChunkSeriesSet
	external []labels.Labels
	at       int
}

func (c *chain) Next() bool {
	for ; c.at < len(c.sets); c.at++ {
		if c.sets[c.at].Next() {
			return true
		}
		if c.sets[c.at].Err() != nil {
			return false
		}
	}
	return false
}

func (c *chain) At() storage.ChunkSeries {
	s, external := c.sets[c.at].At(), c.external[c.at]
	if external.IsEmpty() {
		return s
	}
	b := labels.NewBuilder(s.Labels())
	external.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
	return &storage.ChunkSeriesEntry{Lset: b.Labels(), ChunkIteratorFn: s.Iterator}
}

func (c *chain) Err() error {
	if c.at < len(c.sets) {
		return c.sets[c.at].Err()
	}
	return nil
}
