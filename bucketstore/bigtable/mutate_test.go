package bigtable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
)

// mutateRows answers requests of row mutations in place of the fake.
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

// answering answers without storing anything, each row with its error, in several
// messages, and in an order of its own, as Bigtable may.
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

// TestApplySendsGeneratedBytes: what is encoded by hand is what generated code
// makes of the same mutations.
func TestApplySendsGeneratedBytes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var spy spy
	s := bigtabletest.Open(t, spy.option(), bigtabletest.WithServerOptions(answering(func(string) error { return nil })))
	for range 200 {
		muts := randomMutations(random)
		before := len(spy.seen())
		apply(t, s, bucketstore.Metric, muts...)
		got := &bigtablepb.MutateRowsRequest{TableName: "projects/project/instances/instance/tables/METRIC"}
		want := proto.CloneOf(got)
		for _, req := range spy.mutations(before) {
			if len(req.ProtoReflect().GetUnknown()) > 0 || req.TableName != want.TableName {
				t.Fatalf("request %v", req)
			}
			got.Entries = append(got.Entries, req.Entries...)
		}
		slices.SortFunc(got.Entries, func(a, b *bigtablepb.MutateRowsRequest_Entry) int {
			return strings.Compare(string(a.RowKey), string(b.RowKey))
		})
		for _, m := range muts {
			want.Entries = append(want.Entries, generated(m))
		}
		if !proto.Equal(got, want) {
			t.Fatalf("%v\nwant\n%v", got, want)
		}
	}
}

// randomMutations returns up to 50 mutations in the order of their keys, each
// with an operation.
func randomMutations(random *rand.Rand) []bucketstore.Mutation {
	muts := make([]bucketstore.Mutation, random.IntN(50))
	for i := range muts {
		muts[i].Key = fmt.Appendf(nil, "%02d%s", i, strings.Repeat("k", random.IntN(2)*random.IntN(4000)))
		for range 1 + random.IntN(2)*random.IntN(20) {
			muts[i].Ops = append(muts[i].Ops, bucketstore.Op{
				Kind:      bucketstore.OpKind(random.IntN(4)),
				Family:    []string{"r0", "l", "c"}[random.IntN(3)],
				Qualifier: make([]byte, random.IntN(2)*random.IntN(200)),
				Time:      []int64{1, 127, 1 << 40, random.Int64N(9223372036854775)}[random.IntN(4)] * int64(random.IntN(2)),
				Value:     make([]byte, random.IntN(2)*random.IntN(20_000)),
			})
		}
		muts[i].Ops = append(muts[i].Ops, setCell("r1", []byte("q"), 0, nil))
	}
	return muts
}

// generated returns m in generated code, without what changes nothing.
func generated(m bucketstore.Mutation) *bigtablepb.MutateRowsRequest_Entry {
	entry := &bigtablepb.MutateRowsRequest_Entry{RowKey: m.Key}
	for _, op := range m.Ops {
		mut := new(bigtablepb.Mutation)
		switch op.Kind {
		case bucketstore.SetCell:
			mut.Mutation = &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
				FamilyName: op.Family, ColumnQualifier: op.Qualifier, TimestampMicros: op.Time * 1000, Value: op.Value,
			}}
		case bucketstore.DeleteColumn:
			mut.Mutation = &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{
				FamilyName: op.Family, ColumnQualifier: op.Qualifier,
			}}
		case bucketstore.DeleteColumnBefore:
			if op.Time == 0 {
				continue
			}
			mut.Mutation = &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{
				FamilyName: op.Family, ColumnQualifier: op.Qualifier, TimeRange: &bigtablepb.TimestampRange{EndTimestampMicros: op.Time * 1000},
			}}
		case bucketstore.DeleteFamily:
			mut.Mutation = &bigtablepb.Mutation_DeleteFromFamily_{DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: op.Family}}
		}
		entry.Mutations = append(entry.Mutations, mut)
	}
	return entry
}

