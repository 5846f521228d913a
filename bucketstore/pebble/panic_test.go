package pebble_test

import (
	"fmt"
	"testing"

	"github.com/promtable/promtable/bucketstore"
)

// TestScanPanics: after a recovered panic of fn the store works as before.
func TestScanPanics(t *testing.T) {
	s := openStore(t, onDisk(t.TempDir()))
	for i := range 9 {
		apply(t, s, bucketstore.Metric, fmt.Sprintf("up,job=%d,%s", i, testBase), setOp("l", string(daysIn(i%3, 0)), 1, "x"))
	}
	for range 20 {
		func() {
			defer func() {
				if value := recover(); value != "fn" {
					t.Errorf("recovered %v", value)
				}
			}()
			rows := 0
			err := s.Scan(t.Context(), allOf(bucketstore.Metric), func(bucketstore.Row) error {
				if rows++; rows == 5 {
					panic("fn")
				}
				return nil
			})
			t.Errorf("the scan returned %v", err)
		}()
	}
	apply(t, s, bucketstore.Metric, "up,job=0,"+testBase, setOp("l", string(daysIn(1, 0)), 1, "y"))
	cells := 0
	err := s.Scan(t.Context(), allOf(bucketstore.Metric), func(row bucketstore.Row) error {
		cells += len(row.Cells)
		return nil
	})
	if err != nil || cells != 10 {
		t.Errorf("%d cells, %v, want 10", cells, err)
	}
}
