package reader

import (
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/rollup"
)

// A Reduction says which samples of the windows of a Rollups are enough for a reader that computes on samples, so that a function has the same bits over each
// window. It holds for all windows as long that end at a time of the windows plus any multiple of their step.
type Reduction uint8

const (
	// NotReduced leaves a series as a rollup.PointSeries.
	NotReduced Reduction = iota
	// KeepLast, KeepFirst, KeepLeast and KeepGreatest leave one sample between two times at which windows end, begin, or either.
	KeepLast
	KeepFirst
	KeepLeast
	KeepGreatest
	// KeepResets leaves all samples that a rollup keeps: those around resets are among them.
	KeepResets
	// KeepRate is KeepResets with samples repeated: where rate and the like look at how many samples a window has, it has as many. What is repeated lies
	// between the samples that are left of its bucket, and has the value of the one before, so that it neither grows nor resets.
	KeepRate
)

// reduce makes chunks of what is read of the series that have rollups. Others keep all their samples.
func (s *rollupScan) reduce() (err error) {
	r := reducer{kind: s.r.query.Rollups.Reduce, windows: s.r.query.Rollups.Windows, maxt: s.r.query.Maxt}
	var space []byte
	for i := range s.scan.builders {
		b := &s.scan.builders[i]
		if !b.hasRollups {
			continue
		}
		reduced := chunkBuilder{Builder: chunk.Builder{Decoded: b.Decoded}}
		if space, err = s.reduceSeries(&reduced, space, i, &r); err != nil {
			return fmt.Errorf("series %s: %w", series.Abbreviate(s.of[i].Labels), err)
		}
		samples, size := b.samples, b.bytes+b.rollupBytes
		*b = reduced
		if err := s.scan.checkLimits(i, b.samples-samples, b.bytes-size); err != nil {
			return err
		}
	}
	return nil
}

// reduceSeries appends what r leaves of a series to reduced.
func (s *rollupScan) reduceSeries(reduced *chunkBuilder, space []byte, i int, r *reducer) ([]byte, error) {
	b := &s.scan.builders[i]
	// Histograms and start timestamps stay as they are: all that rollups keep lies between them.
	others := b.Chunks
	if !slices.ContainsFunc(others, func(c chunks.Meta) bool { return !isPlain(c.Chunk) }) {
		others = nil
	}
	rolled := rolledSeries{chunkSeries(s.of[i].Labels, b.Chunks), *b, s.plan}
	if others != nil {
		rolled.ChunkSeriesEntry = chunkSeries(s.of[i].Labels, nil)
	}
	p := &r.points
	p.Reset(s.want, r.windows)
	err := rolled.AppendPoints(p)
	if err == nil && len(p.Holes) > 0 { // Too many resets, and the samples are gone: what is left of them.
		p.Reset(s.want&^rollup.Resets, r.windows)
		err = rolled.AppendPoints(p)
	}
	if err != nil {
		return space, err
	}
	start, limit := max(s.r.query.Mint, 0), min(s.r.query.Maxt, series.MaxTime)+1
	first, _ := slices.BinarySearch(p.Times, start)
	last, _ := slices.BinarySearch(p.Times, limit)
	left := rollup.Points{Times: p.Times[first:last], Values: p.Values[first:last]}
	if len(p.Histograms) == 0 {
		left.Times, left.Values = r.reduce(left.Times, left.Values, p.Numbers[first:last], others != nil)
	} else {
		left.Histograms = p.Histograms[first:last]
	}
	space, err = appendMerged(reduced, space, &left, others)
	reduced.bytes = reduced.Bytes()
	return space, err
}

// isPlain says whether a chunk has floats without start timestamps.
func isPlain(c chunkenc.Chunk) bool { return c.Encoding() == chunkenc.EncXOR }

// appendMerged appends points and the samples of chunks, in order of time.
func appendMerged(b *chunkBuilder, space []byte, p *rollup.Points, others []chunks.Meta) ([]byte, error) {
	first, last := 0, len(p.Times)
	b.samples += last
	for _, c := range others {
		it := c.Chunk.Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			t, v := valueAt(it, kind)
			n, _ := slices.BinarySearch(p.Times[first:last], t)
			var err error
			if space, err = appendKept(b, space, p, first, first+n); err == nil {
				err = b.append(t, v)
			}
			if err != nil {
				return space, err
			}
			first += n
		}
		if err := it.Err(); err != nil {
			return space, err
		}
	}
	return appendKept(b, space, p, first, last)
}

