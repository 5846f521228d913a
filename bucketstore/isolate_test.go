package bucketstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
)

// refuser is a Store that refuses rows for ever, alone or with their whole request.
type refuser struct {
	bucketstore.Store
	// errs are the answers to rows.
	errs map[string]error
	// whole says that such a row spoils its request.
	whole  bool
	stored map[string]bool
	calls  int
}

func (r *refuser) Apply(_ context.Context, _ bucketstore.Table, muts []bucketstore.Mutation) error {
	r.calls++
	failed := make(map[int]error)
	for i, m := range muts {
		if err := r.errs[string(m.Key)]; err != nil {
			failed[i] = err
		}
	}
	for _, err := range failed {
		if r.whole {
			return fmt.Errorf("apply: %w", err)
		}
	}
	for i, m := range muts {
		if failed[i] == nil {
			r.stored[string(m.Key)] = true
		}
	}
	if len(failed) > 0 {
		return &bucketstore.RowsError{Failed: failed}
	}
	return nil
}

// TestIsolate: rows that the store can never take are found one by one, whether they spoil
// their request or not, and all others are stored.
func TestIsolate(t *testing.T) {
	errRefused, errDown := fmt.Errorf("%w: bad row", bucketstore.ErrRefused), errors.New("down")
	row := func(n int) string { return fmt.Sprintf("row %03d", n) }
	const rows = 200
	for _, tt := range []struct {
		name string
		errs map[int]error
		// refused and failed are the rows of the answer. If all is set it is not about rows.
		refused, failed []int
		all             error
		whole           bool
		calls           int
	}{
		{name: "all stored", calls: 1},
		{name: "down", errs: map[int]error{7: errDown}, whole: true, all: errDown, calls: 1},
		{name: "a row fails", errs: map[int]error{7: errDown}, failed: []int{7}, calls: 1},
		{name: "a row is refused", errs: map[int]error{7: errRefused}, refused: []int{7}, calls: 2},
		{name: "two rows are refused", errs: map[int]error{7: errRefused, 9: errRefused}, refused: []int{7, 9}, calls: 3},
		{name: "a row is refused and one fails", errs: map[int]error{7: errRefused, 9: errDown}, refused: []int{7}, failed: []int{9}, calls: 2},
		{name: "a row spoils its request", errs: map[int]error{7: errRefused}, whole: true, refused: []int{7}, calls: 17},
		{name: "two rows spoil their requests", errs: map[int]error{0: errRefused, 199: errRefused}, whole: true, refused: []int{0, 199}, calls: 29},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &refuser{errs: make(map[string]error), whole: tt.whole, stored: make(map[string]bool)}
			var muts []bucketstore.Mutation
			want := make(map[string]bool)
			for n := range rows {
				muts = append(muts, bucketstore.Mutation{Key: []byte(row(n))})
				want[row(n)] = tt.all == nil && tt.errs[n] == nil
				if tt.errs[n] != nil {
					r.errs[row(n)] = tt.errs[n]
				}
			}
			err := bucketstore.Isolate(r, time.Now).Apply(t.Context(), bucketstore.Metric, muts)
			var failed *bucketstore.RowsError
			if isAboutRows := errors.As(err, &failed); isAboutRows != (len(tt.refused)+len(tt.failed) > 0) || !isAboutRows && !errors.Is(err, tt.all) {
				t.Fatalf("Apply: %v", err)
			}
			var gotRefused, gotFailed []int
			if failed != nil {
				for _, n := range slices.Sorted(maps.Keys(failed.Failed)) {
					if errors.Is(failed.Failed[n], bucketstore.ErrRefused) {
						gotRefused = append(gotRefused, n)
					} else {
						gotFailed = append(gotFailed, n)
					}
				}
			}
			if !slices.Equal(gotRefused, tt.refused) || !slices.Equal(gotFailed, tt.failed) {
				t.Errorf("refused are %v, want %v; failed are %v, want %v", gotRefused, tt.refused, gotFailed, tt.failed)
			}
			maps.DeleteFunc(want, func(_ string, stored bool) bool { return !stored })
			if !maps.Equal(r.stored, want) {
				t.Errorf("%d rows are stored, want %d", len(r.stored), len(want))
			}
			if r.calls != tt.calls {
				t.Errorf("%d requests, want %d", r.calls, tt.calls)
			}
		})
	}
}

// TestIsolateNeedsAStoredRow: a store that refuses all rows of a table may refuse them for
// another reason.
func TestIsolateNeedsAStoredRow(t *testing.T) {
	r := &refuser{errs: map[string]error{"bad": bucketstore.ErrRefused}, stored: make(map[string]bool)}
	now := time.UnixMilli(1e12)
	clock := func() time.Time { return now }
	s := bucketstore.Isolate(bucketstore.Isolate(r, clock), clock)
	writeTo := func(table bucketstore.Table, key string) error {
		return s.Apply(t.Context(), table, []bucketstore.Mutation{{Key: []byte(key)}})
	}
	write := func(key string) error { return writeTo(bucketstore.Metric, key) }
	if err := write("bad"); err == nil || errors.Is(err, bucketstore.ErrRefused) {
		t.Errorf("the first row: %v, want another error", err)
	}
	if err := write("good"); err != nil {
		t.Fatal(err)
	}
	if err := write("bad"); !errors.Is(err, bucketstore.ErrRefused) {
		t.Errorf("after another row: %v, want ErrRefused", err)
	}
	if err := writeTo(bucketstore.Index, "bad"); err == nil || errors.Is(err, bucketstore.ErrRefused) {
		t.Errorf("the first row of another table: %v, want another error", err)
	}
	now = now.Add(time.Minute)
	if err := write("bad"); err == nil || errors.Is(err, bucketstore.ErrRefused) {
		t.Errorf("a minute later: %v, want another error", err)
	}
}

// TestIsolateRefusedAll: a store that refuses everything is not asked for each row.
func TestIsolateRefusedAll(t *testing.T) {
	r := &refuser{errs: make(map[string]error), whole: true, stored: make(map[string]bool)}
	var muts []bucketstore.Mutation
	for n := range 5000 {
		key := fmt.Sprint("row", n)
		r.errs[key] = bucketstore.ErrRefused
		muts = append(muts, bucketstore.Mutation{Key: []byte(key)})
	}
	err := bucketstore.Isolate(r, time.Now).Apply(t.Context(), bucketstore.Metric, muts)
	var failed *bucketstore.RowsError
	if !errors.As(err, &failed) || len(failed.Failed) != len(muts) || r.calls > 100 {
		t.Fatalf("%d requests: %v", r.calls, err)
	}
	for i, err := range failed.Failed {
		if errors.Is(err, bucketstore.ErrRefused) {
			t.Fatalf("row %d: %v", i, err)
		}
	}
}

// TestRetryAfterOfRows: the longest wait of all rows counts, whatever else failed.
func TestRetryAfterOfRows(t *testing.T) {
	overload := func(d time.Duration) error {
		return fmt.Errorf("row: %w", &bucketstore.OverloadError{RetryAfter: d, Err: errors.New("busy")})
	}
	err := &bucketstore.RowsError{Failed: map[int]error{0: bucketstore.ErrRefused, 1: overload(time.Minute), 2: overload(time.Second)}}
	if wait := bucketstore.RetryAfter(fmt.Errorf("apply: %w", err)); wait != time.Minute {
		t.Error(wait)
	}
}
