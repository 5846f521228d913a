package deletion

import (
	"context"
	"errors"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// Filter returns store for readers: its Scan leaves out what is deleted. A scan of a buffer
// also has what is in memory.
func (r *Records) Filter(store bucketstore.Store) bucketstore.Store { return &filtered{store, r} }

type filtered struct {
	bucketstore.Store
	records *Records
}

// errLimit ends a scan at its limit.
var errLimit = errors.New("limit")

// Scan implements bucketstore.Store. It knows at its begin which records there are: a record
// that is done meanwhile is applied to what is still there, and one that comes meanwhile is
// not.
func (s *filtered) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	scan := rowScan{schema: s.records.cfg.Schema, records: s.records.pending(), limit: req.Limit, fn: fn}
	var add func(bucketstore.Row) error
	switch {
	case len(scan.records) == 0:
	case req.Table == bucketstore.Metric:
		add = scan.metric
	case req.Table == bucketstore.Current:
		add = scan.current
	}
	if add == nil {
		return s.Store.Scan(ctx, req, fn)
	}
	req.Limit = 0 // it counts the rows that are left
	err := s.Store.Scan(ctx, req, add)
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// A rowScan filters rows for fn.
type rowScan struct {
	schema  series.Schema
	records []*record
	filter  filter
	key     []byte
	limit   int
	seen    int
	fn      func(bucketstore.Row) error
}

// metric filters a row of METRIC. Keys that are none are the business of fn.
func (s *rowScan) metric(row bucketstore.Row) error {
	key, base, err := s.schema.ParseRowKey(s.key[:0], row.Key)
	if err == nil {
		s.key = key
		if records := recordsOf(s.records, key, base, base+series.Period); len(records) > 0 {
			row.Cells, _ = s.filter.row(base, row.Cells, records)
		}
	}
	return s.deliver(row)
}

// current filters a row of CURRENT.
func (s *rowScan) current(row bucketstore.Row) error {
	for _, c := range row.Cells {
		for _, r := range recordsOf(s.records, row.Key, c.Time, c.Time+1) {
			if c.Time <= r.At {
				return nil
			}
		}
	}
	return s.deliver(row)
}

func (s *rowScan) deliver(row bucketstore.Row) error {
	if len(row.Cells) == 0 {
		return nil
	}
	if s.limit > 0 && s.seen == s.limit {
		return errLimit
	}
	s.seen++
	return s.fn(row)
}
