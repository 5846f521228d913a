//go:build !race

package bigtable_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/series"
)

func TestApplyBatches(t *testing.T) {
	ops := func(n int) bucketstore.Mutation {
		m := bucketstore.Mutation{Key: fmt.Appendf(nil, "wide %d", n)}
		for range n {
			m.Ops = append(m.Ops, bucketstore.Op{Kind: bucketstore.DeleteFamily, Family: "m"})
		}
		return m
	}
	for _, tc := range []struct {
		name string
		muts []bucketstore.Mutation
		want []int
	}{
		{"nothing", nil, nil},
		{"one", metaRows(1, 8), []int{1}},
		{"by rows", metaRows(10001, 8), []int{1, 5000, 5000}},
		{"by bytes", metaRows(7, 600<<10), []int{1, 3, 3}},
		{"larger than a batch", metaRows(2, 5<<20), []int{1, 1}},
		{"by operations", []bucketstore.Mutation{ops(40000), ops(30000), ops(20000)}, []int{1, 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var spy spy
			s := bigtabletest.Open(t, spy.option())
			apply(t, s, bucketstore.Meta, tc.muts...)
			var got []int
			for _, req := range spy.seen() {
				got = append(got, len(req.(*bigtablepb.MutateRowsRequest).Entries))
				if size := proto.Size(req); got[len(got)-1] > 1 && size > 2<<20 {
					t.Errorf("a request has %d bytes", size)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Fatalf("requests of %v rows, want %v", got, tc.want)
			}
		})
	}
}

func TestApplyLimits(t *testing.T) {
	long := func(n int) []byte { return []byte(strings.Repeat("k", n)) }
	cell := func(key []byte, ops ...bucketstore.Op) bucketstore.Mutation {
		return bucketstore.Mutation{Key: key, Ops: ops}
	}
	small := setCell("m", []byte("q"), 1, nil)
	var many []bucketstore.Op
	for range 100_001 {
		many = append(many, bucketstore.Op{Kind: bucketstore.DeleteFamily, Family: "m"})
	}
	var huge []bucketstore.Op
	for i := range 11 {
		huge = append(huge, setCell("m", fmt.Append(nil, i), 1, make([]byte, 10<<20)))
	}
	for _, tc := range []struct {
		name string
		mut  bucketstore.Mutation
		want string
	}{
		{"longest key", cell(long(4096), small), ""},
		{"key too long", cell(long(4097), small), "4097 bytes"},
		{"empty key", cell(nil, small), "row key is empty"},
		{"longest qualifier", cell([]byte("a"), setCell("m", long(16<<10), 1, nil)), ""},
		{"qualifier too long", cell([]byte("a"), setCell("m", long(16<<10+1), 1, nil)), `row "a": family m: qualifier "kkk`},
		{"largest value", cell([]byte("a"), setCell("m", nil, 1, make([]byte, 10<<20))), ""},
		{"value too large", cell([]byte("a"), setCell("m", []byte("q"), 1, make([]byte, 10<<20+1))), `column m:"q": value has 10485761 bytes`},
		{"most operations", cell([]byte("a"), many[:100_000]...), ""},
		{"too many operations", cell([]byte("a"), many...), "100001 operations"},
		{"row too large", cell([]byte("a"), huge...), `row "a": mutation of`},
		{"negative time", cell([]byte("a"), setCell("m", []byte("q"), -1, nil)), "time -1"},
		{"time too great", cell([]byte("a"), setCell("m", []byte("q"), 1<<62, nil)), "time 4611686018427387904"},
		{"greatest time", cell([]byte("a"), setCell("m", []byte("q"), 9223372036854775, nil)), ""},
		{"unknown kind", cell([]byte("a"), bucketstore.Op{Kind: 9, Family: "m"}), "unknown kind 9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var spy spy
			s := bigtabletest.Open(t, spy.option())
			err := s.Apply(t.Context(), bucketstore.Meta, []bucketstore.Mutation{cell([]byte("before"), small), tc.mut, cell([]byte("behind"), small)})
			stored := keys(scan(t, s, wholeTable(bucketstore.Meta)))
			if !slices.Contains(stored, "before") || !slices.Contains(stored, "behind") {
				t.Errorf("the other rows are not stored: %.80q", stored)
			}
			if tc.want == "" {
				if err != nil {
					t.Fatalf("Apply: %v", err)
				}
				return
			}
			if got := failedRows(t, err); !slices.Equal(got, []int{1}) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("Apply: rows %v, %v, want row 1 and %q", got, err, tc.want)
			}
			var rows *bucketstore.RowsError
			if !errors.As(err, &rows) || !errors.Is(rows.Failed[1], bucketstore.ErrRefused) {
				t.Errorf("Apply: %v, want ErrRefused", err)
			}
			for _, req := range spy.seen() {
				if m, ok := req.(*bigtablepb.MutateRowsRequest); ok && len(m.Entries) != 2 {
					t.Errorf("a request has %d rows, want 2", len(m.Entries))
				}
			}
			if _, err := s.CheckAndApply(t.Context(), bucketstore.Meta, bucketstore.Condition{Family: "m", Absent: true}, tc.mut); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("CheckAndApply: %v, want %q", err, tc.want)
			}
		})
	}
}

