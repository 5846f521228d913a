package bigtable_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/series"
)

// metaRows returns n row mutations with a value of the given size.
func metaRows(n, size int) []bucketstore.Mutation {
	muts := make([]bucketstore.Mutation, n)
	for i := range muts {
		muts[i] = bucketstore.Mutation{Key: fmt.Appendf(nil, "row %06d", i), Ops: []bucketstore.Op{setCell("m", []byte("q"), 1, make([]byte, size))}}
	}
	return muts
}

// failedRows returns the positions that an Apply reports.
func failedRows(t *testing.T, err error) []int {
	t.Helper()
	rows, ok := err.(*bucketstore.RowsError)
	if !ok {
		t.Fatalf("Apply: %v, want a *RowsError", err)
	}
	return slices.Sorted(maps.Keys(rows.Failed))
}

func TestApplyPartialFailure(t *testing.T) {
	for _, tc := range []struct {
		name string
		rows int
		fail []int
	}{
		{"first", 10, []int{0}},
		{"last", 10, []int{9}},
		{"one of 2,000", 2000, []int{1234}},
		{"all of several batches but one row", 5003, without(5003, 1777)},
		{"one in each of several batches", 10001, []int{4999, 5000, 10000}},
		{"all", 3, []int{0, 1, 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			muts := metaRows(tc.rows, 8)
			bad := make(map[string]bool)
			for _, i := range tc.fail {
				bad[string(muts[i].Key)] = true
			}
			var mu sync.Mutex
			failing := true
			s := bigtabletest.Open(t, bigtabletest.WithMutateRowsHook(func(key string) error {
				mu.Lock()
				defer mu.Unlock()
				if failing && bad[key] {
					return errors.New("row is bad")
				}
				return nil
			}))

			err := s.Apply(t.Context(), bucketstore.Meta, muts)
			if got := failedRows(t, err); !slices.Equal(got, tc.fail) {
				t.Fatalf("%d rows failed, among them %v, want %d, among them %v", len(got), got[:min(5, len(got))], len(tc.fail), tc.fail[:min(5, len(tc.fail))])
			}
			if !strings.Contains(err.Error(), "row is bad") {
				t.Errorf("Apply: %v, want the error of the row", err)
			}
			if rows := scan(t, s, wholeTable(bucketstore.Meta)); len(rows) != tc.rows-len(tc.fail) {
				t.Fatalf("%d rows are stored, want %d", len(rows), tc.rows-len(tc.fail))
			}

			mu.Lock()
			failing = false
			mu.Unlock()
			apply(t, s, bucketstore.Meta, muts...)
			if rows := scan(t, s, wholeTable(bucketstore.Meta)); len(rows) != tc.rows {
				t.Fatalf("%d rows are stored after the repetition, want %d", len(rows), tc.rows)
			}
		})
	}
}

