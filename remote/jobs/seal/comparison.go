package seal

import (
	"fmt"
	"time"
)

// When our clock is in doubt.
//
// If a mark has changed between two reads of META/clock, which began at a and ended at b by
// our clock, it was written in between. If it says t, its clock is ahead of ours by t-b at
// least and by t-a at most; negative is behind. Our clock is in doubt
//
//   - until two reads have succeeded;
//   - while another clock is certainly more than maxSkew ahead or behind;
//   - while a mark of our first read has not changed, and when one has changed between
//     reads more than maxInterval apart: this says too little about its clock;
//   - while the last comparison began more than maxSilence ago;
//   - after our clock was set, or our machine suspended: the time since the last comparison
//     differs between the wall clock and the monotonic clock. Then the comparison starts
//     again with a first read.
//
// A mark that has not changed for exitTime does not count until it changes: its process is
// gone, or has been in doubt for at least a minute.
//
// So of two processes whose clocks differ by more than skew one is always in doubt. Each
// writes its mark before it reads, so one of them, say B, has the mark of the other, A, in
// its first read. B is in doubt until that mark changes, and then because of what it says.
// If it does not change for exitTime, B may be in no doubt; but then A is. When A compares
// again, the mark of B has changed between reads too far apart: A is in the state in which
// B began.
//
// If there are other processes, doubt ends a minute after the comparison. A clock that was
// wrong, with nothing to compare it with, may have been set right since our first read, and
// the writes that its process made before have ended then.
//
// An error that all clocks share does no harm and is not noticed. The store has a clock,
// too, but no way to read it.
const (
	// maxSkew is the certain difference of another clock that puts ours in doubt.
	maxSkew = 5 * time.Minute
	// maxInterval is the longest interval of two reads between which a change of a mark
	// counts. The difference of the clocks may be larger by that much.
	maxInterval = 3 * time.Minute
	// maxStep is how far our clock may be set, or how long our machine may be suspended,
	// without doubt. Twice that, for two clocks, and a minute for the write of a mark are
	// the rest of skew.
	maxStep = 30 * time.Second
	// maxSilence is how long a comparison counts.
	maxSilence = 5 * time.Minute
	// exitTime is a minute more than the time in which a process without doubt may still
	// write after its last mark.
	exitTime = maxSilence + 2*mutationTime
)

// errPending is an ErrClock until the clock was compared.
var errPending = fmt.Errorf("%w: it is not compared with all others yet", ErrClock)

// A reading is the time by our clocks.
type reading struct {
	// wall has no monotonic part.
	wall time.Time
	// up is a monotonic time. It stands still while the machine is suspended.
	up time.Duration
}

func (r reading) add(d time.Duration) reading { return reading{r.wall.Add(d), r.up + d} }

// A comparison is the state of the comparison of our clock with others.
type comparison struct {
	// reads counts the successful reads, up to two.
	reads int
	// started is when the last comparison began, the write before the read included.
	started reading
	// others are the other clocks, by column of META/clock.
	others map[string]*otherClock
	// doubt is why our clock is in doubt, an ErrClock, or nil. Only a comparison sets it to
	// nil.
	doubt error
	// since is when doubt ended. It may be a minute ahead.
	since reading
}

// otherClock is the clock of another process.
type otherClock struct {
	// time is the time of its mark, in milliseconds, and seen when we first saw that, as a
	// monotonic time.
	time int64
	seen time.Duration
	// skew is how far it is certainly ahead of ours, or behind if negative.
	skew time.Duration
	// isExact says that skew is right within maxInterval.
	isExact    bool
	isBuffered bool
}

func newComparison() comparison {
	return comparison{others: make(map[string]*otherClock), doubt: errPending}
}

// observe takes the marks of the others, which were read between two readings of our clock.
func (c *comparison) observe(marks map[string]clockCell, started, ended reading) {
	_ = c.errAt(ended)
	wasDoubtful := c.doubt != nil
	from, isExact := time.Time{}, false
	if c.reads > 0 {
		from, isExact = c.started.wall, ended.up-c.started.up <= maxInterval
	}
	for id := range c.others {
		if _, ok := marks[id]; !ok {
			delete(c.others, id)
		}
	}
	for id, m := range marks {
		if o := c.others[id]; o == nil || o.time != m.Time {
			c.others[id] = &otherClock{m.Time, ended.up, skewOf(m.Time, from, ended.wall), isExact, m.Buffered}
		}
	}
	c.reads, c.started = min(c.reads+1, 2), started
	if c.doubt = c.compare(ended); c.doubt == nil && wasDoubtful {
		c.since = ended
		if len(c.others) > 0 {
			c.since = ended.add(mutationTime)
		}
	}
}

// skewOf returns how far a clock is certainly ahead that said t, in milliseconds, between
// two times of our clock.
func skewOf(t int64, started, ended time.Time) time.Duration {
	switch said := time.UnixMilli(t); {
	case said.After(ended):
		return said.Sub(ended)
	case said.Before(started):
		return said.Sub(started)
	}
	return 0
}

// compare returns why our clock is in doubt after a comparison that ended now.
func (c *comparison) compare(now reading) error {
	isExact := c.reads == 2
	for _, o := range c.others {
		if now.up-o.seen > exitTime {
			o.skew, o.isExact = 0, true
		}
		isExact = isExact && o.isExact
	}
	switch skew := c.largest(); {
	case skew.Abs() > maxSkew:
		return fmt.Errorf("%w: that of another adapter is %s ahead of it", ErrClock, skew)
	case !isExact:
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

// errAt returns why our clock is in doubt now, or nil.
func (c *comparison) errAt(now reading) error {
	if c.reads == 0 {
		return c.doubt
	}
	up := now.up - c.started.up
	switch step := now.wall.Sub(c.started.wall) - up; {
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
