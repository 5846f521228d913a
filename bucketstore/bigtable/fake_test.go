package bigtable_test

import (
	"context"
	"sync"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
)

// A spy sees the requests that the fake gets, and may answer instead.
type spy struct {
	mu       sync.Mutex
	requests []proto.Message
	// onRequest is called with each request for rows; its error is the answer. It
	// may wait for the end of the context.
	onRequest func(ctx context.Context, req proto.Message) error
	// onRow is called with each answer to a ReadRows request, a row in the fake;
	// its error ends the stream.
	onRow func(ctx context.Context, res *bigtablepb.ReadRowsResponse) error
	// onReadEnd is called when the fake has finished a ReadRows request.
	onReadEnd func()
}

// option puts the spy before the fake.
func (s *spy) option() bigtabletest.Option {
	return bigtabletest.WithServerOptions(
		grpc.ChainUnaryInterceptor(s.unary),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if info.FullMethod == bigtablepb.Bigtable_ReadRows_FullMethodName && s.onReadEnd != nil {
				defer s.onReadEnd()
			}
			return handler(srv, &spiedStream{ServerStream: stream, spy: s})
		}))
}

// see records a request if it is for rows.
func (s *spy) see(ctx context.Context, req any) error {
	switch req.(type) {
	case *bigtablepb.ReadRowsRequest, *bigtablepb.MutateRowsRequest, *bigtablepb.CheckAndMutateRowRequest:
	default:
		return nil
	}
	s.mu.Lock()
	s.requests = append(s.requests, req.(proto.Message))
	s.mu.Unlock()
	if s.onRequest == nil {
		return nil
	}
	return s.onRequest(ctx, req.(proto.Message))
}

// seen returns the recorded requests.
func (s *spy) seen() []proto.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]proto.Message(nil), s.requests...)
}

func (s *spy) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := s.see(ctx, req); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

type spiedStream struct {
	grpc.ServerStream
	spy *spy
}

func (s *spiedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.spy.see(s.Context(), m)
}

func (s *spiedStream) SendMsg(m any) error {
	if res, ok := m.(*bigtablepb.ReadRowsResponse); ok && s.spy.onRow != nil {
		if err := s.spy.onRow(s.Context(), res); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}
