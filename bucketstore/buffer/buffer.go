// Package buffer is a write-behind buffer in front of a store: an Appender
// that is done with a sample when it stands in a log of its own, and that
// writes whole chunks to the store later. It is a Store, too, which shows what
// is not written yet as if it were.
//
//	buffer.go   what is there: opening, closing, the series
//	append.go   from samples to a place in the log and in open chunks
//	open.go     open chunks: samples as bytes, in the order in which they came
//	parts.go    most of their samples, encoded
//	seal.go     open chunks that are full or old, on their way to the store
//	cells.go    chunks as cells of the store
//	scan.go     reading: rows of the store with what is open beside
//	record.go   the bytes of the log
//	log.go      its files: group commit, segments
//	segment.go  reading one of them
//	dir.go      the directory: its lock, its owner, its identity
//	head.go     the head of a segment
//	bind.go     which store the log belongs to
//	stamp.go    where the order of requests goes on after the log
//	replay.go   reading the log at the start
//	metrics.go  counters of all this
//
// # Order
//
// Every request has a stamp, its receive time in milliseconds, later by two or
// more than those of all requests before, whatever becomes of the clock or of the
// log. A chunk carries the newest stamp of its samples, and
// the chunks of a series in a window, and the parts of one that is open, hold what
// came one after the other. So among chunks with a sample of one time the one with the highest stamp
// has the last write, whatever was sealed when, and a replay, which makes other
// chunks of the same requests, changes no answer.
package buffer

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// Config says how a Buffer works. Store is required.
type Config struct {
	// Store takes what is sealed. The buffer closes it.
	Store bucketstore.Store
	// Schema is that of the keys.
	Schema series.Schema
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// FsyncInterval is how long what is acknowledged may be unknown to the disk.
	// 0 is never: every acknowledged sample survives the loss of power. Otherwise
	// it survives the death of the process only.
	FsyncInterval time.Duration
	// Logger may be nil.
	Logger log.Logger
	// Registerer takes the metrics adapter_buffer_*. It may be nil.
	Registerer prometheus.Registerer

	// PartSamples is about how many samples of an open chunk are held as they came;
	// then they are encoded, which takes a third of the memory. 0 is 80.
	PartSamples int
	// SealSpread is the time after the end of a window over which the series seal
	// what they hold of it, evenly. 0 is as long as a window: then the store has the
	// same to do at all times. The shorter, the less is in memory.
	SealSpread time.Duration
	// MaxOpenBytes is how many bytes of samples may be open; beyond, an eighth of
	// them is sealed. 0 is 512 MiB.
	MaxOpenBytes int
	// MaxLogBytes is how large the log may become; beyond, what its oldest segments
	// are needed for is sealed. It takes what comes until then. 0 is 512 MiB.
	MaxLogBytes int
	// MaxIdle is how many series are remembered that hold nothing, so that their next
	// sample finds them. 0 is 1,000,000.
	MaxIdle int
	// SegmentBytes is the size of a segment of the log. 0 is DefaultSegmentBytes, or
	// an eighth of MaxLogBytes if that is less. In each stand the keys of its series,
	// and where they are much of it, a segment is larger, up to half of MaxLogBytes.
	SegmentBytes int
	// SweepInterval is how often the clock looks for what it must seal. 0 is 10 s.
	SweepInterval time.Duration

	// Die is called when what was acknowledged may be lost, or the log can no
	// longer be written: it must end the process. Nil logs and panics.
	Die func(err error)
}

// DefaultSegmentBytes is the size of a segment. The last one stays however little of
// it is needed, and is replayed.
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
			level.Error(logger).Log("msg", "the log failed; the process ends so that nothing is answered that may be lost", "err", err)
			panic(err)
		}
	}
	setDefault(&cfg.PartSamples, 80)
	setDefault(&cfg.MaxOpenBytes, 512<<20)
	setDefault(&cfg.MaxLogBytes, 512<<20)
	setDefault(&cfg.MaxIdle, 1_000_000)
	setDefault(&cfg.SegmentBytes, max(1, min(DefaultSegmentBytes, cfg.MaxLogBytes/8)))
	if cfg.SealSpread == 0 {
		cfg.SealSpread = time.Duration(series.Window) * time.Millisecond
	}
	if cfg.SweepInterval == 0 {
		cfg.SweepInterval = 10 * time.Second
	}
	return cfg
}

func setDefault(field *int, value int) {
	if *field == 0 {
		*field = value
	}
}

// A Buffer is an Appender and a Store. Its methods may be called concurrently,
// but for Close.
type Buffer struct {
	bucketstore.Store
	cfg     Config
	metrics *metrics
	// seed is of the jitter of series.
	seed     maphash.Seed
	dir      *Dir
	segments *segments
	log      *wal
	requests chan *request

	// mu guards the series and all that is in them but their keys.
	mu sync.RWMutex
	// refs are the series with samples in memory, by key, and those that were
	// asked for lately.
	refs map[string]*ref
	// order lists the series in a stable order, so that a sweep can look at a part of
	// them at a time.
	order []*ref
	// interleaved are the series whose rows may lie between two rows of
	// another series, see mayInterleave.
	interleaved map[*ref]struct{}
	// relievedTo is the position in order at which the last relief of memory ended.
	relievedTo int
	// applied is the stamp of the last request in open chunks.
	applied int64
	// openBytes is what the open chunks hold.
	openBytes int
	// partEncoder makes parts of open chunks.
	partEncoder partEncoder
	// stamp is that of the last request. It is owned by the committer; during start-up
	// by the replay.
	stamp int64

	// onEmpty is called when nothing is left in memory and in the log.
	onEmpty func(context.Context)

	sealing sealing
	// closing says that the newest samples need not go to CURRENT.
	closing atomic.Bool
	// pressure wakes the sweeper.
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

// Open replays the log in dir: when it returns all that was in it is in the store.
// ctx ends the replay. The buffer closes dir, also after an error. Where dir is
// bound to a store, the store knows the log when Open returns.
func Open(ctx context.Context, dir *Dir, cfg Config) (*Buffer, error) {
	b, err := open(ctx, dir, cfg.withDefaults())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log in %s: %w", dir.state.path, err), dir.Close())
	}
	return b, nil
}

