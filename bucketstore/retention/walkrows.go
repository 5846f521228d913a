package retention

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-kit/log/level"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/rollup"
)

// each calls fn with the keys of the series for which a rule holds and that may have samples in [start, limit), some of an index period
// at a time, from where the walk with this name and limit was left. fn returns how many rows it has read.
func (w *Walker) each(ctx context.Context, work string, l *ruleList, rule int, start, limit int64, fn func(ctx context.Context, period int64, keys [][]byte) (int, error)) error {
	at := w.state.Works[work]
	if at == nil || at.End != limit {
		at = &position{End: limit}
		if w.state.Works == nil {
			w.state.Works = make(map[string]*position)
		}
		w.state.Works[work] = at
	}
	begun, found := w.rules.cfg.Now(), 0
	for next := max(series.PeriodOf(max(0, start)), at.Period); ; {
		period, ok, err := bucketstore.NextPeriod(ctx, w.cfg.Store, w.rules.cfg.Schema, next)
		if err != nil {
			return err
		}
		if !ok || period >= limit {
			break
		}
		if period != at.Period {
			*at = position{End: limit, Period: period}
		}
		err = w.eachPosting(ctx, at, l.matchers[rule], func(keys [][]byte) error {
			held, err := w.held(l, rule, keys)
			if err != nil || len(held) == 0 {
				return err
			}
			found += len(held)
			return w.pace(ctx, func() (int, error) { return fn(ctx, period, held) })
		})
		if err != nil {
			return err
		}
		if next = period + series.IndexPeriod; next > series.MaxTime {
			break
		}
	}
	level.Info(w.rules.cfg.Logger).Log("msg", "walked the series of a retention rule", "work", work, "end", timeText(limit), "series", found, "took", w.rules.cfg.Now().Sub(begun))
	delete(w.state.Works, work)
	return nil
}

// eachPosting calls fn with the keys of the series of a period that may match, some at a time, from a position on.
func (w *Walker) eachPosting(ctx context.Context, at *position, ms []*labels.Matcher, fn func(keys [][]byte) error) error {
	store, schema := w.cfg.Store, w.rules.cfg.Schema
	walk := func(name string, values []string) error {
		return bucketstore.EachPosting(ctx, store, schema, at.Period, name, values, at.Posting, func(keys [][]byte, last []byte) error {
			err := fn(keys)
			if err == nil {
				at.Posting = last
				err = w.lease.Keep(ctx)
			}
			return err
		})
	}
	for _, m := range ms {
		if values := valuesOf(m); values != nil {
			return walk(m.Name, values)
		}
	}
	return bucketstore.EachNamePage(ctx, store, schema, at.Period, at.Names, func(names []string, next []byte) error {
		names = slices.DeleteFunc(names, func(name string) bool {
			return slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return m.Name == labels.MetricName && !m.Matches(name) })
		})
		err := walk(labels.MetricName, names)
		if err == nil {
			at.Names, at.Posting = next, nil
		}
		return err
	})
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

// held returns the keys of the series for which a rule holds.
func (w *Walker) held(l *ruleList, rule int, keys [][]byte) (held [][]byte, err error) {
	var b labels.ScratchBuilder
	for _, key := range keys {
		ls, err := w.rules.cfg.Schema.ParseSeriesKey(key, &b)
		if err != nil {
			return nil, fmt.Errorf("find the series: %w", err)
		}
		if l.match(ls) == rule {
			held = append(held, key)
		}
	}
	return held, nil
}

// pace calls fn, which returns how many rows it has read, and waits for as long as so many rows may take.
func (w *Walker) pace(ctx context.Context, fn func() (int, error)) error {
	begun := w.rules.cfg.Now()
	n, err := fn()
	if err != nil {
		return err
	}
	return w.sleep(ctx, time.Duration(float64(n)/w.cfg.RowsPerSecond*float64(time.Second))-w.rules.cfg.Now().Sub(begun))
}

// finish makes the rollups of a rule of the days from after on, up to an end, that differ from their samples.
func (w *Walker) finish(ctx context.Context, l *ruleList, rule int, after, end int64) error {
	after = max(after, w.cfg.Horizon(bucketstore.Raw)) // what is before is final
	work := fmt.Sprintf("%s: make the rollups of rule %d", l.ID, rule+1)
	return w.each(ctx, work, l, rule, after, end+1, func(ctx context.Context, period int64, keys [][]byte) (rows int, err error) {
		last := rollup.DayOf(period + series.IndexPeriod - 1)
		for day := rollup.DayOf(max(after+1, period)); day <= last && day < end; day += rollup.Day {
			if err := w.cfg.Make(ctx, day, keys); err != nil {
				return rows, err
			}
			rows += len(keys)
			if err := w.lease.Keep(ctx); err != nil {
				return rows, err
			}
		}
		return rows, nil
	})
}

