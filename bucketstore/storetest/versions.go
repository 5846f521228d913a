package storetest

import (
	"context"
	"maps"
	"sync"

	"github.com/promtable/promtable/bucketstore"
)

// Versions counts the versions that a store keeps of the columns written through it, if
// nothing is ever collected: on Bigtable they stay until garbage collection, which may lag a
// week, and count towards the size of the row.
type Versions struct {
	bucketstore.Store

	mu sync.Mutex
	// times are those of the versions, by column.
	times map[versionedColumn]map[int64]bool
}

type versionedColumn struct {
	table                  bucketstore.Table
	key, family, qualifier string
}

// NewVersions returns a store over store that counts.
func NewVersions(store bucketstore.Store) *Versions {
	return &Versions{Store: store, times: make(map[versionedColumn]map[int64]bool)}
}

// Most returns the number of versions of the column in a table that has the most.
func (v *Versions) Most(table bucketstore.Table) (most int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for c, times := range v.times {
		if c.table == table {
			most = max(most, len(times))
		}
	}
	return most
}

// Apply implements bucketstore.Store.
func (v *Versions) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	err := v.Store.Apply(ctx, table, muts)
	if err == nil {
		for _, m := range muts {
			v.count(table, m)
		}
	}
	return err
}

// CheckAndApply implements bucketstore.Store.
func (v *Versions) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	applied, err := v.Store.CheckAndApply(ctx, table, cond, mut)
	if applied {
		v.count(table, mut)
	}
	return applied, err
}

func (v *Versions) count(table bucketstore.Table, mut bucketstore.Mutation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, op := range mut.Ops {
		at := versionedColumn{table, string(mut.Key), op.Family, string(op.Qualifier)}
		switch op.Kind {
		case bucketstore.SetCell, bucketstore.Add:
			if v.times[at] == nil {
				v.times[at] = make(map[int64]bool)
			}
			v.times[at][op.Time] = true
		case bucketstore.DeleteColumn:
			delete(v.times, at)
		case bucketstore.DeleteColumnBefore:
			maps.DeleteFunc(v.times[at], func(t int64, _ bool) bool { return t < op.Time })
		case bucketstore.DeleteFamily:
			maps.DeleteFunc(v.times, func(c versionedColumn, _ map[int64]bool) bool {
				return c.table == at.table && c.key == at.key && c.family == at.family
			})
		}
	}
}
