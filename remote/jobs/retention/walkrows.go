package retention

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/go-kit/log/level"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// A ruleWork is a walk through the series for which a rule of a list holds and that may have samples in [start, limit).
type ruleWork struct {
	name         string
	list         *ruleList
	rule         int
	start, limit int64
}

// each calls fn with postings of the series of a work, some of an index period at a time, from where the walk with its name and limit was
// left. fn returns how many rows it has read.
func (w *Walker) each(ctx context.Context, work ruleWork, fn func(ctx context.Context, period int64, postings []jobs.Posting) (int, error)) error {
	works, limit := &w.lease.State.Works, work.limit
	at := (*works)[work.name]
	if at == nil || at.End != limit {
		at = &position{End: limit}
		if *works == nil {
			*works = make(map[string]*position)
		}
		(*works)[work.name] = at
	}
	started, found := w.rules.cfg.Now(), 0
	tenants, err := w.rules.cfg.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, schema := range tenants {
		if schema.Tenant() < at.Tenant { // it is done, or has come since and has nothing that is cut
			continue
		}
		if schema.Tenant() != at.Tenant {
			*at = position{limit, jobs.Position{Tenant: schema.Tenant()}}
		}
		err := w.eachOf(ctx, schema, work, at, func(ctx context.Context, period int64, postings []jobs.Posting) (int, error) {
			found += len(postings)
			return fn(ctx, period, postings)
		})
		if err != nil {
			return err
		}
	}
	level.Info(w.rules.cfg.Logger).Log("msg", "walked the series of a retention rule", "work", work.name, "end", timeText(limit), "series", found, "took", w.rules.cfg.Now().Sub(started))
	delete(*works, work.name)
	return nil
}

// eachOf is each for the series of a tenant, from at on.
func (w *Walker) eachOf(ctx context.Context, schema series.Schema, work ruleWork, at *position, fn func(ctx context.Context, period int64, postings []jobs.Posting) (int, error)) error {
	var walked []*labels.Matcher
	for _, m := range work.list.matchers[work.rule] {
		switch {
		case m.Name != series.TenantLabel || schema.Tenant() == "":
			walked = append(walked, m)
		case !m.Matches(schema.Tenant()):
			return nil
		}
	}
	for next := max(series.PeriodOf(max(0, work.start)), at.Period); ; {
		period, ok, err := jobs.NextPeriod(ctx, w.cfg.Store, schema, next, min(work.limit, series.MaxTime+1))
		if err != nil || !ok {
			return err
		}
		if period != at.Period {
			*at = position{work.limit, jobs.Position{Tenant: at.Tenant, Period: period}}
		}
		walk := jobs.Walk{
			Store: w.cfg.Store, Schema: schema, At: &at.Position, Matchers: walked, Keep: w.lease.Keep, Pace: w.pace,
			Do: func(ctx context.Context, postings []jobs.Posting) (int, error) {
				ruled, err := w.ruled(schema, work, postings)
				if err != nil || len(ruled) == 0 {
					return 0, err
				}
				return fn(ctx, period, ruled)
			},
		}
		if err := walk.Run(ctx); err != nil {
			return err
		}
		next = period + series.IndexPeriod
	}
}

// ruled returns the postings of the series for which a rule holds.
func (w *Walker) ruled(schema series.Schema, work ruleWork, postings []jobs.Posting) (ruled []jobs.Posting, err error) {
	var b labels.ScratchBuilder
	for _, p := range postings {
		ls, err := schema.ParseSeriesKey(p.Series, &b)
		if err != nil {
			return nil, fmt.Errorf("find the series: %w", err)
		}
		if work.list.match(ls, schema.Tenant()) == work.rule {
			ruled = append(ruled, p)
		}
	}
	return ruled, nil
}

// finish makes the rollups of a rule of the days from after on, up to an end, that differ from their samples.
func (w *Walker) finish(ctx context.Context, l *ruleList, rule int, after, end int64) error {
	after = max(after, w.cfg.Timeline.Horizon(rollup.Raw)) // what is before is final
	work := ruleWork{fmt.Sprintf("%s: make the rollups of rule %d", l.ID, rule+1), l, rule, after, end + 1}
	return w.each(ctx, work, func(ctx context.Context, period int64, postings []jobs.Posting) (rows int, err error) {
		last := rollup.DayOf(period + series.IndexPeriod - 1)
		for day := rollup.DayOf(max(after+1, period)); day <= last && day < end; day += rollup.Day {
			if err := w.cfg.Make(ctx, day, postings); err != nil {
				return rows, err
			}
			rows += len(postings)
			if err := w.lease.Keep(ctx); err != nil {
				return rows, err
			}
		}
		return rows, nil
	})
}

// A removal is the cells of a resolution that are before to, and not before from.
type removal struct {
	of       rollup.Resolution
	from, to int64
}

// delete deletes what a rule removes. A chunk with samples on both sides of from is
// deleted with them, one with samples on both sides of to is left for the next time.
func (w *Walker) delete(ctx context.Context, l *ruleList, rule int, what removal) error {
	of, from, to := what.of, what.from, what.to
	const margin = max(series.Window, rollup.Day) // of what begins before its samples
	start := max(0, from-margin)
	work := ruleWork{fmt.Sprintf("%s: remove %s of rule %d", l.ID, of, rule+1), l, rule, start, to}
	return w.each(ctx, work, func(ctx context.Context, period int64, postings []jobs.Posting) (rows int, err error) {
		base, _ := series.Split(period)
		ranges := jobs.RowsOf(w.rules.cfg.Schema, base, postings)
		families := jobs.FamiliesIn(base, max(base, start, period-margin), min(to, period+series.IndexPeriod))
		if of != rollup.Raw { // whose qualifiers are as plain as those of exemplars
			families = []bucketstore.FamilyRange{{Family: of.Family(), Start: families[1].Start, Limit: families[1].Limit}}
		}
		return len(ranges), w.deleteRows(ctx, base, to, families, ranges)
	})
}

// errFull ends a scan when a batch is full.
var errFull = errors.New("batch is full")

// deleteRows deletes the cells in families of rows of the bucket at base of which all is before to.
func (w *Walker) deleteRows(ctx context.Context, base, to int64, families []bucketstore.FamilyRange, ranges []series.RowRange) error {
	for more := true; more; {
		var muts []bucketstore.Mutation
		ops := 0
		reading, cancel := context.WithTimeout(ctx, jobs.ReadTimeout)
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
		if err := bucketstore.ApplyInOrder(ctx, w.cfg.Store, bucketstore.Metric, muts, jobs.WriteTimeout); err != nil {
			return err
		}
		w.rows.Add(float64(len(muts)))
		w.cells.Add(float64(ops))
	}
	return nil
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
	switch {
	case rollup.ResolutionOf(c.Family) != rollup.Raw:
		return rollup.DayOfCell(base, c.Qualifier) + rollup.Day
	case c.Family == series.FamilyChunk:
		last = last[min(len(last), series.QualifierSize):]
	}
	if len(last) < series.QualifierSize {
		return math.MaxInt64
	}
	return base + int64(binary.BigEndian.Uint32(last)) + 1
}
