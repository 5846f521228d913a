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

// TestDirectBatches: requests keep to the bounds, and failed positions are those in the
// samples given to Append.
func TestDirectBatches(t *testing.T) {
	var spy spy
	s := bigtabletest.Open(t, spy.option(), bigtabletest.WithServerOptions(answering(func(key string) error {
		if key == "last,0000000000000" || key == "07000,0000000000000" {
			return status.Error(codes.Internal, "broken row")
		}
		return nil
	})))
	a := newDirect(s, 0)
	var samples []bucketstore.Sample
	for i := range 12_000 {
		samples = append(samples, bucketstore.Sample{Ref: a.Ref(fmt.Appendf(nil, "%05d", i)), T: 1})
	}
	long := a.Ref([]byte("long"))
	for i := range int64(150_000) {
		samples = append(samples, bucketstore.Sample{Ref: long, T: i})
	}
	samples = append(samples, bucketstore.Sample{Ref: a.Ref([]byte("last")), T: 1}, bucketstore.Sample{Ref: long, T: 0, V: 2})
	err := a.Append(t.Context(), samples)
	if got, want := failedSamples(t, err), []int{7000, 162_000}; !slices.Equal(got, want) {
		t.Errorf("failed are %v, want %v", got, want)
	}
	cells := 0
	for _, req := range spy.mutations(0) {
		ops := 0
		for _, entry := range req.Entries {
			ops += len(entry.Mutations)
		}
		cells += ops
		if size := proto.Size(req); ops > 100_000 || len(req.Entries) > 5000 || len(req.Entries) > 1 && size > 2<<20 {
			t.Errorf("a request of %d rows, %d cells, %d bytes", len(req.Entries), ops, size)
		}
	}
	if want := 12_000 + 150_000 + 1 + 1; cells != want {
		t.Errorf("%d cells, want %d", cells, want)
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
