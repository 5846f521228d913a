package queries

import (
	"context"
	"net/http"
)

type answerKey struct{}

// withAnswer returns a context of a query whose answer is bounded by check.
func withAnswer(ctx context.Context, check func(bytes, more int64) error) context.Context {
	return context.WithValue(ctx, answerKey{}, check)
}

// Answer lets next answer a query that Begin has begun, with its context. An answer that is larger than a limit allows is refused by a call of refuse, or
// if a part of it is sent, broken off. One that is bounded is not compressed, so that its size is known before anything is sent.
func Answer(w http.ResponseWriter, r *http.Request, next http.Handler, refuse func(error)) {
	check, _ := r.Context().Value(answerKey{}).(func(bytes, more int64) error)
	if check == nil {
		next.ServeHTTP(w, r)
		return
	}
	r = r.Clone(r.Context())
	r.Header.Del("Accept-Encoding")
	bounded := &boundedWriter{ResponseWriter: w, check: check, refuse: refuse}
	next.ServeHTTP(bounded, r)
	bounded.begin()
}

// A boundedWriter counts what is written. It sends the header with the first bytes, so that an answer of one write can be refused.
type boundedWriter struct {
	http.ResponseWriter
	check  func(bytes, more int64) error
	refuse func(error)
	status int
	bytes  int64
	isSent bool
	err    error
}

// WriteHeader implements http.ResponseWriter.
func (w *boundedWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// begin sends the header, if there is one that is not sent.
func (w *boundedWriter) begin() {
	if !w.isSent && w.err == nil && w.status != 0 {
		w.isSent = true
		w.ResponseWriter.WriteHeader(w.status)
	}
}

// Write implements http.ResponseWriter.
func (w *boundedWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if err := w.check(w.bytes, int64(len(p))); err != nil {
		if w.isSent {
			panic(http.ErrAbortHandler) // so that no client takes a part for the whole
		}
		w.err = err
		w.refuse(err)
		return 0, err
	}
	w.bytes += int64(len(p))
	w.begin()
	w.isSent = true
	return w.ResponseWriter.Write(p)
}

// FlushError sends what is written so far.
func (w *boundedWriter) FlushError() error {
	if w.err != nil {
		return w.err
	}
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}
