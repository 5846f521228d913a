package seal_test

import (
	"context"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/storetest"
)

// A memory is a store in memory that other processes use, too.
type memory struct{ *storetest.Memory }

func newMemory() *memory { return &memory{new(storetest.Memory)} }

func (m *memory) Traits() bucketstore.Traits { return bucketstore.Traits{Shared: true} }

// apply applies a mutation, also of a process that has ended since.
func (m *memory) apply(table bucketstore.Table, mut bucketstore.Mutation) {
	if err := m.Apply(context.Background(), table, []bucketstore.Mutation{mut}); err != nil {
		panic(err)
	}
}
