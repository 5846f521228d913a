package reader

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/index/repanic"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// A Rollups asks for what is in windows, and for buckets in place of samples where they tell the same.
type Rollups struct {
	// Windows are the times that are looked at, and Want is what of them.
	Windows rollup.Windows
	Want    rollup.Want
	// Coarsest is the longest bucket that is of use. Of rollup.Raw only samples are.
	Coarsest rollup.Resolution
	// Reduce, if set, says what a query that is Kept has of its series in place of points.
	Reduce Reduction
	// plan is made when the query begins.
	plan *rollup.Plan
}

// UsesBuckets says whether buckets are of use. Of nil they are not.
func (r *Rollups) UsesBuckets() bool { return r != nil && r.Coarsest != rollup.Raw }

// planned returns q with a plan, if it asks for one and buckets are of use.
func (r *Reader) planned(ctx context.Context, q Query) Query {
	if !r.view(ctx).HasRollups || q.Rollups == nil && !q.Kept {
		q.Rollups = nil
		return q
	}
	if q.Rollups != nil {
		sources, rollups := r.sources(ctx, q), *q.Rollups
		sources.Coarsest = rollups.Coarsest
		rollups.plan = rollup.NewPlan(rollups.Windows, sources)
		if rollups.plan != nil && (!q.Kept || rollups.plan.Cut(q.Maxt)) {
			q.Rollups = &rollups
			return q
		}
		q.Rollups = nil
	}
	if q.Kept {
		return r.plannedKept(ctx, q)
	}
	return q
}

// sources says what there is of which time for the series of q.
func (r *Reader) sources(ctx context.Context, q Query) rollup.Sources {
	s := r.view(ctx).Sources()
	for r := range s.From {
		s.From[r] = max(s.From[r], q.later[r])
	}
	return s
}

// plannedKept is planned of a query for the samples that are kept.
func (r *Reader) plannedKept(ctx context.Context, q Query) Query {
	sources := r.sources(ctx, q)
	start, limit := max(q.Mint, 0), min(q.Maxt, series.MaxTime)+1
	if start >= limit || sources.From[rollup.Raw] <= start {
		return q
	}
	sources.Coarsest, sources.Until = rollup.Finest, 0 // and samples where they are there
	w := rollup.Windows{Start: limit - 1, Step: 1, Range: limit - start, Count: 1, Last: true}
	if plan := rollup.NewPlan(w, sources); plan != nil {
		q.Rollups = &Rollups{Windows: w, Want: rollup.Markers | rollup.Integers, plan: plan}
	}
	return q
}

// A rollupCell is the rollup of a day, in the row of a base.
type rollupCell struct {
	day, base  int64
	resolution rollup.Resolution
	value      []byte
	// samples are the buckets that are read as samples, in order of time: windows begin in them, and the cell does not tell these.
	samples []rollup.Span
}

// A dayPiece is the part of a day that is to be read at a resolution.
type dayPiece struct {
	day, after, to int64
	resolution     rollup.Resolution
}

// dayPieces yields the parts of days of a span.
func dayPieces(s rollup.Span) iter.Seq[dayPiece] {
	return func(yield func(dayPiece) bool) {
		for day := rollup.DayOf(s.After + 1); day < s.To; day += rollup.Day {
			if !yield(dayPiece{day, max(day, s.After), min(day+rollup.Day, s.To), s.Resolution}) {
				return
			}
		}
	}
}

// A rollupScan reads the rollups of a batch, and the samples in their place where there are none.
type rollupScan struct {
	r    *batchReader
	scan *batchScan
	of   []index.Series
	plan *rollup.Plan
	want rollup.Want
	// slots maps series keys to positions.
	slots map[string]int
	// finer says at which resolution, of which days and of which series, rollups may tell what coarser ones do not.
	finer [rollup.NumResolutions]map[int64][]bool
	// edges are memory to look at where windows begin.
	edges   rollup.Points
	unknown []rollup.Span
	// space is memory for cells.
	space []byte
	// adding is held while a row is added: those of several bases are read at the same time.
	adding sync.Mutex
}

