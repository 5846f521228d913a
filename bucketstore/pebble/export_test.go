package pebble

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// WithFS returns c with another file system.
func (c Config) WithFS(fs vfs.FS) Config {
	c.fs = fs
	return c
}

// FS returns the file system of c.
func (c Config) FS() vfs.FS { return c.fs }

// WithIngest returns c with another size from which batches are ingested; a negative one is
// for all batches.
func (c Config) WithIngest(bytes int) Config {
	c.ingestBytes = bytes
	return c
}

// WithPatience returns c with another pause between a failure in the background and the next
// attempt.
func (c Config) WithPatience(pause time.Duration) Config {
	c.patience = pause
	return c
}

// EngineOptions returns the options with which the store opens its database.
func EngineOptions(fs vfs.FS) *pebble.Options {
	opts := engineOptions(Config{CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
	opts.FS = fs
	return opts
}

// EngineMetrics returns Pebble's metrics.
func (s *Store) EngineMetrics() *pebble.Metrics { return s.db.Metrics() }

// Compact compacts the whole store.
func (s *Store) Compact(ctx context.Context) error {
	return readError(s.db.Compact(ctx, []byte{0}, []byte{0xff}, false))
}

// MakeReserve makes the reserve if there is space.
func (s *Store) MakeReserve(ctx context.Context) error { return s.makeReserve(ctx) }

// StartFlush starts a flush of the memtables.
func (s *Store) StartFlush() error {
	_, err := s.db.AsyncFlush()
	return err
}

// Flush flushes the memtables.
func (s *Store) Flush() error { return s.db.Flush() }

// DataBlocks returns the blocks with cells of a table.
func DataBlocks(ctx context.Context, fs vfs.FS, path string) []block.Handle {
	opts := EngineOptions(fs)
	opts.EnsureDefaults()
	t, err := openTable(ctx, fs, path, opts.MakeReaderOptions())
	if err != nil {
		panic(err)
	}
	defer t.reader.Close()
	layout, err := t.reader.Layout()
	if err != nil {
		panic(err)
	}
	return dataBlocks(layout)
}
