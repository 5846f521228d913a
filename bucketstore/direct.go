package bucketstore

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/promtable/promtable/series"
)

// Direct is the Appender that makes every sample a raw cell of METRIC before
// it answers. It holds no samples.
type Direct struct {
	store   Store
	schema  series.Schema
	now     func() time.Time
	rawFrom RawFrom
}

// NewDirect returns an Appender over store. now is the clock that decides
// which family a sample goes to, see series.Arrival. It is asked once for up to
// maxApply samples, and rawFrom then; nil is right where nothing is sealed.
func NewDirect(store Store, schema series.Schema, now func() time.Time, rawFrom RawFrom) *Direct {
	return &Direct{store: store, schema: schema, now: now, rawFrom: rawFrom}
}

// A RawFrom returns which samples the writer may put into the family of their
// window when its clock says now: those from the returned time on, in
// milliseconds, see series.Arrival. It may be called concurrently. A nil RawFrom
// stands for a clock that is never in doubt.
type RawFrom func(now time.Time) int64

// Arrival returns where samples go that arrive when the writer's clock says now.
func (f RawFrom) Arrival(now time.Time) series.Arrival {
	a := series.Arrival{Now: now.UnixMilli()}
	if f != nil {
		a.RawFrom = f(now)
	}
	return a
}

// directRef is a series key.
type directRef struct{ key []byte }

// SeriesKey implements Ref.
func (r *directRef) SeriesKey() []byte { return r.key }

// Ref implements Appender.
func (d *Direct) Ref(seriesKey []byte) Ref {
	return &directRef{key: append([]byte(nil), seriesKey...)}
}

// maxApply is how many samples go to the store at once: as many operations on
// one row as Bigtable takes, and a bound on what they take in memory.
const maxApply = 100_000

// Append implements Appender: one mutation for each row, of up to maxApply
// samples.
func (d *Direct) Append(ctx context.Context, samples []Sample) error {
	var failed SamplesError
	for start := 0; start < len(samples); start += maxApply {
		err := d.apply(ctx, samples[start:min(start+maxApply, len(samples))])
		var part *SamplesError
		switch {
		case errors.As(err, &part):
			failed.add(part, start)
		case err != nil:
			return err
		}
	}
	if failed.Err != nil {
		return &failed
	}
	return nil
}

// add adds what failed of a part of the samples that begins at start.
func (e *SamplesError) add(part *SamplesError, start int) {
	for _, i := range part.Failed {
		e.Failed = append(e.Failed, start+i)
	}
	if e.Err == nil {
		e.Err = part.Err
	}
}

// apply stores up to maxApply samples.
func (d *Direct) apply(ctx context.Context, samples []Sample) error {
	rows := groupByRow(samples)
	err := d.store.Apply(ctx, Metric, d.mutations(samples, rows))
	var failed *RowsError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed):
		return samplesError(rows, failed)
	}
	return fmt.Errorf("append samples: %w", err)
}

// A rowGroup is the samples of one row: positions in the samples of an Append.
type rowGroup struct {
	base      int64
	positions []int
}

// groupByRow gathers samples by row, rows in the order in which they first
// occur.
func groupByRow(samples []Sample) []rowGroup {
	type row struct {
		key  string
		base int64
	}
	at := make(map[row]int, len(samples))
	rows := make([]rowGroup, 0, len(samples))
	for i := range samples {
		key := samples[i].Ref.SeriesKey()
		base, _ := series.Split(samples[i].T)
		n, ok := at[row{string(key), base}] // which copies nothing
		if !ok {
			n = len(rows)
			at[row{string(key), base}] = n
			rows = append(rows, rowGroup{base: base})
		}
		rows[n].positions = append(rows[n].positions, i)
	}
	return rows
}

// mutations makes one mutation of each row.
func (d *Direct) mutations(samples []Sample, rows []rowGroup) []Mutation {
	arrival := d.rawFrom.Arrival(d.now())
	muts := make([]Mutation, len(rows))
	for i, row := range rows {
		key := samples[row.positions[0]].Ref.SeriesKey()
		muts[i] = Mutation{Key: d.schema.AppendRowKey(nil, key, row.base), Ops: cells(arrival, samples, row.positions)}
	}
	return muts
}

// cells returns the writes of the samples of one row. Of those of one column
// only the last is written.
func cells(arrival series.Arrival, samples []Sample, positions []int) []Op {
	if len(positions) == 1 {
		return []Op{cell(arrival, samples[positions[0]])}
	}
	ops := make([]Op, 0, len(positions))
	column := make(map[int64]int, len(positions))
	for _, p := range positions {
		s := samples[p]
		n, ok := column[s.T]
		if !ok {
			n = len(ops)
			column[s.T] = n
			ops = append(ops, Op{})
		}
		ops[n] = cell(arrival, s)
	}
	return ops
}

// cell returns the write of one sample.
func cell(arrival series.Arrival, s Sample) Op {
	_, delta := series.Split(s.T)
	buf := make([]byte, 0, series.QualifierSize+8)
	buf = series.AppendQualifier(buf, delta)
	value := s.Value
	if value == nil {
		buf = series.AppendFloat(buf, s.V)
		value = buf[series.QualifierSize:]
	}
	family, cellTime := arrival.Cell(s.T)
	return Op{
		Kind:      SetCell,
		Family:    family,
		Qualifier: buf[:series.QualifierSize:series.QualifierSize],
		Time:      cellTime,
		Value:     value,
	}
}

// samplesError translates failed rows into failed samples.
func samplesError(rows []rowGroup, failed *RowsError) error {
	var positions []int
	for i := range failed.Failed {
		positions = append(positions, rows[i].positions...)
	}
	sort.Ints(positions)
	return &SamplesError{Failed: positions, Err: fmt.Errorf("append samples: %w", failed)}
}
