package eval

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
)

// Memory bounds what queries hold, in bytes: samples that are read and kept, results, and what Lend counts.
// It is safe for concurrent use.
type Memory struct {
	perQuery, total int64
	held            atomic.Int64
}

// counted is how much of the total is given away, in bytes. A quarter is for what is not counted: buffers that compress answers,
// what decoders leave, and the difference between an object and the memory that Go takes for it.
func (m *Memory) counted() int64 { return m.total - m.total/4 }

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

// A holder is what one query holds, and what it has lent.
type holder struct {
	memory *Memory
	// listed counts the same where the query is listed. It may be nil.
	listed *atomic.Int64
	// check is that of WithHeld.
	check      func(bytes, more int64) error
	mu         sync.Mutex
	held, lent int64
	ended      bool
}

// add counts more bytes, and returns what the query and all queries hold then. After its end a query holds nothing: what it
// reads in the background may go on for a moment.
func (h *holder) add(held, lent int64) (query, all int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return 0, 0
	}
	h.held, h.lent = h.held+held, h.lent+lent
	return h.held, h.count(held + lent)
}

// count counts more bytes for all queries, and returns what these hold then.
func (h *holder) count(bytes int64) (all int64) {
	if h.listed != nil {
		h.listed.Add(bytes)
	}
	return h.memory.held.Add(bytes)
}

func (h *holder) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count(-h.held - h.lent)
	h.held, h.lent, h.ended = 0, 0, true
}

// holderKey is the key of a holder in a context.
type holderKey struct{}

// With returns a context for a query, whose memory counts up to the call of the function.
func (m *Memory) With(ctx context.Context) (context.Context, func()) {
	listed, _ := ctx.Value(heldKey{}).(listed)
	h := &holder{memory: m, listed: listed.held, check: listed.check}
	return context.WithValue(ctx, holderKey{}, h), h.end
}

// heldKey is the key of a listed in a context.
type heldKey struct{}

type listed struct {
	held  *atomic.Int64
	check func(bytes, more int64) error
}

// WithHeld returns a context in which held follows what queries hold and have lent, in bytes, from their call of With on. check,
// unless it is nil, is asked whether a query may hold so many bytes and then more; its error ends the query.
func WithHeld(ctx context.Context, held *atomic.Int64, check func(bytes, more int64) error) context.Context {
	return context.WithValue(ctx, heldKey{}, listed{held, check})
}

// Hold notes that the query of ctx holds so many more bytes for a selector, up to its end.
// The error is ErrMemory or ErrBusy.
func Hold(ctx context.Context, bytes int, selector string) error {
	h, ok := ctx.Value(holderKey{}).(*holder)
	if !ok {
		return nil
	}
	m := h.memory
	query, all := h.add(int64(bytes), 0)
	switch {
	case m.perQuery > 0 && query > m.perQuery:
		return fmt.Errorf("%w: more than %d bytes at %s: see --query.max-memory-bytes", ErrMemory, m.perQuery, selector)
	case m.total > 0 && all > m.counted():
		return fmt.Errorf("%w: more than %d bytes together, at %s: see --query.max-total-memory-bytes", ErrBusy, m.total, selector)
	case h.check != nil:
		return h.check(query-int64(bytes), int64(bytes))
	}
	return nil
}

// Lend notes that so many bytes more are in use for the query of ctx, or fewer if bytes is negative, at
// the latest up to its end: what it has read and not looked at, what Prometheus' engine works with, and its answer.
// They count for all queries together, not for one. The error is ErrBusy, or ErrMemory if that is more than all may hold.
func Lend(ctx context.Context, bytes int, what string) error {
	h, ok := ctx.Value(holderKey{}).(*holder)
	if !ok {
		return nil
	}
	total, counted := h.memory.total, h.memory.counted()
	switch _, all := h.add(0, int64(bytes)); {
	case bytes <= 0 || total <= 0:
	case int64(bytes) > counted:
		return fmt.Errorf("%w: %d bytes for %s: see --query.max-total-memory-bytes", ErrMemory, bytes, what)
	case all > counted:
		return fmt.Errorf("%w: more than %d bytes together, at %s: see --query.max-total-memory-bytes", ErrBusy, total, what)
	}
	return nil
}

// A lendingSet counts what Prometheus' engine needs for each series: its points at all steps, and as many of the result.
type lendingSet struct {
	storage.SeriesSet
	ctx   context.Context
	steps int64
	name  string
	err   error
}

// lending counts the series of a selector that is evaluated at the steps of hints.
func lending(ctx context.Context, set storage.SeriesSet, hints *storage.SelectHints, ms []*labels.Matcher) storage.SeriesSet {
	steps := int64(1)
	if hints != nil && hints.Step > 0 {
		steps += (hints.End - hints.Start - hints.Range) / hints.Step
	}
	return &lendingSet{SeriesSet: set, ctx: ctx, steps: max(1, steps), name: (&parser.VectorSelector{LabelMatchers: ms}).String()}
}

// Next implements storage.SeriesSet.
func (s *lendingSet) Next() bool {
	if s.err != nil || !s.SeriesSet.Next() {
		return false
	}
	s.err = Lend(s.ctx, int(2*s.steps*sampleSize), s.name)
	return s.err == nil
}

// Err implements storage.SeriesSet.
func (s *lendingSet) Err() error {
	if s.err != nil {
		return s.err
	}
	return s.SeriesSet.Err()
}
