package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series/rollup"
)

// Defaults of Config.
const (
	// DefaultCacheBytes is 64 MiB.
	DefaultCacheBytes = 64 << 20
	// DefaultMemTableBytes is 8 MiB: four million samples as chunks.
	DefaultMemTableBytes = 8 << 20
	// DefaultSweepInterval is an hour.
	DefaultSweepInterval = time.Hour

	// slowDisk is the time after which an operation is reported as slow, as in Pebble.
	slowDisk = 5 * time.Second
	// flushTimeout is short beside the 30 s that supervisors commonly allow for a stop.
	flushTimeout = 10 * time.Second
)

// Config says what to open.
type Config struct {
	// Dir is the data directory. It is created if it is missing, unless Existing is set:
	// then it must hold a store. The directory above it must exist.
	Dir      string
	Existing bool
	// ReadOnly opens an existing store, and changes no file of it. Writes are errors.
	ReadOnly bool
	// Tables are the tables and families of the store.
	Tables []bucketstore.TableSpec
	// Now is the clock by which cells expire; nil is time.Now.
	Now func() time.Time
	// Logger may be nil.
	Logger log.Logger
	// Registerer takes the metrics adapter_pebble_*. It may be nil.
	Registerer prometheus.Registerer
	// CacheBytes is the size of the block cache; 0 is DefaultCacheBytes.
	CacheBytes int64
	// MemTableBytes is the size of one memtable, of which there are up to four; 0 is
	// DefaultMemTableBytes.
	MemTableBytes uint64
	// SweepInterval is the time between two sweeps for expired cells; 0 is
	// DefaultSweepInterval.
	SweepInterval time.Duration
	// MinFree is the free space in bytes below which no writes come, see disk.Floor. A 16th
	// of it, and at least what a start writes, which is a little more than four memtables, but at
	// most 64 MiB, is kept in a file for a start on a full disk. 0 keeps none.
	MinFree uint64

	// fs, ingestBytes and patience replace the disk and constants in tests.
	fs          vfs.FS
	ingestBytes int
	patience    time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("open store: no data directory is named")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = log.NewNopLogger()
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = DefaultCacheBytes
	}
	if c.MemTableBytes == 0 {
		c.MemTableBytes = DefaultMemTableBytes
	}
	if c.SweepInterval == 0 {
		c.SweepInterval = DefaultSweepInterval
	}
	if c.ingestBytes == 0 {
		c.ingestBytes = ingestBytes
	}
	if c.patience == 0 {
		c.patience = retryPause
	}
	if c.fs != nil {
		return c, nil
	}
	c.fs = vfs.Default
	// The lock compares names of directories, so the directory needs a unique one.
	var err error
	c.Dir, err = filepath.Abs(c.Dir)
	return c, err
}

// A Store is a bucketstore.Store on the local disk. Its methods may be called
// concurrently, but for Close.
type Store struct {
	db     *pebble.DB
	lock   *pebble.Lock
	now    func() time.Time
	guard  *guard
	tables [bucketstore.NumTables]*table

	// columns is held shared while a batch becomes visible. A writer that reads cells to
	// decide what to write holds it exclusively, from the read until its batch is visible.
	columns sync.RWMutex
	// waiting counts batches that are visible and may not be durable yet.
	waiting sync.WaitGroup
	// Tables to be ingested are written to dir in fs. ingested counts them.
	fs          vfs.FS
	dir         string
	ingestBytes int
	minFree     uint64
	// memTableBytes is the size of a memtable.
	memTableBytes uint64
	reserving     sync.Mutex // held while the reserve is made
	copying       sync.Mutex // held while the copy of META/schema is written
	ingested      atomic.Uint64
	// ingesting is held shared while tables are ingested. While checkpointing is set none are: all goes through the log.
	ingesting     sync.RWMutex
	checkpointing atomic.Bool
	tableOptions  sstable.WriterOptions
	// readerOptions are for tables that are read without the database.
	readerOptions sstable.ReaderOptions
	// slowChecks reports slow operations of the disk.
	slowChecks io.Closer
	readOnly   bool
	// missing are the names of tables without a file, if the store is read only.
	missing map[string]bool
	// scanners recycles *scanner.
	scanners sync.Pool

	metrics    *metrics
	registerer prometheus.Registerer
	stopSweep  context.CancelFunc
	sweeping   sync.WaitGroup
	// cuts are those of ExpireBefore. wakeSweep begins a sweep.
	cuts      [rollup.NumResolutions]atomic.Int64
	wakeSweep chan struct{}
	// freeing counts the bytes of dropped days that are not compacted yet.
	freeing atomic.Uint64
}

