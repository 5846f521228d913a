package meta

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

const (
	// LeaseTime is how long a lease lasts without renewal. It is renewed after a third.
	LeaseTime = 5 * time.Minute
	// leaseSkew is how far the clock of a holder may be ahead: a lease that ends later than
	// any such clock could have set does not count.
	leaseSkew = 15 * time.Minute
)

// ErrLost says that another process has taken our lease.
var ErrLost = errors.New("another process has taken the lease")

// A Holding says who holds a lease. It is the first part of the JSON of its row.
type Holding struct {
	// Holder names the holder, for operators.
	Holder string `json:"holder"`
	// Token is random and identifies the holder; empty if there is none.
	Token string `json:"token"`
	// Expires is when the lease ends, by the clock of the holder, in milliseconds.
	Expires int64 `json:"expires"`
}

// A Lease is the view that a process has of a row of META that says which process does a
// work, and how far it has come. Each write is conditional on the last value read or
// written, so that a process that lost the lease cannot change it. Only Keep is safe for
// concurrent use. Changes of the state are stored when the lease is renewed or released.
type Lease struct {
	store  bucketstore.Store
	key    string
	now    func() time.Time
	holder string
	token  string

	// keeping guards the fields below during a work.
	keeping sync.Mutex
	// state is what the row has as JSON. held is the part of it that is the lease.
	state any
	held  *Holding
	cell  Cell
	// renewed is when the lease was last renewed, in milliseconds.
	renewed int64
}

// NewLease returns a lease of the row with this key. state points to a struct, which is the
// JSON of the row, and held to the Holding in it.
func NewLease(store bucketstore.Store, key string, now func() time.Time, holder string, state any, held *Holding) *Lease {
	return &Lease{store: store, key: key, now: now, holder: holder, token: rand.Text(), state: state, held: held}
}

// Read reads the row into the state, which the caller has emptied.
func (l *Lease) Read(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if l.cell, err = ReadCell(ctx, l.store, l.key); err != nil {
		return fmt.Errorf("read the lease: %w", err)
	}
	if l.cell.Value == nil {
		return nil
	}
	if err := json.Unmarshal(l.cell.Value, l.state); err != nil {
		return fmt.Errorf("read the lease: %w: row %q of META: %v", series.ErrCorrupt, l.key, err)
	}
	return nil
}

// Exists says whether the row existed when it was last read or written.
func (l *Lease) Exists() bool { return l.cell.Value != nil }

// IsHeld says whether another process has the lease.
func (l *Lease) IsHeld() bool {
	now := l.now()
	latest := now.Add(LeaseTime + leaseSkew).UnixMilli()
	return l.held.Token != "" && l.held.Token != l.token && l.held.Expires > now.UnixMilli() && l.held.Expires <= latest
}

// Keep renews the lease, and stores the progress, if a third of its time has passed. Renew
// must have succeeded. After an error the holder is unknown, except that ErrLost says that
// another process has the lease.
func (l *Lease) Keep(ctx context.Context) error {
	l.keeping.Lock()
	defer l.keeping.Unlock()
	if age := l.now().UnixMilli() - l.renewed; age >= 0 && age < LeaseTime.Milliseconds()/3 {
		return nil
	}
	return l.Renew(ctx)
}

// Renew takes or renews the lease and stores the state. It is ErrLost if another process was
// faster.
func (l *Lease) Renew(ctx context.Context) error {
	return l.write(ctx, Holding{l.holder, l.token, l.now().Add(LeaseTime).UnixMilli()})
}

// Release ends the lease and stores the progress.
func (l *Lease) Release(ctx context.Context) error {
	return l.write(ctx, Holding{Holder: l.held.Holder})
}

func (l *Lease) write(ctx context.Context, next Holding) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	before, now := *l.held, l.now().UnixMilli()
	*l.held = next
	value, err := json.Marshal(l.state)
	if err != nil {
		return err
	}
	cell, won, err := CompareAndSet(ctx, l.store, l.key, l.cell, value, now)
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
