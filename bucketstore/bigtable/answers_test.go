package bigtable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
)

// mutateRows answers requests of row mutations instead of the fake.
func mutateRows(answer func(req *bigtablepb.MutateRowsRequest, stream grpc.ServerStream) error) grpc.ServerOption {
	return grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if info.FullMethod != bigtablepb.Bigtable_MutateRows_FullMethodName {
			return handler(srv, stream)
		}
		var req bigtablepb.MutateRowsRequest
		if err := stream.RecvMsg(&req); err != nil {
			return err
		}
		return answer(&req, stream)
	})
}

// entryFor returns the part of an answer about one row.
func entryFor(index int, err error) *bigtablepb.MutateRowsResponse_Entry {
	return &bigtablepb.MutateRowsResponse_Entry{Index: int64(index), Status: status.Convert(err).Proto()}
}

// answering stores nothing. It answers each row with its error, in several messages and in
// another order, as Bigtable may.
func answering(row func(key string) error) grpc.ServerOption {
	return mutateRows(func(req *bigtablepb.MutateRowsRequest, stream grpc.ServerStream) error {
		var res bigtablepb.MutateRowsResponse
		for i, entry := range slices.Backward(req.Entries) {
			st := entryFor(i, row(string(entry.RowKey)))
			if st.Status == nil {
				st.Status = new(rpcstatus.Status)
			}
			res.Entries = append(res.Entries, st)
			if len(res.Entries) == 1000 || i == 0 {
				if err := stream.SendMsg(&res); err != nil {
					return err
				}
				res.Reset()
			}
		}
		return nil
	})
}

// TestApplyAnswers: the result of three rows when the server answers with one of tries
// after the other, and repeats the last.
func TestApplyAnswers(t *testing.T) {
	type try = func(req *bigtablepb.MutateRowsRequest, stream grpc.ServerStream) error
	send := func(entries ...*bigtablepb.MutateRowsResponse_Entry) try {
		return func(_ *bigtablepb.MutateRowsRequest, stream grpc.ServerStream) error {
			return stream.SendMsg(&bigtablepb.MutateRowsResponse{Entries: entries})
		}
	}
	fail := func(err error) try {
		return func(*bigtablepb.MutateRowsRequest, grpc.ServerStream) error { return err }
	}
	ok := func(i int) *bigtablepb.MutateRowsResponse_Entry {
		return &bigtablepb.MutateRowsResponse_Entry{Index: int64(i), Status: new(rpcstatus.Status)}
	}
	row := func(i int, code codes.Code) *bigtablepb.MutateRowsResponse_Entry {
		return entryFor(i, status.Error(code, "bad row"))
	}
	all := try(func(req *bigtablepb.MutateRowsRequest, stream grpc.ServerStream) error {
		var entries []*bigtablepb.MutateRowsResponse_Entry
		for i := range req.Entries {
			entries = append(entries, ok(i))
		}
		return send(entries...)(req, stream)
	})
	for _, tt := range []struct {
		name  string
		tries []try
		// requests are the last characters of the keys of each request.
		requests []string
		// failed are the rows that fail, with that text.
		failed []int
		text   string
		// whole is the code of an error of the whole request.
		whole codes.Code
		// refused says that the store can never take it.
		refused bool
	}{
		{name: "all stored", tries: []try{all}, requests: []string{"012"}},
		{name: "out of order, in several messages", tries: []try{func(req *bigtablepb.MutateRowsRequest, stream grpc.ServerStream) error {
			return errors.Join(send(ok(2))(req, stream), send()(req, stream), send(ok(0), ok(1))(req, stream))
		}}, requests: []string{"012"}},
		{name: "no answer about a row", tries: []try{send(ok(0), ok(2))}, requests: []string{"012"}, failed: []int{1}, text: "missing entry result"},
		{name: "no answer at all", tries: []try{fail(nil)}, requests: []string{"012"}, failed: []int{0, 1, 2}, text: "missing entry result"},
		{name: "no status", tries: []try{send(ok(0), ok(1), &bigtablepb.MutateRowsResponse_Entry{Index: 2})}, requests: []string{"012"}, failed: []int{2}, text: "missing status"},
		{name: "rows that are not there", tries: []try{send(ok(0), ok(1), ok(2), row(3, codes.Internal), row(-1, codes.Internal))}, requests: []string{"012"}},
		{name: "the last answer counts", tries: []try{send(row(0, codes.Internal), ok(0), ok(1), ok(2), row(2, codes.Internal))}, requests: []string{"012"}, failed: []int{2}, text: "bad row"},
		{name: "rows for a moment", tries: []try{send(row(0, codes.Unavailable), ok(1), row(2, codes.Aborted)), send(row(0, codes.DeadlineExceeded), ok(1)), all}, requests: []string{"012", "02", "0"}},
		{name: "rows for a moment and for good", tries: []try{send(row(0, codes.Unavailable), row(1, codes.ResourceExhausted), row(2, codes.Unavailable)), send(row(0, codes.NotFound), ok(1))}, requests: []string{"012", "02"}, failed: []int{0, 1}, text: "bad row"},
		{name: "transient request", tries: []try{fail(status.Error(codes.Unavailable, "")), fail(status.Error(codes.Aborted, "")), all}, requests: []string{"012", "012", "012"}},
		{name: "broken stream", tries: []try{fail(status.Error(codes.Internal, "stream terminated by RST_STREAM with code 2")), all}, requests: []string{"012", "012"}},
		{name: "broken after a part of the answer", tries: []try{func(req *bigtablepb.MutateRowsRequest, stream grpc.ServerStream) error {
			return errors.Join(send(ok(0))(req, stream), status.Error(codes.Unavailable, ""))
		}, all}, requests: []string{"012", "012"}},
		{name: "the server says when", tries: []try{fail(bigtabletest.Overloaded(time.Millisecond)), all}, requests: []string{"012"}, whole: codes.ResourceExhausted},
		{name: "exhausted", tries: []try{fail(status.Error(codes.ResourceExhausted, "no"))}, requests: []string{"012"}, whole: codes.ResourceExhausted},
		{name: "internal", tries: []try{fail(status.Error(codes.Internal, "no"))}, requests: []string{"012"}, whole: codes.Internal},
		{name: "a row for ever", tries: []try{send(ok(0), row(1, codes.InvalidArgument), ok(2))}, requests: []string{"012"}, failed: []int{1}, text: "bad row", refused: true},
		{name: "the request for ever", tries: []try{fail(status.Error(codes.InvalidArgument, "no"))}, requests: []string{"012"}, whole: codes.InvalidArgument, refused: true},
		{name: "rows for a moment, then the request for good", tries: []try{send(ok(0), row(1, codes.Unavailable), row(2, codes.Unavailable)), fail(status.Error(codes.PermissionDenied, "not you"))}, requests: []string{"012", "12"}, whole: codes.PermissionDenied},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var mu sync.Mutex
			var requests []string
			s := bigtabletest.Open(t, bigtabletest.WithServerOptions(mutateRows(func(req *bigtablepb.MutateRowsRequest, stream grpc.ServerStream) error {
				mu.Lock()
				defer mu.Unlock()
				seen := ""
				for _, entry := range req.Entries {
					seen += string(entry.RowKey[len(entry.RowKey)-1:])
				}
				requests = append(requests, seen)
				return tt.tries[min(len(requests), len(tt.tries))-1](req, stream)
			})))
			err := s.Apply(t.Context(), bucketstore.Meta, metaRows(3, 8))
			if !slices.Equal(requests, tt.requests) {
				t.Errorf("requests of the rows %q, want %q", requests, tt.requests)
			}
			if got := errors.Is(err, bucketstore.ErrRefused); got != tt.refused {
				t.Errorf("Apply: %v, is ErrRefused: %v", err, got)
			}
			switch {
			case tt.whole != codes.OK:
				if rows := (*bucketstore.RowsError)(nil); errors.As(err, &rows) || status.Code(err) != tt.whole {
					t.Errorf("Apply: %v, want one of code %s about the request", err, tt.whole)
				}
			case tt.failed == nil:
				if err != nil {
					t.Errorf("Apply: %v", err)
				}
			default:
				if got := failedRows(t, err); !slices.Equal(got, tt.failed) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("Apply: rows %v, %v, want %v and %q", got, err, tt.failed, tt.text)
				}
			}
		})
	}
}

