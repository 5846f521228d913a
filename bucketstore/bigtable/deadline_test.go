package bigtable_test

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/series"
)

// TestWallDeadline: requests that write end by the wall clock whatever deadline the caller
// has, so that none is sent after the machine was suspended. The sealer relies on it.
func TestWallDeadline(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration // of the caller, 0 is none
		call    time.Duration // of the store
	}{
		{"without a deadline", 0, time.Hour},
		{"deadline of the caller", 30 * time.Second, time.Hour},
		{"timeout of the store", 40 * time.Second, 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var deadlines []time.Time
			s := openIntercepted(t, tt.call, func(ctx context.Context, method string) {
				if deadline, ok := ctx.Deadline(); ok && method == bigtablepb.Bigtable_MutateRows_FullMethodName {
					deadlines = append(deadlines, deadline)
				}
			})
			ctx := t.Context()
			if tt.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.timeout)
				defer cancel()
			}
			a := bucketstore.NewDirect(s, series.Schema{}, time.Now, nil)
			if err := a.Append(ctx, []bucketstore.Sample{{Ref: a.Ref([]byte("a"))}}); err != nil {
				t.Fatal(err)
			}
			muts := []bucketstore.Mutation{{Key: []byte("a"), Ops: []bucketstore.Op{{Kind: bucketstore.DeleteFamily, Family: series.FamilyR0}}}}
			if err := s.Apply(ctx, bucketstore.Metric, muts); err != nil {
				t.Fatal(err)
			}
			if len(deadlines) != 2 {
				t.Fatalf("%d requests with a deadline, want 2", len(deadlines))
			}
			for i, d := range deadlines {
				if d != d.Round(0) {
					t.Errorf("deadline %d is not by the wall clock: %v", i, d)
				}
			}
		})
	}
}

// openIntercepted opens a store and calls look with the context of each stream before it
// begins.
func openIntercepted(t *testing.T, callTimeout time.Duration, look func(ctx context.Context, method string)) *bigtable.Store {
	t.Helper()
	addr := bigtabletest.Serve(t)
	cfg := bigtabletest.ServiceConfig(addr)
	cfg.CallTimeout = callTimeout
	cfg.ClientOptions = append(cfg.ClientOptions, option.WithGRPCDialOption(
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			look(ctx, method)
			return streamer(ctx, desc, cc, method, opts...)
		})))
	return open(t, cfg)
}
