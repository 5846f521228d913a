// Package buffer is a write-behind buffer in front of a store. As an Appender it returns
// when a sample is in its log, and writes whole chunks to the store later. As a Store it
// also returns what is still in memory.
//
//	buffer.go   opening, closing, the series
//	append.go   samples into the log and into open chunks
//	barrier.go  what is written before and after a deletion is kept apart
//	late.go     open chunks of windows that are not the latest
//	open.go     open chunks: samples as bytes, in order of arrival
//	parts.go    most of their samples, encoded
//	seal.go     open chunks that are full or old, to the store
//	cells.go    chunks as cells of the store
//	scan.go     reading: rows of the store and open chunks
//	record.go   the bytes of the log
//	log.go      its files: group commit, segments
//	refusal.go  errors of a full disk, after which the log goes on
//	synced.go   how far the log is synced, between two fsyncs
//	segment.go  reading one of them
//	dir.go      the directory: its lock, its owner, its identity
//	head.go     the head of a segment
//	bind.go     which store the log belongs to
//	member.go   what META promises to those that ask for open chunks
//	check.go    what is wrong in a directory, and its repair
//	retry.go    rows that the store does not take
//	rowfile.go  the files in which they stand
//	stamp.go    the last stamp of a removed log
//	replay.go   reading the log at the start
//	adopt.go    taking the log of a process that has died, if its files are rows
//	metrics.go  counters of all this
//
// # Order
//
// Every request has a stamp: its receive time in milliseconds, and later than the
// stamp before, even if the clock is set back or the log was removed. A chunk has the
// latest stamp of its samples. The chunks of a series in one window, and the parts of an
// open chunk, hold successive samples, and none begins or ends inside a request. So among
// chunks with a sample at one time the chunk with the highest stamp has the last write,
// whatever the order of sealing. A replay, which makes other chunks of the same requests,
// changes no answer: two chunks with one stamp agree where they overlap.
//
// So a window of a series has one open chunk at most. If it is none of the two latest, that
// is a late chunk, see late.go.
package buffer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// Config says how a Buffer works. Store is required.
type Config struct {
	// Store takes the sealed chunks. The buffer closes it.
	Store bucketstore.Store
	// Schema is the schema of the store.
	Schema series.Schema
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// FsyncInterval is the time between two fsyncs of the log. 0 is an fsync before each
	// answer: every acknowledged sample survives the loss of power. With an interval,
	// samples acknowledged since the last fsync survive only the death of the process.
	FsyncInterval time.Duration
	// NoteInterval is the time between two notes of how far the log is synced, if FsyncInterval is 0. What is cut off before the
	// last note is noticed. 0 is 1 s.
	NoteInterval time.Duration
	// Cut is a time in milliseconds. A replay drops the samples before it: they are no longer
	// kept.
	Cut int64
	// LaterCut, if set, is Cut of the series with a key, where that is later: it is asked about samples before LatestCut.
	LaterCut  func(seriesKey []byte) int64
	LatestCut int64
	// Closed, if set, returns the time up to which, inclusive, no call of Append is acknowledged any more, in milliseconds. It never goes
	// back. META has it beside the oldest sample.
	Closed func() int64
	// Address is where this process answers other adapters, as the URL of a host and port. It makes the buffer a member of a fleet: META has the address,
	// and a promise of how old the samples are that are not stored. Empty is no member.
	Address string
	// Settings is what META says of the settings of a member.
	Settings string
	// Barriers are those that the requests in the log had. Later requests have later stamps.
	Barriers []Barrier
	// Logger may be nil.
	Logger log.Logger
	// Registerer takes the metrics adapter_buffer_*. It may be nil.
	Registerer prometheus.Registerer

	// PartSamples is about how many samples of an open chunk stay raw. Then they are
	// encoded, which takes a third of the memory. 0 is 80.
	PartSamples int
	// SealSpread is the time after the end of a window over which its chunks are sealed,
	// spread evenly over the series. Less needs less memory. 0 is as long as a window: then
	// the load on the store is even.
	SealSpread time.Duration
	// MaxOpenBytes is the memory for open chunks; beyond it, an eighth of them is sealed. 0
	// is 512 MiB.
	MaxOpenBytes int
	// MaxLogBytes is the size of the log; beyond it, the chunks that need its oldest
	// segments are sealed. Requests may exceed it meanwhile. 0 is 512 MiB.
	MaxLogBytes int
	// MaxIdle is how many series without samples stay in memory. 0 is 1,000,000.
	MaxIdle int
	// SegmentBytes is the size of a segment of the log. 0 is DefaultSegmentBytes, or an
	// eighth of MaxLogBytes if that is less. Each segment holds the keys of its series. If
	// these are a large part of it, a segment is larger, up to half of MaxLogBytes.
	SegmentBytes int
	// GroupInterval is the least time between the beginnings of two commits. With a log in rows each commit is a row. 0 is no pause.
	GroupInterval time.Duration
	// SweepInterval is the time between two sweeps, which seal what is due by the clock. 0
	// is 10 s.
	SweepInterval time.Duration

	// Die is called when acknowledged samples may be lost, or the log can no longer be
	// written. It must end the process. Nil logs and panics.
	Die func(err error)
}

