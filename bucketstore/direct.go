package bucketstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// Direct is the Appender of direct mode: it writes every sample as a raw cell of METRIC
// before it returns. It holds no samples.
type Direct struct {
	store  Store
	schema series.Schema
	now    func() time.Time
	// rawFrom is nil where nothing is sealed.
	rawFrom RawFrom
	// onLate is nil where nothing is sealed.
	onLate func(seriesKey []byte, period int64)
	// onArrival is nil where nothing is deleted.
	onArrival func(series.Arrival) series.Arrival
	// batches recycles *directBatch.
	batches sync.Pool
}

// NewDirect returns an Appender over store. The clock now decides which family a sample
// goes to, see series.Arrival. now and rawFrom are called once for up to maxApply samples.
// rawFrom is nil where nothing is sealed.
func NewDirect(store Store, schema series.Schema, now func() time.Time, rawFrom RawFrom) *Direct {
	return &Direct{store: Isolate(store, now), schema: schema, now: now, rawFrom: rawFrom, batches: sync.Pool{New: func() any { return newDirectBatch() }}}
}

// OnLate makes Append call fn with each index period before the current one to which it
// writes cells of series.FamilyLate, just before it writes them, at least once, and with the key of
// one of the series, whose tenant is that of all of them. Current is
// also the period of the last window. fn may be called concurrently. OnLate must be called
// before Append.
func (d *Direct) OnLate(fn func(seriesKey []byte, period int64)) { d.onLate = fn }

// OnArrival makes Append ask fn where the samples go that it is about to write. fn may be
// called concurrently. OnArrival must be called before Append.
func (d *Direct) OnArrival(fn func(series.Arrival) series.Arrival) { d.onArrival = fn }

// A RawFrom returns which samples may go to the raw family of their window when the
// writer's clock says now: those from the returned time on, in milliseconds, see
// series.Arrival. It may be called concurrently. A nil RawFrom stands for a clock that is
// never in doubt.
type RawFrom func(now time.Time) int64

// Arrival returns the families of samples that arrive when the writer's clock says now.
func (f RawFrom) Arrival(now time.Time) series.Arrival {
	a := series.Arrival{Now: now.UnixMilli()}
	if f != nil {
		a.RawFrom = f(now)
	}
	return a
}

// directRef is the reference of a series: its key.
type directRef struct{ key []byte }

// SeriesKey implements Ref.
func (r *directRef) SeriesKey() []byte { return r.key }

// Ref implements Appender.
func (d *Direct) Ref(seriesKey []byte) Ref {
	return &directRef{key: append([]byte(nil), seriesKey...)}
}

// maxApply is how many samples one call of Store.Apply writes. Bigtable takes as many
// operations on one row, and it bounds memory.
const maxApply = 100_000

// maxWrite is how long the write of a raw cell may last after its family was chosen, by the
// wall clock. The sealer relies on it, see the fence of package seal.
const maxWrite = time.Minute

// Append implements Appender: one mutation for each row, of up to maxApply
// samples.
func (d *Direct) Append(ctx context.Context, samples []Sample) error {
	var failed SamplesError
	for start := 0; start < len(samples); start += maxApply {
		err := d.apply(ctx, samples[start:min(start+maxApply, len(samples))])
		var part *SamplesError
		switch {
		case errors.As(err, &part):
			failed.addPart(part, start)
		case err != nil:
			return err
		}
	}
	if failed.Err != nil {
		return &failed
	}
	return nil
}

// addPart adds the failed samples of a part that begins at start.
func (e *SamplesError) addPart(part *SamplesError, start int) {
	for _, i := range part.Failed {
		e.Failed = append(e.Failed, start+i)
		if err, ok := part.Refused[i]; ok {
			e.Refuse(start+i, err)
		}
	}
	if e.Err == nil {
		e.Err = part.Err
	}
}

// apply stores up to maxApply samples.
func (d *Direct) apply(ctx context.Context, samples []Sample) error {
	// The deadline has no monotonic part, so that it also passes while the machine is
	// suspended.
	ctx, cancel := context.WithDeadline(ctx, time.Now().Add(maxWrite).Round(0))
	defer cancel()
	b := d.batches.Get().(*directBatch)
	defer d.recycle(b)
	b.gather(samples)
	arrival := d.rawFrom.Arrival(d.now())
	if d.onArrival != nil {
		arrival = d.onArrival(arrival)
	}
	muts := b.mutations(d.schema, arrival, samples)
	if d.onLate != nil {
		for _, period := range b.latePeriods {
			d.onLate(b.rows[0].key, period)
		}
	}
	err := d.store.Apply(ctx, Metric, muts)
	var failed *RowsError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed):
		return b.samplesError(failed)
	}
	return fmt.Errorf("append samples: %w", err)
}

// A directBatch turns samples into mutations, one for each row. Its memory is reused.
type directBatch struct {
	// byHash has for the hash of a series key the position of its last row in rows.
	// With the keys themselves the map would hold one more copy of them all.
	byHash map[uint64]int32
	rows   []rowSamples
	// next links the samples of a row: the position of the next one, or -1.
	next []int32
	muts []Mutation
	ops  []Op
	// bytes holds row keys, qualifiers and values.
	bytes []byte
	// latePeriods are the index periods before the current one of cells in FamilyLate.
	latePeriods []int64
	// column maps the times of a row to positions among its ops.
	column map[int64]int
}

