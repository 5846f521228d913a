package deletion

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/merge"
)

// A Plan says what a deletion would remove.
type Plan struct {
	// Series are those that match and have an index in the time before the end of the range,
	// Rows their rows with anything to remove.
	Series, Rows int
	Samples      int
	Exemplars    int
	// Bytes are those of the cells that are removed, with their qualifiers, less those of the
	// cells that replace them.
	Bytes int64
}

// Plan returns what a deletion of the samples in [start, limit), in milliseconds, of the series
// of a tenant that match would remove. tenant is empty in a store without tenants.
func (x *Executor) Plan(ctx context.Context, tenant string, matchers []*labels.Matcher, start, limit int64) (p Plan, err error) {
	stored, err := storedMatchers(matchers)
	if err != nil {
		return p, err
	}
	d := meta.Deletion{Tenant: tenant, Matchers: stored, Start: max(start, 0), Limit: min(limit, series.MaxTime+1), Stamp: math.MaxInt64}
	rec, err := newRecord(d, x.records.cfg.Schema)
	if err != nil || rec.Start >= rec.Limit {
		return p, err
	}
	plan := planner{p: &p}
	find, err := x.cfg.Find(tenant)
	if err == nil {
		err = find(ctx, rec.matchers, rec.Limit, func(key []byte, bases []int64) {
			plan.targets = append(plan.targets, target{key, bases})
		})
	}
	if err != nil {
		return p, fmt.Errorf("find series: %w", err)
	}
	p.Series = len(plan.targets)
	for part := range slices.Chunk(plan.targets, seriesAtOnce) {
		if _, err := x.rows(ctx, rec, part, plan.count); err != nil {
			return p, err
		}
	}
	return p, nil
}

// A planner counts what a plan has.
type planner struct {
	p       *Plan
	targets []target
	filter  filter
	samples merge.Row
}

func (l *planner) count(ctx context.Context, rec *record, base int64, scan scanRows) error {
	records := []*record{rec}
	return scan(ctx, nil, func(row bucketstore.Row) error {
		removed := false
		for i := range row.Cells {
			deleted, left, err := l.filter.cell(base, &row.Cells[i], records)
			if !deleted || err != nil {
				continue
			}
			removed = true
			l.p.Bytes += sizeOf(row.Cells[i])
			for _, c := range left {
				l.p.Bytes -= sizeOf(c)
			}
			if row.Cells[i].Family == series.FamilyExemplar {
				l.p.Exemplars++
			}
		}
		if removed {
			l.p.Rows++
		}
		if err := addCells(&l.samples, base, rec.Start, rec.Limit, row.Cells); err != nil {
			return fmt.Errorf("row %q: %w", row.Key, err)
		}
		for {
			switch l.samples.Next() {
			case merge.Floats:
				ts, _ := l.samples.Floats()
				l.p.Samples += len(ts)
			case merge.Value:
				l.p.Samples++
			default:
				return l.samples.Err()
			}
		}
	})
}

func sizeOf(c bucketstore.Cell) int64 { return int64(len(c.Qualifier) + len(c.Value)) }
