package bigtable_test

import (
	"testing"

	"github.com/promtable/promtable/bucketstore/bigtable"
)

// TestNodeSeconds: a second is the rows that a node finds in it, or the bytes that it scans.
func TestNodeSeconds(t *testing.T) {
	for _, tt := range []struct {
		rows, indexRows, bytes int64
		want                   float64
	}{
		{0, 0, 0, 0},
		{bigtable.NodeRowReads, 0, 0, 1},
		{0, 0, bigtable.NodeScanBytes, 1},
		{0, bigtable.NodeScanBytes / 1000, 0, 1},
		{bigtable.NodeRowReads / 2, 0, bigtable.NodeScanBytes, 1.5},
	} {
		if got := bigtable.NodeSeconds(tt.rows, tt.indexRows, tt.bytes); got != tt.want {
			t.Errorf("%+v: %g", tt, got)
		}
	}
}
