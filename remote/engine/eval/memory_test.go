package eval_test

import (
	"errors"
	"testing"

	"github.com/promtable/promtable/remote/engine/eval"
)

// TestLend: what a query has lent counts for all queries and not for one, and is given back by it or at its end. What comes after the
// end, of reads in the background, is not counted.
func TestLend(t *testing.T) {
	const perQuery, total, spare = 100, 1000, 250
	memory := eval.NewMemory(perQuery, total)
	first, endFirst := memory.With(t.Context())
	second, endSecond := memory.With(t.Context())
	defer endSecond()
	want := func(when string, err, as error, held int64) {
		t.Helper()
		if !errors.Is(err, as) || (err == nil) != (as == nil) || memory.Held() != held {
			t.Errorf("%s: %v and %d bytes held, want %v and %d", when, err, memory.Held(), as, held)
		}
	}
	want("up to the limit of a query", eval.Hold(first, perQuery, "a"), nil, perQuery)
	want("lent beyond it", eval.Lend(first, 500, "a"), nil, perQuery+500)
	want("by another query", eval.Lend(second, 150, "b"), nil, perQuery+650)
	want("beyond the limit of all", eval.Lend(second, 1, "b"), eval.ErrBusy, perQuery+651)
	want("held beyond it", eval.Hold(second, 1, "b"), eval.ErrBusy, perQuery+652)
	want("given back", eval.Lend(first, -500, "a"), nil, perQuery+152)
	want("more than all may hold", eval.Lend(second, total-spare+1, "b"), eval.ErrMemory, perQuery+152+total-spare+1)
	endSecond()
	want("after the end", eval.Lend(second, 10, "b"), nil, perQuery)
	endFirst()
	endFirst()
	want("after both", eval.Hold(first, 10, "a"), nil, 0)
}