// DefaultMaxBytes is the default of both MaxOpenBytes and MaxLogBytes.
const DefaultMaxBytes = 512 << 20

// DefaultSegmentBytes is the default size of a segment. The last segment always stays, and
// is replayed.
const DefaultSegmentBytes = 64 << 20

func (cfg Config) withDefaults() Config {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.Die == nil {
		logger := cfg.Logger
		cfg.Die = func(err error) {
			level.Error(logger).Log("msg", "the log failed; the process ends, to acknowledge no sample that may be lost", "err", err)
			panic(err)
		}
	}
	cfg.PartSamples = cmp.Or(cfg.PartSamples, 80)
	cfg.MaxOpenBytes = cmp.Or(cfg.MaxOpenBytes, DefaultMaxBytes)
	cfg.MaxLogBytes = cmp.Or(cfg.MaxLogBytes, DefaultMaxBytes)
	cfg.MaxIdle = cmp.Or(cfg.MaxIdle, 1_000_000)
	cfg.SegmentBytes = cmp.Or(cfg.SegmentBytes, max(1, min(DefaultSegmentBytes, cfg.MaxLogBytes/8)))
	cfg.SealSpread = cmp.Or(cfg.SealSpread, time.Duration(series.Window)*time.Millisecond)
	cfg.NoteInterval = cmp.Or(cfg.NoteInterval, time.Second)
	cfg.SweepInterval = cmp.Or(cfg.SweepInterval, 10*time.Second)
	return cfg
}

// A Buffer is an Appender and a Store. Its methods may be called concurrently,
// but for Close.
type Buffer struct {
	bucketstore.Store
	cfg     Config
	metrics *metrics
	// seed makes the jitter of series.
	seed     maphash.Seed
	dir      *Dir
	segments *segments
	log      *wal
	requests chan *request
	// between are functions for the committer.
	between chan func()

	// mu guards the series and everything in them but their keys.
	mu sync.RWMutex
	// refs are the series in memory, by key: those with samples, and those used lately.
	refs map[string]*ref
	// order lists the series in a stable order, so that a sweep can look at a part of them
	// at a time.
	order []*ref
	// interleaved are the series whose rows may lie between two rows of
	// another series, see mayInterleave.
	interleaved map[*ref]struct{}
	// relievedTo is the position in order at which the last relief of memory ended.
	relievedTo int
	// applied is the stamp of the last request in open chunks.
	applied int64
	// openBytes is the memory of the open chunks.
	openBytes int
	// buffers recycles the sample buffers of open chunks, encoder makes their parts.
	buffers rawBuffers
	encoder chunkEncoder
	// stamp is the stamp of the last request. It is owned by the committer; during start-up
	// by the replay.
	stamp int64
	// lastStamp is the stamp of the last request that was replayed.
	lastStamp int64
	// dropped counts the samples that the replay dropped.
	dropped int

	// barriers are those before which the replay is.
	barriers []Barrier
	// unlisted says that META may not list the log yet. It is owned by the committer.
	unlisted bool

	// member is nil without Config.Address.
	member *member

	// onEmpty is called when memory and log are empty.
	onEmpty func(context.Context)

	sealing sealing
	retries retryQueue
	// closing says that CURRENT need not be written.
	closing atomic.Bool
	// pressure wakes the sweeper when too much is open.
	pressure signal
	stop     context.CancelFunc
	done     sync.WaitGroup
	// committing is done when the last request is committed.
	committing sync.WaitGroup
}

var (
	_ bucketstore.Store    = (*Buffer)(nil)
	_ bucketstore.Appender = (*Buffer)(nil)
)

// Open replays the log in dir: when it returns, all samples of the log are in the store.
// ctx ends the replay. The buffer closes dir, also after an error. If dir is bound to a
// store, META lists the log when Open returns.
func Open(ctx context.Context, dir *Dir, cfg Config) (*Buffer, error) {
	b, err := open(ctx, dir, cfg.withDefaults())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log in %s: %w", dir.state.Path(), err), dir.Close())
	}
	return b, nil
}

