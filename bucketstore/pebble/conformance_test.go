package pebble_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
)

// openStore opens a store and closes it at the end of the test.
func openStore(t testing.TB, cfg pebble.Config) *pebble.Store {
	t.Helper()
	s, err := pebble.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openOnDisk(t testing.TB, tables []bucketstore.TableSpec, now func() time.Time) bucketstore.Store {
	return openStore(t, pebble.Config{Dir: t.TempDir(), Tables: tables, Now: now})
}

// openTiny opens a store in memory with memtables so small that most of the data goes
// through flushes and compactions.
func openTiny(t testing.TB, tables []bucketstore.TableSpec, now func() time.Time) bucketstore.Store {
	cfg := pebble.Config{Dir: "/data", Tables: tables, Now: now, MemTableBytes: 16 << 10, CacheBytes: 1 << 20, SweepInterval: time.Millisecond}
	return openStore(t, cfg.WithFS(vfs.NewMem()))
}

// openIngesting opens a store that ingests each batch that it can.
func openIngesting(t testing.TB, tables []bucketstore.TableSpec, now func() time.Time) bucketstore.Store {
	cfg := pebble.Config{Dir: "/data", Tables: tables, Now: now, MemTableBytes: 64 << 10, CacheBytes: 1 << 20, SweepInterval: time.Millisecond}
	return openStore(t, cfg.WithFS(vfs.NewMem()).WithIngest(-1))
}

// conformingStores are the ways to open a store that keep the contract.
var conformingStores = map[string]storetest.Open{"on disk": openOnDisk, "tiny tables in memory": openTiny, "tables of each batch": openIngesting}

func TestConcurrentConformance(t *testing.T) {
	for name, open := range conformingStores {
		t.Run(name, func(t *testing.T) { storetest.RunConcurrent(t, open) })
	}
}

func TestExpiry(t *testing.T) {
	for name, open := range conformingStores {
		t.Run(name, func(t *testing.T) { storetest.RunExpiry(t, open) })
	}
}

func TestTraits(t *testing.T) {
	storetest.RunTraits(t, func(t *testing.T) (bucketstore.Store, func() (bucketstore.Store, error)) {
		cfg := pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{}), Now: time.Now}
		return openStore(t, cfg), func() (bucketstore.Store, error) { return pebble.Open(cfg) }
	})
}
