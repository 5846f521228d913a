package seal

import (
	"time"

	"github.com/promtable/promtable/series"
)

// The fence: why a sealer may delete a raw family, which also deletes what came
// after the read, and why nobody sees a difference.
//
// Assume that no two clocks differ by more than skew, 10 minutes, and that a
// write is over, one way or the other, at most a minute after it was made: writers
// and the sealer give their requests deadlines, by the wall clock, and a request
// that is sent again keeps its deadline. skew and a minute on both sides leave
// three minutes of grace, which is 15.
//
// Let w be the window of the sealer's clock, and F the family (w-2)&3. F is taken
// only while that clock is at least grace from both ends of w.
//
//   - Before the read of a row all that was ever meant for F is there. Who writes to
//     F writes samples of window w-2 (or w-6 ...), by a clock in w-1 or before. When
//     the sealer's clock is grace into w, each clock has been in w for longer than a
//     write takes.
//   - Until the mutation is over nobody writes to F. The next to do so is a clock
//     in w+1, with samples of w+2. The mutation is sent by a clock at least grace
//     before the end of w, and over a minute later: then no clock is in w+1.
//
// So between read and mutation F is what was read, and to delete it deletes what
// is in the chunks. A sealer that stalls after its read finds out by the clock,
// which it looks at after it has renewed its lease and before it sends; one that
// stalls behind this last look is stopped by the deadline of the request, which is
// a time of the wall clock and not a distance: it has passed when a machine wakes
// up, and then no request is sent and no answer to a late one is carried out.
// That is all that stands between a stall in that place and the family of a later
// window, so the deadline must never be loosened on the way.
//
// Cells of l are written all the time, with the time of their arrival by the clock
// of the writer. A read when the sealer's clock says R merges those with times
// before cut = R - grace.
//
//   - All of them are there: their writes were made when the sealer's clock was at
//     most cut + skew, more than a minute before R.
//   - A cell that comes later has a time of at least R - skew, so that the deletion
//     of cells before cut spares it, and it wins over the chunk.
//
// They are merged only into windows that have no cells in raw families other than
// F: a family that has missed its turn keeps its cells, which win over chunks, until
// the next one, and so do those of l that win over them. Where one mutation cannot
// delete all that are merged it deletes some; the rest are sealed again by the next.
//
// A new sample of a window up to w-2 goes to l for good: by the first point no write
// to a raw family is left that could come after it. So all that a chunk of this read has is what
// counted at cut, or in F; a read with a later R knows all of that and more. The
// stamp of a chunk is R, or the greatest stamp of the chunks in it if that is more
// (another sealer's clock was ahead): whatever order mutations of several sealers
// come in, the chunk that counts is one that knows most. A mutation deletes only
// chunks whose samples are all in those that it sets, each by its qualifier, which
// names its bytes. So two sealers at once, or a mutation that comes late, leave
// more chunks than needed and no wrong sample. The lease saves work; no answer
// depends on it.
//
// Nobody else may write chunks of these windows with stamps of their own: a buffer
// does, and excludes sealing, see Clock.
//
// A row mutation is atomic, and whoever dies before or after it leaves a row that
// is as good as any other. The next turn of a family comes four windows later.
const (
	// grace is how far from the end of a window, and how old a cell of l, in
	// milliseconds.
	grace = int64(15 * time.Minute / time.Millisecond)
	// skew is how far clocks may be apart, in milliseconds.
	skew = int64(10 * time.Minute / time.Millisecond)
	// mutationTime is how long a mutation may take.
	mutationTime = time.Minute
	// freshness is how long after a read its mutation may be sent, in milliseconds.
	// Nothing above needs it: it makes a clock that was set in between less likely
	// to have gone unnoticed.
	freshness = int64(5 * time.Minute / time.Millisecond)
)

// A turn is the time in which a raw family may be sealed.
type turn struct {
	// window is the start of the newest window that is sealed, in milliseconds:
	// that of two windows before the clock.
	window int64
}

// turnAt returns the turn of a time in milliseconds. ok is false while there is
// none.
func turnAt(now int64) (t turn, ok bool) {
	in := now - series.WindowOf(now)
	t.window = now - in - 2*series.Window
	return t, t.window >= 0 && in >= grace && in <= series.Window-grace
}

// nextTurn returns when the next turn begins, or now if one is under way.
func nextTurn(now int64) int64 {
	if _, ok := turnAt(now); ok {
		return now
	}
	begin := series.WindowOf(now) + grace
	if begin < now {
		begin += series.Window
	}
	return max(begin, 2*series.Window+grace)
}

// limit is the end of the windows that are sealed, in milliseconds.
func (t turn) limit() int64 { return t.window + series.Window }

// end is how long the turn lasts, in milliseconds, inclusive.
func (t turn) end() int64 { return t.window + 3*series.Window - grace }

// family is the raw family that is sealed.
func (t turn) family() string { return series.RawFamily(t.window, t.window) }

// isOpen says whether now lies in the turn.
func (t turn) isOpen(now int64) bool {
	other, ok := turnAt(now)
	return ok && other == t
}

// isFresh says whether what was read at one time may be written at another.
func isFresh(readAt, now int64) bool { return readAt <= now && now-readAt <= freshness }