func open(ctx context.Context, dir *Dir, cfg Config) (*Buffer, error) {
	b := newBuffer(dir, cfg)
	background, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.done.Go(func() { b.runSealing(background) })
	err := b.retries.load(cfg.Now())
	if err == nil {
		err = b.replay(ctx)
	}
	if err == nil {
		err = b.startLog()
	}
	b.unlisted = true
	if err == nil && b.segments.last() > 0 { // a log without a segment would look lost
		err = b.list(ctx)
	}
	if err != nil {
		stop()
		b.done.Wait()
		return nil, err
	}
	b.committing.Go(b.runCommits)
	run := func(interval time.Duration, wake signal, fn func()) {
		b.done.Go(func() { every(background, interval, wake, fn) })
	}
	run(cfg.SweepInterval, b.pressure, b.sweep)
	run(minRetryPause, nil, func() { b.retryRows(background, b.retries.due(time.Now())) })
	run(registerInterval, nil, b.registerAgain)
	run(cmp.Or(cfg.FsyncInterval, cfg.NoteInterval), nil, b.syncLog)
	return b, nil
}

// startLog starts the log after the replay and removes the replayed segments. If the disk is
// full, the last segment with a stamp stays, and the first requests that find room start the
// log.
func (b *Buffer) startLog() (err error) {
	b.log = newLog(b.dir.state, b.cfg, b.metrics, b.segments)
	err = b.startSegment()
	if isRefusal(err) {
		if err := b.segments.removeBefore(b.segments.last()); err != nil {
			return err
		}
		err = b.startSegment() // in the room of the removed segments
	}
	if isRefusal(err) {
		level.Warn(b.cfg.Logger).Log("msg", "the log cannot be written yet; samples are refused until it can", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	return b.segments.removeBefore(b.log.current)
}

// startSegment makes the last stamp durable and begins the first segment.
func (b *Buffer) startSegment() error {
	if len(b.dir.state.heads) > 0 {
		if err := writeStamp(b.dir.state, b.stamp); err != nil {
			return refuseIfFull(err)
		}
	}
	return b.log.start()
}

// list has META list the log.
func (b *Buffer) list(ctx context.Context) error {
	var err error
	if b.member != nil {
		err = b.renew(ctx)
	} else {
		err = b.dir.register(ctx, b.dir.describe(b.cfg.Now(), 0))
	}
	if err != nil {
		return refusal{err}
	}
	b.unlisted = false
	return nil
}

// newBuffer returns a buffer without samples or an open log.
func newBuffer(dir *Dir, cfg Config) *Buffer {
	b := &Buffer{
		Store:       cfg.Store,
		cfg:         cfg,
		dir:         dir,
		metrics:     newMetrics(cfg),
		refs:        make(map[string]*ref),
		interleaved: make(map[*ref]struct{}),
		seed:        maphash.MakeSeed(),

		requests: make(chan *request),
		between:  make(chan func()),
		pressure: make(signal, 1),
	}
	if cfg.Address != "" {
		b.member = newMember(cfg.Now)
	}
	b.retries = retryQueue{dir: dir.state, metrics: b.metrics}
	b.segments = newSegments(dir.state, b.metrics)
	b.sealing.init()
	return b
}

// registerInterval is the time between two updates of the log in META.
const registerInterval = 15 * time.Second

// registerAgain updates the log in META, and logs an error.
func (b *Buffer) registerAgain() {
	if b.segments.last() == 0 { // listed without a segment, the log would look lost
		return
	}
	// A cancelled request could still arrive after Close has deregistered the log.
	if err := b.register(context.Background()); err != nil {
		level.Warn(b.cfg.Logger).Log("msg", "the log was not registered in META, retrying", "err", err)
	}
}

// every calls fn at an interval, and when wake is, until ctx ends. wake may be nil.
func every(ctx context.Context, interval time.Duration, wake signal, fn func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-ticker.C:
		}
		fn()
	}
}

// A signal wakes one waiter.
type signal chan struct{}

func (s signal) wake() {
	select {
	case s <- struct{}{}:
	default: // already woken
	}
}

// register updates what META says of the log.
func (b *Buffer) register(ctx context.Context) error {
	var err error
	if b.member != nil {
		err = b.renew(ctx)
	} else {
		err = b.dir.register(ctx, b.Log())
	}
	if err != nil {
		return err
	}
	return b.dir.note(ctx, b.log.durableStamp())
}

// Log returns the row of META for the log: where it is, and what it holds now.
func (b *Buffer) Log() meta.Log {
	l := b.dir.describe(b.cfg.Now(), b.segments.size())
	if b.cfg.Closed != nil {
		l.Closed = max(1, b.cfg.Closed())
		l.Oldest = b.Oldest()
	}
	return l
}

// Oldest returns a time in milliseconds: no sample before it is in the buffer that was there when Oldest was called, and is not in the
// store. It is at most a window before the oldest sample. It is 0 if the buffer is empty, and 1 for samples before that.
func (b *Buffer) Oldest() int64 {
	oldest := int64(math.MaxInt64)
	b.eachSeries(b.mu.RLocker(), func(r *ref) { oldest = min(oldest, r.oldest()) })
	if oldest = min(oldest, b.retries.oldest(b.cfg.Schema)); oldest == math.MaxInt64 {
		return 0
	}
	return max(1, oldest)
}

