package index

import (
	"context"
	"fmt"
	"slices"

	"github.com/promtable/promtable/series"
)

// Names returns the label names of all series in the index periods that
// [start, limit) touches, sorted. Times are in milliseconds, within
// [0, series.MaxTime+1).
func (x *Index) Names(ctx context.Context, start, limit int64) ([]string, error) {
	if limit <= start {
		return nil, nil
	}
	first, last := x.schema.NameRange(series.PeriodOf(start)), x.schema.NameRange(series.PeriodOf(limit-1))
	return x.texts(ctx, series.RowRange{Start: first.Start, Limit: last.Limit})
}

// Values returns the values of a label of all series in the index periods that
// [start, limit) touches, sorted. Times are in milliseconds, within
// [0, series.MaxTime+1).
func (x *Index) Values(ctx context.Context, name string, start, limit int64) ([]string, error) {
	if limit <= start {
		return nil, nil
	}
	return x.texts(ctx, x.valueRange(Query{Start: start, Limit: limit}, name))
}

// texts returns the values of the cells in a range, each once, sorted.
func (x *Index) texts(ctx context.Context, r series.RowRange) ([]string, error) {
	seen := make(map[string]bool)
	err := x.rows.ScanRows(ctx, []series.RowRange{r}, 0, func(_, value []byte) error {
		if !seen[string(value)] { // which copies nothing
			seen[string(value)] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	texts := make([]string, 0, len(seen))
	for text := range seen {
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return texts, nil
}
