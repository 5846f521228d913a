package pebble

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// A guard is Pebble's logger and event listener. It ends the process when data can no
// longer be trusted.
type guard struct {
	logger  log.Logger
	metrics *metrics
	// closing is set when background work is being cancelled.
	closing atomic.Bool
}

// die ends the process. It does not return.
func (g *guard) die(what string, err error) {
	level.Error(g.logger).Log("msg", "storage failed; the process ends, to acknowledge no sample that may be lost", "part", what, "err", err)
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
	g.die("engine", fmt.Errorf(format, args...))
}

func (g *guard) warn(msg string, info fmt.Stringer) {
	level.Warn(g.logger).Log("msg", msg, "text", info)
}

func (g *guard) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: g.backgroundError,
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			g.die("stored data", fmt.Errorf("file %s: %w", info.Path, info.Details))
		},
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

// backgroundError handles an error of a flush or a compaction. If the disk is full their
// inputs still exist: Pebble retries, and the write-ahead log ends the process if it has no
// space either.
func (g *guard) backgroundError(err error) {
	switch {
	case errors.Is(err, pebble.ErrCancelledCompaction), g.closing.Load():
		g.Infof("background work was cut off: %v", err)
	case vfs.IsNoSpaceError(err):
		level.Error(g.logger).Log("msg", "no space for flushes or compactions", "err", err)
	default:
		g.die("flush or compaction", err)
	}
}
