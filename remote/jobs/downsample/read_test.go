package downsample_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/rollup"
)

// A reading is what a reader gets of the rollups and counts of a row, at one instant.
type reading struct {
	of    rowName
	cells []bucketstore.Cell
	// horizon and version are those of the world when the reading began.
	horizon int64
	version int
}

// rollupFamilies are those that a reader asks for.
func rollupFamilies() []bucketstore.FamilyRange {
	return []bucketstore.FamilyRange{{Family: rollup.OneHour.Family()}, {Family: rollup.FiveMinutes.Family()}, {Family: series.FamilyCount}}
}

// readRollups reads the rollups of a row.
func (w *world) readRollups(of rowName) (r reading, err error) {
	r = reading{of: of, horizon: w.horizon, version: w.version}
	store := w.readerOf(of.series)
	if w.rules.ignoreMemory {
		store = &slowStore{w.processes[0]}
	}
	key := of.series.schema.AppendRowKey(nil, of.series.key, of.base)
	err = store.Scan(w.ctx, bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{series.SingleRow(key)}, Families: rollupFamilies()},
		func(row bucketstore.Row) error {
			for _, c := range row.Cells {
				r.cells = append(r.cells, bucketstore.Cell{Family: c.Family, Qualifier: bytes.Clone(c.Qualifier), Time: c.Time, Value: bytes.Clone(c.Value)})
			}
			return nil
		})
	return r, err
}

// readerOf returns the store that has all samples of a series.
func (w *world) readerOf(s *testSeries) bucketstore.Store {
	if s.buffered != nil {
		return s.buffered.reads
	}
	return &slowStore{w.processes[0]}
}

// samplesOf reads the samples of a row at once.
func (w *world) samplesOf(of rowName) (found map[int64]uint64) {
	defer func(a *actor) { w.current = a }(w.current)
	w.current = nil
	found = make(map[int64]uint64)
	key := of.series.schema.AppendRowKey(nil, of.series.key, of.base)
	err := w.readerOf(of.series).Scan(w.ctx, bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{series.SingleRow(key)}, Families: rawFamilies()},
		func(row bucketstore.Row) error { return addSamples(found, of.base, row.Cells) })
	if err != nil {
		w.err = err
	}
	return found
}

// addSamples adds the floats of the cells of a row, as bits.
func addSamples(found map[int64]uint64, base int64, cells []bucketstore.Cell) error {
	var row merge.Row
	row.Reset(base, base, base+series.Period, merge.Options{})
	for _, c := range cells {
		switch c.Family {
		case series.FamilyCount:
		case series.FamilyChunk:
			sealed, err := chunk.Parse(c.Qualifier, c.Value)
			if err != nil {
				return err
			}
			row.AddChunk(sealed)
		default:
			if err := row.AddRaw(c.Family, c.Qualifier, c.Value); err != nil {
				return err
			}
		}
	}
	for row.Next() == merge.Floats {
		ts, vs := row.Floats()
		for i, t := range ts {
			found[t] = math.Float64bits(vs[i])
		}
	}
	return row.Err()
}

// valueOf reads the value of a sample, as bits.
func (w *world) valueOf(s *testSeries, t int64) uint64 {
	base, _ := series.Split(t)
	v, ok := w.samplesOf(rowName{s, base})[t]
	if !ok && w.err == nil {
		w.err = fmt.Errorf("series %s: the sample at %d is lost", s.name, t)
	}
	return v
}

// check checks the rows that have changed.
func (w *world) check() error {
	for _, of := range w.dirty {
		r, err := w.readRollups(of)
		if err == nil {
			err = w.compare(r)
		}
		if err != nil && w.err == nil {
			w.err = err
		}
	}
	w.dirty = w.dirty[:0]
	return w.err
}

// read reads rollups now and then, with time between memory and rows.
func (p *process) read(a *actor) {
	w := p.w
	_ = p.sleep(w.rand.Int64N(2 * hour))
	s := w.series[w.rand.IntN(len(w.series))]
	r, err := w.readRollups(rowName{s, bases[w.rand.IntN(len(bases))]})
	if err == nil {
		if err = w.compare(r); err != nil && w.err == nil {
			w.err = fmt.Errorf("a reader: %w", err)
		}
	}
}

