package request

import (
	"context"
	"time"

	upstream "github.com/prometheus/prometheus/util/gate"
	"golang.org/x/sync/semaphore"
)

// Gate lets a number of requests run at once and makes others wait. It is safe
// for concurrent use.
type Gate struct {
	slots   *upstream.Gate
	maxWait time.Duration
}

// NewGate returns a Gate of n slots, for which a request waits up to maxWait.
func NewGate(n int, maxWait time.Duration) *Gate {
	return &Gate{slots: upstream.New(n), maxWait: maxWait}
}

// Enter waits for a slot, until ctx ends or maxWait has passed: then the error
// is a 503 that names a time to try again. After a nil error the caller calls
// Leave.
func (g *Gate) Enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, g.maxWait)
	defer cancel()
	if g.slots.Start(ctx) != nil {
		return errOverloaded
	}
	return nil
}

// Leave frees the slot of a request.
func (g *Gate) Leave() { g.slots.Done() }

// ByteGate bounds the bytes of all requests that run. Others wait, in the order
// in which they come. It is safe for concurrent use.
type ByteGate struct {
	total   int64
	free    *semaphore.Weighted
	maxWait time.Duration
}

// NewByteGate returns a ByteGate of total bytes, for which a request waits up to
// maxWait.
func NewByteGate(total int, maxWait time.Duration) *ByteGate {
	return &ByteGate{total: int64(total), free: semaphore.NewWeighted(int64(total)), maxWait: maxWait}
}

// A Reservation is what one request has reserved of a ByteGate. A nil one reserves
// nothing and never waits.
type Reservation struct {
	Gate *ByteGate
	n    int64
}

// Take waits for n bytes, or for all bytes of the gate if n is more, until ctx ends
// or maxWait has passed: then the error is a 503. It is called once: a second call
// could wait for the bytes of the first.
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

// Release gives back what was reserved, if anything.
func (c *Reservation) Release() {
	if c != nil {
		c.Gate.free.Release(c.n)
		c.n = 0
	}
}
