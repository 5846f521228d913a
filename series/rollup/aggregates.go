package rollup

import "math"

// An Aggregate is what another system keeps of the floats of a span of time, (After, To] in milliseconds, that lies in a bucket of each resolution.
type Aggregate struct {
	After, To int64
	// Samples is how many there are, at least one.
	Samples int64
	// Sum, Least and Greatest are those of all of them.
	Sum, Least, Greatest float64
	// Rise is by how much a counter rises up to the last one, from the last one of the aggregate before, or if HasFirst from the first one.
	// After a reset it rises from 0. HasRise says whether that is known.
	Rise    float64
	HasRise bool
	// First is the first one, at FirstTime, if HasFirst.
	First     float64
	FirstTime int64
	HasFirst  bool
	// Last is the last one, at To, if HasLast.
	Last    float64
	HasLast bool
}

// An AggregateEncoder makes the cells of days of aggregates of one series. It reuses its memory. The zero value has the day 0.
//
//	e.Begin(day)
//	e.Add(aggregate) // in order of time, those before the day included, as far as they are at hand
//	cell := e.Append(nil, resolution)
type AggregateEncoder struct {
	encoder Encoder
	day     int64
	spans   []aggregated
	// times and values are those of the samples that stand for the spans.
	times  []int64
	values []float64
	// last is the end of the last aggregate. Before 0 there is none.
	last int64
	// before is the value of the last sample that stands for it, which is true if isExact. least and greatest are its bounds.
	before          float64
	hasBefore       bool
	isExact         bool
	least, greatest float64
	// risen, if hasRisen, is what before would be if the counter had not begun again: it did once in the last one of spans.
	risen    float64
	hasRisen bool
}

// An aggregated is an Aggregate, with the samples that stand for it up to position limit.
type aggregated struct {
	to      int64
	limit   int
	samples int64
	sum     float64
	flags   int64
}

// Begin begins a day without samples, which is not before the last one.
func (e *AggregateEncoder) Begin(day int64) {
	e.day, e.hasRisen = day, false
	e.spans, e.times, e.values = e.spans[:0], e.times[:0], e.values[:0]
}

// Add adds an aggregate, as far as it lies after all before. It returns false if nothing is added: it has more samples than there is time, or is not of the day.
// One of before the day only tells from what a counter rises.
func (e *AggregateEncoder) Add(a Aggregate) bool {
	if a.After = max(a.After, e.last); a.To-a.After < max(a.Samples, 1) {
		return false
	}
	e.last = a.To
	values, isCounter, isExact := e.counter(&a)
	if !isCounter {
		values = gauge(&a)
		isExact = a.HasLast && values[len(values)-1] == a.Last
		e.join(&a, values)
	}
	e.before, e.hasBefore, e.isExact, e.least, e.greatest = values[len(values)-1], true, isExact, a.Least, a.Greatest
	if a.After < e.day || a.To > e.day+Day {
		e.hasRisen = false
		return false
	}
	span := aggregated{to: a.To, samples: a.Samples, sum: a.Sum, flags: flagNoCounts}
	if !isCounter {
		span.flags |= flagNoResets
	}
	if !(math.Abs(a.Least) <= maxSummed && math.Abs(a.Greatest) <= maxSummed) {
		span.sum, span.flags = 0, span.flags|flagNoSum
	}
	e.times, e.values = appendTimes(e.times, &a, len(values)), append(e.values, values...)
	span.limit = len(e.times)
	e.spans = append(e.spans, span)
	return true
}

// join lets a gauge go from its mean in the last aggregate to that in a, of which these are the values.
func (e *AggregateEncoder) join(a *Aggregate, values []float64) {
	n := len(e.spans) - 1
	if a.HasFirst || len(values) < 4 || !e.hasBefore || e.isExact || n < 0 || e.spans[n].to != a.After {
		return
	}
	between := (e.before + values[0]) / 2
	values[0] = a.within(between)
	e.values[len(e.values)-1] = min(max(between, e.least), e.greatest)
}

