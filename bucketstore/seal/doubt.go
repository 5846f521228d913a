package seal

import (
	"fmt"
	"time"
)

// When our clock is in doubt.
//
// If a mark has changed between two reads of META/clock, which began at a and ended
// at b by our clock, it was written in between. If it says t, its clock is ahead of
// ours by t-b at least and by t-a at most; negative is behind. Our clock is in doubt
//
//   - until two reads have succeeded;
//   - while another clock is certainly more than maxSkew ahead or behind;
//   - while a mark that was there at our first read has not changed, and when one
//     has changed between reads more than maxInterval apart: this tells too little
//     of its clock;
//   - while the last comparison began more than maxSilence ago;
//   - after our clock was set, or our machine suspended: when the last comparison is
//     not as long ago by the wall clock as by the monotonic clock. Then all begins
//     anew with a first read.
//
// A mark that has not changed for goneTime does not count until it changes: its
// process is gone, or has been in doubt for a minute at least.
//
// So of two processes whose clocks differ by more than skew one is always in doubt.
// Each writes its mark before it reads, so one of them, say B, has the mark of the
// other, A, in its first read. B is in doubt until that mark changes, and then because of
// what it says. If it does not change for goneTime, B may be in no doubt; but then
// A is. When A compares again, the mark of B has changed between reads too far apart:
// A is where B was.
//
// When doubt ends beside others, it does so a minute after the comparison. A clock
// that was wrong, with nothing to compare it with, may have been set right since
// our first read, and what its process did before is over then.
//
// What all clocks have wrong alike does no harm and is not noticed. The store has
// a clock, too, but no way to ask for it.
const (
	// maxSkew is how far ahead or behind another clock may certainly be.
	maxSkew = 5 * time.Minute
	// maxInterval is how far apart the reads are between which a mark changes, if it
	// is to tell anything: so far may the clock be off in addition.
	maxInterval = 3 * time.Minute
	// maxStep is how far our clock may be set, or our machine be suspended, without
	// doubt. Twice that, for two clocks, and a minute that the write of a mark may take,
	// are the rest of skew.
	maxStep = 30 * time.Second
	// maxSilence is how long a comparison counts.
	maxSilence = 5 * time.Minute
	// goneTime is a minute more than what a process without doubt does last can take.
	goneTime = maxSilence + 2*mutationTime
)

// errPending is an ErrClock of a clock that was not compared yet.
var errPending = fmt.Errorf("%w: it is not compared with all others yet", ErrClock)

// A reading is what clocks said at one moment.
type reading struct {
	// wall has no monotonic part.
	wall time.Time
	// up is a monotonic time. It stands still while the machine is suspended.
	up time.Duration
}

func (r reading) add(d time.Duration) reading { return reading{r.wall.Add(d), r.up + d} }

// A comparison is what is known of our clock and others.
type comparison struct {
	// reads is how many reads have succeeded, up to two.
	reads int
	// begun is when the last one began, the write before it included.
	begun reading
	// others are by column of META/clock.
	others map[string]*otherClock
	// doubt is why our clock is in doubt, an ErrClock, or nil. It changes back to
	// nil only with a comparison.
	doubt error
	// since is when our clock came out of doubt. It may be a minute ahead.
	since reading
}

// otherClock is what is known of the clock of another process.
type otherClock struct {
	// time is what its mark says, in milliseconds, and seen when we saw that first,
	// a monotonic time.
	time int64
	seen time.Duration
	// skew is how far it is certainly ahead of ours, or behind if it is negative.
	skew time.Duration
	// isKnown says that skew is right within maxInterval.
	isKnown    bool
	isBuffered bool
}

func newComparison() comparison {
	return comparison{others: make(map[string]*otherClock), doubt: errPending}
}

// learn takes the marks of the others, which were read between two readings of our
// clock.
func (c *comparison) learn(marks map[string]clockCell, begun, ended reading) {
	_ = c.doubtAt(ended)
	wasInDoubt := c.doubt != nil
	from, isKnown := time.Time{}, false
	if c.reads > 0 {
		from, isKnown = c.begun.wall, ended.up-c.begun.up <= maxInterval
	}
	for id := range c.others {
		if _, ok := marks[id]; !ok {
			delete(c.others, id)
		}
	}
	for id, m := range marks {
		if o := c.others[id]; o == nil || o.time != m.Time {
			c.others[id] = &otherClock{m.Time, ended.up, skewOf(m.Time, from, ended.wall), isKnown, m.Buffered}
		}
	}
	c.reads, c.begun = min(c.reads+1, 2), begun
	if c.doubt = c.compare(ended); c.doubt == nil && wasInDoubt {
		c.since = ended
		if len(c.others) > 0 {
			c.since = ended.add(mutationTime)
		}
	}
}

// skewOf returns how far a clock is certainly ahead that said t, in milliseconds,
// between two times by ours.
func skewOf(t int64, begun, ended time.Time) time.Duration {
	switch said := time.UnixMilli(t); {
	case said.After(ended):
		return said.Sub(ended)
	case said.Before(begun):
		return said.Sub(begun)
	}
	return 0
}

// compare returns why our clock is in doubt after a comparison that ended now.
func (c *comparison) compare(now reading) error {
	isKnown := c.reads == 2
	for _, o := range c.others {
		if now.up-o.seen > goneTime {
			o.skew, o.isKnown = 0, true
		}
		isKnown = isKnown && o.isKnown
	}
	switch skew := c.largest(); {
	case skew.Abs() > maxSkew:
		return fmt.Errorf("%w: that of another adapter is %s ahead of it", ErrClock, skew)
	case !isKnown:
		return errPending
	}
	return nil
}

// largest returns the largest skew.
func (c *comparison) largest() (largest time.Duration) {
	for _, o := range c.others {
		if o.skew.Abs() > largest.Abs() {
			largest = o.skew
		}
	}
	return largest
}

// doubtAt returns why our clock is in doubt now, or nil.
func (c *comparison) doubtAt(now reading) error {
	if c.reads == 0 {
		return c.doubt
	}
	up := now.up - c.begun.up
	switch step := now.wall.Sub(c.begun.wall) - up; {
	case step.Abs() > maxStep:
		*c = newComparison()
		c.doubt = fmt.Errorf("%w: it was set, or the machine suspended, by %s", errPending, step)
	case c.doubt == nil && up > maxSilence:
		c.doubt = fmt.Errorf("%w: no comparison in the last %s", ErrClock, maxSilence)
	case c.doubt == nil && now.up < c.since.up:
		return errPending
	}
	return c.doubt
}