// without returns the numbers less than n except one.
func without(n, except int) []int {
	var numbers []int
	for i := range n {
		if i != except {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

func TestApplyRepeatsTransientErrors(t *testing.T) {
	tries := 0
	s := bigtabletest.Open(t, bigtabletest.WithMutateRowsHook(func(key string) error {
		if key != "row 000001" {
			return nil
		}
		if tries++; tries == 1 {
			return status.Error(codes.Unavailable, "later")
		}
		return nil
	}))
	apply(t, s, bucketstore.Meta, metaRows(3, 8)...)
	if rows := scan(t, s, wholeTable(bucketstore.Meta)); len(rows) != 3 || tries != 2 {
		t.Fatalf("%d rows are stored after %d tries, want 3 after 2", len(rows), tries)
	}
}

func TestApplyFailsAsAWhole(t *testing.T) {
	for _, rows := range []int{1, 12000} {
		t.Run(fmt.Sprint(rows, " rows"), func(t *testing.T) {
			refuse := spy{onRequest: func(context.Context, proto.Message) error { return status.Error(codes.PermissionDenied, "not you") }}
			s := bigtabletest.Open(t, refuse.option())
			err := s.Apply(t.Context(), bucketstore.Meta, metaRows(rows, 8))
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "META") {
				t.Fatalf("Apply: %v, want the answer and the table", err)
			}
		})
	}
}

// TestApplyBrokenBatch: one request of several fails, and only its rows are unconfirmed.
func TestApplyBrokenBatch(t *testing.T) {
	breaks := spy{onRequest: func(_ context.Context, req proto.Message) error {
		if m, ok := req.(*bigtablepb.MutateRowsRequest); ok && string(m.Entries[0].RowKey) == "row 005000" {
			return status.Error(codes.Internal, "broken")
		}
		return nil
	}}
	s := bigtabletest.Open(t, breaks.option())
	err := s.Apply(t.Context(), bucketstore.Meta, metaRows(12000, 8))
	got := failedRows(t, err)
	if len(got) != 5000 || got[0] != 5000 || got[4999] != 9999 {
		t.Fatalf("%d rows failed from %d, want the second 5,000", len(got), got[0])
	}
}

// TestApplyWithoutEffect: Bigtable refuses a mutation without operations, and a
// range of times up to 0 would be all of them.
func TestApplyWithoutEffect(t *testing.T) {
	var spy spy
	s := bigtabletest.Open(t, spy.option())
	apply(t, s, bucketstore.Meta, metaRows(1, 8)...)
	before := len(spy.seen())
	nothing := bucketstore.Op{Kind: bucketstore.DeleteColumnBefore, Family: "m", Qualifier: []byte("q")}
	apply(t, s, bucketstore.Meta, bucketstore.Mutation{Key: []byte("row 000000"), Ops: []bucketstore.Op{nothing}}, bucketstore.Mutation{Key: []byte("other")})
	if n := len(spy.seen()) - before; n != 0 {
		t.Errorf("%d requests, want none", n)
	}
	if got := keys(scan(t, s, wholeTable(bucketstore.Meta))); !slices.Equal(got, []string{"row 000000"}) {
		t.Fatalf("rows are %q", got)
	}
}

// TestDeadlines: a server that accepts requests and never answers.
func TestDeadlines(t *testing.T) {
	silent := spy{onRequest: func(ctx context.Context, _ proto.Message) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	mut := metaRows(1, 8)[0]
	calls := map[string]func(context.Context, *bigtable.Store) error{
		"Apply": func(ctx context.Context, s *bigtable.Store) error {
			return s.Apply(ctx, bucketstore.Meta, []bucketstore.Mutation{mut})
		},
		"Apply in batches": func(ctx context.Context, s *bigtable.Store) error {
			return s.Apply(ctx, bucketstore.Meta, metaRows(12000, 8))
		},
		"CheckAndApply": func(ctx context.Context, s *bigtable.Store) error {
			_, err := s.CheckAndApply(ctx, bucketstore.Meta, bucketstore.Condition{Family: "m", Absent: true}, mut)
			return err
		},
		"CheckAndApply of nothing": func(ctx context.Context, s *bigtable.Store) error {
			_, err := s.CheckAndApply(ctx, bucketstore.Meta, bucketstore.Condition{Family: "m", Absent: true}, bucketstore.Mutation{Key: mut.Key})
			return err
		},
		"Scan": func(ctx context.Context, s *bigtable.Store) error {
			return s.Scan(ctx, wholeTable(bucketstore.Meta), func(bucketstore.Row) error { return nil })
		},
		"Drop": func(ctx context.Context, s *bigtable.Store) error {
			return s.Drop(ctx, bucketstore.Meta, rowRange("a", "c"))
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			// A conditional write is not repeated after an attempt without an answer.
			late := func(err error) bool {
				return errors.Is(err, context.DeadlineExceeded) || name == "CheckAndApply" && status.Code(err) == codes.Unavailable
			}
			s := bigtabletest.Open(t, silent.option(), bigtabletest.WithConfig(func(cfg *bigtable.Config) { cfg.CallTimeout = 50 * time.Millisecond }))
			if err := call(t.Context(), s); !late(err) {
				t.Errorf("own timeout: %v, want context.DeadlineExceeded", err)
			}
			s = bigtabletest.Open(t, silent.option())
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := call(ctx, s); !late(err) {
				t.Errorf("deadline of the caller: %v, want context.DeadlineExceeded", err)
			}
		})
	}
}

// TestAddsAreRepeated: the client sends a mutation with an Add again after transient errors, as
// it does others. What was added before a stream broke is added again.
func TestAddsAreRepeated(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "try again")
	for _, tc := range []struct {
		name  string
		first bigtabletest.Fault
		want  int64
	}{
		{"no error", bigtabletest.Fault{}, 2},
		{"the request fails", bigtabletest.Fault{Err: unavailable}, 2},
		{"the row fails", bigtabletest.Fault{Row: func(string) error { return unavailable }}, 2},
		{"the stream breaks after the row", bigtabletest.Fault{Half: 1, Err: unavailable}, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var requests atomic.Int32
			s := bigtabletest.Open(t, bigtabletest.WithFaults(func(req proto.Message) bigtabletest.Fault {
				if _, ok := req.(*bigtablepb.MutateRowsRequest); ok && requests.Add(1) == 1 {
					return tc.first
				}
				return bigtabletest.Fault{}
			}))
			apply(t, s, bucketstore.Metric, bucketstore.Mutation{Key: []byte("row"), Ops: []bucketstore.Op{
				setCell("c", []byte("q"), 1, nil),
				{Kind: bucketstore.Add, Family: series.FamilyCount, Qualifier: []byte("q"), Time: 1, Value: bucketstore.AppendSum(nil, 2)},
			}})
			rows := scan(t, s, wholeTable(bucketstore.Metric))
			if len(rows) != 1 || len(rows[0].Cells) != 2 {
				t.Fatalf("%v", rows)
			}
			if n, err := bucketstore.ParseSum(rows[0].Cells[1].Value); err != nil || n != tc.want {
				t.Errorf("the sum is %d, %v, want %d", n, err, tc.want)
			}
		})
	}
}
