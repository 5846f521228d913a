package bigtable

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
)

// A sender sends row mutations of one table as the client would.
type sender struct {
	conn grpc.ClientConnInterface
	// head begins every request.
	head []byte
	// headers go with every request.
	headers metadata.MD
	stream  *grpc.StreamDesc
	options []grpc.CallOption
	pool    *batchPool
}

// newSender returns a sender for a table, given by its full name.
func newSender(conn grpc.ClientConnInterface, pool *batchPool, table, profile string) (*sender, error) {
	// Both flags are promises to heed what the server then sends: see retry.go.
	features, err := proto.Marshal(&bigtablepb.FeatureFlags{RoutingCookie: true, RetryInfo: true})
	if err != nil {
		return nil, err
	}
	return &sender{
		conn: conn,
		head: appendHead(nil, table, profile),
		headers: metadata.Pairs(
			"google-cloud-resource-prefix", table,
			"x-goog-request-params", "table_name="+url.QueryEscape(table)+"&app_profile_id="+url.QueryEscape(profile),
			"bigtable-features", base64.URLEncoding.EncodeToString(features),
		),
		stream:  &grpc.StreamDesc{StreamName: "MutateRows", ServerStreams: true},
		options: []grpc.CallOption{grpc.ForceCodecV2(codec{})},
		pool:    pool,
	}, nil
}

// deliver sends the sealed request of b, and again what of it failed for the
// moment, until nothing of that is left or ctx ends. The error is about the rows
// that are then in b.
func (s *sender) deliver(ctx context.Context, b *batch) error {
	headers := s.headers
	var wait backoff
	for {
		stream, err := s.attempt(ctx, b, headers)
		if err == nil && len(b.answer.failed) == 0 {
			return nil
		}
		pause, again := wait.pause(err)
		if err == nil {
			if err = s.pool.keep(b); err == nil {
				return nil
			}
			pause, again = wait.next(), true
		}
		if !again || !sleep(ctx, pause) {
			return err
		}
		headers = withCookies(headers, stream)
	}
}

// attempt sends the sealed request of b once and reads the answer. It returns
// the stream, which has ended, unless there was none.
func (s *sender) attempt(ctx context.Context, b *batch, headers metadata.MD) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, headers))
	defer cancel()
	stream, err := s.conn.NewStream(ctx, s.stream, bigtablepb.Bigtable_MutateRows_FullMethodName, s.options...)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(b.sealed); err != nil {
		return stream, err
	}
	if err := stream.CloseSend(); err != nil {
		return stream, err
	}
	b.answer.reset(len(b.rows))
	for {
		switch err := stream.RecvMsg(&b.answer); err {
		case nil:
		case io.EOF:
			b.answer.finish()
			return stream, nil
		default:
			return stream, err
		}
	}
}

// parallelBatches is how many batches of one call are on their way at once.
const parallelBatches = 4

// A flight is the batches of one call, which are sent while the next ones are
// built. It is for one goroutine.
type flight struct {
	*sender
	ctx     context.Context
	store   *Store
	table   bucketstore.Table
	sending errgroup.Group
	// open is the batch that is built, nil if there is none.
	open    *batch
	batches []*batch
}

// newFlight returns a flight without rows to t, which is the table of that name.
func (s *Store) newFlight(ctx context.Context, name bucketstore.Table, t *table) *flight {
	f := &flight{sender: t.sender, ctx: ctx, store: s, table: name}
	f.sending.SetLimit(parallelBatches - 1) // the last one is sent by finish
	return f
}

// batch returns the batch for a row of about so many bytes and operations. The
// caller appends it to the request and says so with added, before anything else.
func (f *flight) batch(size, ops int) *batch {
	if f.open != nil && !f.open.hasRoom(size, ops) {
		full := f.open
		f.sending.Go(func() error {
			f.send(full)
			return nil
		})
		f.open = nil
	}
	if f.open == nil {
		f.open = f.pool.get(f.head)
		f.batches = append(f.batches, f.open)
	}
	return f.open
}

// send sends a batch and counts it.
func (f *flight) send(b *batch) {
	ctx, cancel := withWallDeadline(f.ctx, f.store.callTimeout)
	defer cancel()
	rows := len(b.rows)
	f.pool.seal(b)
	b.end(callError(ctx, f.deliver(ctx, b)), rows)
	b.release()
	f.store.metrics.mutated(f.table, opMutate, rows, b.unstored())
}

// withWallDeadline ends ctx after timeout or at its own deadline, by the wall clock:
// so that no request is sent by a machine that was asleep until then, during which
// the clock stands still that contexts go by.
func withWallDeadline(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	deadline := time.Now().Add(timeout)
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(deadline) {
		deadline = earlier
	}
	return context.WithDeadline(ctx, deadline.Round(0))
}

// finish sends what has not been sent and waits for the answers. Rows that are
// not confirmed are passed to failed. The error is that of all requests, if none
// got through, or of one, if the context has ended: nobody knows then which rows
// are stored.
func (f *flight) finish(failed func(row int, err error)) error {
	if f.open != nil {
		f.send(f.open)
	}
	f.sending.Wait()
	err := requestError(f.ctx, f.batches)
	for _, b := range f.batches {
		if err == nil {
			b.eachFailed(failed)
		}
		f.pool.put(b)
	}
	return err
}

// requestError returns the error of the first request that failed as a whole, if
// all did or the context has ended.
func requestError(ctx context.Context, batches []*batch) error {
	var first error
	broken := 0
	for _, b := range batches {
		if b.err == nil {
			continue
		}
		broken++
		if first == nil {
			first = b.err
		}
	}
	ended := ctx.Err()
	switch {
	case broken == 0 || ended == nil && broken < len(batches):
		return nil
	case ended != nil && !errors.Is(first, ended):
		return fmt.Errorf("%w (%w)", ended, first)
	}
	return first
}
