package pebble

import (
	"bytes"
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/promtable/promtable/bucketstore"
)

// Names that Pebble records and compares at each start. They are part of the
// format.
const (
	comparerName = "promtable.row.1"
	mergerName   = "promtable.newest.0"
)

// memTables is how many memtables there may be, before writes wait for flushes.
const memTables = 4

// engineOptions returns the options of the database. They were measured with a load of
// samples. The caller adds logs, events and the file system.
func engineOptions(cfg Config) *pebble.Options {
	opts := &pebble.Options{
		CacheSize:                  cfg.CacheBytes,
		Cleaner:                    cleaner{},
		Comparer:                   newComparer(),
		CompactionConcurrencyRange: func() (lower, upper int) { return 1, 2 },
		FormatMajorVersion:         pebble.FormatTableFormatV6,
		// Many new series arrive as many tables. To compact them early costs more than all
		// else about them, to compact them late costs every read.
		L0CompactionThreshold:       10,
		L0StopWritesThreshold:       1000,
		LBaseMaxBytes:               64 << 20,
		MemTableSize:                cfg.MemTableBytes,
		MemTableStopWritesThreshold: memTables,
		Merger:                      newMerger(),
	}
	for i := range opts.Levels {
		opts.Levels[i].BlockSize = 32 << 10
		opts.Levels[i].IndexBlockSize = 256 << 10
		// Scans use no filters, and conditions are few.
		opts.Levels[i].FilterPolicy = pebble.NoFilterPolicy
	}
	compression := newCompression()
	opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return compression })
	return opts
}

// A cleaner deletes files. Its deeply embedded interface makes Pebble keep no old logs for
// reuse: they would be as large as the samples of hours.
type cleaner struct {
	pebble.DeleteCleaner
	wantsContents
}

type wantsContents struct{ pebble.ArchiveCleaner }

// newCompression returns Pebble's good profile (zstd below, minlz above), which compresses
// blocks of samples even if they shrink little.
func newCompression() pebble.DBCompressionSettings {
	settings := pebble.DBCompressionGood
	for i, profile := range settings.Levels {
		dense := *profile
		dense.MinReductionPercent = 2
		settings.Levels[i] = &dense
	}
	return settings
}

// newComparer orders by bytes and makes rows the prefixes of keys.
func newComparer() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = comparerName
	c.Split = splitRow
	c.ImmediateSuccessor = func(dst, prefix []byte) []byte {
		if n := len(prefix); n > 0 && n >= headSize(prefix[0])+len(rowEnd) && bytes.HasSuffix(prefix, rowEnd) {
			return append(append(dst, prefix[:n-len(rowEnd)]...), escape, afterEnd)
		}
		return append(append(dst, prefix...), 0x00)
	}
	return &c
}

// newMerger returns the merger that keeps the operand with the greatest time and, of equal
// times, the newer operand, or the sum of both in a sum family.
func newMerger() *pebble.Merger {
	pool := &sync.Pool{}
	pool.New = func() any { return &cellMerge{pool: pool} }
	return &pebble.Merger{
		Name: mergerName,
		Merge: func(key, value []byte) (pebble.ValueMerger, error) {
			m := pool.Get().(*cellMerge)
			m.value, m.sums = append(m.value[:0], value...), isSum(key)
			_, _, err := parseCell(value)
			return m, err
		},
	}
}

// cellMerge merges the operands of one key. Reads need one for every cell, so it comes from
// a pool, and Pebble's Close of the result returns it.
type cellMerge struct {
	pool  *sync.Pool
	value []byte
	// sums says that the key is that of a sum.
	sums bool
}

func (m *cellMerge) MergeNewer(value []byte) error { return m.merge(value, true) }

func (m *cellMerge) MergeOlder(value []byte) error { return m.merge(value, false) }

func (m *cellMerge) merge(value []byte, isNewer bool) error {
	t, added, err := parseCell(value)
	if err != nil {
		return err
	}
	held, sum, err := parseCell(m.value)
	switch {
	case err != nil:
		return err
	case t == held && m.sums:
		return addTo(sum, added)
	case t > held || t == held && isNewer:
		m.value = append(m.value[:0], value...)
	}
	return nil
}

// addTo adds the number in the value added to the one in sum.
func addTo(sum, added []byte) error {
	n, err := bucketstore.ParseSum(added)
	if err != nil {
		return err
	}
	held, err := bucketstore.ParseSum(sum)
	if err == nil {
		bucketstore.AppendSum(sum[:0], held+n)
	}
	return err
}

func (m *cellMerge) Finish(bool) ([]byte, io.Closer, error) { return m.value, m, nil }

// maxPooled is the largest buffer that is reused, in bytes.
const maxPooled = 1 << 20

// Close returns m to the pool. The result of Finish is invalid from then on.
func (m *cellMerge) Close() error {
	if cap(m.value) <= maxPooled {
		m.pool.Put(m)
	}
	return nil
}
