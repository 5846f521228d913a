package api

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/prometheus/promql"
)

// TestWithCause: the log of slow queries tells a query that was canceled from one that took too long.
func TestWithCause(t *testing.T) {
	other := errors.New("other")
	for _, tt := range []struct{ err, cause error }{
		{promql.ErrQueryCanceled("x"), context.Canceled},
		{promql.ErrQueryTimeout("x"), context.DeadlineExceeded},
		{other, other},
	} {
		if got := withCause(tt.err); !errors.Is(got, tt.cause) || got.Error() != tt.err.Error() {
			t.Errorf("%v wraps no %v", got, tt.cause)
		}
	}
	if err := withCause(nil); err != nil {
		t.Error(err)
	}
}
