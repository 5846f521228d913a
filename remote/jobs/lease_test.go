package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
)

// A state is that behind a lease.
type state struct {
	meta.Holding
	At string `json:"at"`
}

func newLease(store bucketstore.Store, holder string, now func() time.Time) *jobs.Lease[state] {
	return jobs.NewLease(store, "row", now, holder, func(s *state) *meta.Holding { return &s.Holding })
}

// TestLease: one process at a time has a lease, until it gives it up or loses it; its state goes on.
func TestLease(t *testing.T) {
	for name, store := range map[string]bucketstore.Store{
		"memory":   storetest.Shared(new(storetest.Memory), true),
		"bigtable": bigtabletest.Open(t),
	} {
		t.Run(name, func(t *testing.T) {
			clock := time.UnixMilli(1_300_000_000_000)
			now := func() time.Time { return clock }
			a, b := newLease(store, "a", now), newLease(store, "b", now)
			idle := func(context.Context) error { t.Error("it worked"); return nil }
			if err := a.Run(t.Context(), func(*state) bool { return false }, idle); err != nil {
				t.Fatal(err)
			}
			err := a.Run(t.Context(), nil, func(ctx context.Context) error {
				a.State.At = "here"
				if err := b.Run(ctx, nil, idle); !errors.Is(err, jobs.ErrHeld) || !strings.Contains(err.Error(), "a, until") {
					t.Errorf("while it is held: %v", err)
				}
				clock = clock.Add(jobs.LeaseTime / 2)
				return a.Keep(ctx)
			})
			if err != nil {
				t.Fatal(err)
			}
			err = b.Run(t.Context(), nil, func(ctx context.Context) error {
				if b.State.At != "here" {
					t.Errorf("the state is %+v", b.State)
				}
				clock = clock.Add(jobs.LeaseTime)
				return a.Run(ctx, nil, func(ctx context.Context) error { return errors.Join(a.Keep(ctx), errStop) }) // b was too slow
			})
			if !errors.Is(err, errStop) {
				t.Errorf("the error of the work is %v", err)
			}
			if err := b.Run(t.Context(), nil, func(context.Context) error { return nil }); err != nil {
				t.Errorf("after it was given up: %v", err)
			}
		})
	}
}

var errStop = errors.New("stop")

// TestLeaseLost: a process whose lease was taken changes nothing, and is told so.
func TestLeaseLost(t *testing.T) {
	store := storetest.Shared(new(storetest.Memory), true)
	clock := time.UnixMilli(1_300_000_000_000)
	now := func() time.Time { return clock }
	a, b := newLease(store, "a", now), newLease(store, "b", now)
	err := a.Run(t.Context(), nil, func(ctx context.Context) error {
		clock = clock.Add(2 * jobs.LeaseTime)
		if err := b.Run(ctx, nil, func(context.Context) error { b.State.At = "b"; return nil }); err != nil {
			t.Fatal(err)
		}
		a.State.At = "a"
		return a.Keep(ctx)
	})
	if !errors.Is(err, jobs.ErrLost) {
		t.Errorf("it ends with %v", err)
	}
	cell, err := meta.ReadCell(t.Context(), store, "row")
	if err != nil || !strings.Contains(string(cell.Value), `"at":"b"`) {
		t.Errorf("the row is %s, %v", cell.Value, err)
	}
	if err := meta.Overwrite(t.Context(), store, "row", []byte("{"), 1); err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context(), nil, nil); !errors.Is(err, series.ErrCorrupt) {
		t.Errorf("a row that is no JSON: %v", err)
	}
}
