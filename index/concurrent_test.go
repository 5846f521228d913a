package index_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/promtable/promtable/index"
)

var errStore = errors.New("the store is away")

// gate holds calls back until the test lets each of them go, with an error or
// with nil.
type gate chan error

func (g gate) hold(int) error { return <-g }

// background runs fn and returns where its error will be.
func background(fn func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- fn() }()
	return ended
}

// wantRunning waits until everybody waits for something, and fails if call has
// ended by then.
func wantRunning(t *testing.T, call <-chan error, until string) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-call:
		t.Fatalf("ended with %v before %s", err, until)
	default:
	}
}

// wantEnded waits until everybody waits for something, and fails if call has
// not ended with this error.
func wantEnded(t *testing.T, call <-chan error, want error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-call:
		if !errors.Is(err, want) {
			t.Errorf("ended with %v, want %v", err, want)
		}
	default:
		t.Fatal("has not ended")
	}
}

func TestWriteWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, puts := newTable(t), make(gate)
		tab.onPut = puts.hold
		x := index.New(index.Config{}, tab)
		write := func() error {
			return x.Write(t.Context(), []index.Entry{entry(t, 0, "__name__", "up", "job", "a")})
		}

		first := background(write)
		synctest.Wait()
		second, third := background(write), background(write)
		wantRunning(t, second, "the rows")
		puts <- nil
		wantRunning(t, second, "the marks")
		wantRunning(t, third, "the marks")
		puts <- nil
		wantEnded(t, first, nil)
		wantEnded(t, second, nil)
		wantEnded(t, third, nil)
		wantWork(t, tab, "three writers", work{putCalls: 2, putRows: 6, scanCalls: 1})
	})
}

// A call that waits for a writer writes itself if the writer fails: one of the calls
// that wait.
func TestWriteInsteadOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, puts := newTable(t), make(gate)
		tab.onPut = puts.hold
		x := index.New(index.Config{}, tab)
		write := func() error {
			return x.Write(t.Context(), []index.Entry{entry(t, 0, "__name__", "up", "job", "a")})
		}

		first := background(write)
		synctest.Wait()
		second, third := background(write), background(write)
		synctest.Wait()
		puts <- nil
		puts <- errStore
		wantEnded(t, first, errStore)
		wantRunning(t, second, "its own rows")
		puts <- nil
		wantRunning(t, third, "the marks")
		puts <- nil
		wantEnded(t, second, nil)
		wantEnded(t, third, nil)
		if tab.putCalls != 4 {
			t.Errorf("%d calls, want 4: two that fail, two that do not", tab.putCalls)
		}
	})
}

// Two calls that each write what the other needs do not wait in a circle.
func TestWriteForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, puts := newTable(t), make(gate)
		tab.onPut = puts.hold
		x := index.New(index.Config{}, tab)
		a, b := entry(t, 0, "__name__", "up", "job", "a"), entry(t, 0, "__name__", "up", "job", "b")
		c := entry(t, 0, "__name__", "up", "job", "c")

		first := background(func() error { return x.Write(t.Context(), []index.Entry{a, b}) })
		synctest.Wait()
		second := background(func() error { return x.Write(t.Context(), []index.Entry{c, b}) })
		synctest.Wait()
		third := background(func() error { return x.Write(t.Context(), []index.Entry{a, c}) })
		wantRunning(t, third, "both the others")
		for range 4 {
			puts <- nil
		}
		wantEnded(t, first, nil)
		wantEnded(t, second, nil)
		wantEnded(t, third, nil)
		if marks := tab.marks(); marks != 3 {
			t.Errorf("%d marks, want 3", marks)
		}
	})
}

func TestWriteCancelledWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, puts := newTable(t), make(gate)
		tab.onPut = puts.hold
		x := index.New(index.Config{}, tab)
		up := []index.Entry{entry(t, 0, "__name__", "up", "job", "a")}

		first := background(func() error { return x.Write(t.Context(), up) })
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		second := background(func() error { return x.Write(ctx, up) })
		wantRunning(t, second, "it is cancelled")
		cancel(errStore)
		wantEnded(t, second, errStore)
		wantRunning(t, first, "its rows")
		puts <- nil
		puts <- nil
		wantEnded(t, first, nil)
	})
}

// While a call reads marks, another call with the same series waits for it. A call with
// other series does not, even if they have the same metric name.
func TestWriteWhileMarksAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, scans := newTable(t), make(gate)
		mustWrite(t, index.New(index.Config{}, tab), entry(t, 0, "__name__", "up", "job", "a"))
		tab.reset()
		tab.onScan = func(call int) error {
			if call == 1 {
				return scans.hold(call)
			}
			return nil
		}
		x := index.New(index.Config{}, tab)
		write := func(ctx context.Context, job string) <-chan error {
			return background(func() error { return x.Write(ctx, []index.Entry{entry(t, 0, "__name__", "up", "job", job)}) })
		}

		first := write(t.Context(), "a")
		synctest.Wait()
		wantEnded(t, write(t.Context(), "b"), nil)
		second := write(t.Context(), "a")
		ctx, cancel := context.WithCancel(t.Context())
		third := write(ctx, "a")
		wantRunning(t, second, "the marks are read")
		wantRunning(t, third, "it is cancelled")
		cancel()
		wantEnded(t, third, context.Canceled)
		scans <- nil
		wantEnded(t, first, nil)
		wantEnded(t, second, nil)
		if marks := tab.marks(); marks != 1 || tab.scanCalls != 2 {
			t.Errorf("%d marks and %d scans, want those of job b and one for each job", marks, tab.scanCalls)
		}
	})
}

// Many writers of the same and of other series, some failing, with an index that
// remembers few: each series that a call reported as written has its mark, and no mark
// is written twice.
func TestWriteConcurrently(t *testing.T) {
	const writers, rounds = 8, 30
	tab := newTable(t)
	tab.onPut = func(call int) error {
		if call%7 == 0 {
			return errStore
		}
		return nil
	}
	x := index.New(index.Config{WrittenSeries: 25}, tab)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for round := range rounds {
				entries := []index.Entry{
					entry(t, 0, "__name__", "up", "round", fmt.Sprint(round)),
					entry(t, 0, "__name__", "up", "round", fmt.Sprint(round), "writer", fmt.Sprint(w)),
					entry(t, 0, "__name__", "up", "round", fmt.Sprint((round+w)%rounds)),
				}
				for x.Write(t.Context(), entries) != nil {
					continue
				}
				for _, e := range entries {
					if mark := "p,__name__=up,0000000000000," + string(e.Key); !tab.has(mark) {
						t.Errorf("writer %d, round %d: %s is not there", w, round, mark)
					}
				}
			}
		})
	}
	wg.Wait()
	result := mustSelect(t, x, index.Query{Matchers: matchers(t, "__name__=", "up"), Start: 0, Limit: 1})
	if want := rounds + rounds*writers; len(result.Series) != want || tab.marks() != want {
		t.Errorf("%d series with %d marks written, want %d of both", len(result.Series), tab.marks(), want)
	}
}
