package bigtabletest

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A Fault is what a request for rows meets. The zero value is none.
type Fault struct {
	// Latency is how long the request waits before it is executed.
	Latency time.Duration
	// Stall leaves the request without an answer until its client gives up.
	Stall bool
	// Err is the answer, and the request is not executed.
	Err error
	// Half is how many rows of a MutateRows request are written before Err breaks the
	// stream. 0 is none.
	Half int
	// Row is called with the key of each row of a MutateRows request, in order. If it
	// returns an error that row is not written and fails with it, while the others are. A
	// status error keeps its code; the client sends rows again that failed with
	// Unavailable, Aborted or DeadlineExceeded. Any other error is Internal, which it
	// returns at once.
	Row func(key string) error
}

// WithFaults calls next with each request for rows. Requests come in parallel.
func WithFaults(next func(req proto.Message) Fault) Option {
	return func(o *options) { o.faults = append(o.faults, next) }
}

// WithMutateRowsHook makes rows of an Apply fail: see Fault.Row.
func WithMutateRowsHook(hook func(key string) error) Option {
	return WithFaults(func(proto.Message) Fault { return Fault{Row: hook} })
}

// Overloaded is the answer of a server that wants to be asked again after a while.
func Overloaded(after time.Duration) error {
	st, err := status.New(codes.ResourceExhausted, "overloaded").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	if err != nil {
		return err
	}
	return st.Err()
}

// interceptors put limits and faults in front of the fake.
func (o *options) interceptors() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := o.admit(ctx, req, nil); err != nil {
				return nil, err
			}
			return handler(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			s := &faultyStream{ServerStream: stream, o: o}
			err := handler(srv, s)
			if errors.Is(err, errNothingLeft) {
				return s.SendMsg(&bigtablepb.MutateRowsResponse{})
			}
			return err
		}),
	}
}

// admit returns the error of a request that is not executed. The stream, which may be nil,
// learns what is left for it to do.
func (o *options) admit(ctx context.Context, req any, s *faultyStream) error {
	switch req.(type) {
	case *bigtablepb.ReadRowsRequest, *bigtablepb.MutateRowsRequest, *bigtablepb.MutateRowRequest, *bigtablepb.CheckAndMutateRowRequest:
	default:
		return nil
	}
	msg := req.(proto.Message)
	if err := o.limits.check(msg); err != nil {
		return err
	}
	for _, next := range o.faults {
		if err := next(msg).meet(ctx, msg, s); err != nil {
			return err
		}
	}
	return nil
}

// meet returns the error of a request that is not executed.
func (f Fault) meet(ctx context.Context, req proto.Message, s *faultyStream) error {
	if f.Stall {
		<-ctx.Done()
		return ctx.Err()
	}
	if f.Latency > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(f.Latency):
		}
	}
	rows, ok := req.(*bigtablepb.MutateRowsRequest)
	if !ok || f.Row == nil && f.Half == 0 {
		return f.Err
	}
	if f.Half > 0 {
		rows.Entries, s.breaks = rows.Entries[:min(f.Half, len(rows.Entries))], f.Err
		return nil
	}
	return s.takeOut(rows, f.Row)
}

// errNothingLeft ends a request whose rows have all failed: the fake refuses an empty one.
var errNothingLeft = errors.New("no row left")

// A faultyStream takes failing rows out of a request and puts their errors into the answer.
type faultyStream struct {
	grpc.ServerStream
	o     *options
	meter rowMeter
	// kept are the positions of the rows that the fake sees, if rows were taken out.
	kept   []int64
	failed []*bigtablepb.MutateRowsResponse_Entry
	// breaks is sent in the place of the answer, if it is not nil.
	breaks error
}

// RecvMsg reads a request.
func (s *faultyStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.o.admit(s.Context(), m, s)
}

// takeOut removes the rows for which hook has an error.
func (s *faultyStream) takeOut(req *bigtablepb.MutateRowsRequest, hook func(key string) error) error {
	entries := req.Entries
	req.Entries, s.kept = nil, nil
	for i, entry := range entries {
		if err := hook(string(entry.RowKey)); err != nil {
			s.failed = append(s.failed, &bigtablepb.MutateRowsResponse_Entry{Index: int64(i), Status: rowStatus(err).Proto()})
			continue
		}
		req.Entries = append(req.Entries, entry)
		s.kept = append(s.kept, int64(i))
	}
	if len(entries) > 0 && len(req.Entries) == 0 {
		return errNothingLeft
	}
	return nil
}

// SendMsg sends an answer. The fake has one to each request of row mutations, and one for
// each row that is read.
func (s *faultyStream) SendMsg(m any) error {
	if s.breaks != nil {
		return s.breaks
	}
	switch res := m.(type) {
	case *bigtablepb.MutateRowsResponse:
		if s.kept != nil {
			for _, entry := range res.Entries {
				entry.Index = s.kept[entry.Index]
			}
		}
		res.Entries = append(res.Entries, s.failed...)
	case *bigtablepb.ReadRowsResponse:
		if err := s.meter.add(res, s.o.limits.Row); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}

// rowStatus returns err as the fake reports the error of a row.
func rowStatus(err error) *status.Status {
	if st, ok := status.FromError(err); ok {
		return st
	}
	return status.New(codes.Internal, err.Error())
}
