package scope

import (
	"context"
	"sync"
)

// A Semaphore bounds what is held at the same time, in units such as requests or bytes. A tenant that asks alone may hold all of it. What becomes
// free goes to the one of the waiting tenants that holds least, so two that always wait hold half each; among those that hold the same, to the
// one that got something longest ago. The requests of a tenant come in their order. It is safe for concurrent use.
type Semaphore struct {
	mu          sync.Mutex
	total, held int64
	// shares are those of the tenants that hold something or wait.
	shares map[string]*share
	// waiters is how many requests wait, grants counts what was given.
	waiters int
	grants  uint64
}

// A share is what one tenant holds, and its requests that wait.
type share struct {
	held    int64
	waiting []*waiter
	// granted is the number of the last grant.
	granted uint64
}

// A waiter is a request that waits for n. It is closed when it has them.
type waiter struct {
	n     int64
	ready chan struct{}
}

// NewSemaphore returns a Semaphore with so many units.
func NewSemaphore(total int64) *Semaphore {
	return &Semaphore{total: total, shares: make(map[string]*share)}
}

// Total returns how many units there are.
func (s *Semaphore) Total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Resize changes how many units there are. If more are held, nobody gets any until enough are given back.
func (s *Semaphore) Resize(total int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total = total
	s.grant()
}

// TryAcquire takes n units for the tenant of ctx if they are free and nobody waits.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiters > 0 || s.held+n > s.total {
		return false
	}
	s.give(s.of(payer(ctx)), n)
	return true
}

// Acquire waits for n units for the tenant of ctx, at most as many as there are, and ends with the error of ctx. The caller gives them back with Release.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.TryAcquire(ctx, n) {
		return nil
	}
	name := payer(ctx)
	w := &waiter{n, make(chan struct{})}
	s.mu.Lock()
	of := s.of(name)
	of.waiting = append(of.waiting, w)
	s.waiters++
	s.grant()
	s.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.ready: // at the same time
		s.release(name, n)
	default:
		s.leave(name, w)
	}
	s.grant()
	return ctx.Err()
}

// Release gives n units of the tenant of ctx back.
func (s *Semaphore) Release(ctx context.Context, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(payer(ctx), n)
	s.grant()
}

// of returns the share of a tenant.
func (s *Semaphore) of(name string) *share {
	of := s.shares[name]
	if of == nil {
		of = new(share)
		s.shares[name] = of
	}
	return of
}

func (s *Semaphore) give(to *share, n int64) {
	s.grants++
	s.held, to.held, to.granted = s.held+n, to.held+n, s.grants
}

func (s *Semaphore) release(name string, n int64) {
	of := s.of(name)
	s.held, of.held = s.held-n, of.held-n
	s.forget(name, of)
}

// leave removes a request that waits no more.
func (s *Semaphore) leave(name string, w *waiter) {
	of := s.of(name)
	for i := range of.waiting {
		if of.waiting[i] == w {
			of.waiting = append(of.waiting[:i], of.waiting[i+1:]...)
			s.waiters--
			break
		}
	}
	s.forget(name, of)
}

// forget removes the share of a tenant that holds nothing and does not wait.
func (s *Semaphore) forget(name string, of *share) {
	if of.held == 0 && len(of.waiting) == 0 {
		delete(s.shares, name)
	}
}

// grant gives what is free to those that wait. A request that does not fit holds up the others, so that it gets its turn.
func (s *Semaphore) grant() {
	for s.waiters > 0 {
		var next *share
		for _, of := range s.shares {
			if len(of.waiting) > 0 && (next == nil || of.held < next.held || of.held == next.held && of.granted < next.granted) {
				next = of
			}
		}
		w := next.waiting[0]
		if s.held+w.n > s.total {
			return
		}
		next.waiting = next.waiting[1:]
		s.waiters--
		s.give(next, w.n)
		close(w.ready)
	}
}
