package seal

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

const (
	// leaseTime is how long a lease lasts without renewal. It is renewed after a third.
	leaseTime = 5 * time.Minute
	// metaTimeout bounds a request to META.
	metaTimeout = 30 * time.Second
)

// ErrHeld says that another sealer holds the lease.
var ErrHeld = errors.New("another sealer holds the lease")

// errLost says that another sealer has taken our lease.
var errLost = errors.New("another sealer has taken the lease")

// A state is the row META/seal, as JSON: the holder of the lease, and the progress of its
// walks. Times are in milliseconds. Each write is conditional on the last value read or
// written, so that a sealer that lost the lease cannot change it.
type state struct {
	// Holder names the holder, for operators.
	Holder string `json:"holder"`
	// Token is random and identifies the holder; empty if there is none.
	Token string `json:"token"`
	// Expires is when the lease ends, by the clock of the holder.
	Expires int64 `json:"expires"`

	// Window is the window of the last turn, see turn. Done says that nothing is left to
	// walk in it.
	Window int64 `json:"window"`
	Done   bool  `json:"done,omitempty"`
	// Walked counts the rows that the rounds of this turn have walked, LastWalked those of
	// the last complete round.
	Walked     int64 `json:"walked"`
	LastWalked int64 `json:"last_walked"`
	// Ratio is the share of the rows that the turn before has walked.
	Ratio float64 `json:"ratio"`
	// Sealed are the windows up to which each raw family is sealed, Rounds the rounds that
	// go on from there.
	Sealed [4]int64 `json:"sealed"`
	Rounds [4]round `json:"rounds"`
	// Late is the walk of a period with late cells, Full the walks of all older periods,
	// by family.
	Late lateWalk    `json:"late,omitzero"`
	Full [4]fullWalk `json:"full"`
}

// A round walks the rows of the current periods for a family. If a turn is too short for all
// of them the next turn of the family goes on. When the round is complete, the family is
// sealed up to the window of the turn in which it began.
type round struct {
	// Window is the window of that turn. 0 is no round.
	Window   int64    `json:"window,omitempty"`
	Position position `json:"position,omitzero"`
	Walked   int64    `json:"walked,omitempty"`
}

// begin starts a turn in s, unless s is already in it.
func (s *state) begin(t turn) {
	family := familyOf(t.window)
	if s.Sealed == [4]int64{} { // earlier windows are unknown
		for i := int64(1); i <= 4; i++ {
			w := t.window - i*series.Window
			s.Sealed[familyOf(w)] = w
		}
	}
	switch isWrong := s.Sealed[family] > t.window; { // the clock of a sealer was ahead
	case isWrong:
		s.Sealed[family] = t.window - 4*series.Window
		fallthrough
	case s.firstUnsealed(family) < firstPeriod(t.window): // too long ago for a round
		s.Full[family] = fullWalk{}
	}
	if s.Rounds[family].Window > t.window {
		s.Rounds[family] = round{}
	}
	if s.Window != t.window {
		s.Ratio = s.ratio()
		s.Window, s.Done, s.Walked = t.window, false, 0
	}
}

// firstUnsealed returns the first window of a family that is not sealed.
func (s *state) firstUnsealed(family int64) int64 { return s.Sealed[family] + 4*series.Window }

// isDone says whether nothing is left to walk in a turn.
func (s *state) isDone(t turn) bool { return s.Done && s.Window == t.window }

// ratio returns the share of the rows that the turn has walked. It is less than 1 until the
// family is sealed.
func (s *state) ratio() float64 {
	family := familyOf(s.Window)
	if s.Sealed[family] >= s.Window {
		return 1
	}
	return float64(s.Walked) / float64(max(s.LastWalked, s.Rounds[family].Walked, s.Walked+1))
}

// oldest returns the start of the oldest window that is not sealed, in milliseconds.
func (s *state) oldest() int64 { return slices.Min(s.Sealed[:]) + 4*series.Window }

// familyOf returns the number of the raw family of a window.
func familyOf(window int64) int64 { return window / series.Window & 3 }

// isHeld says whether another holder than token has the lease. A lease that ends later than
// any right clock could have set does not count.
func (s *state) isHeld(token string, now int64) bool {
	latest := now + leaseTime.Milliseconds() + grace
	return s.Token != "" && s.Token != token && s.Expires > now && s.Expires <= latest
}

// A lease is a sealer's view of META/seal. Only keep is safe for concurrent use. Changes of
// the state are stored when the lease is renewed or released.
type lease struct {
	store  bucketstore.Store
	now    func() time.Time
	holder string
	token  string

	// keeping guards the fields below during a walk.
	keeping sync.Mutex
	state
	cell meta.Cell
	// renewed is when the lease was last renewed, in milliseconds.
	renewed int64
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
	l.begin(t)
	err := l.renew(ctx)
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

// keep renews the lease, and stores the progress, if a third of its time has passed. take
// must have succeeded. After an error the holder is unknown, except that errLost says that
// another sealer has the lease.
func (l *lease) keep(ctx context.Context) error {
	l.keeping.Lock()
	defer l.keeping.Unlock()
	if age := l.now().UnixMilli() - l.renewed; age >= 0 && age < leaseTime.Milliseconds()/3 {
		return nil
	}
	return l.renew(ctx)
}

func (l *lease) renew(ctx context.Context) error {
	now := l.now()
	next := l.state
	next.Holder, next.Token, next.Expires = l.holder, l.token, now.Add(leaseTime).UnixMilli()
	return l.write(ctx, now.UnixMilli(), next)
}

// release ends the lease and stores the progress.
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
	l.state, l.cell, l.renewed = next, cell, now
	return nil
}
