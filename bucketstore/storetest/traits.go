package storetest

import (
	"testing"

	"github.com/promtable/promtable/bucketstore"
)

// WithTraits returns store with other traits, for tests of what depends on them.
func WithTraits(store bucketstore.Store, change func(*bucketstore.Traits)) bucketstore.Store {
	t := store.Traits()
	change(&t)
	return traited{store, t}
}

// Shared returns store with the trait Shared, or without it.
func Shared(store bucketstore.Store, shared bool) bucketstore.Store {
	return WithTraits(store, func(t *bucketstore.Traits) { t.Shared = shared })
}

type traited struct {
	bucketstore.Store
	traits bucketstore.Traits
}

// Traits implements bucketstore.Store.
func (s traited) Traits() bucketstore.Traits { return s.traits }

// RunTraits checks that the traits of a backend are true. open returns a new store, and how
// another process would open the same one, which it closes at the end of t.
func RunTraits(t *testing.T, open func(t *testing.T) (bucketstore.Store, func() (bucketstore.Store, error))) {
	t.Helper()
	t.Run("shared", func(t *testing.T) {
		store, again := open(t)
		f := newFixture(t, store)
		f.apply(bucketstore.Metric, mutate("row", set("r0", "qual", 1, "x")))
		other, err := again()
		if shared := store.Traits().Shared; shared != (err == nil) {
			t.Fatalf("Shared is %t, and another process that opens the store gets the error: %v", shared, err)
		}
		if err == nil {
			newFixture(t, other).wantTable(bucketstore.Metric, row("row", cell("r0", "qual", 1, "x")))
		}
	})
	t.Run("atomic", func(t *testing.T) { // beside a crash, for which each backend has a test
		store, _ := open(t)
		f := newFixture(t, store)
		err := store.Apply(f.ctx, bucketstore.Metric, []bucketstore.Mutation{mutate("a", set("r0", "qual", 1, "x")), mutate("b", set("none", "qual", 1, "x"))})
		if err == nil {
			t.Fatal("a family that does not exist was written to")
		}
		if found := f.scan(everything(bucketstore.Metric)); store.Traits().AtomicApply && len(found) > 0 {
			t.Fatalf("AtomicApply is set, and a part of an Apply was stored: %s", format(found))
		}
	})
	t.Run("ages", func(t *testing.T) {
		store, _ := open(t)
		_, keeps := store.(interface {
			Tables() []bucketstore.TableSpec
		})
		if own := store.Traits().OwnAges; own != keeps {
			t.Fatalf("OwnAges is %t, and that the store has a method which returns its ages is %t", own, keeps)
		}
	})
	t.Run("disk", func(t *testing.T) {
		store, _ := open(t)
		_, measures := store.(interface {
			Usage() (bucketstore.Usage, error)
		})
		if on := store.Traits().OnDisk; on != measures {
			t.Fatalf("OnDisk is %t, and that the store measures what it takes on the disk is %t", on, measures)
		}
	})
}