var _ bucketstore.Store = (*Store)(nil)

// Open opens the store in a directory and locks it for this process. If another
// process holds the directory, the error names that process.
func Open(cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.ReadOnly {
		cfg.Existing, cfg.fs = true, readOnlyFS{cfg.fs}
	}
	s := &Store{
		now: cfg.Now, metrics: newMetrics(), registerer: cfg.Registerer, readOnly: cfg.ReadOnly,
		fs: cfg.fs, dir: cfg.Dir, ingestBytes: cfg.ingestBytes, minFree: cfg.MinFree, memTableBytes: cfg.MemTableBytes,
		wakeSweep: make(chan struct{}, 1),
	}
	if s.tables, err = newTables(cfg.Tables); err != nil {
		return nil, err
	}
	s.guard = newGuard(cfg, s.metrics)
	s.scanners.New = func() any { return new(scanner) }
	if s.lock, err = lockDirectory(cfg, time.Now()); err != nil {
		return nil, adviseSpace(cfg.Dir, err)
	}
	if err := s.open(cfg); err != nil {
		return nil, adviseSpace(cfg.Dir, errors.Join(err, s.slowChecks.Close(), s.lock.Close()))
	}
	sweep, stop := context.WithCancel(context.Background())
	s.stopSweep = stop
	if cfg.ReadOnly {
		return s, nil
	}
	s.sweeping.Go(func() { s.sweepUntil(sweep, cfg.SweepInterval) })
	s.sweeping.Go(func() { s.keepReserve(sweep) })
	return s, nil
}

// open opens the database in the locked directory.
func (s *Store) open(cfg Config) error {
	opts := engineOptions(cfg)
	opts.Lock = s.lock
	opts.Logger = s.guard
	opts.EventListener = s.guard.listener()
	// WithFSDefaults would leave a goroutine behind if the database does not open.
	opts.FS, s.slowChecks = vfs.WithDiskHealthChecks(cfg.fs, slowDisk, nil, func(info vfs.DiskSlowInfo) { opts.EventListener.DiskSlow(info) })
	opts.EnsureDefaults()
	// In front of the checks for slow operations.
	opts.FS = unreadableFS{patientFS{opts.FS, s.guard}, s.guard}
	if err := checkFiles(cfg.fs, cfg.Dir, opts); err != nil {
		return fmt.Errorf("open data directory %q: %w", cfg.Dir, err)
	}
	if cfg.ReadOnly {
		setReadOnly(opts)
	} else if err := prepareIngest(cfg.fs, cfg.Dir); err != nil {
		return err
	}
	db, err := s.openDatabase(cfg, opts)
	if err != nil {
		return fmt.Errorf("open data directory %q: %w", cfg.Dir, err)
	}
	s.guard.isOpen.Store(true)
	s.tableOptions = opts.MakeWriterOptions(0, db.TableFormat())
	s.readerOptions = opts.MakeReaderOptions()
	if err := s.loadDays(db); err != nil {
		return errors.Join(fmt.Errorf("open data directory %q: %w", cfg.Dir, err), db.Close())
	}
	s.db = db
	s.metrics.read = db.Metrics
	if s.registerer == nil {
		return nil
	}
	if err := s.registerer.Register(s.metrics); err != nil {
		return errors.Join(fmt.Errorf("register metrics of the store: %w", err), db.Close())
	}
	return nil
}

func (s *Store) openDatabase(cfg Config, opts *pebble.Options) (db *pebble.DB, err error) {
	if cfg.ReadOnly {
		db, s.missing, err = openWithoutMissing(cfg.Dir, opts)
		return db, err
	}
	db, err = pebble.Open(cfg.Dir, opts)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("a file is missing: restore the snapshot; adapter check says what is lost without it: %w", err)
	}
	return db, err
}

