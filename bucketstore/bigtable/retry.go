package bigtable

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Pauses before a request is sent again grow as those of the client do.
const (
	firstPause  = 100 * time.Millisecond
	maxPause    = 2 * time.Second
	pauseGrowth = 1.2
)

// A backoff says how long to wait before a request is sent again.
type backoff struct{ limit time.Duration }

// next returns the next pause: random, so that clients which failed together do
// not come back together.
func (b *backoff) next() time.Duration {
	b.limit = min(max(firstPause, time.Duration(float64(b.limit)*pauseGrowth)), maxPause)
	return 1 + rand.N(b.limit)
}

// pause returns how long to wait before a request that failed with err is sent
// again: what the server says, or the next of b. ok is false if it is not to be
// sent again.
func (b *backoff) pause(err error) (d time.Duration, ok bool) {
	st := status.Convert(err)
	for _, detail := range st.Details() {
		if info, is := detail.(*errdetails.RetryInfo); is {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	if isTransient(st.Code()) || st.Code() == codes.Internal && isBrokenStream(st.Message()) {
		return b.next(), true
	}
	return 0, false
}

// isTransient says whether a request, or one row of it, may succeed when it is
// sent again.
func isTransient(code codes.Code) bool {
	return code == codes.Unavailable || code == codes.Aborted || code == codes.DeadlineExceeded
}

// isBrokenStream says whether the message of an Internal error says that the
// connection broke: gRPC has no code for it.
func isBrokenStream(message string) bool {
	for _, part := range []string{
		"stream terminated by RST_STREAM", "Received Rst stream", "RST_STREAM closed stream", "Received RST_STREAM", "unexpected EOF",
	} {
		if strings.Contains(message, part) {
			return true
		}
	}
	return false
}

// sleep waits, or returns false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// withCookies returns headers with the cookies that the answer to a request came
// with: Bigtable routes by them what is sent again. stream has ended, or is nil.
func withCookies(headers metadata.MD, stream grpc.ClientStream) metadata.MD {
	if stream == nil {
		return headers
	}
	headers = headers.Copy()
	header, _ := stream.Header() // without, there are none
	for _, md := range []metadata.MD{header, stream.Trailer()} {
		for name, values := range md {
			if strings.HasPrefix(name, "x-goog-cbt-cookie-") {
				headers[name] = values
			}
		}
	}
	return headers
}