// read reads what the plan says.
func (s *rollupScan) read(ctx context.Context) error {
	s.slots = make(map[string]int, len(s.of))
	for i := range s.of {
		s.slots[s.of[i].Key] = i
	}
	for _, resolution := range rollup.Downsampled {
		if err := s.readCells(ctx, resolution); err != nil {
			return err
		}
	}
	for _, resolution := range slices.Backward(rollup.Downsampled) {
		if err := s.readFiner(ctx, resolution); err != nil {
			return err
		}
	}
	reduces := s.r.query.Rollups.Reduce != NotReduced
	if s.r.query.Kept && !reduces {
		if err := s.addKept(); err != nil {
			return err
		}
	}
	bases := basesOf(s.of)
	for _, read := range s.sampleReads(UsageOf(ctx)) {
		limit := min(read.span.To+1, s.r.limit)
		for p, ok := s.r.nextPart(bases, max(read.span.After+1, s.r.start), limit); ok; p, ok = s.r.nextPart(bases, p.limit, limit) {
			p.wanted = read.wanted
			widest, err := s.scan.run(ctx, p)
			if err != nil {
				return err
			}
			s.r.widths.adjust(p.span(), widest)
		}
	}
	if reduces {
		return s.reduce()
	}
	return nil
}

// addKept adds the samples that rollups keep. They are before all others.
func (s *rollupScan) addKept() (err error) {
	var points rollup.Points
	var space []byte
	start, limit := max(s.r.query.Mint, 0), min(s.r.query.Maxt, series.MaxTime)+1
	for i := range s.scan.builders {
		b := &s.scan.builders[i]
		points.Reset(s.want, rollup.Windows{})
		for _, span := range s.plan.Spans {
			for piece := range dayPieces(span) {
				for _, c := range b.rollupsOf(piece) {
					if !rollup.HasBuckets(c.value) {
						continue
					}
					if err := points.AppendCell(c.resolution, c.day, c.value, piece.after, piece.to); err != nil {
						return fmt.Errorf("series %s: %w", series.Abbreviate(s.of[i].Labels), err)
					}
				}
			}
		}
		first, _ := slices.BinarySearch(points.Times, start)
		last, _ := slices.BinarySearch(points.Times, limit)
		if space, err = appendKept(b, space, &points, first, last); err != nil {
			return fmt.Errorf("series %s: %w", series.Abbreviate(s.of[i].Labels), err)
		}
		b.samples += last - first
		b.bytes = b.Bytes()
		b.rollups, b.rollupBytes, b.hasRollups = nil, 0, false
		if err := s.scan.checkLimits(i, last-first, b.bytes); err != nil {
			return err
		}
	}
	return nil
}

// appendKept appends points from first up to last.
func appendKept(b *chunkBuilder, space []byte, points *rollup.Points, first, last int) ([]byte, error) {
	if len(points.Histograms) == 0 {
		return b.AppendFloats(space, points.Times[first:last], points.Values[first:last]), nil
	}
	for i := first; i < last; i++ {
		v := points.Histograms[i]
		if !isHistogram(v) {
			v.Float = points.Values[i]
		}
		if err := b.Append(points.Times[i], v); err != nil {
			return space, err
		}
	}
	return space, nil
}

// readCells reads the rollups of a resolution that are right.
func (s *rollupScan) readCells(ctx context.Context, resolution rollup.Resolution) error {
	after, to, ok := s.plan.Range(resolution)
	if !ok {
		return nil
	}
	if err := s.readSpan(ctx, after, to, nil, resolution); err != nil {
		return err
	}
	for i := range s.of {
		s.dropHalves(&s.scan.builders[i], s.of[i].Bases, resolution)
	}
	return nil
}