// TestApplyAnswers: what becomes of three rows when the server answers with one
// of tries after the other, the last of them for ever.
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
	exhausted, err := status.New(codes.ResourceExhausted, "slow down").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
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
	}{
		{name: "all stored", tries: []try{all}, requests: []string{"012"}},
		{name: "out of order, in several messages", tries: []try{func(req *bigtablepb.MutateRowsRequest, stream grpc.ServerStream) error {
			return errors.Join(send(ok(2))(req, stream), send()(req, stream), send(ok(0), ok(1))(req, stream))
		}}, requests: []string{"012"}},
		{name: "no answer about a row", tries: []try{send(ok(0), ok(2))}, requests: []string{"012"}, failed: []int{1}, text: "no answer"},
		{name: "no answer at all", tries: []try{fail(nil)}, requests: []string{"012"}, failed: []int{0, 1, 2}, text: "no answer"},
		{name: "no status", tries: []try{send(ok(0), ok(1), &bigtablepb.MutateRowsResponse_Entry{Index: 2})}, requests: []string{"012"}, failed: []int{2}, text: "without its status"},
		{name: "rows that are not there", tries: []try{send(ok(0), ok(1), ok(2), row(3, codes.Internal), row(-1, codes.Internal))}, requests: []string{"012"}},
		{name: "the last answer counts", tries: []try{send(row(0, codes.Internal), ok(0), ok(1), ok(2), row(2, codes.Internal))}, requests: []string{"012"}, failed: []int{2}, text: "bad row"},
		{name: "rows for a moment", tries: []try{send(row(0, codes.Unavailable), ok(1), row(2, codes.Aborted)), send(row(0, codes.DeadlineExceeded), ok(1)), all}, requests: []string{"012", "02", "0"}},
		{name: "rows for a moment and for good", tries: []try{send(row(0, codes.Unavailable), row(1, codes.ResourceExhausted), row(2, codes.Unavailable)), send(row(0, codes.NotFound), ok(1))}, requests: []string{"012", "02"}, failed: []int{0, 1}, text: "bad row"},
		{name: "transient request", tries: []try{fail(status.Error(codes.Unavailable, "")), fail(status.Error(codes.Aborted, "")), all}, requests: []string{"012", "012", "012"}},
		{name: "broken stream", tries: []try{fail(status.Error(codes.Internal, "stream terminated by RST_STREAM with code 2")), all}, requests: []string{"012", "012"}},
		{name: "broken after a part of the answer", tries: []try{func(req *bigtablepb.MutateRowsRequest, stream grpc.ServerStream) error {
			return errors.Join(send(ok(0))(req, stream), status.Error(codes.Unavailable, ""))
		}, all}, requests: []string{"012", "012"}},
		{name: "the server says when", tries: []try{fail(exhausted.Err()), all}, requests: []string{"012", "012"}},
		{name: "exhausted", tries: []try{fail(status.Error(codes.ResourceExhausted, "no"))}, requests: []string{"012"}, whole: codes.ResourceExhausted},
		{name: "internal", tries: []try{fail(status.Error(codes.Internal, "no"))}, requests: []string{"012"}, whole: codes.Internal},
		{name: "rows for a moment, then the request for good", tries: []try{send(ok(0), row(1, codes.Unavailable), row(2, codes.Unavailable)), fail(status.Error(codes.PermissionDenied, "not you"))}, requests: []string{"012", "12"}, failed: []int{1, 2}, text: "not you"},
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

// TestApplyHeaders: Bigtable routes by headers, and by cookies what is sent again.
func TestApplyHeaders(t *testing.T) {
	var mu sync.Mutex
	var seen []metadata.MD
	s := bigtabletest.Open(t,
		bigtabletest.WithConfig(func(cfg *bigtable.Config) { cfg.TablePrefix, cfg.AppProfile = "p-", "a b" }),
		bigtabletest.WithServerOptions(mutateRows(func(_ *bigtablepb.MutateRowsRequest, stream grpc.ServerStream) error {
			mu.Lock()
			defer mu.Unlock()
			md, _ := metadata.FromIncomingContext(stream.Context())
			seen = append(seen, md)
			if len(seen) > 1 {
				return stream.SendMsg(&bigtablepb.MutateRowsResponse{Entries: []*bigtablepb.MutateRowsResponse_Entry{{Status: new(rpcstatus.Status)}}})
			}
			stream.SetTrailer(metadata.Pairs("x-goog-cbt-cookie-x", "here", "other", "x"))
			return errors.Join(stream.SendHeader(metadata.Pairs("x-goog-cbt-cookie-y", "there")), status.Error(codes.Unavailable, "again"))
		})))
	apply(t, s, bucketstore.Meta, metaRows(1, 8)...)
	if len(seen) != 2 {
		t.Fatalf("%d requests, want 2", len(seen))
	}
	const name = "projects/project/instances/instance/tables/p-META"
	for i, md := range seen {
		for header, want := range map[string]string{
			"google-cloud-resource-prefix": name,
			"x-goog-request-params":        "table_name=projects%2Fproject%2Finstances%2Finstance%2Ftables%2Fp-META&app_profile_id=a+b",
			"x-goog-cbt-cookie-x":          []string{"", "here"}[i],
			"x-goog-cbt-cookie-y":          []string{"", "there"}[i],
			"other":                        "",
		} {
			if got := strings.Join(md.Get(header), " "); got != want {
				t.Errorf("request %d: header %s is %q, want %q", i, header, got, want)
			}
		}
		if len(md.Get("bigtable-features")) != 1 {
			t.Errorf("request %d has no feature flags", i)
		}
	}
}

// TestApplyAfterRequestsThatEndEarly: the memory of a request whose call has
// ended is not used again while gRPC may still read it. The race detector sees it
// if it is.
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
