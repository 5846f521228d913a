package buffer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// JoinTime is how long META has the row of a member before it acknowledges samples. Adapters that ask members read their list every 10 s, and so know of a
// new one before its first sample.
const JoinTime = 20 * time.Second

// maxSilence is how long a member acknowledges samples without a renewal of its row. Its row may be removed by hand after a longer one.
const maxSilence = 10 * time.Minute

// ForgetAfter is how long a member must be silent before its row may be removed by hand: it acknowledges nothing by then.
const ForgetAfter = 2 * maxSilence

// maxRowsSilence is how long a member whose log is in rows acknowledges samples, and stores chunks, without a renewal of its row. An
// attempt that began before it ends within sealTimeout, so that none runs when another adapter takes the log.
const maxRowsSilence = 45 * time.Second

// ErrForeignRow says that the row of a log in META is that of another process, or was removed.
var ErrForeignRow = errors.New("the row of the log in META is not that of this process: another one has the log, or it was forgotten")

// A member is what META has of a buffer whose open chunks other adapters ask for: the row of its log, with a promise.
//
// The promise is a time before which nothing is acknowledged and not stored. high is at least what any reader may see of it, so a
// sample before high waits until META has a lower promise. It is raised to the oldest sample that is not stored, of requests in
// flight, too.
type member struct {
	// token is the random name of the process.
	token string
	now   func() time.Time

	mu   sync.Mutex
	high int64
	// pending is the earliest sample of the requests that are being committed, and since that of all since it was last reset.
	pending, since int64
	// joined is since when META has the row, and renewed when the last renewal that succeeded began.
	joined, renewed time.Time

	// writing is held while the row is written. It guards cell, the one of META, if isKnown.
	writing sync.Mutex
	cell    meta.Cell
	isKnown bool
}

func newMember(now func() time.Time) *member {
	return &member{token: rand.Text(), now: now, high: math.MaxInt64, pending: math.MaxInt64, since: math.MaxInt64}
}

// age returns how long ago a time was.
func (m *member) age(t time.Time) time.Duration { return bucketstore.Elapsed(t, m.now()) }

// Token is the random name of this process among those that have had the log. It is empty without Config.Address.
func (b *Buffer) Token() string {
	if b.member == nil {
		return ""
	}
	return b.member.token
}

// WaitJoined waits until the buffer may acknowledge samples.
func (b *Buffer) WaitJoined(ctx context.Context) error {
	for b.member != nil {
		wait := JoinTime
		b.member.mu.Lock()
		if joined := b.member.joined; !joined.IsZero() {
			wait -= b.member.age(joined)
		}
		b.member.mu.Unlock()
		if wait <= 0 {
			break
		}
		if err := bucketstore.Sleep(ctx, min(wait, time.Second)); err != nil {
			return err
		}
	}
	return nil
}

// promise sees to it that META promises nothing that the acknowledgement of a group would break. The error is a refusal.
func (b *Buffer) promise(group []*request) error {
	m := b.member
	if m == nil {
		return nil
	}
	earliest := int64(math.MaxInt64)
	for _, req := range group {
		for i := range req.samples {
			earliest = min(earliest, req.samples[i].T)
		}
	}
	m.mu.Lock()
	m.pending, m.since = earliest, min(m.since, earliest)
	high, joined := m.high, m.joined
	m.mu.Unlock()
	if joined.IsZero() || m.age(joined) < JoinTime {
		return refusal{errors.New("other adapters may not know of this one yet")}
	}
	if earliest < high {
		if err := b.lowerPromise(context.Background(), earliest); err != nil {
			return refusal{fmt.Errorf("the promise in META that there are no samples as old is not withdrawn: %w", err)}
		}
	}
	return nil
}

