package fleet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// roundTimeout bounds one round of questions.
const roundTimeout = 10 * time.Second

// rounds are rounds in which all members are asked what they have indexed, and written late. Calls that come while one runs share the next.
type rounds struct {
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	next *round
	busy bool

	// contacts are what is known of members that the last round has asked, by token, or ID of the log. Only rounds use them, one after the other.
	contacts map[string]contact
	// seen is when the last list was read by which members were asked, or were none.
	seen time.Time
	// told says that there were some in the last round, and each has told all that it has indexed.
	told bool
}

// A contact is a member that was asked before.
type contact struct {
	// next and nextLate are the numbers of the first series and late span that were not told, if isKnown: else it could not be asked.
	next, nextLate uint64
	isKnown        bool
}

// contactKey is the key of a log in rounds.contacts.
func contactKey(l meta.Log) string { return cmp.Or(l.Token, l.ID) }

// A round is one.
type round struct {
	done chan struct{}
	// err says that META could not be read, and lacks has the members that could not be asked.
	err   error
	lacks []lack
	// isWhole says that all that write have told.
	isWhole bool
}

// A lack is a member that could not be asked.
type lack struct {
	log meta.Log
	err error
}

// Join makes x, the index of a tenant, learn what members index, and lets them ask for its rows that are not in CURRENT yet. The tenant is
// empty in a store without tenants.
func (f *Fleet) Join(tenant string, x *index.Index, pending func([]series.RowRange) []bucketstore.Row) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.indexes[tenant], f.pending[tenant] = x, pending
}

// Sync makes the indexes learn what members have indexed before the call. An answer about times before limit, in milliseconds, that lacks a
// member is partial.
func (f *Fleet) Sync(ctx context.Context, limit int64) error {
	if f.isAlone() {
		return nil
	}
	r := f.nextRound()
	select {
	case <-r.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.err != nil {
		return f.noteUnlisted(ctx, r.err)
	}
	for _, l := range r.lacks {
		switch {
		case l.log.Address == "" && isAllowed(ctx):
			continue // its samples are warned about
		case l.log.Promises(limit - 1):
			// What it has of these times is stored. Its series may be newer than the lists in memory.
			f.forget()
			continue
		}
		if err := f.note(ctx, missing(l.log, l.err)); err != nil {
			return err
		}
	}
	return nil
}

// Told says whether there are other members, and the indexes have learnt all that they have indexed before the last call of Sync.
func (f *Fleet) Told() bool {
	f.sync.mu.Lock()
	defer f.sync.mu.Unlock()
	return f.sync.told
}

// isAlone says whether there is no other member, and was none when the last round ended.
func (f *Fleet) isAlone() bool {
	l, ok := f.known(f.cfg.Now().Add(-maxListAge))
	if !ok || slices.ContainsFunc(l.logs, f.counts) {
		return false
	}
	f.sync.mu.Lock()
	defer f.sync.mu.Unlock()
	if f.sync.busy || len(f.sync.contacts) > 0 || bucketstore.Elapsed(f.sync.seen, l.at) >= maxGap {
		return false
	}
	f.sync.seen, f.sync.told = l.at, false
	return true
}

// nextRound returns a round that has not begun.
func (f *Fleet) nextRound() *round {
	s := &f.sync
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &round{done: make(chan struct{})}
	}
	next := s.next
	if !s.busy {
		s.busy = true
		s.running.Go(f.runRounds)
	}
	return next
}

