package pebble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/series"
)

// A guard is Pebble's logger and event listener. It ends the process when data can no
// longer be trusted. A damaged table, which fails the reads that meet it, and a full disk
// under flushes and compactions, which are retried, do not end it.
type guard struct {
	logger  log.Logger
	metrics *metrics
	dir     string
	// patience replaces retryPause in tests.
	patience time.Duration
	// closing ends when background work is being cancelled.
	closing context.Context
	close   context.CancelFunc

	// isOpen says that the database is open: from then on the process ends if the write-ahead log has no next file.
	isOpen atomic.Bool

	mu sync.Mutex
	// damaged maps the damaged files to the times of their next log lines.
	damaged map[string]time.Time
	// retryAt is when flushes and compactions may write again after the disk was full.
	retryAt time.Time
}

const (
	// retryPause is the time between a failure in the background and the next attempt.
	// Pebble itself retries at once.
	retryPause = 30 * time.Second
	// damageInterval is the least time between two log lines about a damaged file.
	damageInterval = time.Hour
)

func newGuard(cfg Config, m *metrics) *guard {
	g := &guard{logger: cfg.Logger, metrics: m, dir: cfg.Dir, patience: cfg.patience, damaged: make(map[string]time.Time)}
	g.closing, g.close = context.WithCancel(context.Background())
	return g
}

// die ends the process. It does not return.
func (g *guard) die(what string, err error) {
	msg := "storage failed; the process ends, to acknowledge no sample that may be lost"
	if vfs.IsNoSpaceError(err) {
		msg = "storage failed: the disk is full; the process ends, to acknowledge no sample that may be lost. Free some space and start again"
	}
	level.Error(g.logger).Log("msg", msg, "path", g.dir, "part", what, "err", err)
	os.Exit(1)
}

// Infof is part of pebble.Logger.
func (g *guard) Infof(format string, args ...any) {
	level.Debug(g.logger).Log("msg", "storage engine", "text", fmt.Sprintf(format, args...))
}

// Errorf is part of pebble.Logger.
func (g *guard) Errorf(format string, args ...any) {
	level.Error(g.logger).Log("msg", "storage engine", "text", fmt.Sprintf(format, args...))
}

// Fatalf is part of pebble.Logger. Pebble calls it when the log or the manifest
// cannot be written or synced.
func (g *guard) Fatalf(format string, args ...any) {
	g.die("engine", &fatalError{fmt.Sprintf(format, args...), args})
}

// A fatalError is a message of Pebble with the errors in it.
type fatalError struct {
	text string
	args []any
}

func (e *fatalError) Error() string { return e.text }

func (e *fatalError) Unwrap() (errs []error) {
	for _, arg := range e.args {
		if err, ok := arg.(error); ok {
			errs = append(errs, err)
		}
	}
	return errs
}

func (g *guard) warn(msg string, info fmt.Stringer) {
	level.Warn(g.logger).Log("msg", msg, "text", info)
}

func (g *guard) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: g.backgroundError,
		DataCorruption:  g.dataCorruption,
		DiskSlow: func(info pebble.DiskSlowInfo) {
			g.metrics.slowDisk.Inc()
			g.warn("disk is slow", info)
		},
		LowDiskSpace: func(info pebble.LowDiskSpaceInfo) { g.warn("disk is nearly full", info) },
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			g.metrics.stalls.Inc()
			g.warn("writes wait for flushes or compactions", info)
		},
	}
}

// reportDamage counts a read that met a damaged file, and logs the file now and then.
func (g *guard) reportDamage(path string, err error) {
	g.metrics.damagedReads.Inc()
	g.logDamage(path, err)
}

// logDamage logs a damaged file now and then.
func (g *guard) logDamage(path string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if now.Before(g.damaged[path]) {
		return
	}
	g.damaged[path] = now.Add(damageInterval)
	g.metrics.damagedFiles.Set(float64(len(g.damaged)))
	level.Error(g.logger).Log("msg", "a file of the store is damaged: reads and compactions that need the damaged part fail, all others go on; restore the snapshot; adapter check says what is damaged", "file", path, "err", err)
}

// readError makes an error that meets a damaged file an ErrCorrupt that names it.
func readError(err error) error {
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		return fmt.Errorf("%w: file %s is damaged: %v", series.ErrCorrupt, info.Path, info.Details)
	}
	return err
}

// dataCorruption handles a read that met a damaged table. Pebble leaves the tables of a
// compaction that failed alone for a while, but not those of level 0. So a compaction waits
// here: it holds no lock, and no other goroutine waits for it.
func (g *guard) dataCorruption(info pebble.DataCorruptionInfo) {
	g.reportDamage(info.Path, info.Details)
	if calledBy("(*DB).runCompaction") {
		sleep(g.closing, g.patience)
	}
}

// backgroundError handles an error of work in the background, which Pebble retries at once.
// The inputs of a flush or a compaction still exist. If the disk is full, the write-ahead
// log ends the process if it has no space either.
func (g *guard) backgroundError(err error) {
	switch {
	case errors.Is(err, pebble.ErrCancelledCompaction), g.closing.Err() != nil:
		g.Infof("background work was cut off: %v", err)
	case vfs.IsNoSpaceError(err):
		g.metrics.failures.Inc()
		level.Error(g.logger).Log("msg", "no space for flushes or compactions", "path", g.dir, "err", err)
		g.mu.Lock()
		g.retryAt = time.Now().Add(g.patience)
		g.mu.Unlock()
	case pebble.IsCorruptionError(err):
		g.metrics.failures.Inc()
		if pebble.ExtractDataCorruptionInfo(err) == nil { // else it is reported
			g.reportDamage(g.dir, err)
		}
		if calledBy("(*DB).collectTableStats") { // the other callers hold Pebble's lock
			sleep(g.closing, g.patience)
		}
	default:
		g.die("flush or compaction", err)
	}
}

// calledBy says whether a function of Pebble is among the callers. The events of Pebble do
// not say on whose behalf a table was read.
func calledBy(function string) bool {
	const most = 64
	callers := make([]uintptr, most)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "."+function) {
			return true
		}
		if !more {
			return false
		}
	}
}

// A patientFS delays flushes and compactions after the disk was full, and ends the process where Pebble would panic: if the next file of the
// write-ahead log cannot be made. The panic would leave a lock of Pebble unusable.
type patientFS struct {
	vfs.FS
	*guard
}

// Create implements vfs.FS. Pebble holds no lock while it creates a table.
func (fs patientFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == "pebble-memtable-flush" || category == "pebble-compaction" {
		sleep(fs.closing, fs.untilRetry())
	}
	f, err := fs.FS.Create(name, category)
	fs.checkLog(name, err)
	return f, err
}

func (fs patientFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(from, to, category)
	fs.checkLog(to, err)
	return f, err
}

// checkLog ends the process if a file of the write-ahead log could not be made.
func (fs patientFS) checkLog(name string, err error) {
	if err != nil && strings.HasSuffix(name, ".log") && fs.isOpen.Load() {
		fs.die("write-ahead log", err)
	}
}

// checkSpace returns an error if flushes wait for space on the disk.
func (g *guard) checkSpace() error {
	if wait := g.untilRetry(); wait > 0 {
		return fmt.Errorf("flushes wait for space on the disk, and try again in %s: %w", wait.Round(time.Second), syscall.ENOSPC)
	}
	return nil
}

// untilRetry returns how long flushes and compactions must not write, if it is positive.
func (g *guard) untilRetry() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Until(g.retryAt)
}
