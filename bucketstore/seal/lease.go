package seal

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

const (
	// leaseTime is how long a lease lasts without renewal.
	leaseTime = 5 * time.Minute
	// metaTimeout bounds a request to META.
	metaTimeout = 30 * time.Second
)

// ErrHeld says that another sealer holds the lease.
var ErrHeld = errors.New("another sealer holds the lease")

// errLost says that another sealer has taken our lease.
var errLost = errors.New("another sealer has taken the lease")

// A state is the row META/seal, as JSON: the holder of the lease, and the progress of the
// turn. Times are in milliseconds. Each write is conditional on the last value read or
// written, so that a sealer that lost the lease cannot change it.
type state struct {
	// Holder names the holder, for operators.
	Holder string `json:"holder"`
	// Token is random and identifies the holder; empty if there is none.
	Token string `json:"token"`
	// Expires is when the lease ends, by the clock of the holder.
	Expires int64 `json:"expires"`

	// Window is the window of the turn, see turn.
	Window int64 `json:"window"`
	// Done says that all rows of the turn are sealed; until then Position is the progress.
	Done     bool     `json:"done,omitempty"`
	Position position `json:"position"`
	// Walked counts the rows that the turn has read, LastWalked those of the last complete
	// turn.
	Walked     int64 `json:"walked"`
	LastWalked int64 `json:"last_walked"`
	// Sealed are the windows up to which each raw family is sealed.
	Sealed [4]int64 `json:"sealed"`
}

// begin starts a turn in s, unless s is already in it.
func (s *state) begin(t turn) {
	if s.Sealed == [4]int64{} { // earlier windows are unknown
		for i := int64(1); i <= 4; i++ {
			w := t.window - i*series.Window
			s.Sealed[familyOf(w)] = w
		}
	}
	if s.Window != t.window {
		s.Window, s.Done, s.Position, s.Walked = t.window, false, position{}, 0
	}
}

// isDone says whether all rows of a turn are sealed.
func (s *state) isDone(t turn) bool { return s.Done && s.Window == t.window }

// finish ends the turn.
func (s *state) finish() {
	s.Done, s.LastWalked, s.Position = true, s.Walked, position{}
	s.Sealed[familyOf(s.Window)] = s.Window
}

// oldest returns the start of the oldest window that is not sealed, in milliseconds.
func (s *state) oldest() int64 {
	oldest := s.Sealed[0]
	for _, w := range s.Sealed {
		oldest = min(oldest, w)
	}
	return oldest + 4*series.Window
}

// familyOf returns the number of the raw family of a window.
func familyOf(window int64) int64 { return window / series.Window & 3 }

// isHeld says whether another holder than token has the lease. A lease that ends later than
// any right clock could have set does not count.
func (s *state) isHeld(token string, now int64) bool {
	latest := now + leaseTime.Milliseconds() + grace
	return s.Token != "" && s.Token != token && s.Expires > now && s.Expires <= latest
}

// A lease is a sealer's view of META/seal. It is not safe for concurrent use.
type lease struct {
	store  bucketstore.Store
	now    func() time.Time
	holder string
	token  string

	state
	cell meta.Cell
}

func newLease(store bucketstore.Store, now func() time.Time, holder string) *lease {
	return &lease{store: store, now: now, holder: holder, token: rand.Text()}
}

// take reads the row and takes the lease for a turn, unless the turn is done. If another
// sealer has it the error is ErrHeld.
func (l *lease) take(ctx context.Context, t turn) error {
	if err := l.read(ctx); err != nil {
		return err
	}
	if l.isDone(t) {
		return nil
	}
	if l.isHeld(l.token, l.now().UnixMilli()) {
		return fmt.Errorf("%w: %s, until %s", ErrHeld, l.Holder, time.UnixMilli(l.Expires).UTC().Format(time.RFC3339))
	}
	err := l.renew(ctx, func(s *state) { s.begin(t) })
	if errors.Is(err, errLost) {
		return fmt.Errorf("%w: it was faster", ErrHeld)
	}
	return err
}

func (l *lease) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	l.state = state{}
	var err error
	if l.cell, err = meta.ReadCell(ctx, l.store, series.MetaSeal); err != nil {
		return fmt.Errorf("read the lease: %w", err)
	}
	if l.cell.Value == nil {
		return nil
	}
	if err := json.Unmarshal(l.cell.Value, &l.state); err != nil {
		return fmt.Errorf("read the lease: %w: row %q of META: %v", series.ErrCorrupt, series.MetaSeal, err)
	}
	return nil
}

// renew extends the lease and applies change to its state. take must have succeeded. After
// an error the holder is unknown, except that errLost says that another sealer has the
// lease.
func (l *lease) renew(ctx context.Context, change func(*state)) error {
	now := l.now()
	next := l.state
	next.Holder, next.Token, next.Expires = l.holder, l.token, now.Add(leaseTime).UnixMilli()
	if change != nil {
		change(&next)
	}
	return l.write(ctx, now.UnixMilli(), next)
}

// release ends the lease.
func (l *lease) release(ctx context.Context) error {
	next := l.state
	next.Token, next.Expires = "", 0
	return l.write(ctx, l.now().UnixMilli(), next)
}

func (l *lease) write(ctx context.Context, now int64, next state) error {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	cell, won, err := meta.CompareAndSet(ctx, l.store, series.MetaSeal, l.cell, value, now)
	switch {
	case err != nil:
		return fmt.Errorf("write the lease: %w", err)
	case !won:
		return errLost
	}
	l.state, l.cell = next, cell
	return nil
}
