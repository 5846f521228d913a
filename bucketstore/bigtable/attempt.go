package bigtable

import (
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/promtable/promtable/bucketstore"
)

// attemptsPerCall divides the time of a call. The client repeats a call only after an error,
// and a connection that swallows bytes gives none: without a limit for each attempt the
// first one would use up the time of all. More attempts would add load where Bigtable is
// slow rather than dead.
const attemptsPerCall = 3

// A call is a request for rows, which the client may attempt several times. Its context
// leads the interceptors to it.
type call struct {
	table string
	// timeout is how long an attempt may wait for the server: for an answer, or for the
	// next message of a stream.
	timeout  time.Duration
	attempts atomic.Int32
	// retryAfter is what the server told an attempt that the client did not repeat.
	retryAfter atomic.Int64
}

type callKey struct{}

// withCall returns a context for a call that lasts no longer than timeout.
func withCall(ctx context.Context, table bucketstore.Table, timeout time.Duration) context.Context {
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	return context.WithValue(ctx, callKey{}, &call{table: table.String(), timeout: timeout / attemptsPerCall})
}

// callOf returns the call of a context. It is nil for requests to the admin API and those
// that the client sends by itself.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// An attempt is one request on one connection.
type attempt struct {
	*call
	metrics *metrics
	method  string
	// caller is the context of the call, and cancel ends that of the attempt.
	caller context.Context
	cancel context.CancelFunc
	// timer fires if the server does not answer in time.
	timer    *time.Timer
	timedOut atomic.Bool
	end      sync.Once

	mu sync.Mutex
	// waited is how long the attempt has waited for the server, and since when it waits;
	// zero if it does not.
	waited time.Duration
	since  time.Time
}

// begin begins an attempt, which waits from now on.
func (m *metrics) begin(ctx context.Context, c *call, method string) (context.Context, *attempt) {
	a := &attempt{call: c, metrics: m, method: path.Base(method), caller: ctx, since: time.Now()}
	if c.attempts.Add(1) > 1 {
		m.retries.WithLabelValues(a.method, c.table).Inc()
	}
	m.inFlight.WithLabelValues(a.method).Inc()
	ctx, a.cancel = context.WithCancel(ctx)
	a.timer = time.AfterFunc(c.timeout, func() {
		a.timedOut.Store(true)
		a.cancel()
	})
	return ctx, a
}

// wait begins to wait for the next message.
func (a *attempt) wait() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		a.since = time.Now()
		a.timer.Reset(a.timeout)
	}
}

// answered ends a wait. It returns how long the attempt has waited in all.
func (a *attempt) answered() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer.Stop()
	if !a.since.IsZero() {
		a.waited += time.Since(a.since)
		a.since = time.Time{}
	}
	return a.waited
}

// finish counts the attempt. gRPC may call it more than once, and beside RecvMsg.
func (a *attempt) finish(err error) {
	a.end.Do(func() {
		waited := a.answered()
		a.cancel()
		code := status.Code(err)
		if a.timedOut.Load() && err != nil {
			code = codes.DeadlineExceeded
		}
		a.metrics.inFlight.WithLabelValues(a.method).Dec()
		a.metrics.attempts.WithLabelValues(a.method, a.table, code.String()).Observe(waited.Seconds())
	})
}

// translate returns the error of an attempt as the client is to see it.
//
// After Unavailable it repeats the call, and its pool avoids the connection for five
// seconds; after the Canceled of an attempt without an answer it would do neither.
//
// If a server without room says when to come back, the client waits, though its caller may
// have better things to do. So a write fails at once, and a read if it would wait beyond its
// deadline.
func (a *attempt) translate(err error) error {
	if err == nil || errors.Is(err, io.EOF) || a.caller.Err() != nil {
		return err
	}
	if a.timedOut.Load() {
		return status.Errorf(codes.Unavailable, "no answer within %s: %v", a.timeout.Round(time.Millisecond), err)
	}
	after, ok := retryDelay(err)
	if !ok || a.method == methodRead && fits(a.caller, after) {
		return err
	}
	a.retryAfter.Store(int64(after))
	return status.Error(codes.ResourceExhausted, status.Convert(err).Message())
}

// methodRead is the name of the method of all reads.
const methodRead = "ReadRows"

// retryDelay returns when a server without room wants to be asked again.
func retryDelay(err error) (time.Duration, bool) {
	st := status.Convert(err)
	if st.Code() != codes.ResourceExhausted {
		return 0, false
	}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}

// fits says whether ctx lasts for longer than d.
func fits(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > d
}

// unary is an interceptor for requests with one answer.
func (m *metrics) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c := callOf(ctx)
	if c == nil {
		return invoker(ctx, method, req, reply, conn, opts...)
	}
	ctx, a := m.begin(ctx, c, method)
	err := a.translate(invoker(ctx, method, req, reply, conn, opts...))
	a.finish(err)
	return err
}

// stream is an interceptor for requests with a stream of answers.
func (m *metrics) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c := callOf(ctx)
	if c == nil {
		return streamer(ctx, desc, conn, method, opts...)
	}
	ctx, a := m.begin(ctx, c, method)
	opts = slices.Clone(opts)
	for i, opt := range opts {
		if pool, ok := opt.(grpc.OnFinishCallOption); ok { // it learns here whether the connection is good
			opts[i] = grpc.OnFinish(func(err error) { pool.OnFinish(a.translate(err)) })
		}
	}
	s, err := streamer(ctx, desc, conn, method, append(opts, grpc.OnFinish(a.finish))...)
	if err != nil {
		err = a.translate(err)
		a.finish(err)
		return nil, err
	}
	return &attemptStream{ClientStream: s, attempt: a}, nil
}

// An attemptStream bounds each wait for a message.
type attemptStream struct {
	grpc.ClientStream
	attempt *attempt
}

func (s *attemptStream) RecvMsg(m any) error {
	s.attempt.wait()
	err := s.ClientStream.RecvMsg(m)
	s.attempt.answered()
	return s.attempt.translate(err)
}
