package index_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// TestLearn: what another process indexes is found by calls that begin after Learn, in lists that are in memory already, which are not read again.
func TestLearn(t *testing.T) {
	tab := newTable(t)
	var pending []index.Learned
	a := index.New(index.Config{Refresh: time.Hour, Indexed: func(period int64, key []byte) {
		pending = append(pending, index.Learned{Period: period, Key: string(key)})
	}}, tab)
	var b *index.Index
	var limits []int64
	failure := errors.New("another process cannot be asked")
	var fails error
	b = index.New(index.Config{Refresh: time.Hour, Sync: func(_ context.Context, limit int64) error {
		limits = append(limits, limit)
		if err := b.Learn(pending); err != nil {
			return err
		}
		pending = nil
		return fails
	}}, tab)
	write := func(id string) { mustWrite(t, a, entry(t, 0, "__name__", "up", "id", id)) }
	q := index.Query{Matchers: matchers(t, "__name__=", "up"), Limit: 10}
	want := func(n int) {
		t.Helper()
		found, err := b.Select(t.Context(), q)
		if err != nil || len(found.Series) != n {
			t.Fatalf("%v are found, %v, want %d", found, err, n)
		}
		for _, of := range []index.Query{q, {Limit: 10}} {
			values, err := b.Values(t.Context(), "id", of)
			if err != nil || len(values) != n {
				t.Fatalf("values %q, %v, want %d", values, err, n)
			}
		}
	}
	write("1")
	want(1)
	for i, id := range []string{"2", "3"} {
		write(id)
		tab.reset()
		want(2 + i)
		if rows := tab.work().scanRows; rows != 0 {
			t.Errorf("%d rows are read again", rows)
		}
	}
	if slices.Contains(limits, 0) || limits[0] != 10 {
		t.Errorf("asked about times up to %d", limits)
	}
	// A third process indexes a series that it finds in the table: it says so, as the one that has written it may not be asked.
	c := index.New(index.Config{Refresh: time.Hour, Indexed: func(period int64, key []byte) {
		pending = append(pending, index.Learned{Period: period, Key: string(key)})
	}}, tab)
	write("4")
	pending = nil
	want(3) // no process has said it
	mustWrite(t, c, entry(t, 0, "__name__", "up", "id", "4"))
	want(4)
	write("5")
	pending = nil
	want(4)
	b.Forget()
	want(5)

	pending = []index.Learned{{Period: series.PeriodOf(0), Key: "\xff,"}, {Period: 1, Key: "up"}}
	if _, err := b.Select(t.Context(), q); !errors.Is(err, series.ErrCorrupt) {
		t.Errorf("of keys that are none: %v", err)
	}
	pending, fails = nil, failure
	if _, err := b.Select(t.Context(), q); !errors.Is(err, failure) {
		t.Errorf("the error is %v", err)
	}
	if _, err := b.Values(t.Context(), "id", q); !errors.Is(err, failure) {
		t.Errorf("of values the error is %v", err)
	}
	if _, err := b.Cardinality(t.Context(), index.CountQuery{Time: 5}); !errors.Is(err, failure) {
		t.Errorf("of counts the error is %v", err)
	}
	if _, err := b.Metrics(t.Context(), index.MetricQuery{Time: 5}); !errors.Is(err, failure) {
		t.Errorf("of metrics the error is %v", err)
	}
}

// TestTold: lists are read again after Refresh, and after twenty times that while all others tell what they write.
func TestTold(t *testing.T) {
	tab, now, isTold := newTable(t), time.UnixMilli(0), false
	x := index.New(index.Config{
		Refresh: 15 * time.Second, Now: func() time.Time { return now },
		Sync: func(context.Context, int64) error { return nil }, Told: func() bool { return isTold },
	}, tab)
	mustWrite(t, x, entry(t, 0, "__name__", "up", "id", "1"))
	for _, tt := range []struct {
		told    bool
		after   time.Duration
		rereads bool
	}{{false, 0, true}, {false, 14 * time.Second, false}, {false, time.Second, true}, {true, 15 * time.Second, false}, {true, 284 * time.Second, false}, {true, time.Second, true}, {true, time.Minute, false}, {false, 0, true}} {
		isTold, now = tt.told, now.Add(tt.after)
		tab.reset()
		if _, err := x.Select(t.Context(), index.Query{Matchers: matchers(t, "__name__=", "up"), Limit: 10}); err != nil {
			t.Fatal(err)
		}
		if rows := tab.work().scanRows; (rows > 0) != tt.rereads {
			t.Errorf("%+v: %d rows are read", tt, rows)
		}
	}
}
