package seal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
)

const (
	// maxLate is how many cells of l one mutation deletes. The others stay for the next
	// mutation.
	maxLate = 40_000
	// maxOps is Bigtable's limit for operations on a row.
	maxOps = 100_000
)

// errFence says that a raw family holds samples that it must not: the clock of their
// writer, or ours, is wrong.
var errFence = errors.New("a raw family that is to be sealed has samples of a window that is not")

// errTooMany says that a row cannot be sealed with one mutation.
var errTooMany = errors.New("sealing the row takes too many operations")

// A plan is how to seal a row.
type plan struct {
	// ops are nil if there is nothing to seal.
	ops []bucketstore.Op
	// isWide says that there are cells to seal from start on, before the chunks that were
	// read: the row must be read again from there.
	isWide bool
	start  int64
	// more says that cells of l remain to be sealed.
	more bool
	// deleted counts deleted raw cells, chunks new chunks.
	deleted, chunks int
}

// A rowSealer plans one row after another. Plans do not refer to the cells of the row.
type rowSealer struct {
	slot slot
	// maxLate is the constant, or less in tests.
	maxLate int
	samples merge.Row
	encoder bucketstore.ChunkEncoder
	windows []window
	chunks  []chunkCell
	// waiting are the windows with cells in the raw families of other slots.
	waiting map[int64]bool
}

// A window is the cells of a row in one window to be sealed.
type window struct {
	start     int64
	late, raw []bucketstore.Cell
	chunks    []chunkCell
}

type chunkCell struct {
	qualifier []byte
	chunk.Sealed
}

// plan says how to seal the row of the bucket at base. cells were read when our clock said
// readAt: all of the raw family of the slot, and at least those of the other families from
// start to the limit of the slot. Both are in milliseconds.
func (r *rowSealer) plan(base, start, readAt int64, cells []bucketstore.Cell) (p plan, err error) {
	if err := r.check(base, cells); err != nil {
		return p, err
	}
	chunks, late, raw := r.split(base, readAt-grace, cells)
	if len(late)+len(raw) == 0 {
		return p, nil
	}
	if p.start = windowOf(base, first(late, raw)); p.start < start {
		p.isWide = true
		return p, nil
	}
	if err := r.parse(chunks); err != nil {
		return p, err
	}
	r.divide(base, late, raw)
	if err := r.seal(&p, base, readAt); err != nil {
		return plan{}, err
	}
	if len(raw) > 0 {
		p.ops = append(p.ops, bucketstore.Op{Kind: bucketstore.DeleteFamily, Family: r.slot.family()})
	}
	if len(p.ops) > maxOps {
		return plan{}, fmt.Errorf("%w: %d", errTooMany, len(p.ops))
	}
	return p, nil
}

// check checks the qualifiers of raw cells, and that none is of a later window.
func (r *rowSealer) check(base int64, cells []bucketstore.Cell) error {
	for _, c := range cells {
		if c.Family == series.FamilyChunk {
			continue
		}
		delta, err := series.ParseQualifier(c.Qualifier)
		if err != nil {
			return fmt.Errorf("family %s: %w", c.Family, err)
		}
		if t := base + int64(delta); t >= r.slot.limit() {
			return fmt.Errorf("%w: family %s, sample at %d", errFence, c.Family, t)
		}
	}
	return nil
}

// split divides the cells of a row, which are in order of families. It leaves out late
// cells that came at cut or after. It also leaves out late cells of windows with cells in
// another raw family, which has missed its slot: these win over a chunk, and late cells
// must win over them.
func (r *rowSealer) split(base, cut int64, cells []bucketstore.Cell) (chunks, late, raw []bucketstore.Cell) {
	family := r.slot.family()
	clear(r.waiting)
	for len(cells) > 0 {
		n := 1
		for n < len(cells) && cells[n].Family == cells[0].Family {
			n++
		}
		part := cells[:n:n]
		switch cells = cells[n:]; part[0].Family {
		case series.FamilyChunk:
			chunks = part
		case series.FamilyLate:
			late = part
		case family:
			raw = part
		default:
			for _, c := range part {
				r.waiting[windowOf(base, c.Qualifier)] = true
			}
		}
	}
	return chunks, without(late, func(c bucketstore.Cell) bool { return c.Time >= cut || r.waiting[windowOf(base, c.Qualifier)] }), raw
}

// without returns the cells for which del is false. It copies cells only if it leaves some
// out.
func without(cells []bucketstore.Cell, del func(bucketstore.Cell) bool) []bucketstore.Cell {
	if !slices.ContainsFunc(cells, del) {
		return cells
	}
	return slices.DeleteFunc(slices.Clone(cells), del)
}

// first returns the smallest qualifier.
func first(late, raw []bucketstore.Cell) []byte {
	if len(raw) == 0 || len(late) > 0 && bytes.Compare(late[0].Qualifier, raw[0].Qualifier) < 0 {
		return late[0].Qualifier
	}
	return raw[0].Qualifier
}

