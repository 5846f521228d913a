// Package bucketstore holds the contracts between the adapter and its store, and one
// directory for each backend. It deals with rows, families and cells; package series says
// what they mean.
package bucketstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/promtable/promtable/series"
)

// Store keeps rows of cells in tables. A cell is named by row key, family and qualifier,
// and has a time and a value. Row keys, qualifiers and values are arbitrary bytes. The
// tables and families are those of [Tables]; naming another is an error.
//
// Every column holds one version: the cell with the greatest time, and among equal times
// the one applied later. So a repeated write changes nothing, and an older cell that
// arrives late never hides a newer one. In a sum family cells of equal times are one cell,
// whose value is the sum of what was added; to repeat an Add may add again.
//
// After a write has returned without an error it is durable: it survives the death of the
// process and of the machine, and every later Scan sees it. After an error it may have
// happened, in whole or in part, or not; to repeat it is harmless, but for what an Add adds.
//
// Cells older than the MaxAge of their family are deleted at some later time. A reader that
// must not see them checks their times.
//
// All methods may be called concurrently. They return early, with the error of the context,
// when it ends. A caller gives every context a deadline.
type Store interface {
	// Apply writes row mutations. Each is atomic: a Scan sees all of it or nothing, and its
	// operations happen in order. Nothing is promised about the order or atomicity between
	// mutations, so a row appears only once in muts. Where the store says which rows
	// failed, the error is a *RowsError, and the other rows are durable. A store that has
	// no room fails at once with an *OverloadError. Apply keeps no reference to muts.
	//
	// A store may send a mutation again after an error of the network. So what an Add adds
	// is added at least once if Apply returns without an error, and any number of times,
	// also none, if it returns one.
	Apply(ctx context.Context, table Table, muts []Mutation) error

	// CheckAndApply applies mut if cond holds in its row, atomically, and says whether it
	// did. After an error it may have happened or not. The store does not retry.
	CheckAndApply(ctx context.Context, table Table, cond Condition, mut Mutation) (applied bool, err error)

	// Scan calls fn with each row that holds at least one of the requested cells, in
	// ascending order of keys. A row is seen as of one instant, with all its families;
	// different rows may be seen as of different instants. The row and all bytes in it
	// belong to the store and are valid only during the call of fn. An error from fn ends
	// the scan and is returned unchanged. Scan holds one row in memory at a time, beside
	// what the backend reads ahead.
	Scan(ctx context.Context, req ScanRequest, fn func(Row) error) error

	// Drop removes the rows of a range. It is not atomic: a row that is written meanwhile
	// may be removed or stay.
	Drop(ctx context.Context, table Table, rows series.RowRange) error

	// Traits returns what distinguishes the store. It may be called at any time.
	Traits() Traits

	// Close releases what the store holds. No other call may be running or
	// follow.
	Close() error
}

// A Mutation is a list of operations on one row, in order.
type Mutation struct {
	Key []byte
	Ops []Op
}

// An Op is one operation on a row.
type Op struct {
	Kind   OpKind
	Family string
	// Qualifier is used by all kinds but DeleteFamily.
	Qualifier []byte
	// Time is the time of the cell that SetCell or Add writes; DeleteColumnBefore
	// deletes a cell whose time is less. In milliseconds, not negative.
	Time int64
	// Value is used by SetCell, where it may be empty, and by Add: see AppendSum.
	Value []byte
}

// OpKind says what an Op does.
type OpKind uint8

const (
	// SetCell writes a cell, unless the column holds one of a greater time.
	SetCell OpKind = iota
	// DeleteColumn deletes the cell of a column.
	DeleteColumn
	// DeleteColumnBefore deletes the cell of a column if its time is less than
	// Time.
	DeleteColumnBefore
	// DeleteFamily deletes all cells of a family.
	DeleteFamily
	// Add adds Value, which may be negative, to the cell of a column of a sum family. If the
	// column holds a cell of another time, or none, it is a SetCell. So the column holds the
	// sum if all Adds to it have one time. A sum beyond 64 bits is not defined. SetCell on a
	// sum family, and Add on any other, is an error.
	Add
)

// A Condition is on one column: that it holds exactly Value, or, if Absent is set, that it
// holds no cell.
type Condition struct {
	Family    string
	Qualifier []byte
	Value     []byte
	Absent    bool
}

// A ScanRequest says which cells to read.
type ScanRequest struct {
	Table Table
	// Rows are the keys to read: ascending and without overlap. Single keys are
	// ranges made by series.SingleRow. No range at all is no row.
	Rows []series.RowRange
	// Families are the parts of a row to read: sorted by name, each named once.
	Families []FamilyRange
	// Limit ends the scan after this many rows. 0 is no limit.
	Limit int
}

// A FamilyRange is the cells of a family with qualifiers in [Start, Limit). An
// empty Limit is no limit, so that the zero range is the whole family.
type FamilyRange struct {
	Family       string
	Start, Limit []byte
}

// A Row is what a Scan found in one row.
type Row struct {
	Key []byte
	// Cells are ordered by family, then by qualifier.
	Cells []Cell
}

// A Cell is the latest version of a column. In a sum family that is the sum, see ParseSum.
type Cell struct {
	Family    string
	Qualifier []byte
	// Time is in milliseconds.
	Time  int64
	Value []byte
}

// SetOp returns the operation that writes c.
func (c Cell) SetOp() Op {
	return Op{Kind: SetCell, Family: c.Family, Qualifier: c.Qualifier, Time: c.Time, Value: c.Value}
}

// ErrTable marks a request for a table or a family that does not exist.
var ErrTable = errors.New("no such table or family")

// ErrRefused marks the error of a row that the store can never take, or of a request
// with such a row: to repeat it is of no use.
var ErrRefused = errors.New("the store can never take this row")

// ErrUnreachable marks the error of opening a store that does not answer. To try again later
// may help.
var ErrUnreachable = errors.New("does not answer")

// A FailingRow is a row that a store did not take, while it took others. Its cells are
// durable elsewhere, and readers see them.
type FailingRow struct {
	Table Table
	Key   []byte
	// Since is when the row first failed, or when the process started.
	Since time.Time
	// Err is the last error. It is nil if the row was not tried since the start.
	Err error
	// Refused says that the store can never take the row, see ErrRefused. It is tried
	// again at the next start only.
	Refused bool
}

// An OverloadError says that the store has no room now, and when to come back. A live
// request fails with it at once; work in the background waits, see Retrying.
type OverloadError struct {
	// RetryAfter is how long the store wants to be left alone. It is greater than 0.
	RetryAfter time.Duration
	// Err is the answer of the store.
	Err error
}

// Error names the wait.
func (e *OverloadError) Error() string {
	return fmt.Sprintf("the store is overloaded, try again in %s: %v", e.RetryAfter, e.Err)
}

// Unwrap returns the answer of the store.
func (e *OverloadError) Unwrap() error { return e.Err }

// A RowsError says which mutations of an Apply were not confirmed. All others
// are durable.
type RowsError struct {
	// Failed maps positions in the mutations given to Apply to their errors. It is
	// never empty.
	Failed map[int]error
}

// Error names how many rows failed and the first of them.
func (e *RowsError) Error() string {
	first := e.first()
	return fmt.Sprintf("%d rows not stored, the first at position %d: %v", len(e.Failed), first, e.Failed[first])
}

// Unwrap returns the error of the first row.
func (e *RowsError) Unwrap() error { return e.Failed[e.first()] }

// first returns the first position in Failed.
func (e *RowsError) first() int {
	first := -1
	for i := range e.Failed {
		if first < 0 || i < first {
			first = i
		}
	}
	return first
}
