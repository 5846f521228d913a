package main

import (
	"context"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/backfill"
	"github.com/promtable/promtable/remote/engine/indexrows"
	"github.com/promtable/promtable/series"
)

// A filler writes series to a store: their index, and their samples as the chunks that a buffer would have
// flushed. To send a month of samples would take hours.
type filler struct {
	store  bucketstore.Store
	index  *index.Index
	schema series.Schema
}

// open opens the store and its index.
func (f *filler) open(dir string) error {
	store, err := pebble.Open(pebble.Config{Dir: dir, Tables: bucketstore.Tables(bucketstore.Retention{})})
	if err == nil {
		f.use(store)
	}
	return err
}

// openBigtable is open for the store of onBigtable, which has its tables.
func (f *filler) openBigtable(ctx context.Context, emulator string) error {
	store, err := bigtable.Open(ctx, bigtable.Config{Project: bigtableName, Instance: bigtableName, EmulatorHost: emulator, Tables: bucketstore.Tables(bucketstore.Retention{})})
	if err == nil {
		f.use(store)
	}
	return err
}

// use takes a store that is open.
func (f *filler) use(store bucketstore.Store) {
	f.store = store
	f.index = index.New(index.Config{Schema: f.schema, AtomicPuts: store.Traits().AtomicApply, Exclusive: !store.Traits().Shared}, indexrows.New(store))
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
	writer := backfill.New(backfill.Config{Store: f.store, Index: f.index, Schema: f.schema})
	g := newGenerator(w)
	all := make([]*backfill.Series, w.Series)
	for i, ls := range g.labelsOf(first, first+w.Series) {
		var err error
		if all[i], err = writer.Series(ls); err != nil {
			return err
		}
	}
	for g.scrape() {
		for i, s := range all {
			if err := s.Append(ctx, g.T[i:i+1], g.V[i:i+1]); err != nil {
				return err
			}
		}
	}
	for _, s := range all {
		if err := s.Close(ctx); err != nil {
			return err
		}
	}
	return writer.Flush(ctx)
}
