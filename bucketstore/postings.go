package bucketstore

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

const (
	// namesAtOnce is how many metric names are read at once, postingsAtOnce how many postings.
	namesAtOnce    = 100
	postingsAtOnce = 200
	// indexTimeout bounds one read of INDEX in the background.
	indexTimeout = 2 * time.Minute
)

// EachNamePage calls fn with the metric names of the series of an index period, some at a time. The first page has the empty name
// too, which series without a metric name have. It begins at a key of INDEX, nil for all names; next is where the page after it
// begins. fn keeps what it is given.
func EachNamePage(ctx context.Context, store Store, schema series.Schema, period int64, from []byte, fn func(names []string, next []byte) error) error {
	rows := schema.ValueRange(labels.MetricName, "", period)
	var page []string
	if from == nil {
		page = []string{""} // INDEX has no row of the empty name
	} else {
		rows.Start = from
	}
	for {
		n := 0
		err := readIndex(ctx, store, []series.RowRange{rows}, namesAtOnce, func(row Row) error {
			page = append(page, string(row.Cells[0].Value))
			rows.Start = append(bytes.Clone(row.Key), 0)
			n++
			return nil
		})
		if err == nil && len(page) > 0 {
			err = fn(page, rows.Start)
		}
		if err != nil || n < namesAtOnce {
			return err
		}
		page = nil
	}
}

// EachPosting calls fn with the keys of the series that have one of these values of a label in an index period, some at a time, in
// order of their postings, and with the last of these postings. It begins behind a posting, nil for all. fn keeps what it is given.
func EachPosting(ctx context.Context, store Store, schema series.Schema, period int64, name string, values []string, after []byte, fn func(keys [][]byte, last []byte) error) error {
	ranges := make([]series.RowRange, len(values))
	for i, value := range values {
		ranges[i] = series.PrefixRange(schema.AppendPostingPrefix(nil, name, value, period))
	}
	slices.SortFunc(ranges, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
	ranges = slices.CompactFunc(ranges, func(a, b series.RowRange) bool { return bytes.Equal(a.Start, b.Start) })
	for {
		for len(ranges) > 0 && bytes.Compare(ranges[0].Limit, after) <= 0 {
			ranges = ranges[1:]
		}
		if len(ranges) == 0 {
			return nil
		}
		if after != nil && bytes.Compare(ranges[0].Start, after) <= 0 {
			ranges[0].Start = append(bytes.Clone(after), 0)
		}
		var keys [][]byte
		var last []byte
		err := readIndex(ctx, store, ranges, postingsAtOnce, func(row Row) error {
			last = bytes.Clone(row.Key)
			of, key, err := schema.ParsePosting(last)
			if err == nil && of == period {
				keys = append(keys, key)
			}
			return err
		})
		if err == nil && len(keys) > 0 {
			err = fn(keys, last)
		}
		if err != nil || last == nil {
			return err
		}
		after = last
	}
}

// NextPeriod returns the first index period from one on that has series. There may be none.
func NextPeriod(ctx context.Context, store Store, schema series.Schema, from int64) (period int64, ok bool, err error) {
	names := series.RowRange{Start: schema.NameRange(from).Start, Limit: schema.NameRange(series.PeriodOf(series.MaxTime)).Limit}
	err = readIndex(ctx, store, []series.RowRange{names}, 1, func(row Row) (err error) {
		period, err = schema.ParseNameKey(row.Key)
		ok = err == nil
		return err
	})
	return period, ok, err
}

// readIndex reads up to limit rows of INDEX. It takes two minutes at most.
func readIndex(ctx context.Context, store Store, ranges []series.RowRange, limit int, fn func(Row) error) error {
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	err := store.Scan(ctx, ScanRequest{Table: Index, Rows: ranges, Families: []FamilyRange{{Family: series.FamilyIndex}}, Limit: limit}, fn)
	if err != nil {
		return fmt.Errorf("read the index: %w", err)
	}
	return nil
}
