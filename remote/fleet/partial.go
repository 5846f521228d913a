package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// ErrPartial marks an error of an answer that would lack samples of members.
var ErrPartial = errors.New("the answer would be partial")

// A Partial says what the answer to a request lacks. It is safe for concurrent use.
type Partial struct {
	mu      sync.Mutex
	missing []error
}

type partialKey struct{}

// AllowPartial returns a context of a request whose answer may be partial. Without it what cannot be asked is an ErrPartial.
func AllowPartial(ctx context.Context) (context.Context, *Partial) {
	p := new(Partial)
	return context.WithValue(ctx, partialKey{}, p), p
}

// PartialOf returns what the request of a context lacks so far, each once. It may be called without any.
func PartialOf(ctx context.Context) []error {
	p, _ := ctx.Value(partialKey{}).(*Partial)
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.missing)
}

// isAllowed says whether the answer of a context may be partial.
func isAllowed(ctx context.Context) bool {
	p, _ := ctx.Value(partialKey{}).(*Partial)
	return p != nil
}

// note notes what an answer lacks, or returns it as an ErrPartial.
func (f *Fleet) note(ctx context.Context, missing error) error {
	p, _ := ctx.Value(partialKey{}).(*Partial)
	if p == nil {
		f.metrics.partial.WithLabelValues("refused").Inc()
		return &partialError{missing}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.ContainsFunc(p.missing, func(err error) bool { return err.Error() == missing.Error() }) {
		f.metrics.partial.WithLabelValues("noted").Inc()
		p.missing = append(p.missing, missing)
	}
	return nil
}

// A partialError is an ErrPartial, with its reason.
type partialError struct{ missing error }

func (e *partialError) Error() string {
	return strings.Join([]string{ErrPartial.Error(), e.missing.Error()}, ": ")
}

func (e *partialError) Unwrap() []error { return []error{ErrPartial, e.missing} }

// PartialHeader says of a request whether its answer may lack samples of members that cannot be asked. As a trailer of an answer it says what
// that lacks.
const PartialHeader = "X-Promtable-Partial"

// The values of PartialHeader.
const (
	Allow = "allow"
	Deny  = "deny"
)

// Handler answers requests by next. Answers may be partial if the header says so, or by default if allow.
func Handler(allow bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		may := allow
		switch said := r.Header.Get(PartialHeader); said {
		case "":
		case Allow, Deny:
			may = said == Allow
		default:
			http.Error(w, fmt.Sprintf("%s: %.50q is neither %s nor %s", PartialHeader, said, Allow, Deny), http.StatusBadRequest)
			return
		}
		if !may {
			next.ServeHTTP(w, r)
			return
		}
		ctx, _ := AllowPartial(r.Context())
		next.ServeHTTP(w, r.WithContext(ctx))
		for _, missing := range PartialOf(ctx) {
			w.Header().Add(http.TrailerPrefix+PartialHeader, missing.Error())
		}
	})
}
