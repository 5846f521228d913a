package jobs

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
)

const (
	// NamesAtOnce is how many metric names are read at once.
	NamesAtOnce = 100
	// StepSize is how many postings a step has by default.
	StepSize = 200
	// ReadTimeout bounds a read of rows by a job, WriteTimeout a write.
	ReadTimeout  = 2 * time.Minute
	WriteTimeout = time.Minute
)

// A Position is how far a walk has come. The zero Position is the start.
type Position struct {
	Tenant string `json:"tenant,omitempty"`
	// Period is the index period.
	Period int64 `json:"period,omitempty"`
	// Names is the key of INDEX with which the page of metric names begins that is walked.
	Names []byte `json:"names,omitempty"`
	// Posting is the last posting of these names that is done.
	Posting []byte `json:"posting,omitempty"`
}

// IsStart says whether nothing was walked.
func (p *Position) IsStart() bool {
	return p.Tenant == "" && p.Period == 0 && p.Names == nil && p.Posting == nil
}

// A Posting is a key of INDEX, and the series key at its end.
type Posting struct{ Key, Series []byte }

// A Walk goes through the series of an index period by their postings, step by step. After a
// crash the next walk begins with the step that did not end.
type Walk struct {
	Store  bucketstore.Store
	Schema series.Schema
	// At is where the walk begins. It moves on after each step. Its period is walked.
	At *Position
	// Matchers, if any, leave out series that do not match them: some, by what postings tell.
	Matchers []*labels.Matcher
	// StepSize is how many postings a step has at most. 0 is the constant.
	StepSize int
	// Unreadable, if set, is called with postings that cannot be read, which are left out. Otherwise they end the walk.
	Unreadable func(key []byte, err error)
	// Do works on the postings of a step, and returns how many rows that were. It keeps what it is given.
	Do func(ctx context.Context, postings []Posting) (rows int, err error)
	// Keep, if set, is called after each step, when At has moved on: it keeps the lease.
	Keep func(ctx context.Context) error
	// Pace, if set, bounds the rows of steps.
	Pace *Pace
}

// Run walks the rest of the period.
func (w *Walk) Run(ctx context.Context) error {
	for _, m := range w.Matchers {
		if values := valuesOf(m); values != nil {
			return w.postings(ctx, m.Name, values)
		}
	}
	rows := w.Schema.ValueRange(labels.MetricName, "", w.At.Period)
	var page []string
	if w.At.Names == nil {
		page = []string{""} // INDEX has no row of the empty name
	} else {
		rows.Start = w.At.Names
	}
	for {
		n := 0
		err := readIndex(ctx, w.Store, []series.RowRange{rows}, NamesAtOnce, func(row bucketstore.Row) error {
			page = append(page, string(row.Cells[0].Value))
			rows.Start = append(bytes.Clone(row.Key), 0)
			n++
			return nil
		})
		if err != nil {
			return err
		}
		page = slices.DeleteFunc(page, func(name string) bool {
			return slices.ContainsFunc(w.Matchers, func(m *labels.Matcher) bool { return m.Name == labels.MetricName && !m.Matches(name) })
		})
		if err := w.postings(ctx, labels.MetricName, page); err != nil || n < NamesAtOnce {
			return err
		}
		w.At.Names, w.At.Posting = rows.Start, nil
		page = nil
	}
}

// valuesOf returns the values of a label that a matcher matches. It is nil if they are not known, or the empty one is among them: INDEX has no
// postings of a label that a series does not have.
func valuesOf(m *labels.Matcher) []string {
	values := m.SetMatches()
	if m.Type == labels.MatchEqual {
		values = []string{m.Value}
	}
	if m.Type == labels.MatchNotEqual || m.Type == labels.MatchNotRegexp || m.Matches("") {
		return nil
	}
	return values
}

