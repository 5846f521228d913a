package downsample

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// Counted returns store as those see it who store, overwrite or delete samples: a mutation of samples of
// a day that may have rollups counts. Who rewrites the same samples uses the store itself.
func (d *Days) Counted(store bucketstore.Store) bucketstore.Store { return &counted{store, d} }

type counted struct {
	bucketstore.Store
	days *Days
}

func (c *counted) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if table != bucketstore.Metric {
		return c.Store.Apply(ctx, table, muts)
	}
	d := c.days
	if !d.cfg.Store.Traits().Shared {
		d.writing.RLock()
		defer d.writing.RUnlock()
	}
	begin := d.cfg.Now()
	begun := d.countUpTo(begin)
	all, err := d.withCounts(muts, math.MinInt64, begun, false)
	if err != nil {
		return err
	}
	err = c.Store.Apply(ctx, table, all)
	if d.tookLong(begin) {
		if countErr := c.countMore(ctx, muts, begun); countErr != nil {
			return countErr
		}
	}
	return err
}

// countMore adds to the counts of days that the maker has begun with while muts were written, and that were not counted: those after
// counted. The error confirms no mutation.
func (c *counted) countMore(ctx context.Context, muts []bucketstore.Mutation, counted int64) error {
	if err := c.days.refresh(ctx); err != nil {
		return err
	}
	more, err := c.days.withCounts(muts, counted, c.days.get().Begun, true)
	if err != nil || len(more) == 0 {
		return err
	}
	if err := c.Store.Apply(ctx, bucketstore.Metric, more); err != nil {
		return fmt.Errorf("count writes: %v", err) // which rows these are is of no use
	}
	return nil
}

// countUpTo returns up to which time a write that begins now is counted.
func (d *Days) countUpTo(now time.Time) int64 {
	s, isFresh := d.at(now)
	if !isFresh {
		return math.MaxInt64
	}
	return s.Begun
}

// withCounts returns the mutations with an Add for each day in (after, to] of which they have samples. If addOnly is set
// they have nothing else, and those without are left out.
func (d *Days) withCounts(muts []bucketstore.Mutation, after, to int64, addOnly bool) (all []bucketstore.Mutation, err error) {
	if !addOnly {
		all = muts
	}
	var days []int64
	var space [512]byte // so that most keys need no memory
	key := space[:0]
	for i, m := range muts {
		var base int64
		if key, base, err = d.cfg.Schema.ParseRowKey(key[:0], m.Key); err != nil {
			return nil, err
		}
		if days = appendDays(days[:0], base, m.Ops, after, to); len(days) == 0 {
			continue
		}
		for _, day := range days {
			d.late.Add(day)
		}
		ops := countOps(base, days)
		switch {
		case addOnly:
			all = append(all, bucketstore.Mutation{Key: m.Key, Ops: ops})
		default:
			if &all[0] == &muts[0] {
				all = slices.Clone(muts)
			}
			all[i].Ops = append(slices.Clip(m.Ops), ops...)
		}
	}
	return all, nil
}

// appendDays appends the days in (after, to] of which ops have samples, each once.
func appendDays(days []int64, base int64, ops []bucketstore.Op, after, to int64) []int64 {
	for i := range ops {
		op := &ops[i]
		if !hasSamples(op.Family) {
			continue
		}
		first, last := base, base+series.Period-1 // of DeleteFamily
		if len(op.Qualifier) >= series.QualifierSize {
			first = base + int64(binary.BigEndian.Uint32(op.Qualifier))
			last = first
		}
		if op.Family == series.FamilyChunk && len(op.Qualifier) >= 2*series.QualifierSize {
			last = base + int64(binary.BigEndian.Uint32(op.Qualifier[series.QualifierSize:]))
		}
		for day := rollup.DayOf(first); day <= rollup.DayOf(last); day += rollup.Day {
			if end := day + rollup.Day; day >= 0 && end > after && end <= to && !slices.Contains(days, day) {
				days = append(days, day)
			}
		}
	}
	return days
}

// hasSamples says whether cells of a family of METRIC are samples.
func hasSamples(family string) bool {
	return family == series.FamilyChunk || slices.Contains(series.RawFamilies[:], family)
}

var one = bucketstore.AppendSum(nil, 1)

// countOps returns what adds 1 to the counts of days in a row.
func countOps(base int64, days []int64) (ops []bucketstore.Op) {
	for _, day := range days {
		ops = append(ops, bucketstore.Op{
			Kind: bucketstore.Add, Family: series.FamilyCount, Time: day + rollup.Day, Value: one,
			Qualifier: series.AppendQualifier(nil, rollup.Qualifier(day, base)),
		})
	}
	return ops
}