// windowOf returns the start of the window of a qualifier that was checked.
func windowOf(base int64, qualifier []byte) int64 {
	delta, _ := series.ParseQualifier(qualifier)
	return series.WindowOf(base + int64(delta))
}

func (r *rowSealer) parse(cells []bucketstore.Cell) error {
	r.chunks = r.chunks[:0]
	for _, c := range cells {
		sealed, err := chunk.Parse(c.Qualifier, c.Value)
		if err != nil {
			return err
		}
		r.chunks = append(r.chunks, chunkCell{c.Qualifier, sealed})
	}
	return nil
}

// divide makes the windows to be sealed, ascending, each with its chunks.
func (r *rowSealer) divide(base int64, late, raw []bucketstore.Cell) {
	r.windows = r.windows[:0]
	chunks := r.chunks
	for len(late)+len(raw) > 0 {
		w := window{start: windowOf(base, first(late, raw))}
		w.late, late = cutWindow(base, w.start, late)
		w.raw, raw = cutWindow(base, w.start, raw)
		begin, end := w.start-base, w.start-base+series.Window
		for len(chunks) > 0 && int64(chunks[0].First) < begin {
			chunks = chunks[1:]
		}
		n := 0
		for n < len(chunks) && int64(chunks[n].First) < end {
			n++
		}
		w.chunks, chunks = chunks[:n], chunks[n:]
		r.windows = append(r.windows, w)
	}
}

// cutWindow divides cells at the end of the window that begins at start.
func cutWindow(base, start int64, cells []bucketstore.Cell) (inside, rest []bucketstore.Cell) {
	n := 0
	for n < len(cells) && windowOf(base, cells[n].Qualifier) == start {
		n++
	}
	return cells[:n], cells[n:]
}

// seal plans the windows. Windows with raw cells come first: they must all be in this
// mutation, because it deletes their family. Then come other windows, as many as fit.
//
// Cells of l whose deletion does not fit stay until the next mutation, but are in the
// chunk. The chunk must have all cells up to its stamp; otherwise another sealer's chunk
// that has them could lose to it.
func (r *rowSealer) seal(p *plan, base, readAt int64) error {
	slices.SortStableFunc(r.windows, func(a, b window) int {
		switch {
		case (len(a.raw) > 0) == (len(b.raw) > 0):
			return 0
		case len(a.raw) > 0:
			return -1
		}
		return 1
	})
	room := r.maxLate
	for i := range r.windows {
		w := &r.windows[i]
		fit := min(len(w.late), room)
		if p.more = p.more || fit < len(w.late); fit+len(w.raw) == 0 {
			continue
		}
		before := *p
		if err := r.window(p, w, base, readAt, fit); err != nil {
			return fmt.Errorf("window from %d on: %w", w.start, err)
		}
		if len(p.ops) >= maxOps && len(w.raw) == 0 && len(before.ops) > 0 {
			*p = before
			p.more = true
			break
		}
		room -= fit
	}
	return nil
}

// window plans one window. The first fit cells of l are deleted.
func (r *rowSealer) window(p *plan, w *window, base, readAt int64, fit int) error {
	stamp := readAt
	r.samples.Reset(base, w.start, w.start+series.Window, merge.Options{})
	for _, c := range w.chunks {
		stamp = max(stamp, c.Stamp)
		r.samples.AddChunk(c.Sealed)
	}
	for _, cells := range [][]bucketstore.Cell{w.late, w.raw} {
		for _, c := range cells {
			if err := r.samples.AddRaw(c.Family, c.Qualifier, c.Value); err != nil {
				return err
			}
		}
	}
	sealed, err := r.encoder.Encode(&r.samples, stamp)
	if err != nil {
		return err
	}
	p.deleted += fit + len(w.raw)
	p.chunks += len(sealed)
	p.ops = appendOps(p.ops, sealed, w.chunks)
	for _, c := range w.late[:fit] {
		p.ops = append(p.ops, bucketstore.Op{
			Kind: bucketstore.DeleteColumnBefore, Family: series.FamilyLate, Qualifier: bytes.Clone(c.Qualifier), Time: readAt - grace,
		})
	}
	return nil
}

// appendOps appends the operations that set the chunks of a window and delete those they
// replace.
func appendOps(ops []bucketstore.Op, sealed []bucketstore.Cell, replaced []chunkCell) []bucketstore.Op {
	for _, c := range sealed {
		ops = append(ops, c.SetOp())
	}
	for _, c := range replaced {
		isSet := func(s bucketstore.Cell) bool { return bytes.Equal(s.Qualifier, c.qualifier) }
		if !slices.ContainsFunc(sealed, isSet) {
			ops = append(ops, bucketstore.Op{Kind: bucketstore.DeleteColumn, Family: series.FamilyChunk, Qualifier: bytes.Clone(c.qualifier)})
		}
	}
	return ops
}
