package bucketstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
)

// An Overlay has rows that are not in a store, in ascending order of keys.
type Overlay interface {
	// Key returns the key of the next row, or nil if there is none.
	Key() []byte
	// Take returns the cells of that row, ordered by CompareCells, and goes on. There may be none. They are valid until the next call.
	Take() ([]Cell, error)
}

// CompareCells orders the cells of a row.
func CompareCells(a, b Cell) int {
	return cmp.Or(cmp.Compare(a.Family, b.Family), bytes.Compare(a.Qualifier, b.Qualifier))
}

// errEnough ends a scan at its limit.
var errEnough = errors.New("limit")

// ScanOver scans a store, and calls fn also with the rows and cells of over, in the order of Store.Scan and up to its limit. A cell of
// over stands in place of one of the store with its family and qualifier, unless that has a later time.
func ScanOver(ctx context.Context, store Store, req ScanRequest, over Overlay, fn func(Row) error) error {
	s := overScan{over: over, limit: req.Limit, fn: fn}
	err := store.Scan(ctx, req, s.storeRow)
	if err == nil {
		err = s.deliverBefore(nil)
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// EachOver calls fn with the rows of over that have cells.
func EachOver(over Overlay, fn func(Row) error) error {
	s := overScan{over: over, fn: fn}
	return s.deliverBefore(nil)
}

// An overScan is one call of ScanOver.
type overScan struct {
	over Overlay
	// merged are the cells of the previous row.
	merged      []Cell
	limit, seen int
	fn          func(Row) error
}

// storeRow delivers a row of the store.
func (s *overScan) storeRow(row Row) error {
	if err := s.deliverBefore(row.Key); err != nil {
		return err
	}
	if key := s.over.Key(); key != nil && bytes.Equal(key, row.Key) {
		cells, err := s.over.Take()
		if err != nil {
			return err
		}
		s.merged = appendMerged(s.merged[:0], row.Cells, cells)
		row.Cells = s.merged
	}
	return s.deliver(row)
}

// deliverBefore delivers the rows of the overlay before limit, or all of them if limit is nil.
func (s *overScan) deliverBefore(limit []byte) error {
	for key := s.over.Key(); key != nil && (limit == nil || bytes.Compare(key, limit) < 0); key = s.over.Key() {
		cells, err := s.over.Take()
		if err != nil {
			return err
		}
		if len(cells) == 0 {
			continue
		}
		if err := s.deliver(Row{Key: key, Cells: cells}); err != nil {
			return err
		}
	}
	return nil
}

func (s *overScan) deliver(row Row) error {
	if s.limit > 0 && s.seen == s.limit {
		return errEnough
	}
	s.seen++
	return s.fn(row)
}

// appendMerged appends the cells of both, in order. Of a column the later cell wins, and of equal times that of the overlay.
func appendMerged(merged, stored, over []Cell) []Cell {
	for len(stored) > 0 && len(over) > 0 {
		switch c := CompareCells(stored[0], over[0]); {
		case c < 0:
			merged, stored = append(merged, stored[0]), stored[1:]
		case c > 0:
			merged, over = append(merged, over[0]), over[1:]
		case stored[0].Time > over[0].Time:
			over = over[1:]
		default:
			merged, stored, over = append(merged, over[0]), stored[1:], over[1:]
		}
	}
	return append(append(merged, stored...), over...)
}