// compare compares what a reader may use of a reading with the samples.
func (w *world) compare(r reading) error {
	counts := make(map[int64]int64)
	for _, c := range r.cells {
		if c.Family == series.FamilyCount {
			n, err := bucketstore.ParseSum(c.Value)
			if err != nil {
				return err
			}
			counts[rollup.DayOfCell(r.of.base, c.Qualifier)] = n
		}
	}
	samples := w.samplesOf(r.of)
	final := make(map[int64]int)
	for _, c := range r.cells {
		if c.Family == series.FamilyCount {
			continue
		}
		day := rollup.DayOfCell(r.of.base, c.Qualifier)
		if day < r.horizon {
			final[day]++
		} else if c.Time != day+rollup.Day+counts[day] {
			w.unused++
			continue
		}
		w.used++
		resolution := rollup.FiveMinutes
		if c.Family == rollup.OneHour.Family() {
			resolution = rollup.OneHour
		}
		if err := w.compareDay(r, day, resolution, c.Value, samples); err != nil {
			return fmt.Errorf("at %d, series %s, base %d, %s of day %d: %w", w.now.Load(), r.of.series.name, r.of.base, resolution, day, err)
		}
	}
	for _, t := range r.of.series.times {
		if _, ok := r.of.series.acked[t]; !ok {
			continue
		}
		base, _ := series.Split(t)
		if base != r.of.base {
			continue
		}
		day := rollup.DayOf(t)
		if _, ok := samples[t]; !ok && !w.isCollected(day) {
			return fmt.Errorf("series %s: the sample at %d is lost", r.of.series.name, t)
		}
		if s := r.of.series; s.buffered != nil && isUnsettled(s, r.version, day, day+rollup.Day) {
			continue // a buffer may have a sample that was refused after it was in the log, and hides the rollups until it is flushed
		}
		if day < r.horizon && final[day] < len(rollup.Downsampled) && r.of.series.touched[t] <= r.version {
			return fmt.Errorf("at %d, series %s: the samples of day %d are gone, and it has no rollups", w.now.Load(), r.of.series.name, day)
		}
	}
	return nil
}

// compareDay compares a rollup with the samples of its row and day.
func (w *world) compareDay(r reading, day int64, resolution rollup.Resolution, cell []byte, samples map[int64]uint64) error {
	s := r.of.series
	if w.isCollected(day) {
		samples = s.acked
		w.final++
	}
	ts, vs := samplesIn(samples, max(day, r.of.base-1), min(day+rollup.Day, r.of.base+series.Period-1))
	var e rollup.Encoder
	want := e.Append(nil, resolution, day, ts, vs)
	span := resolution.Span()
	ranges := [][2]int64{{day, day + rollup.Day}}
	for range 3 {
		after := day + w.rand.Int64N(rollup.Day/span)*span
		ranges = append(ranges, [2]int64{after, after + (1+w.rand.Int64N((day+rollup.Day-after)/span))*span})
	}
	if !bytes.Equal(cell, want) { // then each bucket, because some samples may be in doubt
		for after := day; after < day+rollup.Day; after += span {
			ranges = append(ranges, [2]int64{after, after + span})
		}
	}
	var got, expected rollup.Points
	for _, bounds := range ranges {
		if isUnsettled(s, r.version, bounds[0], bounds[1]) {
			continue
		}
		if err := pointsOf(&got, resolution, day, cell, bounds); err != nil {
			return err
		}
		if err := pointsOf(&expected, resolution, day, want, bounds); err != nil {
			return err
		}
		if !equal(&got, &expected) {
			return fmt.Errorf("(%d, %d] has %d samples at %v, want %d at %v, of %v", bounds[0], bounds[1], number(&got), got.Times, number(&expected), expected.Times, ts)
		}
	}
	return nil
}

// isUnsettled says whether some samples in (after, to] are not acknowledged, or have changed since a version.
func isUnsettled(s *testSeries, version int, after, to int64) bool {
	for t, n := range s.doubts {
		if n > 0 && t > after && t <= to {
			return true
		}
	}
	for t, changed := range s.touched {
		if changed > version && t > after && t <= to {
			return true
		}
	}
	return false
}

// samplesIn returns the samples in (after, to] in order of time.
func samplesIn(samples map[int64]uint64, after, to int64) (ts []int64, vs []float64) {
	for _, t := range slices.Sorted(maps.Keys(samples)) {
		if t > after && t <= to {
			ts, vs = append(ts, t), append(vs, math.Float64frombits(samples[t]))
		}
	}
	return ts, vs
}

const wantAll = rollup.Markers | rollup.Resets | rollup.Sums | rollup.Counts

// pointsOf reads what a rollup tells of (after, to].
func pointsOf(p *rollup.Points, r rollup.Resolution, day int64, cell []byte, bounds [2]int64) error {
	p.Reset(wantAll, rollup.Windows{})
	return p.AppendCell(r, day, cell, bounds[0], bounds[1])
}

func number(p *rollup.Points) int32 {
	if len(p.Numbers) == 0 {
		return 0
	}
	return p.Numbers[len(p.Numbers)-1]
}

// equal says whether two rollups tell the same.
func equal(a, b *rollup.Points) bool {
	sameBits := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
	return slices.Equal(a.Times, b.Times) && slices.EqualFunc(a.Values, b.Values, sameBits) && slices.Equal(a.Numbers, b.Numbers) &&
		slices.EqualFunc(a.Sums, b.Sums, sameBits) && slices.Equal(a.Changes, b.Changes) && slices.Equal(a.Resets, b.Resets) && slices.Equal(a.Holes, b.Holes)
}