// runRounds runs rounds as long as one is wanted.
func (f *Fleet) runRounds() {
	s := &f.sync
	for {
		s.mu.Lock()
		r := s.next
		if s.next = nil; r == nil {
			s.busy = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		f.runRound(r)
		close(r.done)
	}
}

// Run asks members at an interval until ctx ends, so that no list is older than it may be.
func (f *Fleet) Run(ctx context.Context) {
	ticker := time.NewTicker(maxListAge / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !f.isAlone() {
			<-f.nextRound().done
		}
	}
}

// runRound asks all members.
func (f *Fleet) runRound(r *round) {
	ctx, cancel := context.WithTimeout(f.sync.ctx, roundTimeout)
	defer cancel()
	var l list
	if l, r.err = f.read(ctx, f.cfg.Now().Add(-maxListAge)); r.err != nil {
		f.sync.mu.Lock()
		f.sync.told = false
		f.sync.mu.Unlock()
		return
	}
	logs := slices.DeleteFunc(slices.Clone(l.logs), func(l meta.Log) bool { return !f.counts(l) })
	answers := make([]told, len(logs))
	var asking sync.WaitGroup
	for i, l := range logs {
		asking.Go(func() { answers[i] = f.askTold(ctx, l) })
	}
	asking.Wait()
	f.sync.mu.Lock()
	// In a longer time a member may have come, indexed and gone.
	mustForget := bucketstore.Elapsed(f.sync.seen, l.at) >= maxGap
	f.sync.seen = l.at
	f.sync.mu.Unlock()
	contacts := make(map[string]contact)
	var all []index.Learned
	var late []Late
	for _, t := range answers {
		switch {
		case t.isGone:
			mustForget = true
		case t.err != nil:
			r.lacks = append(r.lacks, lack{t.log, t.err})
			contacts[contactKey(t.log)] = contact{}
		default:
			mustForget = mustForget || t.Lost
			contacts[contactKey(t.log)] = contact{t.Next, t.NextLate, true}
			all, late = append(all, t.Series...), append(late, t.Late...)
		}
	}
	f.sync.mu.Lock()
	for token := range f.sync.contacts {
		if _, ok := contacts[token]; !ok { // it has gone: what it has indexed since is not known
			mustForget = true
		}
	}
	f.sync.contacts = contacts
	f.sync.mu.Unlock()
	if mustForget {
		f.forget()
	} else if err := f.learn(all); err != nil {
		r.err = err
	}
	if f.cfg.Late != nil {
		for _, l := range late {
			f.cfg.Late(l)
		}
	}
	told := r.err == nil && len(r.lacks) == 0
	r.isWhole = told && len(logs) == len(l.logs) && (len(contacts) > 0 || f.isMember())
	f.sync.mu.Lock()
	f.sync.told = told && len(contacts) > 0
	f.sync.mu.Unlock()
}

// told is what a member has told.
type told struct {
	indexedAnswer
	log    meta.Log
	isGone bool
	err    error
}

// askTold asks a member what it has indexed since the last round.
func (f *Fleet) askTold(ctx context.Context, l meta.Log) (t told) {
	t.log, t.isGone, t.err = f.askAgain(ctx, l, func(l meta.Log) (err error) {
		f.sync.mu.Lock()
		before := f.sync.contacts[contactKey(l)]
		f.sync.mu.Unlock()
		t.indexedAnswer, err = f.askIndexed(ctx, l, before)
		return err
	})
	return t
}

// learn adds series to the indexes of their tenants.
func (f *Fleet) learn(all []index.Learned) (err error) {
	if len(all) == 0 {
		return nil
	}
	f.metrics.learnt.Add(float64(len(all)))
	byTenant := make(map[string][]index.Learned)
	for _, s := range all {
		tenant := ""
		if f.cfg.Schema.Tenancy() {
			var tenantErr error
			if tenant, tenantErr = series.TenantOf([]byte(s.Key)); tenantErr != nil {
				err = errors.Join(err, tenantErr)
				continue
			}
		}
		byTenant[tenant] = append(byTenant[tenant], s)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for tenant, some := range byTenant {
		if x := f.indexes[tenant]; x != nil {
			err = errors.Join(err, x.Learn(some))
		}
	}
	return err
}

// forget drops what the indexes have in memory, and caches.
func (f *Fleet) forget() {
	f.metrics.forgotten.Inc()
	if f.cfg.Lost != nil {
		f.cfg.Lost()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.indexes {
		x.Forget()
	}
}
