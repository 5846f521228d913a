package remote

import (
	"context"
	"time"

	upstream "github.com/prometheus/prometheus/util/gate"
	"golang.org/x/sync/semaphore"
)

// gate lets a number of requests through at once and makes others wait.
type gate struct {
	slots   *upstream.Gate
	maxWait time.Duration
}

func newGate(n int, maxWait time.Duration) *gate {
	return &gate{slots: upstream.New(n), maxWait: maxWait}
}

// enter waits for a slot, until ctx ends or maxWait has passed: then the error
// is errOverloaded. Whoever has entered leaves.
func (g *gate) enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, g.maxWait)
	defer cancel()
	if g.slots.Start(ctx) != nil {
		return errOverloaded
	}
	return nil
}

func (g *gate) leave() { g.slots.Done() }

// byteGate lets requests of so many bytes, all together, through at once and
// makes others wait, in the order in which they come.
type byteGate struct {
	total   int64
	free    *semaphore.Weighted
	maxWait time.Duration
}

func newByteGate(total int, maxWait time.Duration) *byteGate {
	return &byteGate{total: int64(total), free: semaphore.NewWeighted(int64(total)), maxWait: maxWait}
}

// A claim is what one request has taken of a byteGate. A nil one takes nothing
// and never waits.
type claim struct {
	gate *byteGate
	n    int64
}

// take waits for n bytes, until ctx ends or maxWait has passed: then the error
// is errOverloaded. Who asks for more than there are gets all of them. It is
// called once: who waits for more with some in hand may wait for itself.
func (c *claim) take(ctx context.Context, n int) error {
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.gate.maxWait)
	defer cancel()
	want := min(int64(n), c.gate.total)
	if c.gate.free.Acquire(ctx, want) != nil {
		return errOverloaded
	}
	c.n = want
	return nil
}

// release gives back what was taken, if anything was.
func (c *claim) release() {
	if c != nil {
		c.gate.free.Release(c.n)
		c.n = 0
	}
}