// Append appends the cell at a resolution. Of no aggregates it appends nothing.
func (e *AggregateEncoder) Append(dst []byte, r Resolution) []byte {
	e.encoder.begin()
	first := 0
	for spans := e.spans; len(spans) > 0; {
		start := r.Start(spans[0].to)
		n := 1
		for n < len(spans) && spans[n].to <= start+r.Span() {
			n++
		}
		limit := spans[n-1].limit
		e.encoder.addAggregates(r, e.day, start, spans[:n], e.times[first:limit], e.values[first:limit])
		spans, first = spans[n:], limit
	}
	return e.encoder.end(dst, kindAggregates)
}

// addAggregates adds the bucket that begins at start, of samples that stand for spans. There is one at least.
func (e *Encoder) addAggregates(r Resolution, day, start int64, spans []aggregated, ts []int64, vs []float64) {
	b := bucketOf(vs)
	var flags int64
	if !e.choose(&b, vs, table[r].maxResets) {
		flags |= flagNoResets
	}
	b.samples, b.sum, b.changes, b.resets = 0, 0, 0, nil
	for _, s := range spans {
		b.samples += int(s.samples)
		b.sum += s.sum
		flags |= s.flags
	}
	if flags&flagNoSum != 0 {
		b.sum = 0
	}
	e.addKept(r, day, start, flags, &b, ts, vs)
}

// appendTimes appends the times of n samples that stand for those of a, which lie evenly in it.
func appendTimes(ts []int64, a *Aggregate, n int) []int64 {
	first := len(ts)
	span := a.To - a.After
	all := max(int64(n), min(a.Samples, span/2))
	for i := range int64(n) {
		at := all / 2
		if n > 1 {
			at = i * (all - 1) / int64(n-1)
		}
		ts = append(ts, a.After+max(i+1, span*(2*at+1)/(2*all)))
	}
	if last := len(ts) - 1; a.HasLast {
		ts[last] = a.To
	}
	if a.HasFirst && a.FirstTime > a.After && (n == 1 && !a.HasLast || n > 1 && a.FirstTime < ts[first+1]) {
		ts[first] = a.FirstTime
	}
	return ts
}

// counter returns the values of samples that stand for a if that may be of a counter: the least and the greatest are among them, and they rise by as much from
// the last one of the aggregate before. isExact says that the last value is that of the last sample.
func (e *AggregateEncoder) counter(a *Aggregate) (values []float64, isCounter, isExact bool) {
	hadRisen := e.hasRisen
	e.hasRisen = false
	if a.Samples == 1 {
		return []float64{a.Greatest}, true, true
	}
	from := e.before
	switch {
	case !a.HasRise || !a.HasFirst && !e.hasBefore:
		return nil, false, false
	case a.HasFirst:
		from = a.First
	case !e.isExact: // what it rises from if it does not begin again
		if guess := a.Greatest - a.Rise; guess >= e.least && guess <= e.greatest && guess <= a.Least+a.rounding(guess) {
			if from = guess; hadRisen {
				e.correct(guess)
			}
		}
	}
	if values, isExact = a.rising(from); values != nil {
		return values, true, isExact
	}
	if !a.HasFirst && from > a.Greatest { // it begins again before the first sample, and later
		from = 0
	}
	if values, e.hasRisen = a.falling(from); values == nil && hadRisen && !a.HasFirst {
		if values, e.hasRisen = a.falling(e.greatest); values != nil {
			from = e.greatest
			e.correct(from)
		}
	}
	if e.risen = a.Rise + from; values == nil {
		values = a.fallingOften(from)
	}
	return values, values != nil, false
}

// rounding is how far a sum of what a counter rises by may be from a value.
func (a *Aggregate) rounding(v float64) float64 {
	return 1e-9 * max(math.Abs(a.Greatest), math.Abs(v))
}

