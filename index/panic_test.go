package index_test

import (
	"context"
	"strings"
	"testing"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/index/repanic"
	"github.com/promtable/promtable/series"
)

// A panic while a list is read ends the reading of the others, and goes on in the
// goroutine that has called Select.
func TestSelectListPanics(t *testing.T) {
	for _, lists := range []int{1, 3} {
		var waited bool // until the others have ended
		tab := watchedTable{newTable(t), func(ctx context.Context, first series.RowRange) error {
			if strings.HasPrefix(string(first.Start), "p,a=") {
				panic("a defect")
			}
			<-ctx.Done()
			waited = strings.HasPrefix(string(first.Start), "p,b=") || waited
			return ctx.Err()
		}}
		x := index.New(index.Config{ParallelLists: lists}, tab)
		value := func() (value any) {
			defer func() { value = recover() }()
			_, err := x.Select(t.Context(), index.Query{Matchers: matchers(t, "a=", "1", "b=", "1"), Limit: 1})
			return err
		}()
		if p, ok := value.(*repanic.Panic); ok {
			value = p.Value
		}
		if value != "a defect" || waited != (lists > 1) {
			t.Errorf("%d lists: %v, the other one has ended: %v", lists, value, waited)
		}
	}
}
