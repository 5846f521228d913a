package bigtable_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/series"
)

func rowRange(start, limit string) series.RowRange {
	return series.RowRange{Start: []byte(start), Limit: []byte(limit)}
}

func TestScanKeysAndRanges(t *testing.T) {
	s := bigtabletest.Open(t)
	var muts []bucketstore.Mutation
	for _, key := range []string{"\x00", "a", "a\x00", "b", "ba", "c", "\xff\xff"} {
		muts = append(muts, bucketstore.Mutation{Key: []byte(key), Ops: []bucketstore.Op{setCell("m", nil, 1, nil)}})
	}
	apply(t, s, bucketstore.Meta, muts...)
	for _, tc := range []struct {
		name string
		rows []series.RowRange
		want []string
	}{
		{"none", nil, nil},
		{"empty ranges", []series.RowRange{rowRange("a", "a"), rowRange("b", "a")}, nil},
		{"the empty key", []series.RowRange{series.SingleRow(nil)}, nil},
		{"keys", []series.RowRange{series.SingleRow([]byte("a")), series.SingleRow([]byte("ab")), series.SingleRow([]byte("c"))}, []string{"a", "c"}},
		{"key and range", []series.RowRange{series.SingleRow([]byte("a")), series.PrefixRange([]byte("b")), rowRange("c", "c")}, []string{"a", "b", "ba"}},
		{"to the end", []series.RowRange{rowRange("c", "")}, []string{"c", "\xff\xff"}},
		{"from the start", []series.RowRange{rowRange("", "a\x00")}, []string{"\x00", "a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := wholeTable(bucketstore.Meta)
			req.Rows = tc.rows
			if got := keys(scan(t, s, req)); !slices.Equal(got, tc.want) {
				t.Fatalf("found %q, want %q", got, tc.want)
			}
		})
	}
}

