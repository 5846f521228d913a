package pebble

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// WithFS returns c with a file system in place of the disk.
func (c Config) WithFS(fs vfs.FS) Config {
	c.fs = fs
	return c
}

// WithIngest returns c with a size from which on batches become tables; a negative
// one is for all batches.
func (c Config) WithIngest(bytes int) Config {
	c.ingestBytes = bytes
	return c
}

// EngineOptions returns the options with which the store opens its database.
func EngineOptions(fs vfs.FS) *pebble.Options {
	opts := engineOptions(Config{CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
	opts.FS = fs
	return opts
}

// EngineMetrics returns what Pebble counts.
func (s *Store) EngineMetrics() *pebble.Metrics { return s.db.Metrics() }