// A reducer reduces floats. It reuses its memory.
type reducer struct {
	kind    Reduction
	windows rollup.Windows
	// maxt is the last time of which samples are asked for: what windows have after it is not known.
	maxt   int64
	points rollup.Points
	times  []int64
	values []float64
	// repeats are how many samples are repeated between each sample and the one before.
	repeats []int64
}

// reduce returns what is left of samples, of which numbers are those of rollup.Points. If others is set, there are more between them. The result is valid
// until the next call.
func (r *reducer) reduce(times []int64, values []float64, numbers []int32, others bool) ([]int64, []float64) {
	switch {
	case r.kind == KeepRate:
		return r.repeat(times, values, numbers, others)
	case r.kind == KeepResets, others:
		return times, values
	}
	r.times, r.values = r.times[:0], r.values[:0]
	var before [2]int64
	for i, t := range times {
		at, v := r.between(t), values[i]
		if last := len(r.times) - 1; last < 0 || at != before {
			r.times, r.values = append(r.times, t), append(r.values, v)
		} else if r.replaces(v, r.values[last]) {
			r.times[last], r.values[last] = t, v
		}
		before = at
	}
	return r.times, r.values
}

// between says between which ends and starts of windows a time lies, as far as that matters.
func (r *reducer) between(t int64) (at [2]int64) {
	w := &r.windows
	if r.kind != KeepFirst {
		at[0] = floorDiv(t-1-w.Start, w.Step)
	}
	if r.kind != KeepLast {
		at[1] = floorDiv(t-1-w.Start+w.Range, w.Step)
	}
	return at
}

// replaces says whether a value is kept in place of one before it, as upstream's functions choose.
func (r *reducer) replaces(v, kept float64) bool {
	switch r.kind {
	case KeepLast:
		return true
	case KeepLeast:
		return v < kept || math.IsNaN(kept)
	case KeepGreatest:
		return v > kept || math.IsNaN(kept)
	}
	return false
}

// repeat returns samples with as many repeated as it takes. With others it repeats as many as are missing.
func (r *reducer) repeat(times []int64, values []float64, numbers []int32, others bool) ([]int64, []float64) {
	r.repeats = append(r.repeats[:0], make([]int64, len(times))...)
	w, first, limit, done := &r.windows, 0, 0, 1
	for k := range int64(w.Count) {
		end := w.Start + k*w.Step
		for first < len(times) && times[first] <= end-w.Range {
			first++
		}
		for limit < len(times) && times[limit] <= end {
			limit++
		}
		if !others && end <= r.maxt && (limit-first < 2 || extrapolatesAll(times[first:limit], numbers[first:limit], end-w.Range, end)) {
			continue
		}
		for done = max(done, first+1); done < limit; done++ {
			r.place(times, done, int64(numbers[done]-numbers[done-1]-1))
		}
	}
	r.times, r.values = r.times[:0], r.values[:0]
	for i, t := range times {
		for n := range r.repeats[i] {
			r.times, r.values = append(r.times, times[i-1]+1+n), append(r.values, values[i-1])
		}
		r.times, r.values = append(r.times, t), append(r.values, values[i])
	}
	return r.times, r.values
}

// extrapolatesAll says whether rate extrapolates to both ends of a window (after, to] with two samples or more, however many of those between are left
// out: that makes the average interval longer. Nothing else of rate depends on how many there are. It computes as upstream's extrapolatedRate does.
func extrapolatesAll(times []int64, numbers []int32, after, to int64) bool {
	last := len(times) - 1
	intervals := numbers[last] - numbers[0]
	if int(intervals) == last {
		return true
	}
	threshold := float64(times[last]-times[0]) / 1000 / float64(intervals) * 1.1
	return float64(times[0]-after)/1000 < threshold && float64(to-times[last])/1000 < threshold
}

// place repeats so many samples before number i, which the bucket of both has there or earlier. It does not go past the start of a window: all samples after
// that are kept.
func (r *reducer) place(times []int64, i int, missing int64) {
	w := &r.windows
	for ; missing > 0 && i > 0; i-- {
		before, last := times[i-1], times[i]-1
		if start := w.Start - w.Range + floorDiv(last-w.Start+w.Range, w.Step)*w.Step; start > before {
			last = start
		}
		n := min(missing, max(0, last-before-r.repeats[i]))
		r.repeats[i] += n
		missing -= n
	}
}

func floorDiv(a, b int64) int64 {
	if q := a / b; a%b >= 0 {
		return q
	}
	return a/b - 1
}
