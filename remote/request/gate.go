package request

import (
	"context"
	"time"

	upstream "github.com/prometheus/prometheus/util/gate"
	"golang.org/x/sync/semaphore"
)

// Gate lets a number of requests through at once and makes others wait.
type Gate struct {
	slots   *upstream.Gate
	maxWait time.Duration
}

func NewGate(n int, maxWait time.Duration) *Gate {
	return &Gate{slots: upstream.New(n), maxWait: maxWait}
}

// Enter waits for a slot, until ctx ends or maxWait has passed: then the error
// is errOverloaded. Whoever has entered leaves.
func (g *Gate) Enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, g.maxWait)
	defer cancel()
	if g.slots.Start(ctx) != nil {
		return errOverloaded
	}
	return nil
}

func (g *Gate) Leave() { g.slots.Done() }

// ByteGate lets requests of so many bytes, all together, through at once and
// makes others wait, in the order in which they come.
type ByteGate struct {
	total   int64
	free    *semaphore.Weighted
	maxWait time.Duration
}

func NewByteGate(total int, maxWait time.Duration) *ByteGate {
	return &ByteGate{total: int64(total), free: semaphore.NewWeighted(int64(total)), maxWait: maxWait}
}

// A Reservation is what one request has taken of a byteGate. A nil one takes nothing
// and never waits.
type Reservation struct {
	Gate *ByteGate
	n    int64
}

// Take waits for n bytes, until ctx ends or maxWait has passed: then the error
// is errOverloaded. Who asks for more than there are gets all of them. It is
// called once: who waits for more with some in hand may wait for itself.
func (c *Reservation) Take(ctx context.Context, n int) error {
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.Gate.maxWait)
	defer cancel()
	want := min(int64(n), c.Gate.total)
	if c.Gate.free.Acquire(ctx, want) != nil {
		return errOverloaded
	}
	c.n = want
	return nil
}

// Release gives back what was taken, if anything was.
func (c *Reservation) Release() {
	if c != nil {
		c.Gate.free.Release(c.n)
		c.n = 0
	}
}