// rowSamples are the samples of one row: positions, linked by directBatch.next.
type rowSamples struct {
	key         []byte
	base        int64
	first, last int32
	n           int
	// sameHash is the position of the row before whose key has the same hash, or -1.
	sameHash int32
}

func newDirectBatch() *directBatch {
	return &directBatch{byHash: make(map[uint64]int32), column: make(map[int64]int)}
}

// maxPooled is the number of samples up to which a directBatch is recycled.
const maxPooled = 10_000

// recycle keeps the memory of a batch, but nothing that it refers to.
func (d *Direct) recycle(b *directBatch) {
	if len(b.next) > maxPooled || cap(b.bytes) > maxPooled*256 {
		return
	}
	clear(b.byHash)
	clear(b.rows)
	clear(b.muts)
	clear(b.ops)
	d.batches.Put(b)
}

// gather groups samples by row. Rows are in the order of their first samples.
func (b *directBatch) gather(samples []Sample) {
	b.rows, b.next = b.rows[:0], b.next[:0]
	for i := range samples {
		base, _ := series.Split(samples[i].T)
		b.next = append(b.next, -1)
		row := b.row(samples[i].Ref.SeriesKey(), base)
		if row.n == 0 {
			row.first = int32(i)
		} else {
			b.next[row.last] = int32(i)
		}
		row.last, row.n = int32(i), row.n+1
	}
}

// row returns the row of a series and base. It is valid until the next call.
func (b *directBatch) row(key []byte, base int64) *rowSamples {
	hash := xxhash.Sum64(key)
	last, ok := b.byHash[hash]
	if !ok {
		last = -1
	}
	for i := last; i >= 0; i = b.rows[i].sameHash {
		if r := &b.rows[i]; r.base == base && bytes.Equal(r.key, key) {
			return r
		}
	}
	b.byHash[hash] = int32(len(b.rows))
	b.rows = append(b.rows, rowSamples{key: key, base: base, sameHash: last})
	return &b.rows[len(b.rows)-1]
}

// mutations returns one mutation for each row. They are valid until the next gather.
func (b *directBatch) mutations(schema series.Schema, arrival series.Arrival, samples []Sample) []Mutation {
	b.muts, b.ops, b.bytes = b.muts[:0], slices.Grow(b.ops[:0], len(samples)), b.bytes[:0]
	b.latePeriods = b.latePeriods[:0]
	for _, row := range b.rows {
		start := len(b.bytes)
		b.bytes = schema.AppendRowKey(b.bytes, row.key, row.base)
		key := b.bytes[start:len(b.bytes):len(b.bytes)]
		b.muts = append(b.muts, Mutation{Key: key, Ops: b.rowOps(arrival, samples, row)})
	}
	return b.muts
}

// rowOps returns the writes of the samples of one row. Of several samples at one time only
// the last is written.
func (b *directBatch) rowOps(arrival series.Arrival, samples []Sample, row rowSamples) []Op {
	start := len(b.ops)
	if row.n > 1 {
		clear(b.column)
	}
	for i := row.first; i >= 0; i = b.next[i] {
		s := &samples[i]
		op := b.op(arrival, s)
		if row.n > 1 {
			if n, ok := b.column[s.T]; ok {
				b.ops[start+n] = op
				continue
			}
			b.column[s.T] = len(b.ops) - start
		}
		b.ops = append(b.ops, op)
	}
	return b.ops[start:len(b.ops):len(b.ops)]
}

// op returns the write of one sample.
func (b *directBatch) op(arrival series.Arrival, s *Sample) Op {
	_, delta := series.Split(s.T)
	start := len(b.bytes)
	b.bytes = series.AppendQualifier(b.bytes, delta)
	end := len(b.bytes)
	value := s.Value
	if value == nil {
		b.bytes = cell.AppendFloat(b.bytes, s.V)
		value = b.bytes[end:len(b.bytes):len(b.bytes)]
	}
	family, cellTime := arrival.Cell(s.T)
	if family == series.FamilyLate {
		b.addLate(arrival.Now, s.T)
	}
	return Op{
		Kind:      SetCell,
		Family:    family,
		Qualifier: b.bytes[start:end:end],
		Time:      cellTime,
		Value:     value,
	}
}

// addLate adds the index period of a late sample, unless a turn of the sealer walks it in any
// case: the one that comes first after this write walks the period of the last window.
func (b *directBatch) addLate(now, t int64) {
	period := series.PeriodOf(t)
	if now < series.Window || period >= series.PeriodOf(now-series.Window) {
		return
	}
	if n := len(b.latePeriods); n == 0 || b.latePeriods[n-1] != period {
		b.latePeriods = append(b.latePeriods, period)
	}
}

// samplesError translates failed rows into failed samples.
func (b *directBatch) samplesError(failed *RowsError) error {
	e := &SamplesError{Err: fmt.Errorf("append samples: %w", failed)}
	for n, err := range failed.Failed {
		for i := b.rows[n].first; i >= 0; i = b.next[i] {
			e.Failed = append(e.Failed, int(i))
			if errors.Is(err, ErrRefused) {
				e.Refuse(int(i), err)
			}
		}
	}
	slices.Sort(e.Failed)
	return e
}
