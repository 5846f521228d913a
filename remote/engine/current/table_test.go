package current

import (
	"context"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
)

// idleStore takes everything and holds nothing.
type idleStore struct{ bucketstore.Store }

func (idleStore) Traits() bucketstore.Traits { return bucketstore.Traits{} }

func (idleStore) Apply(context.Context, bucketstore.Table, []bucketstore.Mutation) error { return nil }

// ref is the key of a series.
type ref string

func (r ref) SeriesKey() []byte { return []byte(r) }

// Series that come no more keep no memory, those that come now and then do.
func TestSlotsGo(t *testing.T) {
	table := New(Config{Store: idleStore{}, Interval: time.Hour})
	t.Cleanup(func() {
		if err := table.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	handle := new(Handle)
	for i, step := range []struct {
		sample bool
		want   int
	}{{true, 1}, {false, 1}, {true, 1}, {false, 1}, {false, 0}, {false, 0}, {true, 1}} {
		if step.sample {
			table.Add([]bucketstore.Sample{{Ref: ref("up"), T: int64(i)}}, []*Handle{handle})
			if s, ok := table.get("up"); !ok || s.T != int64(i) {
				t.Errorf("step %d: the current sample is %v, %t", i, s, ok)
			}
		}
		if err := table.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(table.slots); n != step.want {
			t.Errorf("step %d: %d slots, want %d", i, n, step.want)
		}
	}
}