// eachSeries calls fn with each series, with mu held by lock: &mu or mu.RLocker().
func (b *Buffer) eachSeries(lock sync.Locker, fn func(*ref)) {
	b.eachPart(lock, func(first, last int) bool {
		for _, r := range b.order[first:last] {
			fn(r)
		}
		return true
	})
}

// eachPart calls fn with the bounds of one part of order after another, with mu held by lock, until it
// returns false. It goes from the last series to the first, because the last one replaces one that is forgotten: so
// fn may see a series twice, but misses none that was there at the start.
func (b *Buffer) eachPart(lock sync.Locker, fn func(first, last int) (more bool)) {
	lock.Lock()
	last := len(b.order)
	lock.Unlock()
	for more := true; more && last > 0; {
		lock.Lock()
		last = min(last, len(b.order))
		first := max(0, last-sweepAtOnce)
		more = fn(first, last)
		lock.Unlock()
		last = first
	}
}

// ID is the random name of the log. It survives restarts.
func (b *Buffer) ID() string { return b.dir.ID() }

// LastStamp returns the stamp of the last request before this start, in milliseconds, or 0
// if there was none. It is when the request came, or up to 2 ms later for each request
// before it.
func (b *Buffer) LastStamp() int64 { return b.lastStamp }

// OnEmpty makes Close call fn after everything is in the store and the log is removed, and
// before the store is closed. fn is not called if the log stays. OnEmpty must be called
// before Close.
func (b *Buffer) OnEmpty(fn func(context.Context)) { b.onEmpty = fn }

// Close writes all open chunks to the store, removes the log, and closes the store. If a
// write or a row fails, the log stays for the next start. CURRENT is written only for replayed
// samples: the engine writes the others.
func (b *Buffer) Close() error {
	close(b.requests)
	b.committing.Wait()
	b.closing.Store(true)
	err := b.flushAtEnd()
	b.stop()
	b.done.Wait()
	if n := len(b.FailingRows()); err == nil && n > 0 {
		level.Warn(b.cfg.Logger).Log("msg", "the log stays: the store does not take some rows", "rows", n, "dir", b.dir.state.Path())
		err = b.log.close()
	} else if err == nil {
		err = b.removeLog()
	} else {
		err = errors.Join(fmt.Errorf("flush the buffer, the log stays: %w", err), b.log.close())
	}
	return errors.Join(err, b.dir.Close(), b.Store.Close())
}

// removeLog removes the log, which is no longer needed. META forgets it first: otherwise a
// start that finds no segments could not tell whether samples are lost. The stamp that META
// keeps is in the directory before: a log without it would look like an older copy.
func (b *Buffer) removeLog() error {
	if err := errors.Join(b.log.close(), writeStamp(b.dir.state, b.stamp)); err != nil {
		return fmt.Errorf("remove the log: %w", err)
	}
	if err := b.dir.deregister(context.Background(), b.stamp); err != nil {
		return err
	}
	if err := b.log.remove(); err != nil {
		return err
	}
	if rows := b.dir.rows; rows != nil {
		if err := rows.RemoveAll(); err != nil {
			return fmt.Errorf("remove the rows of the log: %w", err)
		}
	}
	if b.onEmpty != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		b.onEmpty(ctx)
	}
	return nil
}

// closeTimeout is how long Close waits without a successful write.
const closeTimeout = 2 * time.Minute

// flushAtEnd is Flush for as long as writes succeed: a million series may need minutes.
func (b *Buffer) flushAtEnd() error {
	b.sealOpen()
	for {
		_, before := b.sealing.progress()
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		err := b.sealing.wait(ctx)
		cancel()
		if _, stored := b.sealing.progress(); err == nil || stored == before {
			return err
		}
	}
}

// Flush writes all open chunks to the store.
func (b *Buffer) Flush(ctx context.Context) error {
	b.sealOpen()
	return b.sealing.wait(ctx)
}

// sealOpen seals all open chunks.
func (b *Buffer) sealOpen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.refs {
		b.sealAll(r)
	}
}

// Drop implements bucketstore.Store. For METRIC it flushes first; samples that are appended
// meanwhile stay. The log is not changed: if the process dies before its last segments are
// removed, their samples come back.
func (b *Buffer) Drop(ctx context.Context, table bucketstore.Table, rows series.RowRange) error {
	if table == bucketstore.Metric {
		if err := b.Flush(ctx); err != nil {
			return err
		}
	}
	return b.Store.Drop(ctx, table, rows)
}
