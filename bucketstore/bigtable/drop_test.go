package bigtable_test

import (
	"slices"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/series"
)

// TestDropRange: ranges that are no prefix, by requests of deletes.
func TestDropRange(t *testing.T) {
	for _, tc := range []struct {
		name          string
		stored        int
		rows          series.RowRange
		want          []string
		reads, writes int
	}{
		{"several batches", 10002, rowRange("row 000001", "row 010001"), []string{"row 000000", "row 010001"}, 3, 2},
		{"less than a batch up to the end", 12, rowRange("row 000002", ""), []string{"row 000000", "row 000001"}, 1, 1},
		{"one row", 12, series.SingleRow([]byte("row 000007")), nil, 0, 1},
		{"nothing there", 12, rowRange("a", "c"), nil, 1, 0},
		{"an empty range", 12, rowRange("row 000005", "row 000005"), nil, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var spy spy
			s := bigtabletest.Open(t, spy.option())
			muts := metaRows(tc.stored, 0)
			apply(t, s, bucketstore.Meta, muts...)
			before := len(spy.seen())
			if err := s.Drop(t.Context(), bucketstore.Meta, tc.rows); err != nil {
				t.Fatal(err)
			}
			reads, writes := 0, 0
			for _, req := range spy.seen()[before:] {
				if _, ok := req.(*bigtablepb.ReadRowsRequest); ok {
					reads++
				} else {
					writes++
				}
			}
			if reads != tc.reads || writes != tc.writes {
				t.Errorf("%d reads and %d writes, want %d and %d", reads, writes, tc.reads, tc.writes)
			}
			want := tc.want
			if want == nil {
				for _, m := range muts {
					if !tc.rows.Contains(m.Key) {
						want = append(want, string(m.Key))
					}
				}
			}
			if got := keys(scan(t, s, wholeTable(bucketstore.Meta))); !slices.Equal(got, want) {
				t.Fatalf("%d rows are left, want %d", len(got), len(want))
			}
		})
	}
}
