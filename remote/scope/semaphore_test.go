package scope_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/promtable/promtable/remote/scope"
)

// of returns a context of a tenant.
func of(t *testing.T, tenant string) context.Context {
	return scope.With(t.Context(), []string{tenant})
}

// TestShares: a tenant alone holds all. When another waits, each has half in the end, however many requests of the first wait before.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 10
		s := scope.NewSemaphore(total)
		var mu sync.Mutex
		held := map[string]int{}
		count := func(tenant string, n int) {
			mu.Lock()
			defer mu.Unlock()
			held[tenant] += n
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		load := func(tenant string, requests int) {
			ctx := scope.With(ctx, []string{tenant})
			for range requests {
				running.Go(func() {
					for s.Acquire(ctx, 1) == nil {
						count(tenant, 1)
						time.Sleep(time.Duration(1+rand.IntN(9)) * time.Millisecond)
						count(tenant, -1)
						s.Release(ctx, 1)
					}
				})
			}
		}
		shares := func() map[string]int {
			sum := map[string]int{}
			for range 1000 {
				time.Sleep(time.Millisecond)
				synctest.Wait()
				mu.Lock()
				for tenant, n := range held {
					sum[tenant] += n
				}
				mu.Unlock()
			}
			for tenant := range sum {
				sum[tenant] = (sum[tenant] + 500) / 1000
			}
			return sum
		}
		load("a", 1000)
		if got := shares(); got["a"] != total {
			t.Errorf("alone a holds %d of %d", got["a"], total)
		}
		load("b", 20)
		if got := shares(); got["a"] != total/2 || got["b"] != total/2 {
			t.Errorf("of %d, a and b hold %v", total, got)
		}
		load("c", 1) // which never has more than 1
		if got := shares(); got["c"] != 1 || got["a"]-got["b"] > 1 || got["b"]-got["a"] > 1 {
			t.Errorf("of %d, a, b and c hold %v", total, got)
		}
		cancel()
		running.Wait()
		if !s.TryAcquire(t.Context(), total) {
			t.Error("not all was given back")
		}
	})
}

// TestTurns: with one unit two tenants take turns, and requests of one come in their order.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scope.NewSemaphore(1)
		if err := s.Acquire(of(t, "a"), 1); err != nil {
			t.Fatal(err)
		}
		var order []string
		var running sync.WaitGroup
		for _, tenant := range []string{"a", "b"} {
			for i := range 3 {
				running.Go(func() {
					if err := s.Acquire(of(t, tenant), 1); err != nil {
						t.Error(err)
					}
					order = append(order, tenant+strconv.Itoa(i))
					s.Release(of(t, tenant), 1)
				})
				synctest.Wait()
			}
		}
		s.Release(of(t, "a"), 1)
		running.Wait()
		if want := []string{"b0", "a0", "b1", "a1", "b2", "a2"}; !slices.Equal(order, want) {
			t.Errorf("the order is %v, want %v", order, want)
		}
	})
}

// TestLarge: a large request is not passed over for ever by small ones, and one that no longer waits holds nobody up.
func TestLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scope.NewSemaphore(10)
		a, b := of(t, "a"), of(t, "b")
		if !s.TryAcquire(a, 6) {
			t.Fatal("nothing is free")
		}
		ctx, cancel := context.WithCancel(a)
		large := make(chan error)
		go func() { large <- s.Acquire(ctx, 10) }()
		synctest.Wait()
		if s.TryAcquire(a, 1) {
			t.Error("a small request overtakes a large one")
		}
		small := make(chan error)
		go func() { small <- s.Acquire(a, 4) }()
		synctest.Wait()
		cancel()
		if err := <-large; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := <-small; err != nil { // behind the large one
			t.Error(err)
		}
		go func() { large <- s.Acquire(b, 10) }()
		synctest.Wait()
		s.Release(a, 6)
		s.Release(a, 4)
		if err := <-large; err != nil {
			t.Error(err)
		}
	})
}

// TestResize: what is held beyond a new size stays, and nothing is given before enough is given back.
func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx := scope.NewSemaphore(3), of(t, "a")
		for range 3 {
			if !s.TryAcquire(ctx, 1) {
				t.Fatal("nothing is free")
			}
		}
		s.Resize(2)
		s.Release(ctx, 1)
		if s.TryAcquire(ctx, 1) {
			t.Error("three are held of two")
		}
		got := make(chan error)
		go func() { got <- s.Acquire(ctx, 1) }()
		synctest.Wait()
		s.Resize(3)
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}
