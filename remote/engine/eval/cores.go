package eval

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/promtable/promtable/remote/scope"
)

// Cores are tokens that queries hold while they compute, so that they leave a core to writes: one token less than there
// are cores, and at least one. A query that runs alone has the last core, too.
//
// A token is held for about a millisecond, or for one long series, and never while its holder waits: neither for the store, nor for another token, nor
// for a goroutine. So every holder gives its token back, whatever others do. Tenants that wait take turns, those of one come in their order. It is
// safe for concurrent use.
type Cores struct {
	cores   int
	tokens  *scope.Semaphore
	mu      sync.Mutex
	queries int
	waited  atomic.Int64
	// batchCost is what a batch of series should cost.
	batchCost int
}

// newCores returns the tokens of so many cores.
func newCores(count int) *Cores {
	return &Cores{cores: count, tokens: scope.NewSemaphore(int64(count)), batchCost: batchCost}
}

// count returns how many goroutines compute at the same time at most.
func (c *Cores) count() int { return c.cores }

// Waited returns for how long goroutines have waited for tokens, all together.
func (c *Cores) Waited() time.Duration { return time.Duration(c.waited.Load()) }

// coresKey is the key of *Cores in a context.
type coresKey struct{}

// with returns a context for a query, which runs up to the call of the function.
func (c *Cores) with(ctx context.Context) (context.Context, func()) {
	c.addQueries(1)
	return context.WithValue(ctx, coresKey{}, c), func() { c.addQueries(-1) }
}

// addQueries counts queries that run, and leaves one core if there are several.
func (c *Cores) addQueries(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queries += n
	tokens := c.cores
	if c.queries > 1 {
		tokens = max(1, c.cores-1)
	}
	c.tokens.Resize(int64(tokens))
}

// take waits for a token. The error is that of ctx.
func (c *Cores) take(ctx context.Context) error {
	if c.tokens.TryAcquire(ctx, 1) {
		return nil
	}
	begun := time.Now()
	defer func() { c.waited.Add(int64(time.Since(begun))) }()
	return c.tokens.Acquire(ctx, 1)
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
	if err := c.take(ctx); err != nil {
		return err
	}
	defer c.tokens.Release(ctx, 1)
	return fn()
}
