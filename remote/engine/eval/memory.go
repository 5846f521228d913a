package eval

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Memory bounds what queries hold, in bytes: samples that are read and kept, and results.
// It is safe for concurrent use.
type Memory struct {
	perQuery, total int64
	held            atomic.Int64
}

// NewMemory returns a bound on each query and on all together. 0 is no bound.
func NewMemory(perQuery, total int64) *Memory { return &Memory{perQuery: perQuery, total: total} }

// Held returns what all queries hold, in bytes.
func (m *Memory) Held() int64 { return m.held.Load() }

// ErrMemory marks a query that would hold more than one may. ErrBusy marks one that found no
// memory, because others hold too much.
var (
	ErrMemory = errors.New("query holds too much memory")
	ErrBusy   = errors.New("queries hold too much memory, try again later")
)

// A holder is what one query holds.
type holder struct {
	memory *Memory
	held   atomic.Int64
}

// holderKey is the key of a holder in a context.
type holderKey struct{}

// With returns a context for a query, whose memory counts up to the call of the function.
func (m *Memory) With(ctx context.Context) (context.Context, func()) {
	h := &holder{memory: m}
	return context.WithValue(ctx, holderKey{}, h), func() { m.held.Add(-h.held.Load()) }
}

// Hold notes that the query of ctx holds so many more bytes for a selector, up to its end.
// The error is ErrMemory or ErrBusy.
func Hold(ctx context.Context, bytes int, selector string) error {
	h, ok := ctx.Value(holderKey{}).(*holder)
	if !ok {
		return nil
	}
	m := h.memory
	query, all := h.held.Add(int64(bytes)), m.held.Add(int64(bytes))
	switch {
	case m.perQuery > 0 && query > m.perQuery:
		return fmt.Errorf("%w: more than %d bytes at %s: see --query.max-memory-bytes", ErrMemory, m.perQuery, selector)
	case m.total > 0 && all > m.total:
		return fmt.Errorf("%w: more than %d bytes together, at %s: see --query.max-total-memory-bytes", ErrBusy, m.total, selector)
	}
	return nil
}