// TestDirectBatches: requests keep to the bounds, and failed positions are those in the
// samples given to Append.
func TestDirectBatches(t *testing.T) {
	var spy spy
	s := bigtabletest.Open(t, spy.option(), bigtabletest.WithServerOptions(answering(func(key string) error {
		if key == "last,0000000000000" || key == "07000,0000000000000" {
			return status.Error(codes.Internal, "broken row")
		}
		return nil
	})))
	a := newDirect(s, 0)
	var samples []bucketstore.Sample
	for i := range 12_000 {
		samples = append(samples, bucketstore.Sample{Ref: a.Ref(fmt.Appendf(nil, "%05d", i)), T: 1})
	}
	long := a.Ref([]byte("long"))
	for i := range int64(150_000) {
		samples = append(samples, bucketstore.Sample{Ref: long, T: i})
	}
	samples = append(samples, bucketstore.Sample{Ref: a.Ref([]byte("last")), T: 1}, bucketstore.Sample{Ref: long, T: 0, V: 2})
	err := a.Append(t.Context(), samples)
	if got, want := failedSamples(t, err), []int{7000, 162_000}; !slices.Equal(got, want) {
		t.Errorf("failed are %v, want %v", got, want)
	}
	cells := 0
	for _, req := range spy.mutations(0) {
		ops := 0
		for _, entry := range req.Entries {
			ops += len(entry.Mutations)
		}
		cells += ops
		if size := proto.Size(req); ops > 100_000 || len(req.Entries) > 5000 || len(req.Entries) > 1 && size > 2<<20 {
			t.Errorf("a request of %d rows, %d cells, %d bytes", len(req.Entries), ops, size)
		}
	}
	if want := 12_000 + 150_000 + 1 + 1; cells != want {
		t.Errorf("%d cells, want %d", cells, want)
	}
}

// TestScanManyKeys: more keys than Bigtable takes in one request.
func TestScanManyKeys(t *testing.T) {
	const n, length = 3000, 300
	var muts []bucketstore.Mutation
	var want []string
	for i := range n {
		key := fmt.Sprintf("%06d%s", i, strings.Repeat("k", length))
		want = append(want, key)
		muts = append(muts, bucketstore.Mutation{Key: []byte(key), Ops: []bucketstore.Op{setCell("m", nil, 1, nil)}})
	}
	single := func(key string) series.RowRange { return series.SingleRow([]byte(key)) }
	prefix := func(key string) series.RowRange { return series.PrefixRange([]byte(key)) }
	for _, tc := range []struct {
		name  string
		of    func(key string) series.RowRange
		limit int
		least int
	}{
		{"keys", single, 0, 3},
		{"ranges", prefix, 0, 4},
		{"keys up to a limit in the second request", single, 2000, 2},
		{"ranges up to a limit in the first request", prefix, 5, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var spy spy
			s := bigtabletest.Open(t, spy.option())
			apply(t, s, bucketstore.Meta, muts...)
			before := len(spy.seen())
			req := wholeTable(bucketstore.Meta)
			req.Rows, req.Limit = nil, tc.limit
			for _, key := range want {
				req.Rows = append(req.Rows, tc.of(key))
			}
			wantKeys := want
			if tc.limit > 0 {
				wantKeys = want[:tc.limit]
			}
			if got := keys(scan(t, s, req)); !slices.Equal(got, wantKeys) {
				t.Fatalf("found %d rows, want %d in order", len(got), len(wantKeys))
			}
			requests := spy.seen()[before:]
			if len(requests) < tc.least {
				t.Errorf("%d requests, want at least %d", len(requests), tc.least)
			}
			for _, r := range requests {
				if size := proto.Size(r); size > 512_000 {
					t.Errorf("a request has %d bytes", size)
				}
			}
		})
	}
}