// heard returns a refusal if META has not heard of a member for too long.
func (b *Buffer) heard() error {
	m := b.member
	if m == nil {
		return nil
	}
	limit := maxSilence
	if b.dir.rows != nil { // another one takes the log after a longer one
		limit = maxRowsSilence
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if silent := m.age(m.renewed); silent > limit {
		return refusal{fmt.Errorf("the row of the log in META was not renewed for %s", silent.Round(time.Second))}
	}
	return nil
}

// mayStore returns an error if another adapter may have taken the log: what is stored then could bring back what was deleted since.
func (b *Buffer) mayStore(ctx context.Context) error {
	m := b.member
	if m == nil || b.dir.rows == nil {
		return nil
	}
	m.mu.Lock()
	renewed := m.renewed
	m.mu.Unlock()
	if renewed.IsZero() || m.age(renewed) <= maxRowsSilence {
		return nil
	}
	if err := b.renew(ctx); err != nil {
		return fmt.Errorf("another adapter may have taken the log: %w", err)
	}
	return nil
}

// committed notes that the requests of promise are in open chunks, or failed.
func (b *Buffer) committed() {
	if m := b.member; m != nil {
		m.mu.Lock()
		m.pending = math.MaxInt64
		m.mu.Unlock()
	}
}

// lowerPromise promises nothing from a time on.
func (b *Buffer) lowerPromise(ctx context.Context, to int64) error {
	m := b.member
	m.writing.Lock()
	defer m.writing.Unlock()
	m.mu.Lock()
	isLow := m.high <= to
	m.mu.Unlock()
	if isLow {
		return nil
	}
	return b.putMember(ctx, max(1, to))
}

// renew writes the row of a member, with its promise as late as it may be.
func (b *Buffer) renew(ctx context.Context) error {
	m := b.member
	m.writing.Lock()
	defer m.writing.Unlock()
	m.mu.Lock()
	pending := m.pending
	m.since = math.MaxInt64
	m.mu.Unlock()
	oldest := b.Oldest()
	if oldest == 0 {
		oldest = math.MaxInt64
	}
	// Samples of now must not wait for META.
	latest := series.WindowOf(b.cfg.Now().UnixMilli()) - series.Window
	m.mu.Lock()
	promise := max(1, min(oldest, pending, m.since, latest))
	if m.joined.IsZero() {
		m.high = promise
	}
	m.high = max(m.high, promise)
	m.mu.Unlock()
	return b.putMember(ctx, promise)
}

// putMember writes the row with a promise, with m.writing held.
func (b *Buffer) putMember(ctx context.Context, promise int64) error {
	m, began := b.member, b.cfg.Now()
	l := b.Log()
	l.Address, l.Token, l.Promise, l.Settings = b.cfg.Address, m.token, promise, b.cfg.Settings
	if err := b.replaceRow(ctx, l); err != nil {
		if errors.Is(err, ErrForeignRow) {
			b.cfg.Die(err)
		}
		return err
	}
	m.mu.Lock()
	m.high, m.renewed = promise, began
	isFirst := m.joined.IsZero()
	m.mu.Unlock()
	if !isFirst {
		return nil
	}
	// It may have been forgotten between the start and the row, which is not removed again then.
	isForgotten, err := b.dir.store.IsForgotten(ctx, l.ID)
	if err != nil {
		return err
	}
	if isForgotten {
		b.cfg.Die(ErrForeignRow)
		return ErrForeignRow
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joined = b.cfg.Now()
	return nil
}

// replaceRow writes the row, unless another process has written it since this one has.
func (b *Buffer) replaceRow(ctx context.Context, l meta.Log) (err error) {
	m, store := b.member, b.dir.store
	if store == nil {
		return errors.New("the log is not bound to a store")
	}
	if !m.isKnown {
		var found meta.Log
		if found, m.cell, err = store.ReadLog(ctx, l.ID); err != nil {
			return err
		}
		m.mu.Lock()
		isFirst := m.joined.IsZero()
		m.mu.Unlock()
		if found.Token != m.token && !isFirst {
			return ErrForeignRow
		}
		m.isKnown = true
	}
	next, replaced, err := store.ReplaceLog(ctx, m.cell, l)
	if err != nil || !replaced { // it may have been replaced, also by an attempt that had no answer
		m.isKnown = false
	}
	switch {
	case err != nil:
		return err
	case replaced:
		m.cell = next
		return nil
	}
	found, _, err := store.ReadLog(ctx, l.ID)
	if err != nil {
		return err
	}
	if found.Token != m.token {
		return ErrForeignRow
	}
	return errors.New("the row of the log in META was written meanwhile")
}
