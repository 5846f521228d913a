package eval

import (
	"context"
	"sync/atomic"
	"time"
)

// Cores are tokens that queries hold while they compute, so that they leave a core to writes: one token less than there
// are cores, and at least one. A query that runs alone has the last core, too.
//
// A token is held for about a millisecond, or for one long series, and never while its holder waits: neither for the store, nor for another token, nor
// for a goroutine. So every holder gives its token back, whatever others do. Waiters come in their order. It is safe for
// concurrent use.
type Cores struct {
	// tokens and last have an element for each token that is held. That of last is for a query that runs alone.
	tokens, last chan struct{}
	queries      atomic.Int64
	waited       atomic.Int64
	// batchCost is what a batch of series should cost.
	batchCost int
}

// newCores returns the tokens of so many cores.
func newCores(count int) *Cores {
	c := &Cores{tokens: make(chan struct{}, max(1, count-1)), batchCost: batchCost}
	if count > 1 {
		c.last = make(chan struct{}, 1)
	}
	return c
}

// count returns how many goroutines compute at the same time at most.
func (c *Cores) count() int { return cap(c.tokens) + cap(c.last) }

// Waited returns for how long goroutines have waited for tokens, all together.
func (c *Cores) Waited() time.Duration { return time.Duration(c.waited.Load()) }

// coresKey is the key of *Cores in a context.
type coresKey struct{}

// with returns a context for a query, which runs up to the call of the function.
func (c *Cores) with(ctx context.Context) (context.Context, func()) {
	c.queries.Add(1)
	return context.WithValue(ctx, coresKey{}, c), func() { c.queries.Add(-1) }
}

// take waits for a token. It is given back by a receive from the channel. The error is that of ctx.
func (c *Cores) take(ctx context.Context) (held <-chan struct{}, err error) {
	last := c.last
	if c.queries.Load() > 1 {
		last = nil
	}
	select {
	case c.tokens <- struct{}{}:
		return c.tokens, nil
	case last <- struct{}{}:
		return c.last, nil
	default:
	}
	begun := time.Now()
	defer func() { c.waited.Add(int64(time.Since(begun))) }()
	select {
	case c.tokens <- struct{}{}:
		return c.tokens, nil
	case last <- struct{}{}:
		return c.last, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Computing returns what runs a function with a token of the query of ctx, or nil if there is no query. The function must not wait. The
// error is that of the function, or that of the context if it ends before.
func Computing(ctx context.Context) func(context.Context, func() error) error {
	c, ok := ctx.Value(coresKey{}).(*Cores)
	if !ok {
		return nil
	}
	return c.compute
}

// compute runs fn with a token.
func (c *Cores) compute(ctx context.Context, fn func() error) error {
	held, err := c.take(ctx)
	if err != nil {
		return err
	}
	defer func() { <-held }()
	return fn()
}
