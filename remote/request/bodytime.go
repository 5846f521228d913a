package request

import (
	"context"
	"io"
	"net/http"
	"time"
)

const (
	// bodyTime is how long a body may take if its handler does not say.
	bodyTime = time.Minute
	// unreadTime is how long an answer may wait for a body that its handler has not read. The
	// server reads up to 256 KiB of it before the header of the answer, so that a client that
	// sends all before it reads finds the answer, and the connection can be used again.
	unreadTime = time.Second
)

// LimitBody sets the deadline of ctx for the body of a request, if it has one. The deadline ends
// with the body, see WithBodies.
func LimitBody(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	if deadline, ok := ctx.Deadline(); ok && hasBody(r) {
		_ = http.NewResponseController(w).SetReadDeadline(deadline) // a writer without, as in a test, has no slow clients
	}
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// WithBodies lets no request wait for its body without a bound, and no answer for what is left of
// it: a client that does not send it in time gets its answer, and the connection is closed.
func WithBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hasBody(r) {
			next.ServeHTTP(w, r)
			return
		}
		b := &timedBody{ReadCloser: r.Body, control: http.NewResponseController(w)}
		_ = b.control.SetReadDeadline(time.Now().Add(bodyTime))
		defer b.leave()
		r = r.WithContext(r.Context()) // the server has a use for its own request and body
		r.Body = b
		next.ServeHTTP(&bodyWriter{w, b}, r)
	})
}

// A timedBody is the body of a request with a deadline.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
	// ended says that nothing more is to come of the body, or nothing more is waited for.
	ended bool
}

// Read implements io.Reader. Behind the body the server goes on reading, to notice when the
// client hangs up: then there is no deadline.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { // after another error the deadline stays: the server reads once more
		_ = b.control.SetReadDeadline(time.Time{})
	}
	b.ended = b.ended || err != nil
	return n, err
}

// leave bounds the time for what was not read.
func (b *timedBody) leave() {
	if !b.ended {
		b.ended = true
		_ = b.control.SetReadDeadline(time.Now().Add(unreadTime))
	}
}

// A bodyWriter leaves the body of the request when the answer begins.
type bodyWriter struct {
	http.ResponseWriter
	body *timedBody
}

func (w *bodyWriter) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.body.leave()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *bodyWriter) Write(p []byte) (int, error) {
	w.body.leave()
	return w.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController calls.
func (w *bodyWriter) FlushError() error {
	w.body.leave()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is what http.ResponseController uses for anything else.
func (w *bodyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
