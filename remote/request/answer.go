package request

import (
	"context"
	"net/http"
	"time"
)

// MatchParams returns the match[] parameters of r, up to limit of them. The error
// is a 400.
func MatchParams(r *http.Request, limit int) ([]string, error) {
	if err := r.ParseForm(); err != nil {
		return nil, BadRequest("parse form: %w", err)
	}
	texts := r.Form["match[]"]
	if n := len(texts); n > limit {
		return nil, BadRequest("%d match[] parameters, the limit is %d", n, limit)
	}
	return texts, nil
}

// AnswerGrace is how long the end of an answer may take past the deadline: an
// error often comes with the deadline and must still go out.
const AnswerGrace = 5 * time.Second

// Begin gives r until timeout from now, body and answer included: a client that does not
// read its answer must not hold a slot and the answer for ever. The caller calls
// end when the answer is complete: end sends what the server has buffered, and
// removes the deadline from the connection.
func Begin(w http.ResponseWriter, r *http.Request, timeout time.Duration) (ctx context.Context, end func()) {
	deadline := time.Now().Add(timeout)
	ctx, cancel := context.WithDeadline(r.Context(), deadline)
	LimitBody(ctx, w, r)
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(deadline) // a writer without, as in a test, has no slow clients
	return ctx, func() {
		if grace := time.Now().Add(AnswerGrace); grace.After(deadline) {
			_ = control.SetWriteDeadline(grace)
		}
		_ = control.Flush() // the server has noticed the error as well
		_ = control.SetWriteDeadline(time.Time{})
		cancel()
	}
}
