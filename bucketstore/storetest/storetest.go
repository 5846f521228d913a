// Package storetest checks that a backend keeps the contract of [bucketstore.Store]. A
// backend's own tests call [Run], [RunConcurrent] and, where its clock can be moved,
// [RunExpiry]; they do not test the contract themselves.
//
// The suite uses no empty row key, no row key over 4,096 bytes, no value over 1 MiB and no
// more than 100,000 operations in a mutation: no backend has to accept those. The times of
// its cells lie in 1970, except in CURRENT, whose cells expire.
package storetest

import (
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
)

// Open returns an empty store with these tables, and closes it at the end of t. A backend
// with a clock of its own ignores now.
type Open func(t testing.TB, tables []bucketstore.TableSpec, now func() time.Time) bucketstore.Store

// A check tests one sentence of the contract on an empty store.
type check struct {
	name string
	run  func(f fixture)
}

// Run checks everything that a single goroutine can see.
func Run(t *testing.T, open Open) {
	t.Helper()
	runAll(t, open, orderChecks())
	runAll(t, open, rangeChecks())
	runAll(t, open, cellChecks())
	runAll(t, open, operationChecks())
	runAll(t, open, sumChecks())
	runAll(t, open, conditionChecks())
	runAll(t, open, dropChecks())
	runAll(t, open, errorChecks())
	runAll(t, open, sizeChecks())
	runAll(t, open, modelChecks())
}

// RunConcurrent checks the contract with several goroutines. They write, delete and read
// columns of a row at the same time.
func RunConcurrent(t *testing.T, open Open) {
	t.Helper()
	runAll(t, open, concurrentChecks())
}

func runAll(t *testing.T, open Open, checks []check) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			c.run(newFixture(t, open(t, bucketstore.Tables(bucketstore.Retention{}), time.Now)))
		})
	}
}