// readSpan reads the rollups of the times (after, to] of the wanted series. Nil is all of them.
func (s *rollupScan) readSpan(ctx context.Context, after, to int64, wanted []bool, resolution rollup.Resolution) error {
	after, to = max(after, 0), min(to, series.MaxTime)
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(s.r.scans)
	for _, base := range basesOf(s.of) {
		// Whole rows in the middle, parts of the first and the last one.
		p := part{start: max(after+1, base), limit: min(to+1, base+series.Period), wanted: wanted}
		if p.start >= p.limit {
			continue
		}
		reading.Go(func() error { return repanic.Catch(func() error { return s.readRows(ctx, p, base, resolution) }) })
	}
	if err := repanic.Rethrow(reading.Wait()); err != nil || s.r.scans == 1 {
		return err
	}
	for i := range s.of { // bases come in any order
		slices.SortFunc(s.scan.builders[i].rollups, func(x, y rollupCell) int {
			return cmp.Or(cmp.Compare(x.resolution, y.resolution), cmp.Compare(x.day, y.day), cmp.Compare(x.base, y.base))
		})
	}
	return nil
}

// readFiner reads the rollups at a resolution of days of which coarser ones do not tell what is wanted.
func (s *rollupScan) readFiner(ctx context.Context, resolution rollup.Resolution) error {
	wanted := s.finer[resolution]
	days := slices.Sorted(maps.Keys(wanted))
	for len(days) > 0 {
		n := 1
		for n < len(days) && days[n] == days[n-1]+rollup.Day && slices.Equal(wanted[days[n]], wanted[days[0]]) {
			n++
		}
		if err := s.readSpan(ctx, days[0], days[n-1]+rollup.Day, wanted[days[0]], resolution); err != nil {
			return err
		}
		days = days[n:]
	}
	if len(wanted) == 0 {
		return nil
	}
	for i := range s.of {
		b := &s.scan.builders[i]
		slices.SortStableFunc(b.rollups, func(x, y rollupCell) int {
			return cmp.Or(cmp.Compare(x.resolution, y.resolution), cmp.Compare(x.day, y.day))
		})
		s.dropHalves(b, s.of[i].Bases, resolution)
	}
	return nil
}

// noteFiner notes that a cell needs the finer one, if there may be one, unless that is read anyway.
func (s *rollupScan) noteFiner(slot int, day int64, resolution rollup.Resolution) {
	finer := s.plan.Finer(resolution, day)
	after, to, ok := s.plan.Range(finer)
	if finer == rollup.Raw || ok && day+rollup.Day > after && day < to {
		return
	}
	if s.finer[finer] == nil {
		s.finer[finer] = make(map[int64][]bool)
	}
	if s.finer[finer][day] == nil {
		s.finer[finer][day] = make([]bool, len(s.of))
		s.r.days.noteFiner(dayAt{day, finer})
	}
	s.finer[finer][day][slot] = true
}

// dropHalves drops the rollups of days in which a base begins if that of one of the two rows is missing, and there are
// samples.
func (s *rollupScan) dropHalves(b *chunkBuilder, bases []int64, resolution rollup.Resolution) {
	for n := 1; n < len(bases); n++ {
		day := rollup.DayOf(bases[n])
		if bases[n-1]+series.Period != bases[n] || !s.plan.HasRaw(day) {
			continue
		}
		halves := b.rollupsOf(dayPiece{day: day, resolution: resolution})
		if len(halves) == 1 {
			first := slices.IndexFunc(b.rollups, func(c rollupCell) bool { return c.day == day && c.resolution == resolution })
			b.rollups = slices.Delete(b.rollups, first, first+1)
		}
	}
}

// readRows reads the rollups of a part of a base.
func (s *rollupScan) readRows(ctx context.Context, p part, base int64, resolution rollup.Resolution) error {
	first := series.AppendQualifier(nil, rollup.Qualifier(rollup.DayOf(p.start), base))
	var limit []byte
	if p.limit < base+series.Period {
		limit = series.AppendQualifier(nil, uint32(p.limit-1-base))
	}
	rows := s.r.ranges(s.of, p)
	counts := rangeCounts{usage: UsageOf(ctx), ranges: rows}
	var key []byte
	err := s.r.store.Scan(ctx, bucketstore.ScanRequest{
		Table: bucketstore.Metric,
		Rows:  rows,
		Families: []bucketstore.FamilyRange{
			{Family: resolution.Family(), Start: first, Limit: limit},
			{Family: series.FamilyCount, Start: first, Limit: limit},
		},
	}, func(row bucketstore.Row) (err error) {
		counts.addRow(row)
		var of int64
		if key, of, err = s.r.schema.ParseRowKey(key[:0], row.Key); err != nil {
			return err
		}
		slot, ok := s.slots[string(key)]
		if !ok || of != base {
			return nil
		}
		if p.wanted != nil && !p.wanted[slot] {
			return nil
		}
		s.adding.Lock()
		defer s.adding.Unlock()
		b := &s.scan.builders[slot]
		size := b.rollupBytes
		if err := s.addCells(UsageOf(ctx), slot, base, resolution, row.Cells); err != nil {
			return err
		}
		return s.scan.checkLimits(slot, 0, b.rollupBytes-size)
	})
	counts.endScan()
	if err != nil {
		return fmt.Errorf("read rollups: %w", err)
	}
	return nil
}

