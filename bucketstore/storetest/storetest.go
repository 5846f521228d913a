// Package storetest proves that a backend keeps the contract of
// [bucketstore.Store]. A backend's own tests call [Run], [RunConcurrent] and,
// where its clock can be moved, [RunExpiry]; they hold nothing about the
// contract themselves.
//
// The suite asks for no empty row key, no row key over 4,096 bytes, no value
// over 1 MiB and no more than 100,000 operations in a mutation: no backend has
// to take those. The times of its cells lie in 1970, except in CURRENT, the one
// table that forgets by age.
package storetest

import (
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
)

// Open returns an empty store with these tables, and has its Close called at
// the end of t. A backend that takes its time from elsewhere ignores now.
type Open func(t testing.TB, tables []bucketstore.TableSpec, now func() time.Time) bucketstore.Store

// A check proves one sentence of the contract on an empty store.
type check struct {
	name string
	run  func(f fixture)
}

// Run checks all of the contract that one goroutine can see.
func Run(t *testing.T, open Open) {
	t.Helper()
	runAll(t, open, orderChecks())
	runAll(t, open, rangeChecks())
	runAll(t, open, cellChecks())
	runAll(t, open, operationChecks())
	runAll(t, open, conditionChecks())
	runAll(t, open, dropChecks())
	runAll(t, open, errorChecks())
	runAll(t, open, sizeChecks())
	runAll(t, open, modelChecks())
}

// RunConcurrent checks what the contract promises to several goroutines. It
// writes the columns of a row out of order, deletes and reads them at the same
// time.
func RunConcurrent(t *testing.T, open Open) {
	t.Helper()
	runAll(t, open, concurrentChecks())
}

func runAll(t *testing.T, open Open, checks []check) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			c.run(newFixture(t, open(t, bucketstore.Tables(0), time.Now)))
		})
	}
}