// postings walks the series that have one of these values of a label, behind the posting of At.
func (w *Walk) postings(ctx context.Context, name string, values []string) error {
	ranges := make([]series.RowRange, len(values))
	for i, value := range values {
		ranges[i] = series.PrefixRange(w.Schema.AppendPostingPrefix(nil, name, value, w.At.Period))
	}
	slices.SortFunc(ranges, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
	ranges = slices.CompactFunc(ranges, func(a, b series.RowRange) bool { return bytes.Equal(a.Start, b.Start) })
	for size := max(w.StepSize, StepSize); ; {
		if ranges = behind(ranges, w.At.Posting); len(ranges) == 0 {
			return nil
		}
		if n, err := w.step(ctx, ranges, size); err != nil || n < size {
			return err
		}
	}
}

// behind returns the part of ranges after a key.
func behind(ranges []series.RowRange, key []byte) []series.RowRange {
	for len(ranges) > 0 && bytes.Compare(ranges[0].Limit, key) <= 0 {
		ranges = ranges[1:]
	}
	if len(ranges) > 0 && key != nil && bytes.Compare(ranges[0].Start, key) <= 0 {
		ranges[0].Start = append(bytes.Clone(key), 0)
	}
	return ranges
}

// step works on the first postings in ranges, and returns how many these are.
func (w *Walk) step(ctx context.Context, ranges []series.RowRange, size int) (n int, err error) {
	var found []Posting
	var last []byte
	err = readIndex(ctx, w.Store, ranges, size, func(row bucketstore.Row) error {
		n++
		last = bytes.Clone(row.Key)
		period, key, err := w.Schema.ParsePosting(last)
		switch {
		case err != nil && w.Unreadable == nil:
			return err
		case err != nil:
			w.Unreadable(last, err)
		case period == w.At.Period:
			found = append(found, Posting{last, last[len(last)-len(key):]})
		}
		return nil
	})
	if err != nil || n == 0 {
		return n, err
	}
	rows, err := w.Do(ctx, found)
	if err != nil {
		return n, err
	}
	w.At.Posting = last
	if w.Keep != nil {
		if err := w.Keep(ctx); err != nil {
			return n, err
		}
	}
	if w.Pace == nil {
		return n, nil
	}
	return n, w.Pace.Wait(ctx, rows)
}

// RowsOf returns the rows of the series of postings in a base, ascending.
func RowsOf(schema series.Schema, base int64, postings []Posting) []series.RowRange {
	keys := make([][]byte, len(postings))
	for i, p := range postings {
		keys[i] = schema.AppendRowKey(nil, p.Series, base)
	}
	slices.SortFunc(keys, bytes.Compare)
	var rows []series.RowRange
	for _, key := range slices.CompactFunc(keys, bytes.Equal) {
		rows = append(rows, series.SingleRow(key))
	}
	return rows
}

// FamiliesIn returns the cells of a row that may have samples in [start, limit), in milliseconds, which lies in the bucket at base: chunks,
// exemplars, and raw cells.
func FamiliesIn(base, start, limit int64) []bucketstore.FamilyRange {
	var from, chunksFrom, to []byte
	if start > base {
		from, chunksFrom = series.AppendQualifier(nil, uint32(start-base)), chunk.AppendStart(nil, uint32(start-base))
	}
	if limit < base+series.Period {
		to = series.AppendQualifier(nil, uint32(limit-base))
	}
	families := []bucketstore.FamilyRange{{Family: series.FamilyChunk, Start: chunksFrom, Limit: to}}
	for _, family := range append([]string{series.FamilyExemplar}, series.RawFamilies[:]...) {
		families = append(families, bucketstore.FamilyRange{Family: family, Start: from, Limit: to})
	}
	return families
}

// NextPeriod returns the first index period in [from, limit) that has series. There may be none.
func NextPeriod(ctx context.Context, store bucketstore.Store, schema series.Schema, from, limit int64) (period int64, ok bool, err error) {
	if from >= limit {
		return 0, false, nil
	}
	names := series.RowRange{Start: schema.NameRange(from).Start, Limit: schema.NameRange(series.PeriodOf(limit - 1)).Limit}
	err = readIndex(ctx, store, []series.RowRange{names}, 1, func(row bucketstore.Row) (err error) {
		period, err = schema.ParseNameKey(row.Key)
		ok = err == nil
		return err
	})
	return period, ok, err
}

// readIndex reads up to limit rows of INDEX.
func readIndex(ctx context.Context, store bucketstore.Store, ranges []series.RowRange, limit int, fn func(bucketstore.Row) error) error {
	ctx, cancel := context.WithTimeout(ctx, ReadTimeout)
	defer cancel()
	err := store.Scan(ctx, bucketstore.ScanRequest{
		Table: bucketstore.Index, Rows: ranges, Families: []bucketstore.FamilyRange{{Family: series.FamilyIndex}}, Limit: limit,
	}, fn)
	if err != nil {
		return fmt.Errorf("read the index: %w", err)
	}
	return nil
}

// HasPostings returns those of some keys of INDEX that exist. ranges are read for them.
func HasPostings(ctx context.Context, store bucketstore.Store, ranges []series.RowRange, keys map[string]bool) (seen map[string]bool, err error) {
	seen = make(map[string]bool)
	err = readIndex(ctx, store, ranges, 0, func(row bucketstore.Row) error {
		if keys[string(row.Key)] {
			seen[string(row.Key)] = true
		}
		return nil
	})
	return seen, err
}
