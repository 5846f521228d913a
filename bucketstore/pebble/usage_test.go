package pebble_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
)

// TestDiskUsage: each table has about the bytes that were written to it and do not compress.
func TestDiskUsage(t *testing.T) {
	dir := t.TempDir()
	s, err := pebble.Open(onDisk(dir))
	if err != nil {
		t.Fatal(err)
	}
	const valueSize, blockSize = 1000, 64 << 10
	rows := map[bucketstore.Table]int{bucketstore.Metric: 1500, bucketstore.Index: 500}
	random := rand.NewChaCha8([32]byte{})
	for table, family := range map[bucketstore.Table]string{bucketstore.Metric: "c", bucketstore.Index: "i"} {
		var muts []bucketstore.Mutation
		for i := range rows[table] {
			value := make([]byte, valueSize)
			random.Read(value)
			muts = append(muts, bucketstore.Mutation{Key: fmt.Append(nil, i), Ops: []bucketstore.Op{setOp(family, "q", 1, string(value))}})
		}
		if err := s.Apply(t.Context(), table, muts); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, onDisk(dir))
	for table := range bucketstore.Log {
		got, err := s.DiskUsage(table)
		if want := valueSize * rows[table]; err != nil || math.Abs(float64(got)-float64(want)) > 2*blockSize {
			t.Errorf("%v: %d bytes, %v, want about %d", table, got, err, want)
		}
	}
	if _, err := s.DiskUsage(bucketstore.NumTables); !errors.Is(err, bucketstore.ErrTable) {
		t.Errorf("no table: %v", err)
	}
}