// addCells adds the rollups of a row that are of its samples.
func (s *rollupScan) addCells(usage *Usage, slot int, base int64, resolution rollup.Resolution, cells []bucketstore.Cell) error {
	b := &s.scan.builders[slot]
	first, _ := slices.BinarySearchFunc(cells, series.FamilyCount, func(c bucketstore.Cell, family string) int {
		return cmp.Compare(c.Family, family)
	})
	counts := cells[first:]
	for _, c := range cells[:first] {
		day := rollup.DayOfCell(base, c.Qualifier)
		var count int64
		for _, d := range counts {
			if bytes.Equal(d.Qualifier, c.Qualifier) {
				n, err := bucketstore.ParseSum(d.Value)
				if err != nil {
					return err
				}
				count = n
			}
		}
		hasRaw := s.plan.HasRaw(day)
		if hasRaw && c.Time != day+rollup.Day+count {
			continue
		}
		samples, err := s.unknownEdges(rollup.Cell{Resolution: resolution, Value: c.Value}, day, hasRaw)
		if err != nil {
			return fmt.Errorf("series %s: %w", series.Abbreviate(s.of[slot].Labels), err)
		}
		isWidened := !hasRaw && len(samples) > 0
		if isWidened || rollup.NeedsFiner(c.Value, s.want) {
			s.noteFiner(slot, day, resolution)
		}
		if hasRaw && (!rollup.HasAll(c.Value, s.want) || !rollup.CostLessThanDay(samples, day)) {
			continue
		}
		if isWidened {
			samples = nil
			if s.plan.Finer(resolution, day) == rollup.Raw {
				usage.addWidened()
				s.r.days.noteWidened(dayAt{day, resolution})
			}
		}
		usage.addRollups(resolution, 1)
		b.rollups = append(b.rollups, rollupCell{day, base, resolution, s.copy(c.Value), slices.Clone(samples)})
		b.rollupBytes += len(c.Value)
		b.hasRollups = b.hasRollups || len(c.Value) > 0
	}
	return nil
}

// unknownEdges returns the buckets of a cell in which windows begin that it does not tell, until the next call. Where the plan reads all
// such buckets as samples there are none.
func (s *rollupScan) unknownEdges(c rollup.Cell, day int64, hasRaw bool) (buckets []rollup.Span, err error) {
	w := &s.r.query.Rollups.Windows
	if hasRaw && !w.HasShortEdges(c.Resolution) {
		return nil, nil
	}
	s.edges.Reset(s.want, *w)
	s.unknown, err = s.edges.AppendUnknown(s.unknown[:0], c, day)
	return s.unknown, err
}

// copy copies the value of a cell.
func (s *rollupScan) copy(value []byte) []byte {
	const slab = 64 << 10
	if cap(s.space)-len(s.space) < len(value) {
		s.space = make([]byte, 0, max(slab, len(value)))
	}
	at := len(s.space)
	s.space = append(s.space, value...)
	return s.space[at:len(s.space):len(s.space)]
}

// A sampleRead is a part of the time of which the samples of the wanted series are read. Nil is all of them.
type sampleRead struct {
	span   rollup.Span
	wanted []bool
}

