package bigtable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// These tests run bucketstore.Direct over Google's client: the promises of a write in
// direct mode.

// newDirect returns an Appender over s whose clock stands still.
func newDirect(s *bigtable.Store, now int64) *bucketstore.Direct {
	return bucketstore.NewDirect(s, series.Schema{}, func() time.Time { return time.UnixMilli(now) }, nil)
}

// mutations returns the requests of row mutations that a spy has seen since the
// first n requests.
func (s *spy) mutations(n int) (requests []*bigtablepb.MutateRowsRequest) {
	for _, req := range s.seen()[n:] {
		if m, ok := req.(*bigtablepb.MutateRowsRequest); ok {
			requests = append(requests, m)
		}
	}
	return requests
}

// failedSamples returns the positions that an Append reports.
func failedSamples(t *testing.T, err error) []int {
	t.Helper()
	var failed *bucketstore.SamplesError
	if !errors.As(err, &failed) {
		t.Fatalf("Append: %v, want a *SamplesError", err)
	}
	return failed.Failed
}

func TestDirectPartialFailure(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	s := bigtabletest.Open(t, bigtabletest.WithMutateRowsHook(func(key string) error {
		if broken.Load() && strings.HasPrefix(key, "bad") {
			return status.Error(codes.ResourceExhausted, "no room")
		}
		return nil
	}))
	a := newDirect(s, 0)
	bad, good := a.Ref([]byte("bad")), a.Ref([]byte("good"))
	samples := []bucketstore.Sample{{Ref: bad, T: 1}, {Ref: good, T: 1}, {Ref: a.Ref([]byte("bad")), T: 2}, {Ref: bad, T: 1, V: 2}, {Ref: bad, T: series.Period}}
	err := a.Append(t.Context(), samples)
	if got, want := failedSamples(t, err), []int{0, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("failed are %v, want %v", got, want)
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "no room") {
		t.Errorf("Append: %v, want the error of the row", err)
	}
	if got := keys(scan(t, s, wholeTable(bucketstore.Metric))); !slices.Equal(got, []string{"good,0000000000000"}) {
		t.Errorf("rows %q, want only the good one", got)
	}
	broken.Store(false)
	if err := a.Append(t.Context(), samples); err != nil {
		t.Fatal(err)
	}
	if got := keys(scan(t, s, wholeTable(bucketstore.Metric))); len(got) != 3 {
		t.Errorf("after the repetition: rows %q, want three", got)
	}
}

func TestDirectDeadline(t *testing.T) {
	silent := spy{onRequest: func(ctx context.Context, _ proto.Message) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	t.Run("own timeout", func(t *testing.T) {
		s := bigtabletest.Open(t, silent.option(), bigtabletest.WithConfig(func(cfg *bigtable.Config) { cfg.CallTimeout = 50 * time.Millisecond }))
		a := newDirect(s, 0)
		if err := a.Append(t.Context(), []bucketstore.Sample{{Ref: a.Ref([]byte("a"))}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Append: %v, want context.DeadlineExceeded", err)
		}
	})
	t.Run("deadline of the caller", func(t *testing.T) {
		a := newDirect(bigtabletest.Open(t, silent.option()), 0)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := a.Append(ctx, []bucketstore.Sample{{Ref: a.Ref([]byte("a"))}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Append: %v, want context.DeadlineExceeded", err)
		}
	})
	// The sealer relies on it: whatever the store and the caller allow.
	t.Run("a minute after the family was chosen", func(t *testing.T) {
		var left time.Duration
		looks := spy{onRequest: func(ctx context.Context, _ proto.Message) error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return nil
		}}
		s := bigtabletest.Open(t, looks.option(), bigtabletest.WithConfig(func(cfg *bigtable.Config) { cfg.CallTimeout = time.Hour }))
		a := newDirect(s, 0)
		if err := a.Append(t.Context(), []bucketstore.Sample{{Ref: a.Ref([]byte("a"))}}); err != nil || left <= 0 || left > time.Minute {
			t.Errorf("Append: %v, the request had %v left, want at most a minute", err, left)
		}
	})
}

// TestDirectConcurrently: calls share memory, not samples.
func TestDirectConcurrently(t *testing.T) {
	s := bigtabletest.Open(t)
	a := newDirect(s, 0)
	const writers, rounds, size = 8, 20, 50
	var writing sync.WaitGroup
	for w := range writers {
		ref := a.Ref(fmt.Appendf(nil, "series_%d", w))
		other := a.Ref(fmt.Appendf(nil, "series_%d", w))
		writing.Go(func() {
			for r := range rounds {
				var samples []bucketstore.Sample
				for i := range size {
					samples = append(samples, bucketstore.Sample{Ref: []bucketstore.Ref{ref, other}[i%2], T: int64(r*size + i), V: float64(w*1e6 + r*size + i)})
				}
				if err := a.Append(t.Context(), samples); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	rows := scan(t, s, wholeTable(bucketstore.Metric))
	if len(rows) != writers {
		t.Fatalf("%d rows, want %d", len(rows), writers)
	}
	for w, row := range rows {
		if len(row.Cells) != rounds*size {
			t.Errorf("row %s has %d cells, want %d", row.Key, len(row.Cells), rounds*size)
		}
		for i, c := range row.Cells {
			if v, err := cell.ParseFloat(c.Value); err != nil || v != float64(w*1e6+i) {
				t.Fatalf("row %s, cell %d: %v, %v", row.Key, i, v, err)
			}
		}
	}
}
