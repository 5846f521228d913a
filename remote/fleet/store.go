package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// A Store is a store, or a buffer, with the open chunks of other members.
type Store struct {
	bucketstore.Store
	fleet *Fleet
}

// Scan implements bucketstore.Store. Members copy their open chunks first, and the store is read after.
func (s *Store) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	if req.Table != bucketstore.Metric && req.Table != bucketstore.Current || len(req.Rows) == 0 {
		return s.Store.Scan(ctx, req, fn)
	}
	if req.Table == bucketstore.Current {
		return s.scanOver(ctx, req, currentPath, openRequest{Rows: req.Rows}, fn)
	}
	if slices.ContainsFunc(req.Families, func(f bucketstore.FamilyRange) bool { return rollup.ResolutionOf(f.Family) != rollup.Raw }) {
		return s.scanRollups(ctx, req, fn)
	}
	wanted := slices.IndexFunc(req.Families, func(f bucketstore.FamilyRange) bool { return f.Family == series.FamilyChunk })
	if wanted < 0 {
		return s.Store.Scan(ctx, req, fn)
	}
	return s.scanOver(ctx, req, openPath, openRequest{Rows: req.Rows, Chunks: req.Families[wanted]}, fn)
}

// scanOver scans the store, with what members have.
func (s *Store) scanOver(ctx context.Context, req bucketstore.ScanRequest, path string, ask openRequest, fn func(bucketstore.Row) error) error {
	open, err := s.fleet.open(ctx, path, ask)
	if err != nil {
		return err
	}
	if len(open) == 0 {
		return s.Store.Scan(ctx, req, fn)
	}
	over := openRows(open)
	return bucketstore.ScanOver(ctx, s.Store, req, &over, fn)
}

// scanRollups leaves out the rollups of days of which members have samples: they are of those that are stored.
func (s *Store) scanRollups(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	open, err := s.fleet.open(ctx, openPath, openRequest{Rows: req.Rows, Chunks: bucketstore.FamilyRange{Family: series.FamilyChunk}, KeysOnly: true})
	if err != nil {
		return err
	}
	if len(open) == 0 {
		return s.Store.Scan(ctx, req, fn)
	}
	return bucketstore.ScanWithoutDays(ctx, s.Store, s.fleet.cfg.Schema, req, func(key []byte) func(day, base int64) bool {
		i, found := slices.BinarySearchFunc(open, key, func(o bucketstore.Row, key []byte) int { return bytes.Compare(o.Key, key) })
		if !found {
			return nil
		}
		return func(day, base int64) bool { return bucketstore.ChunksHaveDay(open[i].Cells, day, base) }
	}, fn)
}

// openRows are a bucketstore.Overlay.
type openRows []bucketstore.Row

// Key implements bucketstore.Overlay.
func (o *openRows) Key() []byte {
	if len(*o) == 0 {
		return nil
	}
	return (*o)[0].Key
}

// Take implements bucketstore.Overlay.
func (o *openRows) Take() ([]bucketstore.Cell, error) {
	cells := (*o)[0].Cells
	*o = (*o)[1:]
	return cells, nil
}

// open asks all members for what they have in memory, and returns the rows of all, in order of keys.
func (f *Fleet) open(ctx context.Context, path string, req openRequest) ([]bucketstore.Row, error) {
	logs, err := f.others(ctx, f.cfg.Now().Add(-maxListAge))
	if err != nil {
		return nil, f.noteUnlisted(ctx, err)
	}
	logs = slices.DeleteFunc(slices.Clone(logs), func(l meta.Log) bool { return !f.counts(l) || l.Address == "" && isAllowed(ctx) })
	if len(logs) == 0 {
		return nil, nil
	}
	found, errs := make([][]bucketstore.Row, len(logs)), make([]error, len(logs))
	var asking sync.WaitGroup
	for i, l := range logs {
		asking.Go(func() {
			state, isGone, err := f.askAgain(ctx, l, func(l meta.Log) (err error) {
				found[i], err = f.askOpen(ctx, l, path, req)
				return err
			})
			switch {
			case err == nil && !isGone:
				return
			case ctx.Err() != nil:
				errs[i] = ctx.Err()
				return
			}
			found[i] = nil // a part of an answer
			if !isGone && !state.Promises(f.latest(path, req)) {
				errs[i] = f.note(ctx, missing(state, err))
			}
		})
	}
	asking.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return mergeRows(found), nil
}

// mergeRows returns the rows of several answers, in order of keys.
func mergeRows(found [][]bucketstore.Row) []bucketstore.Row {
	all := slices.Concat(found...)
	if len(found) == 1 {
		return all
	}
	slices.SortStableFunc(all, func(a, b bucketstore.Row) int { return bytes.Compare(a.Key, b.Key) })
	merged := all[:0]
	for _, row := range all {
		if n := len(merged); n > 0 && bytes.Equal(merged[n-1].Key, row.Key) {
			cells := append(slices.Clip(merged[n-1].Cells), row.Cells...)
			// Of a column the latest cell comes first, and stays.
			slices.SortStableFunc(cells, func(a, b bucketstore.Cell) int {
				return cmp.Or(bucketstore.CompareCells(a, b), cmp.Compare(b.Time, a.Time))
			})
			merged[n-1].Cells = slices.CompactFunc(cells, func(a, b bucketstore.Cell) bool { return bucketstore.CompareCells(a, b) == 0 })
			continue
		}
		merged = append(merged, row)
	}
	return merged
}

// latest returns the latest time that a request asks for, in milliseconds, or one after it.
func (f *Fleet) latest(path string, req openRequest) (latest int64) {
	if path == currentPath {
		return math.MaxInt64
	}
	end := int64(series.Period - 1)
	if limit := req.Chunks.Limit; len(limit) >= series.QualifierSize {
		end = int64(binary.BigEndian.Uint32(limit))
	}
	for _, r := range req.Rows {
		n := len(r.Limit)
		if n == 0 || r.Limit[n-1] != 0 {
			return math.MaxInt64
		}
		_, base, err := f.cfg.Schema.ParseRowKey(nil, r.Limit[:n-1])
		if err != nil {
			return math.MaxInt64
		}
		latest = max(latest, base+end)
	}
	return latest
}