// sampleReads returns what is read as samples. Those of each series are disjoint and in order of time.
func (s *rollupScan) sampleReads(usage *Usage) (reads []sampleRead) {
	for _, span := range s.plan.Spans {
		if span.Resolution == rollup.Raw {
			reads = append(reads, sampleRead{span: span})
		}
	}
	at := make(map[rollup.Span]int) // of reads
	for i := range s.scan.builders {
		for span := range s.missing(usage, i) {
			n, ok := at[span]
			if !ok {
				n = len(reads)
				at[span] = n
				reads = append(reads, sampleRead{span, make([]bool, len(s.scan.builders))})
			}
			reads[n].wanted[i] = true
		}
	}
	slices.SortStableFunc(reads, func(a, b sampleRead) int { return cmp.Compare(a.span.After, b.span.After) })
	return reads
}

// missing yields the times of a series that the plan takes from buckets and that are read as samples, joined where they meet: there is no rollup, or it does
// not tell where a window begins.
func (s *rollupScan) missing(usage *Usage, slot int) iter.Seq[rollup.Span] {
	return func(yield func(rollup.Span) bool) {
		var pending rollup.Span
		for piece := range s.bucketPieces() {
			for _, span := range s.missingOf(usage, slot, piece) {
				if pending.To == span.After {
					pending.To = span.To
					continue
				}
				if pending.After < pending.To && !yield(pending) {
					return
				}
				pending = span
			}
		}
		if pending.After < pending.To {
			yield(pending)
		}
	}
}

// bucketPieces yields the parts of days that the plan takes from buckets, where samples are there.
func (s *rollupScan) bucketPieces() iter.Seq[dayPiece] {
	return func(yield func(dayPiece) bool) {
		for _, span := range s.plan.Spans {
			if span.Resolution == rollup.Raw {
				continue
			}
			for piece := range dayPieces(span) {
				if s.plan.HasRaw(piece.day) && !yield(piece) {
					return
				}
			}
		}
	}
}

// missingOf returns the times of a piece that are read as samples of a series.
func (s *rollupScan) missingOf(usage *Usage, slot int, piece dayPiece) []rollup.Span {
	cells := s.scan.builders[slot].coarsestOf(piece)
	if len(cells) == 0 {
		usage.addNotRolled(1)
		s.r.days.note(piece, rollup.Raw.Origin())
		return []rollup.Span{{After: piece.after, To: piece.to}}
	}
	s.r.days.note(piece, piece.resolution.Origin())
	samples := samplesIn(cells, piece)
	if len(samples) > 0 {
		s.r.days.note(piece, rollup.Raw.Origin())
	}
	return samples
}

// samplesIn returns the buckets of a piece that are read as samples in place of cells: those of one row, or of both that a base divides.
func samplesIn(cells []rollupCell, piece dayPiece) (all []rollup.Span) {
	for _, c := range cells {
		for _, span := range c.samples {
			isBefore := len(all) > 0 && span.After < all[len(all)-1].To // both rows have it
			if span.After >= piece.after && span.To <= piece.to && !isBefore {
				all = append(all, span)
			}
		}
	}
	return all
}

// rollupsOf returns the rollups of a day at a resolution: two where a base begins in it. They are ordered by
// resolution, and then by day.
func (b *chunkBuilder) rollupsOf(piece dayPiece) []rollupCell {
	compare := func(c rollupCell, p dayPiece) int {
		return cmp.Or(cmp.Compare(c.resolution, p.resolution), cmp.Compare(c.day, p.day))
	}
	first, _ := slices.BinarySearchFunc(b.rollups, piece, compare)
	limit := first
	for limit < len(b.rollups) && compare(b.rollups[limit], piece) == 0 {
		limit++
	}
	return b.rollups[first:limit]
}

// coarsestOf is rollupsOf at the resolution of the piece, or where there are none at the next finer one.
func (b *chunkBuilder) coarsestOf(piece dayPiece) []rollupCell {
	for _, r := range slices.Backward(rollup.Downsampled) {
		if cells := b.rollupsOf(dayPiece{day: piece.day, resolution: r}); r <= piece.resolution && len(cells) > 0 {
			return cells
		}
	}
	return nil
}
