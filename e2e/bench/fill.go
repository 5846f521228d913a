package main

import (
	"bytes"
	"context"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/indexrows"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
)

// A filler writes series to an embedded store: their index, and their samples as the chunks that a buffer would have
// flushed. To send a month of samples would take hours.
type filler struct {
	store  *pebble.Store
	index  *index.Index
	schema series.Schema
}

// open opens the store and its index.
func (f *filler) open(dir string) (err error) {
	f.store, err = pebble.Open(pebble.Config{Dir: dir, Tables: bucketstore.Tables(bucketstore.Retention{})})
	if err == nil {
		f.index = index.New(index.Config{Schema: f.schema, AtomicPuts: true, SoleWriter: true}, indexrows.New(f.store))
	}
	return err
}

// atOnce is how many series go to the store at once.
const atOnce = 2000

// entries returns those of the series [from, limit) at t.
func (f *filler) entries(w workload, from, limit int, t int64) ([]index.Entry, error) {
	g := generator{shapes: w.shapes()}
	list := make([]index.Entry, 0, limit-from)
	for _, ls := range g.labelsOf(from, limit) {
		key, err := f.schema.AppendSeriesKey(nil, ls)
		if err != nil {
			return nil, err
		}
		list = append(list, index.Entry{Key: key, Labels: ls, T: t})
	}
	return list, nil
}

// fill writes the samples of a workload, to series from this number on.
func (f *filler) fill(ctx context.Context, w workload, first int) error {
	entries, err := f.entries(w, first, first+w.Series, w.begin())
	if err != nil {
		return err
	}
	g := newGenerator(w)
	times, values := make([][]int64, w.Series), make([][]float64, w.Series)
	var due []int
	for g.scrape() && ctx.Err() == nil {
		due = due[:0]
		for i, t := range g.T {
			if ts := times[i]; len(ts) > 0 && ts[0]/window != t/window {
				due = append(due, i)
			}
		}
		if err := f.flush(ctx, entries, times, values, due); err != nil {
			return err
		}
		for i, t := range g.T {
			times[i], values[i] = append(times[i], t), append(values[i], g.V[i])
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	due = due[:0]
	for i := range entries {
		due = append(due, i)
	}
	return f.flush(ctx, entries, times, values, due)
}

// flush writes a chunk of each series that is due, and its index where a period is new to it.
// Of these it empties the samples.
func (f *filler) flush(ctx context.Context, entries []index.Entry, times [][]int64, values [][]float64, due []int) error {
	for some := range slices.Chunk(due, atOnce) {
		var indexed []index.Entry
		var muts []bucketstore.Mutation
		for _, i := range some {
			e, ts := entries[i], times[i]
			first, last := ts[0], ts[len(ts)-1]
			for _, e.T = range []int64{first, last} {
				indexed = append(indexed, e)
			}
			base, _ := series.Split(first)
			cell := bucketstore.ChunkCell(chunk.EncodingDense, last, first, last, dense.Append(nil, ts, values[i]))
			muts = append(muts, bucketstore.Mutation{
				Key: f.schema.AppendRowKey(nil, e.Key, base),
				Ops: []bucketstore.Op{{Kind: bucketstore.SetCell, Family: cell.Family, Qualifier: cell.Qualifier, Time: cell.Time, Value: cell.Value}},
			})
			times[i], values[i] = ts[:0], values[i][:0]
		}
		if err := f.index.Write(ctx, indexed); err != nil {
			return err
		}
		slices.SortFunc(muts, func(a, b bucketstore.Mutation) int { return bytes.Compare(a.Key, b.Key) })
		if err := f.store.Apply(ctx, bucketstore.Metric, muts); err != nil {
			return err
		}
	}
	return nil
}
