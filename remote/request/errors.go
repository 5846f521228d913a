// Package request is what every request of every protocol goes through: its slot,
// its body, and the status code of its error.
//
//	gate.go     how many requests, and how many of their bytes, are in memory
//	body.go     a body, received and decompressed within its limit
//	bodytime.go how long a body may take
//	answer.go   the deadline of a request and its answer
//	errors.go   errors to status codes and log lines
//	host.go     by which names the adapter may be asked
//	client.go   whose a request is, for logs
//	audit.go    requests of operators logged
//	metrics.go  requests counted
package request

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// Abbreviate quotes text for an error message, cut after 128 bytes.
func Abbreviate(text string) string {
	const limit = 128
	if len(text) <= limit {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q…", strings.ToValidUTF8(text[:limit], ""))
}

const (
	// maxErrorText is how many bytes of an error go into an answer: a sender
	// reads no more than 1,024, and http.Error adds a newline.
	maxErrorText = 1023

	// retryAfter is when a sender may repeat a request that found no slot.
	retryAfter = 5 * time.Second

	// logInterval is the least time between two log lines of a level.
	logInterval = 10 * time.Second

	// statusClientGone is counted when the client has hung up; no client sees it.
	statusClientGone = 499
)

// errOverloaded marks a request that found no slot in time.
var errOverloaded = errors.New("too many concurrent requests, try again later")

// A statusError is an error that names its status.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }

func (e *statusError) Unwrap() error { return e.err }

// WithStatus returns an error whose answer has this status.
func WithStatus(status int, format string, args ...any) error {
	return &statusError{status, fmt.Errorf(format, args...)}
}

// BadRequest returns an error that is the fault of the client.
func BadRequest(format string, args ...any) error {
	return WithStatus(http.StatusBadRequest, format, args...)
}

// A laterError refuses a request for some time.
type laterError struct {
	wait time.Duration
	err  error
}

func (e *laterError) Error() string {
	return fmt.Sprintf("%v; try again in %s", e.err, e.wait.Round(time.Millisecond))
}

func (e *laterError) Unwrap() error { return e.err }

// Later returns an error whose answer is a 503 that asks the client to wait, which is more than 0.
func Later(wait time.Duration, format string, args ...any) error {
	return &laterError{wait, fmt.Errorf(format, args...)}
}

// A Protocol decides the status codes in which protocols differ.
type Protocol uint8

const (
	// Remote is remote write, remote read, OTLP, federation and explanation. A
	// limit is 400.
	Remote Protocol = iota
	// API is Prometheus' HTTP API. A limit is 422, as for any query that fails
	// there.
	API
)

// Status returns the status of the answer to err. client is the context of the
// request as it came, without a deadline of the adapter. An error that is not
// plainly the fault of the client is a 5xx, so that a sender repeats the request: a
// 500 for corrupt stored bytes, else a 503.
func Status(client context.Context, p Protocol, err error) int {
	var (
		named    *statusError
		rejected *ingest.Rejected
		tooLarge *http.MaxBytesError
	)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		// The body did not come in time. The server takes the client for gone and
		// ends its context, but the client may still wait for the answer.
		return http.StatusServiceUnavailable
	case client.Err() != nil:
		return statusClientGone
	case errors.As(err, &named):
		return named.status
	case errors.As(err, &rejected):
		return http.StatusBadRequest
	case errors.Is(err, reader.ErrLimit) && p == API:
		return http.StatusUnprocessableEntity
	case errors.Is(err, reader.ErrLimit):
		return http.StatusBadRequest
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, series.ErrCorrupt):
		return http.StatusInternalServerError
	}
	return http.StatusServiceUnavailable
}

// Responder answers errors and logs them. A sender with bad data, or a store that
// is down, causes one with every request, so at most one line of each level is
// logged in logInterval. It is safe for concurrent use.
type Responder struct {
	logger log.Logger
	now    func() time.Time

	client, server limiter
}

// NewResponder returns a Responder that logs to logger, by the clock now.
func NewResponder(logger log.Logger, now func() time.Time) *Responder {
	return &Responder{logger: logger, now: now}
}

// Fail answers with the status and the text of err.
func (e *Responder) Fail(w http.ResponseWriter, r *http.Request, err error) {
	http.Error(w, ErrorText(err), e.Report(w, r, err))
}

// Report logs err, sets the headers that belong to it and returns its status.
func (e *Responder) Report(w http.ResponseWriter, r *http.Request, err error) (status int) {
	status = Status(r.Context(), Remote, err)
	e.log(r, status, err)
	wait := bucketstore.RetryAfter(err)
	if later := (*laterError)(nil); errors.As(err, &later) {
		wait = later.wait
	}
	switch {
	case errors.Is(err, errOverloaded):
		setRetryAfter(w, retryAfter)
	case wait > 0:
		setRetryAfter(w, wait)
	}
	return status
}

// setRetryAfter asks the client to wait, in whole seconds.
func setRetryAfter(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
}

// Abort logs err and breaks the connection in the middle of an answer, so that the
// client does not take a part for the whole. It panics with http.ErrAbortHandler.
func (e *Responder) Abort(r *http.Request, err error) {
	e.log(r, Status(r.Context(), Remote, err), err)
	panic(http.ErrAbortHandler)
}

func (e *Responder) log(r *http.Request, status int, err error) {
	logger, limit := level.Error(e.logger), &e.server
	switch {
	case status == statusClientGone:
		level.Debug(e.logger).Log("msg", "client has gone", "path", r.URL.Path, "client", r.RemoteAddr, "err", err)
		return
	case status < 500:
		logger, limit = level.Warn(e.logger), &e.client
	}
	if unlogged, ok := limit.allow(e.now()); ok {
		logger.Log("msg", "request failed", "path", r.URL.Path, "client", r.RemoteAddr, "status", status, "unlogged", unlogged, "err", ErrorText(err))
	}
}

// ErrorText is the text of err, cut to what a client reads.
func ErrorText(err error) string {
	text := err.Error()
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	return strings.ToValidUTF8(text, "")
}

// limiter allows one event in logInterval. It is safe for concurrent use.
type limiter struct {
	mu         sync.Mutex
	next       time.Time
	suppressed int
}

// allow returns whether an event may happen now, and how many were suppressed
// since the last one.
func (l *limiter) allow(now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.suppressed++
		return 0, false
	}
	suppressed, l.suppressed = l.suppressed, 0
	l.next = now.Add(logInterval)
	return suppressed, true
}
