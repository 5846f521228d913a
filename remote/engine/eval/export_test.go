package eval

import "context"

// SetCores makes e compute on so many cores, with batches of series that cost so much.
func (e *Engine) SetCores(count, batchCost int) *Engine {
	e.cores = newCores(count)
	e.cores.batchCost = batchCost
	return e
}

// NewCores returns the tokens of so many cores.
func NewCores(count int) *Cores { return newCores(count) }

// With returns a context for a query, which runs up to the call of the function.
func (c *Cores) With(ctx context.Context) (context.Context, func()) { return c.with(ctx) }
