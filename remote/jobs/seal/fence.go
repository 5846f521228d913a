package seal

import (
	"time"

	"github.com/promtable/promtable/series"
)

// The fence: why a sealer may delete a raw family, cells written after its read included,
// and why reads see no difference.
//
// Two assumptions. First, no two clocks differ by more than skew, 10 minutes, unless one of
// them is in doubt: see comparison.go. A process whose clock is in doubt writes to l only, and
// seals nothing. Second, a write ends, successful or not, at most a minute after it was
// made: writers and the sealer give their requests deadlines by the wall clock, and a retry
// keeps its deadline. skew and a minute on both sides leave three minutes of grace, which is
// 15.
//
// Let w be the window of the sealer's clock, and F the family (w-2)&3. F is sealed only
// while that clock is at least grace from both ends of w.
//
//   - Before the read of a row all writes to F have ended. They are of samples of window w-2
//     (or w-6 ...), by a clock in w-1 or before. When the sealer's clock is grace into w,
//     each clock has been in w for longer than a write takes.
//   - Until the mutation has ended no writer writes to F. The next writer has a clock in
//     w+1, and samples of w+2. The mutation is sent at least grace before the end of w by
//     the sealer's clock, and ends within a minute: then no clock is in w+1.
//
// So between read and mutation F does not change, and what the mutation deletes of F is in
// the chunks. If a sealer stalls after its read, it sees this by the clock, which it reads
// right before it sends, after a renewal of its lease if that is due. If it stalls after
// that, the deadline of the request stops it. The deadline is a time of the wall clock, not
// a duration: it has passed when a suspended machine resumes, and then no request is sent or
// applied. Nothing else protects the family of a later window from such a stall, so the
// deadline must never be extended.
//
// Cells of l are written at all times, with the time of their arrival by the clock of the
// writer. A read at R, by the sealer's clock, merges the cells with times before
// cut = R - grace.
//
//   - All of them are there: their writes were made when the sealer's clock was at most
//     cut + skew, more than a minute before R.
//   - A cell that comes later has a time of at least R - skew. So the deletion of cells
//     before cut spares it, and it wins over the chunk.
//
// They are merged only into windows without cells in raw families other than F. A family
// that has missed its slot keeps its cells, which win over chunks, until its next slot, and
// so do the cells of l that win over them. If one mutation cannot delete all merged cells
// it deletes some; the next mutation seals the rest again.
//
// The clock of a writer in doubt may be behind, so that its cell of l comes between read
// and mutation with a time before cut. Its sample is not lost: the mutation deletes only
// columns that were read, and what was read is in the chunk. So a new sample stays in l. An
// overwrite of a sample that was read may be deleted; then the value that was read remains.
// If the clock of a writer is ahead, its cell stays in l until that time, and until then
// wins over the cells of other writers.
//
// A new sample of a window up to w-2 stays in l: by the first point no later write to a raw
// family can exist. Nor does a sample of a window that is not sealed yet go to a raw family
// if doubt has put it into l before, see Clock.RawFrom. So a chunk of this read has exactly
// the samples that counted at cut, or in F; a read with a later R has all of these and more.
//
// The stamp of a chunk is R, or the greatest stamp of the chunks in it if that is greater
// (because the clock of another sealer was ahead). So in whatever order the mutations of
// several sealers arrive, the chunk that counts is one with the most samples. A mutation
// deletes only chunks whose samples are all in the chunks that it sets; it names each by its
// qualifier, which names its bytes. So two sealers at once, or a late mutation, leave more
// chunks than needed and no wrong sample. The lease saves work; no answer depends on it. So
// it is renewed by time, not with each batch, and the workers of a sealer need nothing else
// to keep apart than rows of their own.
//
// Chunks of these windows with other stamps must not be written: a buffer does, and excludes
// sealing, see Clock.
//
// A row mutation is atomic. If a sealer dies before or after it, the row is valid. The next
// slot of a family comes four windows later.
const (
	// grace is the least distance from both ends of a window, and the least age of a cell
	// of l, in milliseconds.
	grace = int64(15 * time.Minute / time.Millisecond)
	// skew bounds the difference of two clocks, in milliseconds.
	skew = int64(10 * time.Minute / time.Millisecond)
	// mutationTime bounds a mutation.
	mutationTime = time.Minute
	// freshness is how long after a read its mutation may be sent, in milliseconds. The
	// argument above does not need it: it bounds the time in which a change of the clock
	// can go unnoticed.
	freshness = int64(5 * time.Minute / time.Millisecond)
)

// A slot is the time in which a raw family may be sealed.
type slot struct {
	// window is the start of the last window that is sealed, in milliseconds: two windows
	// before the clock.
	window int64
}

// slotAt returns the slot at a time in milliseconds. ok is false between slots.
func slotAt(now int64) (t slot, ok bool) {
	in := now & (series.Window - 1)
	t.window = now - in - 2*series.Window
	return t, t.window >= 0 && in >= grace && in <= series.Window-grace
}

// nextSlot returns when the next slot begins, or now during a slot.
func nextSlot(now int64) int64 {
	if _, ok := slotAt(now); ok {
		return now
	}
	begin := now&^(series.Window-1) + grace
	if begin < now {
		begin += series.Window
	}
	return max(begin, 2*series.Window+grace)
}

// limit is the end of the sealed windows, in milliseconds.
func (t slot) limit() int64 { return t.window + series.Window }

// end is the last millisecond of the slot.
func (t slot) end() int64 { return t.window + 3*series.Window - grace }

// family is the raw family of the slot.
func (t slot) family() string { return series.RawFamily(t.window, t.window) }

// isOpen says whether now lies in the slot.
func (t slot) isOpen(now int64) bool {
	other, ok := slotAt(now)
	return ok && other == t
}

// isFresh says whether a row read at readAt may be sealed at now.
func isFresh(readAt, now int64) bool { return readAt <= now && now-readAt <= freshness }
