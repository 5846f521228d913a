package bigtabletest

import (
	"errors"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// WithMutateRowsHook makes rows of an Apply fail: hook is called with the key of
// each row of each request, in order, and if it returns an error that row is
// not written and fails with it, while the others are. A status error
// keeps its code; the client sends rows again that failed with Unavailable,
// Aborted or DeadlineExceeded. Any other error is Internal, which it returns at
// once. Requests come in parallel.
func WithMutateRowsHook(hook func(key string) error) Option {
	return WithServerOptions(grpc.ChainStreamInterceptor(
		func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			s := &hookedStream{ServerStream: stream, hook: hook}
			err := handler(srv, s)
			if errors.Is(err, errNothingLeft) {
				return s.SendMsg(&bigtablepb.MutateRowsResponse{})
			}
			return err
		}))
}

// errNothingLeft ends a request whose rows have all failed: the fake refuses
// an empty one.
var errNothingLeft = errors.New("no row left")

// A hookedStream takes failing rows out of a request and puts their errors
// into the answer.
type hookedStream struct {
	grpc.ServerStream
	hook func(key string) error
	// kept are the positions of the rows that the fake sees.
	kept   []int64
	failed []*bigtablepb.MutateRowsResponse_Entry
}

// RecvMsg reads a request.
func (s *hookedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	req, ok := m.(*bigtablepb.MutateRowsRequest)
	if !ok {
		return nil
	}
	entries := req.Entries
	req.Entries = nil
	for i, entry := range entries {
		if err := s.hook(string(entry.RowKey)); err != nil {
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

// SendMsg sends an answer. The fake has one to each request of rows.
func (s *hookedStream) SendMsg(m any) error {
	if res, ok := m.(*bigtablepb.MutateRowsResponse); ok {
		for _, entry := range res.Entries {
			entry.Index = s.kept[entry.Index]
		}
		res.Entries = append(res.Entries, s.failed...)
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