// loadDays finds the days of all tables.
func (s *Store) loadDays(db *pebble.DB) error {
	for _, t := range s.tables {
		if t == nil || t.calendar() == nil {
			continue
		}
		for _, l := range t.layers {
			if err := l.days.load(db, l.first); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close implements bucketstore.Store. It flushes first, so that the next start has no log
// to read.
func (s *Store) Close() error {
	s.stopSweep()
	s.sweeping.Wait()
	if err := s.awaitWrites(); err != nil { // the end of the process ends them
		return errors.Join(err, s.slowChecks.Close(), s.lock.Close())
	}
	if s.registerer != nil {
		s.registerer.Unregister(s.metrics)
	}
	var err error
	if !s.readOnly {
		err = s.flush()
	}
	s.guard.close()
	return errors.Join(err, s.db.Close(), s.slowChecks.Close(), s.lock.Close())
}

// awaitWrites waits for writes that go on though their callers have left: for as long as a flush may take if the disk is full.
func (s *Store) awaitWrites() error {
	done := make(chan struct{})
	go func() {
		s.waiting.Wait()
		close(done)
	}()
	for {
		select {
		case <-done:
			return nil
		case <-time.After(flushTimeout):
			if err := s.guard.checkSpace(); err != nil {
				return fmt.Errorf("a write has not ended: %w", err)
			}
		}
	}
}

// DiskUsage returns about how many bytes of the database on the disk hold rows of a table,
// compressed, without those that only the log has.
func (s *Store) DiskUsage(t bucketstore.Table) (bytes uint64, err error) {
	held, err := s.table(t)
	if err != nil {
		return 0, err
	}
	for _, l := range held.layers {
		size, err := s.db.EstimateDiskUsage([]byte{l.first}, []byte{l.first + 1})
		if err != nil {
			return 0, err
		}
		bytes += size
	}
	return bytes, nil
}

// flush flushes for up to flushTimeout. If a full disk has no space for tables, nothing is
// lost: the log has everything.
func (s *Store) flush() error {
	const notFlushed = "not flushed before the end; the next start reads the log"
	if s.guard.untilRetry() > 0 {
		level.Warn(s.guard.logger).Log("msg", notFlushed, "reason", "the disk is full")
		return nil
	}
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
	case <-time.After(flushTimeout):
		level.Warn(s.guard.logger).Log("msg", notFlushed)
	}
	return nil
}

func newTables(specs []bucketstore.TableSpec) (tables [bucketstore.NumTables]*table, err error) {
	for _, spec := range specs {
		if spec.Table >= bucketstore.NumTables {
			return tables, fmt.Errorf("open store: %w: table %d", bucketstore.ErrTable, spec.Table)
		}
		for _, family := range spec.Families {
			if !isName(family.Name) {
				return tables, fmt.Errorf("open store: family name %q is not made of letters and digits", family.Name)
			}
		}
		tables[spec.Table] = newTable(spec)
	}
	return tables, nil
}

// isName says whether families with such names sort as the contract wants it.
func isName(name string) bool {
	for i := 0; i < len(name); i++ {
		c := name[i]
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z') {
			return false
		}
	}
	return name != ""
}

// table returns the table t, or ErrTable.
func (s *Store) table(t bucketstore.Table) (*table, error) {
	if t >= bucketstore.NumTables || s.tables[t] == nil {
		return nil, fmt.Errorf("%w: table %d", bucketstore.ErrTable, t)
	}
	return s.tables[t], nil
}

// family returns the family of this name, or ErrTable.
func (t *table) family(name string) (*bucketstore.FamilySpec, error) {
	for i := range t.families {
		if t.families[i].Name == name {
			return &t.families[i], nil
		}
	}
	return nil, fmt.Errorf("%w: family %q", bucketstore.ErrTable, name)
}

// cutoff returns the least time of a cell that has not expired at now, in
// milliseconds.
func cutoff(family *bucketstore.FamilySpec, now time.Time) int64 {
	if family.MaxAge <= 0 {
		return 0
	}
	return now.Add(-family.MaxAge).UnixMilli()
}

// Traits implements bucketstore.Store. An Apply is one batch of Pebble.
func (s *Store) Traits() bucketstore.Traits {
	return bucketstore.Traits{AtomicApply: true, OnDisk: true, ParallelScans: 1}
}
