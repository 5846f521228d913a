package eval_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/promtable/promtable/remote/engine/eval"
)

// TestCoresAreShared: queries that all want to compute get their turns in the same order, over and over, however many goroutines
// one has; all but one of the cores.
func TestCoresAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queries, turns = 4, 25
		cores := eval.NewCores(2)
		var running sync.WaitGroup
		var order []int
		for n := range queries {
			ctx, end := cores.With(t.Context())
			defer end()
			running.Go(func() {
				for range turns {
					if err := eval.Computing(ctx)(ctx, func() error {
						synctest.Wait() // for all others to wait for the token
						order = append(order, n)
						return nil
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		running.Wait()
		if len(order) != queries*turns {
			t.Fatalf("%d turns", len(order))
		}
		for i := queries; i < len(order); i++ {
			if order[i] != order[i-queries] {
				t.Fatalf("turn %d is of query %d: %v", i, order[i], order)
			}
		}
	})
}

// TestLastCore: a query that runs alone computes on all cores, and leaves one when there is another.
func TestLastCore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cores := eval.NewCores(3)
		ctx, end := cores.With(t.Context())
		defer end()
		atOnce := func() (most int) {
			var mu sync.Mutex
			var running sync.WaitGroup
			now, leave := 0, make(chan struct{})
			for range 10 {
				running.Go(func() {
					_ = eval.Computing(ctx)(ctx, func() error {
						mu.Lock()
						now++
						mu.Unlock()
						<-leave
						return nil
					})
				})
			}
			synctest.Wait()
			most = now
			close(leave)
			running.Wait()
			return most
		}
		if n := atOnce(); n != 3 {
			t.Errorf("alone a query computes on %d cores, want 3", n)
		}
		_, endOther := cores.With(t.Context())
		if n := atOnce(); n != 2 {
			t.Errorf("beside another a query computes on %d cores, want 2", n)
		}
		endOther()
		if n := atOnce(); n != 3 {
			t.Errorf("alone again a query computes on %d cores, want 3", n)
		}
	})
}

// TestCoresAreGivenBack: a wait for a token ends with the query, and no token is lost by that, by an error, or by a panic. On one core
// there is one.
func TestCoresAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cores := eval.NewCores(1)
		ctx, end := cores.With(t.Context())
		defer end()
		compute := eval.Computing(ctx)
		wrong := errors.New("wrong")
		for range 3 {
			ended, cancel := context.WithCancel(ctx)
			done := make(chan error)
			if err := compute(ctx, func() error {
				go func() { done <- compute(ended, func() error { return nil }) }()
				synctest.Wait()
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("a wait ends with %v", err)
				}
				return wrong
			}); !errors.Is(err, wrong) {
				t.Error(err)
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				_ = compute(ctx, func() error { panic("a defect") })
			}()
		}
	})
}
