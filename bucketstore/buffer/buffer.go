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
// came in consecutive stretches of time. So among chunks with a sample of one time the one with the highest stamp
// has the last write, whatever was sealed when, and a replay, which makes other
// chunks of the same requests, changes no answer.
package buffer

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/tsdb/fileutil"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// Config says how a Buffer works. Store and Dir are required.
type Config struct {
	// Store takes what is sealed. The buffer closes it.
	Store bucketstore.Store
	// Schema is that of the keys.
	Schema series.Schema
	// Dir is the directory of the log. It is made if it is missing. Nobody else
	// may use it: the embedded store's lock sees to that, or the operator.
	Dir string
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
	// ChunkSamples is about how many samples make a chunk; 0 is all of a window.
	ChunkSamples int
	// SealSpread is the time after the end of a window over which the series seal
	// what they hold of it, evenly. 0 is as long as a window: then the store has the
	// same to do at all times. The shorter, the less is in memory.
	SealSpread time.Duration
	// MaxOpenBytes is how many bytes of samples may be open; beyond, an eighth of
	// them is sealed. 0 is 512 MiB.
	MaxOpenBytes int
	// SegmentBytes is the size of a segment of the log. 0 is 64 MiB.
	SegmentBytes int
	// MaxSegments is how many segments there may be; beyond, what the oldest are
	// needed for is sealed. 0 is 8.
	MaxSegments int
	// SweepInterval is how often the clock looks for what it must seal. 0 is 10 s.
	SweepInterval time.Duration

	// Die is called when what was acknowledged may be lost, or the log can no
	// longer be written: it must end the process. Nil logs and panics.
	Die func(err error)
}

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
	setDefault(&cfg.SegmentBytes, 64<<20)
	setDefault(&cfg.MaxSegments, 8)
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
	lock     fileutil.Releaser
	segments *segments
	log      *wal
	requests chan *request

	// mu guards the series and all that is in them but their keys.
	mu sync.RWMutex
	// refs are the series with samples in memory, by key, and those that were
	// asked for lately.
	refs map[string]*ref
	// order are the same in some order, for who looks at a part of them at a time.
	order []*ref
	// amidst are those of them the rows of which may lie between two rows of
	// another series, see isAmidst.
	amidst map[*ref]struct{}
	// pressed is where in order the last sweep for memory ended.
	pressed int
	// openBytes is what the open chunks hold.
	openBytes int
	// buffers are those of open chunks, condenser makes parts of them.
	buffers   rawBuffers
	condenser condenser
	// stamp is that of the last request. Only who commits, and replay before, uses
	// it.
	stamp int64

	sealing sealing
	// closing says that the newest samples need not go to CURRENT.
	closing atomic.Bool
	// pressure wakes who sweeps.
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

// CheckEmpty says whether a log in dir, if there is one, holds samples that are
// in no store: then the error names it.
func CheckEmpty(dir string) error {
	found, err := segmentsIn(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err == nil && len(found) > 0:
		return fmt.Errorf("the log in %s holds samples that are not in the store yet", dir)
	}
	return err
}

// Open opens the log in cfg.Dir and replays what is in it: when it returns all
// of it is in the store. ctx ends the replay. It fails if another process has
// the log.
func Open(ctx context.Context, cfg Config) (*Buffer, error) {
	cfg = cfg.withDefaults()
	if err := makeDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("make the directory of the log: %w", err)
	}
	lock, _, err := fileutil.Flock(filepath.Join(cfg.Dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("the log in %s is held by another process: %w", cfg.Dir, err)
	}
	b, err := open(ctx, cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log in %s: %w", cfg.Dir, err), lock.Release())
	}
	b.lock = lock
	return b, nil
}

func open(ctx context.Context, cfg Config) (*Buffer, error) {
	b := &Buffer{
		Store:   cfg.Store,
		cfg:     cfg,
		metrics: newMetrics(cfg.Registerer),
		refs:    make(map[string]*ref),
		amidst:  make(map[*ref]struct{}),
		seed:    maphash.MakeSeed(),

		requests: make(chan *request),
		pressure: make(signal, 1),
	}
	b.segments = &segments{dir: cfg.Dir, metrics: b.metrics, pins: make(map[uint64]int)}
	b.sealing.init()
	background, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.done.Go(func() { b.runSealing(background) })
	err := b.replay(ctx)
	if err == nil {
		b.log, err = createLog(cfg, b.metrics, b.segments)
	}
	if err != nil {
		stop()
		b.done.Wait()
		return nil, err
	}
	b.committing.Go(b.runCommits)
	b.done.Go(func() { b.runSweeps(background) })
	if cfg.FsyncInterval > 0 {
		b.done.Go(func() { b.runFsync(background) })
	}
	return b, nil
}

// Close writes all that is open to the store, removes the log, and closes the
// store. If the store does not take it, the log stays for the next start. The
// newest samples go to CURRENT only if they are replayed: who appends has them.
func (b *Buffer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	close(b.requests)
	b.committing.Wait()
	b.closing.Store(true)
	err := b.Flush(ctx)
	b.stop()
	b.done.Wait()
	if err == nil {
		err = b.log.remove(b.stamp)
	} else {
		err = errors.Join(fmt.Errorf("flush the buffer, the log stays: %w", err), b.log.close())
	}
	return errors.Join(err, b.lock.Release(), b.Store.Close())
}

// closeTimeout bounds how long Close waits for the store.
const closeTimeout = 2 * time.Minute

// Flush writes all that is open to the store.
func (b *Buffer) Flush(ctx context.Context) error {
	b.mu.Lock()
	for _, r := range b.refs {
		b.sealAll(r)
	}
	b.mu.Unlock()
	return b.sealing.wait(ctx)
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
