// Package fleet lets adapters with buffers on one store answer as one. Each member has its address in META, with a promise of how old its
// samples are that are not in the store, see package buffer. A reader asks all members for their open chunks first, and reads rows after:
// what is stored in between is seen twice, which changes nothing. Before it looks into the index it asks them what they have indexed since.
//
//	fleet.go    the members, as META lists them, and what one that cannot be asked may have
//	store.go    a store that has the open chunks of members, too
//	sync.go     what members have indexed, and written late
//	indexed.go  what this process has indexed, for others
//	late.go     which samples this process has written late, and whether others have told theirs
//	recent.go   the last of either
//	client.go   asking a member
//	server.go   answering
//	message.go  what is sent
//	partial.go  answers without a member
//	metrics.go  metrics
//
// A member that cannot be asked is looked up in META again. If its row is gone, all its samples are in the store; if it promises that it has
// none as old as the answer, too. Else the answer is partial: its reader says so, or fails.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// maxListAge is how old the list of members may be. It is less than the time that a member waits before its first sample, see
// buffer.JoinTime.
const maxListAge = 10 * time.Second

// maxGap is the most time between two lists of which each member that has acknowledged samples is in one: a new one waits as long.
const maxGap = 2 * maxListAge

// Config says what a Fleet is made of. Meta, Schema and Now are required.
type Config struct {
	Meta   *meta.Store
	Schema series.Schema
	Now    func() time.Time
	// Own is the ID of the log of this process. It is empty without a buffer.
	Own string
	// Joins says that the adapters on the store are to answer as one. A log without an address is that of a member that cannot be asked then.
	Joins bool
	// Client asks members. Nil is a client without credentials.
	Client *http.Client
	// Late, if set, is called with what a member has written late, and Lost if that is not known: anything may have been written.
	Late func(Late)
	Lost func()
	// Registerer may be nil.
	Registerer prometheus.Registerer
}

// A Fleet asks members. It is safe for concurrent use.
type Fleet struct {
	cfg     Config
	metrics metrics
	indexed recent[index.Learned]
	late    lateWrites

	// reading is held while META is read.
	reading sync.Mutex
	mu      sync.Mutex
	list    list
	// down are members that could not be asked a moment ago, by token.
	down map[string]failure
	// indexes are those that learn, and pending returns the rows that are not in CURRENT yet, by tenant.
	indexes map[string]*index.Index
	pending map[string]func([]series.RowRange) []bucketstore.Row

	sync rounds
}

// A list is the logs of other adapters.
type list struct {
	logs []meta.Log
	// at is when its reading began.
	at time.Time
}

// A failure is why a member could not be asked.
type failure struct {
	at  time.Time
	err error
}

// New returns a Fleet, which is to be closed.
func New(cfg Config) *Fleet {
	if cfg.Client == nil {
		cfg.Client = NewClient(nil)
	}
	f := &Fleet{cfg: cfg, metrics: newMetrics(cfg.Registerer), down: make(map[string]failure), indexes: make(map[string]*index.Index), pending: make(map[string]func([]series.RowRange) []bucketstore.Row)}
	f.indexed.limit, f.late.told.limit = maxIndexed, maxLate
	f.late.pending = make(map[string]Late)
	f.sync.contacts = make(map[string]contact)
	f.sync.ctx, f.sync.stop = context.WithCancel(context.Background())
	return f
}

// Close ends what runs in the background.
func (f *Fleet) Close() error {
	f.sync.stop()
	f.sync.running.Wait()
	return nil
}

// age returns how long ago a time was.
func (f *Fleet) age(t time.Time) time.Duration { return bucketstore.Elapsed(t, f.cfg.Now()) }

// others returns the logs of other adapters, by a list that is not too old, and began to be read at a time or later.
func (f *Fleet) others(ctx context.Context, since time.Time) ([]meta.Log, error) {
	l, err := f.read(ctx, since)
	return l.logs, err
}

// read returns a list that others may be of.
func (f *Fleet) read(ctx context.Context, since time.Time) (list, error) {
	if l, ok := f.known(since); ok {
		return l, nil
	}
	f.reading.Lock()
	defer f.reading.Unlock()
	if l, ok := f.known(since); ok {
		return l, nil
	}
	began := f.cfg.Now()
	logs, err := f.cfg.Meta.Logs(ctx)
	if err != nil {
		return list{}, fmt.Errorf("the list of members: %w", err)
	}
	logs = slices.DeleteFunc(logs, func(l meta.Log) bool { return l.ID == f.cfg.Own })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = list{logs, began}
	members := 0
	for _, l := range logs {
		if l.Address != "" {
			members++
		}
	}
	f.metrics.members.Set(float64(members))
	return f.list, nil
}

// known returns the list if it is good.
func (f *Fleet) known(since time.Time) (l list, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list, !f.list.at.IsZero() && f.age(f.list.at) <= maxListAge && !f.list.at.Before(since)
}

// counts says whether a log is one of a member, or of one that cannot be asked.
func (f *Fleet) counts(l meta.Log) bool { return l.Address != "" || f.cfg.Joins }

// errNoAddress says why a member cannot be asked.
var errNoAddress = errors.New("it has no --fleet.listen-address")

// noteUnlisted notes that META cannot be read. Where no adapter has ever been a member none is missing.
func (f *Fleet) noteUnlisted(ctx context.Context, err error) error {
	f.mu.Lock()
	mayBe := f.cfg.Joins || slices.ContainsFunc(f.list.logs, f.counts)
	f.mu.Unlock()
	if !mayBe {
		return nil
	}
	return f.note(ctx, err)
}

// lookUp is called when a member could not be asked. It returns its row as it is in META now, and whether it has one.
func (f *Fleet) lookUp(ctx context.Context, l meta.Log) (now meta.Log, found bool, err error) {
	logs, err := f.others(ctx, f.cfg.Now())
	if err != nil {
		return l, true, err
	}
	i := slices.IndexFunc(logs, func(other meta.Log) bool { return other.ID == l.ID })
	if i < 0 {
		return l, false, nil
	}
	return logs[i], true, nil
}

// askAgain asks a member by fn, and once more if META has another address or process of it now. state says what is true if err is not
// nil.
func (f *Fleet) askAgain(ctx context.Context, l meta.Log, fn func(meta.Log) error) (state meta.Log, isGone bool, err error) {
	if l.Address == "" {
		err = errNoAddress
	} else if err = fn(l); err == nil || ctx.Err() != nil {
		return l, false, err
	}
	now, found, lookErr := f.lookUp(ctx, l)
	switch {
	case lookErr != nil:
		now.Promise = 0 // it may have been lowered
		return now, false, errors.Join(err, lookErr)
	case !found:
		return now, true, nil
	case now.Address != "" && (now.Token != l.Token || now.Address != l.Address):
		err = fn(now)
	}
	return now, false, err
}

// missing is the error of an answer without a member.
func missing(l meta.Log, cause error) error {
	where := l.Host
	if l.Address != "" {
		where += " (" + l.Address + ")"
	}
	from := ""
	if l.Promise > 0 {
		from = " from " + time.UnixMilli(l.Promise).UTC().Format(time.RFC3339) + " on"
	}
	return fmt.Errorf("the adapter on %s, which has log %s, cannot be asked for its samples%s that are not in the store yet: %w", where, l.ID, from, cause)
}

// Wrap returns store, with the open chunks of members: for readers.
func (f *Fleet) Wrap(store bucketstore.Store) bucketstore.Store {
	return &Store{Store: store, fleet: f}
}