func open(ctx context.Context, dir *Dir, cfg Config) (*Buffer, error) {
	b := newBuffer(dir, cfg)
	background, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.done.Go(func() { b.runSealing(background) })
	err := b.replay(ctx)
	if err == nil {
		b.log, err = createLog(dir.state, cfg, b.metrics, b.segments)
	}
	if err == nil { // a log without a segment would be taken for a lost one
		err = b.segments.removeBefore(b.log.current)
	}
	if err == nil {
		err = b.dir.register(ctx, cfg.Now(), 0)
	}
	if err != nil {
		stop()
		b.done.Wait()
		return nil, err
	}
	b.committing.Go(b.runCommits)
	b.done.Go(func() { b.runSweeps(background) })
	b.done.Go(func() { b.runRegister(background) })
	if cfg.FsyncInterval > 0 {
		b.done.Go(func() { b.runFsync(background) })
	}
	return b, nil
}

// newBuffer returns a buffer without samples, whose log is not open.
func newBuffer(dir *Dir, cfg Config) *Buffer {
	b := &Buffer{
		Store:       cfg.Store,
		cfg:         cfg,
		dir:         dir,
		metrics:     newMetrics(cfg.Registerer),
		refs:        make(map[string]*ref),
		interleaved: make(map[*ref]struct{}),
		seed:        maphash.MakeSeed(),

		requests: make(chan *request),
		pressure: make(signal, 1),
	}
	b.segments = newSegments(dir.state.path, b.metrics)
	b.sealing.init()
	return b
}

// registerInterval is how often the store is told that the log is there.
const registerInterval = 15 * time.Second

// runRegister tells the store that the log is there, until ctx ends.
func (b *Buffer) runRegister(ctx context.Context) {
	ticker := time.NewTicker(registerInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// A request that were cancelled could still arrive after Close has deregistered.
		if err := b.dir.register(context.WithoutCancel(ctx), b.cfg.Now(), b.segments.size()); err != nil {
			level.Warn(b.cfg.Logger).Log("msg", "the store was not told that the log is there, trying again", "err", err)
		}
	}
}

// ID names the log: it is the same after each start on the directory, and that of
// no other log.
func (b *Buffer) ID() string { return b.dir.ID() }

// OnEmpty has Close call fn, once everything is in the store and the log is
// removed, and before the store is closed; not if the log stays. It must be called
// before Close.
func (b *Buffer) OnEmpty(fn func(context.Context)) { b.onEmpty = fn }

// Close writes all that is open to the store, removes the log, and closes the
// store. If the store does not take it, the log stays for the next start. The
// latest samples go to CURRENT only if they are replayed: the engine has the others.
func (b *Buffer) Close() error {
	close(b.requests)
	b.committing.Wait()
	b.closing.Store(true)
	err := b.flushAtEnd()
	b.stop()
	b.done.Wait()
	if err == nil {
		err = b.end()
	} else {
		err = errors.Join(fmt.Errorf("flush the buffer, the log stays: %w", err), b.log.close())
	}
	return errors.Join(err, b.dir.Close(), b.Store.Close())
}

// end removes the log, of which nothing is needed any more. The store forgets the
// log first: if it did so later, a start that finds no segments could not tell
// whether samples are lost.
func (b *Buffer) end() error {
	if err := b.dir.deregister(context.Background()); err != nil {
		return errors.Join(err, b.log.close())
	}
	if err := b.log.remove(b.stamp); err != nil {
		return err
	}
	if b.onEmpty != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		b.onEmpty(ctx)
	}
	return nil
}

// closeTimeout is how long Close waits for a store that takes nothing.
const closeTimeout = 2 * time.Minute

// flushAtEnd is Flush for as long as the store takes something: a million series
// may need minutes.
func (b *Buffer) flushAtEnd() error {
	b.sealOpen()
	for {
		before := b.sealing.progress()
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		err := b.sealing.wait(ctx)
		cancel()
		if err == nil || b.sealing.progress() == before {
			return err
		}
	}
}

// Flush writes all that is open to the store.
func (b *Buffer) Flush(ctx context.Context) error {
	b.sealOpen()
	return b.sealing.wait(ctx)
}

// sealOpen seals all that is open.
func (b *Buffer) sealOpen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.refs {
		b.sealAll(r)
	}
}

// Drop implements bucketstore.Store. What is open of METRIC goes to the store
// first; what is appended meanwhile stays. The log does not know of it: samples
// in its last segments come back if the process dies before they are cut.
func (b *Buffer) Drop(ctx context.Context, table bucketstore.Table, rows series.RowRange) error {
	if table == bucketstore.Metric {
		if err := b.Flush(ctx); err != nil {
			return err
		}
	}
	return b.Store.Drop(ctx, table, rows)
}