// TestScanCallbackErrorCancels: the request is cancelled at the server.
func TestScanCallbackErrorCancels(t *testing.T) {
	ended := make(chan struct{})
	var rows atomic.Int64
	waits := spy{
		onRow: func(ctx context.Context, _ *bigtablepb.ReadRowsResponse) error {
			if rows.Add(1) > 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		},
		onReadEnd: func() { close(ended) },
	}
	s := bigtabletest.Open(t, waits.option())
	apply(t, s, bucketstore.Meta, metaRows(5, 8)...)
	stop := errors.New("stop")
	if err := s.Scan(t.Context(), wholeTable(bucketstore.Meta), func(bucketstore.Row) error { return stop }); err != stop {
		t.Fatalf("Scan: %v, want the error of fn", err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the request was not cancelled at the server")
	}
}

// TestScanResumes: rows come once, although the stream breaks between them.
func TestScanResumes(t *testing.T) {
	for _, tc := range []struct {
		name string
		rows []series.RowRange
	}{
		{"range", []series.RowRange{{}}},
		{"keys", []series.RowRange{series.SingleRow([]byte("row 000000")), series.SingleRow([]byte("row 000001")), series.SingleRow([]byte("row 000002"))}},
		{"keys and range", []series.RowRange{series.SingleRow([]byte("row 000000")), series.SingleRow([]byte("row 000001")), series.PrefixRange([]byte("row 000002"))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var sent atomic.Int64
			breaks := spy{onRow: func(context.Context, *bigtablepb.ReadRowsResponse) error {
				if sent.Add(1) == 3 {
					return status.Error(codes.Unavailable, "broken")
				}
				return nil
			}}
			s := bigtabletest.Open(t, breaks.option())
			apply(t, s, bucketstore.Meta, metaRows(3, 8)...)
			req := wholeTable(bucketstore.Meta)
			req.Rows = tc.rows
			if got := keys(scan(t, s, req)); !slices.Equal(got, []string{"row 000000", "row 000001", "row 000002"}) {
				t.Fatalf("found %q", got)
			}
			requests := breaks.seen()
			last := requests[len(requests)-1].(*bigtablepb.ReadRowsRequest)
			for _, r := range last.Rows.RowRanges {
				if open := r.GetStartKeyOpen(); open != nil && string(append(open, 0)) == string(r.GetEndKeyOpen()) {
					t.Errorf("the request asks for a range without a key: %v", r)
				}
			}
		})
	}
}

// TestScanPatience: a stream may last longer than CallTimeout, but may not be silent for as
// long.
func TestScanPatience(t *testing.T) {
	const timeout = time.Second
	var rows atomic.Int64
	var silent atomic.Bool
	hold := make(chan struct{}, 1)
	holds := spy{onRow: func(ctx context.Context, _ *bigtablepb.ReadRowsResponse) error {
		if n := rows.Add(1); n%4 != 3 && (n < 3 || !silent.Load()) {
			return nil
		}
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return ctx.Err()
	}}
	cfg := bigtabletest.Config(bigtabletest.Serve(t, holds.option()))
	apply(t, open(t, cfg), bucketstore.Meta, metaRows(4, 8)...)
	cfg.CallTimeout = timeout
	s := open(t, cfg)

	t.Run("slow reader", func(t *testing.T) {
		seen := 0
		err := s.Scan(t.Context(), wholeTable(bucketstore.Meta), func(bucketstore.Row) error {
			if seen++; seen == 1 {
				<-time.After(timeout + timeout/2) // the stream may last this long
				hold <- struct{}{}
			}
			return nil
		})
		if err != nil || seen != 4 {
			t.Fatalf("Scan: %d rows, %v, want 4", seen, err)
		}
	})
	t.Run("server that falls silent once", func(t *testing.T) {
		rows.Store(0)
		got := keys(scan(t, s, wholeTable(bucketstore.Meta)))
		if want := []string{"row 000000", "row 000001", "row 000002", "row 000003"}; !slices.Equal(got, want) {
			t.Fatalf("rows %q, want %q, each once", got, want)
		}
	})
	t.Run("silent server", func(t *testing.T) {
		rows.Store(0)
		silent.Store(true)
		seen := 0
		err := s.Scan(t.Context(), wholeTable(bucketstore.Meta), func(bucketstore.Row) error {
			seen++
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || seen > 2 {
			t.Fatalf("Scan: %d rows, %v, want two and a deadline", seen, err)
		}
	})
}

// TestScanDuplicateColumn: the emulator returns a column twice that was
// collected and written again.
func TestScanDuplicateColumn(t *testing.T) {
	twice := spy{onRow: func(_ context.Context, res *bigtablepb.ReadRowsResponse) error {
		first := proto.Clone(res.Chunks[0]).(*bigtablepb.ReadRowsResponse_CellChunk)
		first.RowStatus = nil
		res.Chunks = append([]*bigtablepb.ReadRowsResponse_CellChunk{first}, res.Chunks...)
		return nil
	}}
	s := bigtabletest.Open(t, twice.option())
	apply(t, s, bucketstore.Metric, bucketstore.Mutation{Key: []byte("row"), Ops: []bucketstore.Op{
		setCell("l", []byte("q"), 1, []byte("1")), setCell("r0", []byte("q"), 2, []byte("2")),
	}})
	rows := scan(t, s, wholeTable(bucketstore.Metric))
	if len(rows) != 1 || len(rows[0].Cells) != 2 || rows[0].Cells[0].Family != "l" || rows[0].Cells[1].Family != "r0" {
		t.Fatalf("found %v, want one row of two cells", rows)
	}
}

func TestScanFilterTooLarge(t *testing.T) {
	s := bigtabletest.Open(t)
	req := wholeTable(bucketstore.Meta)
	req.Families[0].Start, req.Families[0].Limit = []byte(strings.Repeat("a", 12<<10)), []byte(strings.Repeat("b", 12<<10))
	err := s.Scan(t.Context(), req, func(bucketstore.Row) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "filter of") {
		t.Fatalf("Scan: %v, want the size of the filter", err)
	}
}
