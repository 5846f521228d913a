package request

import (
	"context"
	"time"

	"github.com/promtable/promtable/remote/scope"
)

// Gate lets a number of requests run at once and makes others wait, with turns by tenant. It is safe
// for concurrent use.
type Gate struct {
	slots   *scope.Semaphore
	maxWait time.Duration
}

// NewGate returns a Gate of n slots, for which a request waits up to maxWait.
func NewGate(n int, maxWait time.Duration) *Gate {
	return &Gate{slots: scope.NewSemaphore(int64(n)), maxWait: maxWait}
}

// Enter waits for a slot, until ctx ends or maxWait has passed: then the error
// is a 503 that names a time to try again. After a nil error the caller calls
// Leave with the same context.
func (g *Gate) Enter(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, g.maxWait)
	defer cancel()
	if g.slots.Acquire(waiting, 1) != nil {
		return errOverloaded
	}
	return nil
}

// Leave frees the slot of a request.
func (g *Gate) Leave(ctx context.Context) { g.slots.Release(ctx, 1) }

// ByteGate bounds the bytes of all requests that run. Others wait, with turns by tenant. It is safe for concurrent use.
type ByteGate struct {
	total   int64
	free    *scope.Semaphore
	maxWait time.Duration
}

// NewByteGate returns a ByteGate of total bytes, for which a request waits up to
// maxWait.
func NewByteGate(total int, maxWait time.Duration) *ByteGate {
	return &ByteGate{total: int64(total), free: scope.NewSemaphore(int64(total)), maxWait: maxWait}
}

// A Reservation is what one request has reserved of a ByteGate. A nil one reserves
// nothing and never waits.
type Reservation struct {
	Gate *ByteGate
	ctx  context.Context // of the tenant
	n    int64
}

// Take waits for n bytes, or for all bytes of the gate if n is more, until ctx ends
// or maxWait has passed: then the error is a 503. It is called once: a second call
// could wait for the bytes of the first.
func (c *Reservation) Take(ctx context.Context, n int) error {
	if c == nil {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, c.Gate.maxWait)
	defer cancel()
	want := min(int64(n), c.Gate.total)
	if c.Gate.free.Acquire(waiting, want) != nil {
		return errOverloaded
	}
	c.ctx, c.n = ctx, want
	return nil
}

// Release gives back what was reserved, if anything.
func (c *Reservation) Release() {
	if c != nil && c.n > 0 {
		c.Gate.free.Release(c.ctx, c.n)
		c.n = 0
	}
}