// delete deletes the cells of a resolution of a rule that are before to, and not before from. A chunk with samples on both sides of from is
// deleted with them, one with samples on both sides of to is left for the next time.
func (w *Walker) delete(ctx context.Context, l *ruleList, rule int, of bucketstore.Resolution, from, to int64) error {
	work := fmt.Sprintf("%s: remove %s of rule %d", l.ID, of, rule+1)
	const margin = max(series.Window, rollup.Day) // of what begins before its samples
	start := max(0, from-margin)
	return w.each(ctx, work, l, rule, start, to, func(ctx context.Context, period int64, keys [][]byte) (rows int, err error) {
		base, _ := series.Split(period)
		ranges := make([]series.RowRange, len(keys))
		for i, key := range keys {
			ranges[i] = series.SingleRow(w.rules.cfg.Schema.AppendRowKey(nil, key, base))
		}
		slices.SortFunc(ranges, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
		families := familiesOf(of, base, max(base, start, period-margin), min(to, period+series.IndexPeriod))
		return len(keys), w.deleteRows(ctx, base, to, families, ranges)
	})
}

// errFull ends a scan when a batch is full.
var errFull = errors.New("batch is full")

// deleteRows deletes the cells in families of rows of the bucket at base of which all is before to.
func (w *Walker) deleteRows(ctx context.Context, base, to int64, families []bucketstore.FamilyRange, ranges []series.RowRange) error {
	for more := true; more; {
		var muts []bucketstore.Mutation
		ops := 0
		reading, cancel := context.WithTimeout(ctx, readTimeout)
		err := w.cfg.Store.Scan(reading, bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: ranges, Families: families}, func(row bucketstore.Row) error {
			key := bytes.Clone(row.Key)
			for len(ranges) > 0 && bytes.Compare(ranges[0].Start, key) <= 0 {
				ranges = ranges[1:]
			}
			found := deletions(base, to, row.Cells)
			for part := range slices.Chunk(found, batchOps) {
				muts = append(muts, bucketstore.Mutation{Key: key, Ops: part})
			}
			if ops += len(found); ops >= batchOps {
				return errFull
			}
			return nil
		})
		cancel()
		if more = errors.Is(err, errFull) && len(ranges) > 0; err != nil && !errors.Is(err, errFull) {
			return fmt.Errorf("read rows: %w", err)
		}
		if err := bucketstore.ApplyInOrder(ctx, w.cfg.Store, bucketstore.Metric, muts, writeTimeout); err != nil {
			return err
		}
		w.rows.Add(float64(len(muts)))
		w.cells.Add(float64(ops))
	}
	return nil
}

// familiesOf returns the cells of a resolution that may have samples in [start, limit) of a row of the bucket at base.
func familiesOf(of bucketstore.Resolution, base, start, limit int64) (families []bucketstore.FamilyRange) {
	var first, firstChunk, end []byte
	if start > base {
		first, firstChunk = series.AppendQualifier(nil, uint32(start-base)), chunk.AppendStart(nil, uint32(start-base))
	}
	if limit < base+series.Period {
		end = series.AppendQualifier(nil, uint32(limit-base))
	}
	switch of {
	case bucketstore.FiveMinutes:
		return []bucketstore.FamilyRange{{Family: series.Family5m, Start: first, Limit: end}}
	case bucketstore.OneHour:
		return []bucketstore.FamilyRange{{Family: series.Family1h, Start: first, Limit: end}}
	}
	families = append(families, bucketstore.FamilyRange{Family: series.FamilyChunk, Start: firstChunk, Limit: end},
		bucketstore.FamilyRange{Family: series.FamilyExemplar, Start: first, Limit: end})
	for _, family := range series.RawFamilies {
		families = append(families, bucketstore.FamilyRange{Family: family, Start: first, Limit: end})
	}
	return families
}

// deletions returns what deletes the cells of a row of which all is before to.
func deletions(base, to int64, cells []bucketstore.Cell) (ops []bucketstore.Op) {
	for i := range cells {
		if c := &cells[i]; endOf(base, c) <= to {
			ops = append(ops, bucketstore.Op{Kind: bucketstore.DeleteColumn, Family: c.Family, Qualifier: bytes.Clone(c.Qualifier)})
		}
	}
	return ops
}

// endOf returns the end of the time of a cell: of a rollup that of its day, else the first millisecond after its last sample. It is MaxInt64 for a cell
// that cannot be read.
func endOf(base int64, c *bucketstore.Cell) int64 {
	last := c.Qualifier
	switch c.Family {
	case series.Family5m, series.Family1h:
		return rollup.DayOfCell(base, c.Qualifier) + rollup.Day
	case series.FamilyChunk:
		last = last[min(len(last), series.QualifierSize):]
	}
	if len(last) < series.QualifierSize {
		return math.MaxInt64
	}
	return base + int64(binary.BigEndian.Uint32(last)) + 1
}