// rising returns the values of a counter that does not begin again, or only before the first sample. They are nil if it does.
func (a *Aggregate) rising(from float64) (values []float64, isExact bool) {
	rounding := a.rounding(from)
	isOn := from <= a.Least+rounding && math.Abs(a.Rise-(a.Greatest-from)) <= rounding
	isAnew := !a.HasFirst && a.Least < from && math.Abs(a.Rise-a.Greatest) <= rounding
	if isOn || isAnew {
		return []float64{a.Least, a.Greatest}, true
	}
	return nil, false
}

// falling returns the values of a counter that begins again once, after the greatest one. They are nil if it does not. The last one may be another one, as
// the next aggregate tells, if it is not the least.
func (a *Aggregate) falling(from float64) (values []float64, mayDiffer bool) {
	rounding := a.rounding(from)
	last := a.Rise + from - a.Greatest
	if a.Greatest == a.Least || last > a.Greatest || last < a.Least-rounding {
		return nil, false
	}
	// Where the last sample is the least or the first one the greatest, these are the same.
	first := max(from, a.Least)
	values = []float64{first, a.Greatest, a.Least, max(last, a.Least)}
	if mayDiffer = last > a.Least+rounding; !mayDiffer {
		values = values[:3]
	}
	if first >= a.Greatest-rounding || !a.HasFirst && int64(len(values)) > a.Samples {
		values = values[1:]
	}
	if int64(len(values)) > a.Samples {
		return nil, false
	}
	return values, mayDiffer
}

// maxFalls is how often a counter may begin again in an aggregate. Of one that does more often only the bounds and the sum are taken.
const maxFalls = 8

// fallingOften returns the values of a counter that begins again several times. It rises to the greatest value first, and then each time to the same one; the last
// one is the mean. They are nil if these do not fit.
func (a *Aggregate) fallingOften(from float64) (values []float64) {
	mean := a.mean()
	peaks := a.Rise + from - mean // their sum
	falls := math.Ceil(peaks / a.Greatest)
	if !(a.Least >= 0 && falls >= 2 && falls <= maxFalls && 2*falls+2 <= float64(a.Samples)) {
		return nil
	}
	peak := (peaks - a.Greatest) / (falls - 1)
	if peak <= a.Least {
		return nil
	}
	values = []float64{max(from, a.Least), a.Greatest, a.Least}
	for range int(falls) - 1 {
		values = append(values, peak, a.Least)
	}
	return append(values, mean)
}

// correct makes last the last value of the aggregate before, in which a counter began again once.
func (e *AggregateEncoder) correct(last float64) {
	n := len(e.values)
	e.values[n-1] = last
	if math.Abs(last-e.greatest) <= 1e-9*math.Abs(e.greatest) { // then another one stood before the reset
		e.values[n-1], e.values[n-3] = e.greatest, min(max(e.risen-last, e.least), e.greatest)
	}
}

// mean returns the mean of the samples, or where it has none the greatest one.
func (a *Aggregate) mean() float64 { return a.within(a.Sum / float64(a.Samples)) }

// within returns the nearest value between the least and the greatest one.
func (a *Aggregate) within(v float64) float64 {
	if math.IsNaN(v) {
		return a.Greatest
	}
	return min(max(v, a.Least), a.Greatest)
}

// gauge returns the values of samples that stand for a: the least, the greatest, and before and after them their mean, or where these are known the first and
// the last one.
func gauge(a *Aggregate) []float64 {
	least, greatest := a.Least, a.Greatest
	switch a.Samples {
	case 1:
		return []float64{greatest}
	case 2:
		if a.HasFirst && a.First == greatest || a.HasLast && a.Last == least {
			return []float64{greatest, least}
		}
		return []float64{least, greatest}
	case 3:
		return []float64{least, greatest, a.within(a.Sum - least - greatest)}
	}
	mean := a.mean()
	values := []float64{mean, least, greatest, mean}
	if a.HasFirst {
		values[0] = a.First
	}
	if a.HasLast {
		values[3] = a.Last
	}
	return values
}
