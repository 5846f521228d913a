package request_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
)

// TestStatus: each error has one status in each protocol, wrapped or not.
func TestStatus(t *testing.T) {
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	var rejected ingest.Rejected
	rejected.Add(ingest.ReasonLabels, 1, errors.New("no metric name"))
	for _, test := range []struct {
		name        string
		client      context.Context
		err         error
		remote, api int
	}{
		{"limit", t.Context(), reader.ErrLimit, 400, 422},
		{"corrupt", t.Context(), series.ErrCorrupt, 500, 500},
		{"rejected", t.Context(), rejected.Err(), 400, 400},
		{"bad request", t.Context(), request.BadRequest("no"), 400, 400},
		{"named", t.Context(), request.WithStatus(http.StatusUnsupportedMediaType, "no"), 415, 415},
		{"too large", t.Context(), &http.MaxBytesError{}, 413, 413},
		{"store", t.Context(), errors.New("the store is down"), 503, 503},
		{"deadline", t.Context(), context.DeadlineExceeded, 503, 503},
		{"canceled by the store", t.Context(), context.Canceled, 503, 503},
		{"client gone", gone, reader.ErrLimit, 499, 499},
		{"body too late", gone, os.ErrDeadlineExceeded, 503, 503},
	} {
		for p, want := range map[request.Protocol]int{request.Remote: test.remote, request.API: test.api} {
			for _, err := range []error{test.err, fmt.Errorf("query 1: %w", test.err)} {
				if got := request.Status(test.client, p, err); got != want {
					t.Errorf("%s, protocol %d: %v is %d, want %d", test.name, p, err, got, want)
				}
			}
		}
	}
}
