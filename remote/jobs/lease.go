package jobs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
)

const (
	// LeaseTime is how long a lease lasts without renewal, if For does not say otherwise. It is renewed after a third.
	LeaseTime = 5 * time.Minute
	// leaseSkew is how far the clock of a holder may be ahead: a lease that ends later than
	// any such clock could have set does not count.
	leaseSkew = 15 * time.Minute
)

var (
	// ErrHeld says that another process has the lease.
	ErrHeld = errors.New("another process has the lease")
	// ErrLost says that another process has taken our lease.
	ErrLost = errors.New("another process has taken the lease")
)

// A Lease is the view that a process has of a row of META that says which process does a
// work, and how far it has come. Each write is conditional on the last value read or
// written, so that a process that lost the lease cannot change it. Only Keep is safe for
// concurrent use. Changes of the state are stored when the lease is renewed or given up.
type Lease[T any] struct {
	// State is what the row has as JSON.
	State T

	store  bucketstore.Store
	key    string
	now    func() time.Time
	holder string
	token  string
	lasts  time.Duration
	// held is the part of State that is the lease.
	held *meta.Holding

	// keeping guards the fields below, and State in Keep.
	keeping sync.Mutex
	cell    meta.Cell
	// renewed is when the lease was last renewed, in milliseconds.
	renewed int64
}

// NewLease returns a lease of the row with this key, whose JSON is a T. holding returns the
// Holding in a T. holder names the process, for operators.
func NewLease[T any](store bucketstore.Store, key string, now func() time.Time, holder string, holding func(*T) *meta.Holding) *Lease[T] {
	l := &Lease[T]{store: store, key: key, now: now, holder: holder, token: rand.Text(), lasts: LeaseTime}
	l.held = holding(&l.State)
	return l
}

// For makes the lease last for a time without renewal: so long a work rests whose process has died.
func (l *Lease[T]) For(d time.Duration) *Lease[T] {
	l.lasts = d
	return l
}

// Run reads the row, takes the lease, calls work, and gives the lease up. begin, if set, is called with what
// was read, and may say that there is no work. The error is ErrHeld if another process has the lease.
func (l *Lease[T]) Run(ctx context.Context, begin func(*T) (hasWork bool), work func(ctx context.Context) error) error {
	if err := l.read(ctx); err != nil {
		return err
	}
	if begin != nil && !begin(&l.State) {
		return nil
	}
	if l.isHeld() {
		return fmt.Errorf("%w: %s, until %s", ErrHeld, l.held.Holder, time.UnixMilli(l.held.Expires).UTC().Format(time.RFC3339))
	}
	if err := l.renew(ctx); err != nil {
		if errors.Is(err, ErrLost) {
			err = fmt.Errorf("%w: it was faster", ErrHeld)
		}
		return err
	}
	err := work(ctx)
	// If it cannot be given up it expires. One that was lost is not ours to give up.
	released := l.write(context.WithoutCancel(ctx), meta.Holding{Holder: l.held.Holder})
	if err == nil && !errors.Is(released, ErrLost) {
		err = released
	}
	return err
}

// read reads the row into the state.
func (l *Lease[T]) read(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, MetaTimeout)
	defer cancel()
	if l.cell, l.State, err = meta.ReadJSON[T](ctx, l.store, l.key); err != nil {
		return fmt.Errorf("read the lease: %w", err)
	}
	return nil
}

// isHeld says whether another process has the lease. If one process has the store, a holder has died.
func (l *Lease[T]) isHeld() bool {
	now := l.now()
	latest := now.Add(LeaseTime + leaseSkew).UnixMilli()
	return l.store.Traits().Shared && l.held.Token != "" && l.held.Token != l.token && l.held.Expires > now.UnixMilli() && l.held.Expires <= latest
}

// Keep renews the lease, and stores the progress, if a third of its time has passed. It is called by the
// work of Run. After an error the holder is unknown, except that ErrLost says that another process has the lease.
func (l *Lease[T]) Keep(ctx context.Context) error {
	l.keeping.Lock()
	defer l.keeping.Unlock()
	if age := l.now().UnixMilli() - l.renewed; age >= 0 && age < l.lasts.Milliseconds()/3 {
		return nil
	}
	return l.renew(ctx)
}

// renew takes or renews the lease and stores the state. It is ErrLost if another process was faster.
func (l *Lease[T]) renew(ctx context.Context) error {
	return l.write(ctx, meta.Holding{Holder: l.holder, Token: l.token, Expires: l.now().Add(l.lasts).UnixMilli()})
}

func (l *Lease[T]) write(ctx context.Context, next meta.Holding) error {
	ctx, cancel := context.WithTimeout(ctx, MetaTimeout)
	defer cancel()
	before, now := *l.held, l.now().UnixMilli()
	*l.held = next
	value, err := json.Marshal(&l.State)
	if err != nil {
		return err
	}
	cell := meta.Cell{Value: value, Time: now}
	won, err := meta.CompareAndSet(ctx, l.store, l.key, l.cell, cell)
	if err == nil && won {
		l.cell, l.renewed = cell, now
		return nil
	}
	*l.held = before
	if err != nil {
		return fmt.Errorf("write the lease: %w", err)
	}
	return ErrLost
}