// TestApplyAfterRequestsThatEndEarly: gRPC may still read the memory of a request whose
// call has ended, so it is not reused. The race detector sees it if it is.
func TestApplyAfterRequestsThatEndEarly(t *testing.T) {
	const rows, size = 3, 300 << 10
	started := make(chan struct{}, 1)
	s := bigtabletest.Open(t, bigtabletest.WithServerOptions(grpc.ChainStreamInterceptor(
		func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if info.FullMethod != bigtablepb.Bigtable_MutateRows_FullMethodName {
				return handler(srv, stream)
			}
			select {
			case started <- struct{}{}:
			default:
			}
			var req bigtablepb.MutateRowsRequest
			if err := stream.RecvMsg(&req); err != nil {
				return err
			}
			for i, entry := range req.Entries {
				value := string(entry.Mutations[0].GetSetCell().GetValue())
				if strings.Trim(value, value[:1]) != "" || string(entry.RowKey) != fmt.Sprintf("row %s %d", value[:1], i) {
					t.Errorf("row %q holds something else", entry.RowKey)
				}
			}
			return status.Error(codes.PermissionDenied, "seen")
		})))
	for i := range 100 {
		letter := string(rune('a' + i%26))
		var muts []bucketstore.Mutation
		for j := range rows {
			muts = append(muts, bucketstore.Mutation{Key: fmt.Appendf(nil, "row %s %d", letter, j), Ops: []bucketstore.Op{setCell("m", []byte("q"), 1, []byte(strings.Repeat(letter, size)))}})
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Apply(ctx, bucketstore.Meta, muts) }()
		select {
		case <-started:
			cancel()
			if err := <-done; err == nil {
				t.Error("Apply: no error")
			}
		case <-done: // what is started belongs to the last round
		}
		cancel()
	}
}
