package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/series"
)

// Series is what a writer sends of one series. Labels are sorted by name; an
// empty value is an absent label. The same label set may come more than once.
type Series struct {
	Labels labels.Labels
	// Cached, if set, is what Lookup has found; then Labels are not looked at.
	Cached *CachedSeries
	// WireText, if it has a form, is what Labels were decoded from: Lookup will find
	// it once the series is stored.
	WireText   WireText
	Samples    []Sample
	Histograms []Histogram
	// Exemplars have their labels sorted by name.
	Exemplars []exemplar.Exemplar
}

// size is how many things s has.
func (s *Series) size() int { return len(s.Samples) + len(s.Histograms) + len(s.Exemplars) }

// Sample is a float64 at a time in milliseconds.
type Sample struct {
	T int64
	V float64
	// ST is since when V has been counted, in milliseconds. 0 is unknown.
	ST int64
}

// Histogram is a native histogram at a time in milliseconds: one of H and FH.
// At one time a histogram wins over a sample of the same Series.
type Histogram struct {
	T int64
	// ST is since when it has been counted, in milliseconds. 0 is unknown.
	ST int64
	H  *histogram.Histogram
	FH *histogram.FloatHistogram
}

// Stored counts what is stored, confirmed.
type Stored struct {
	Samples, Histograms, Exemplars int
}

// Total is how many things are stored.
func (s Stored) Total() int { return s.Samples + s.Histograms + s.Exemplars }

// Append stores what is in batch and counts what it has stored, confirmed. What
// can never be stored is added to rejected, which must not be nil; everything
// else is stored. An error means that the store did not confirm some of the
// rest: the writer may, and should, send it all again. Append may change the
// histograms in batch, but keeps no reference to it.
//
// With HA on, what comes from a replica that is not elected is not stored and
// counts as if it were: the sender must not think that it has failed.
func (e *Engine) Append(ctx context.Context, tenant string, batch []Series, rejected *Rejected) (stored Stored, err error) {
	kept, deduplicated, err := e.deduplicate(ctx, tenant, batch, rejected)
	if err == nil {
		stored, err = e.appendKept(ctx, tenant, kept, rejected)
	}
	return stored.plus(deduplicated), err
}

// AppendMetadata stores metadata, of several entries of one family the last. Those
// that can never be stored go to rejected. An error means that the rest may not be
// stored; the writer may, and should, send it again.
func (e *Engine) AppendMetadata(ctx context.Context, tenant string, batch []Metadata, rejected *Rejected) error {
	return e.metadata.Append(ctx, tenant, batch, func(err error) { rejected.Add(ReasonMetadata, 1, err) })
}

// appendKept is Append without HA.
func (e *Engine) appendKept(ctx context.Context, tenant string, batch []Series, rejected *Rejected) (stored Stored, err error) {
	a := e.borrow()
	if err = e.accept(ctx, a, tenant, batch, rejected); err != nil {
		return stored, err
	}
	if len(a.samples)+len(a.exemplars) > 0 {
		stored, err = e.store(ctx, tenant, a)
	}
	if err == nil {
		e.giveBack(a)
	}
	return stored, err
}

// store stores what is accepted.
func (e *Engine) store(ctx context.Context, tenant string, a *accepted) (stored Stored, err error) {
	if err = e.writeIndex(ctx, tenant, a); err == nil {
		err = e.cfg.Appender.Append(ctx, a.samples)
	}
	stored = a.confirmed(err)
	if err == nil {
		stored.Exemplars, err = e.appendExemplars(ctx, a.exemplars)
	}
	e.metrics.appended.WithLabelValues(resultOK).Add(float64(stored.Total()))
	e.metrics.appended.WithLabelValues(resultFailed).Add(float64(len(a.samples) + len(a.exemplars) - stored.Total()))
	if err != nil {
		return stored, err
	}
	e.current.Add(a.samples, a.handles)
	for _, c := range a.fresh {
		e.cache.Add(c)
	}
	return stored, nil
}

// writeIndex sees to it that what is accepted can be found.
func (e *Engine) writeIndex(ctx context.Context, tenant string, a *accepted) error {
	if len(a.entries) == 0 {
		return nil
	}
	if err := e.index.Write(ctx, tenant, a.entries); err != nil {
		return err
	}
	for i, c := range a.entryOf {
		if c != nil {
			c.State.indexed.add(a.entries[i].T)
		}
	}
	return nil
}

// accepted is what Append stores: samples in the order in which they came, and
// the index entries that must be there before.
type accepted struct {
	samples []bucketstore.Sample
	// handles has for each of samples that of its series in the current table, or nil.
	handles   []*current.Handle
	exemplars []acceptedExemplar
	entries   []index.Entry
	// entryOf has for each of entries its series, or nil.
	entryOf []*CachedSeries
	// fresh are those of them to be cached once all is stored.
	fresh []*CachedSeries
	// histograms is how many of samples are histograms.
	histograms int
	// values holds the encoded values of samples.
	values []byte
	// key is scratch space.
	key []byte
}

// borrow returns memory for a batch.
func (e *Engine) borrow() *accepted {
	if a, ok := e.accepted.Get().(*accepted); ok {
		return a
	}
	return new(accepted)
}

// Memory that is used again may have room for so many samples, and for so many
// bytes of values.
const (
	maxPooledSamples = 40_000
	maxPooledValues  = 4 << 20
)

// giveBack ends the use of a, to which nothing refers any more.
func (e *Engine) giveBack(a *accepted) {
	if cap(a.samples) > maxPooledSamples || cap(a.entries) > maxPooledSamples || cap(a.values) > maxPooledValues {
		return
	}
	clear(a.samples)
	clear(a.handles)
	clear(a.entries)
	clear(a.entryOf)
	clear(a.fresh)
	*a = accepted{
		samples: a.samples[:0], handles: a.handles[:0], entries: a.entries[:0], entryOf: a.entryOf[:0],
		fresh: a.fresh[:0], values: a.values[:0], key: a.key[:0],
	}
	e.accepted.Put(a)
}

// confirmed counts the samples that the error of an Append leaves confirmed.
func (a *accepted) confirmed(err error) (stored Stored) {
	if err == nil {
		return Stored{Samples: len(a.samples) - a.histograms, Histograms: a.histograms}
	}
	var failed *bucketstore.SamplesError
	if !errors.As(err, &failed) {
		return stored
	}
	stored = a.confirmed(nil)
	for _, i := range failed.Failed {
		if series.IsHistogram(a.samples[i].Value) {
			stored.Histograms--
		} else {
			stored.Samples--
		}
	}
	return stored
}

// acceptStep is after how many series and samples accept looks whether anybody
// still waits for it.
const acceptStep = 10_000

// accept puts what is valid in batch into a. The only error is that of ctx.
func (e *Engine) accept(ctx context.Context, a *accepted, tenant string, batch []Series, rejected *Rejected) error {
	n := 0
	for i := range batch {
		n += len(batch[i].Samples) + len(batch[i].Histograms)
	}
	a.samples, a.handles = slices.Grow(a.samples, n), slices.Grow(a.handles, n)
	maxTime := e.maxTime()
	step := acceptStep // at once
	for i := range batch {
		if step += 1 + batch[i].size(); step > acceptStep {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("check %d samples: %w", n, err)
			}
			step = 0
		}
		if c := batch[i].Cached; c != nil {
			a.addSeries(&batch[i], c.State.ref, c, maxTime, rejected)
		} else {
			e.acceptNew(a, tenant, batch[i], maxTime, rejected)
		}
	}
	return nil
}

// acceptNew accepts what is valid of a series that is not cached.
func (e *Engine) acceptNew(a *accepted, tenant string, s Series, maxTime timeBound, rejected *Rejected) {
	s.Labels = s.Labels.WithoutEmpty()
	reason, err := checkLabels(s.Labels)
	if err == nil {
		a.key, err = e.cfg.Schema.AppendSeriesKey(a.key[:0], tenant, s.Labels)
		reason = keyReason(err)
	}
	if err != nil {
		rejected.Add(reason, s.size(), err)
		return
	}
	ref := e.cfg.Appender.Ref(a.key)
	cached := e.newCached(tenant, s.WireText, ref)
	if a.addSeries(&s, ref, cached, maxTime, rejected) && cached != nil {
		a.fresh = append(a.fresh, cached)
	}
}

// addSeries takes what is valid of one series and lies in [0, maxTime], and the index
// entries for it, and says whether that is anything. cached may be nil; if s came
// with it, the labels of s are not used.
func (a *accepted) addSeries(s *Series, ref bucketstore.Ref, cached *CachedSeries, maxTime timeBound, rejected *Rejected) bool {
	samples, exemplars := len(a.samples), len(a.exemplars)
	to := addition{accepted: a, series: s, ref: ref, first: len(a.entries)}
	if cached != nil {
		to.cached, to.handle = cached, &cached.State.current
	}
	for i := range s.Samples {
		sample := &s.Samples[i]
		if !maxTime.allows(s, sample.T, rejected) {
			continue
		}
		var value []byte
		if sample.ST != 0 {
			value = a.encode(series.Value{Start: sample.ST, Float: sample.V})
		}
		to.takeSample(sample.T, sample.V, value)
	}
	for i := range s.Histograms {
		to.takeHistogram(&s.Histograms[i], maxTime, rejected)
	}
	for _, x := range s.Exemplars {
		to.takeExemplar(x, maxTime, rejected)
	}
	return len(a.samples) > samples || len(a.exemplars) > exemplars
}

// DecodedLabels returns the labels of s, decoded from the key of the series if s has
// none.
func (s *Series) DecodedLabels() labels.Labels {
	if s.Cached != nil {
		return s.Cached.State.Labels()
	}
	return s.Labels
}

// addition is what is accepted of one series.
type addition struct {
	*accepted
	series *Series
	ref    bucketstore.Ref
	// cached and handle are nil if the series is not cached.
	cached *CachedSeries
	handle *current.Handle
	// first is the first of its entries.
	first int
}

// takeSample takes a sample.
func (a *addition) takeSample(t int64, v float64, value []byte) {
	a.samples = append(a.samples, bucketstore.Sample{Ref: a.ref, T: t, V: v, Value: value})
	a.handles = append(a.handles, a.handle)
	a.addEntry(t)
}

// takeHistogram takes a histogram, if it is valid.
func (a *addition) takeHistogram(h *Histogram, maxTime timeBound, rejected *Rejected) {
	if !maxTime.allows(a.series, h.T, rejected) {
		return
	}
	value, err := a.histogram(h)
	if err != nil {
		rejected.Add(ReasonHistogram, 1, histogramError{a.series.DecodedLabels(), h.T, err})
		return
	}
	a.histograms++
	a.takeSample(h.T, 0, value)
}

// takeExemplar takes an exemplar, if it is valid.
func (a *addition) takeExemplar(x exemplar.Exemplar, maxTime timeBound, rejected *Rejected) {
	if err := checkExemplar(x); err != nil {
		rejected.Add(ReasonExemplar, 1, exemplarError{a.series.DecodedLabels(), x, err})
		return
	}
	if maxTime.allows(a.series, x.Ts, rejected) {
		a.exemplars = append(a.exemplars, acceptedExemplar{a.ref, x})
		a.addEntry(x.Ts)
	}
}

// addEntry adds the index entry for a sample or exemplar at t, unless the index has
// it, or the last one is of the same period. An entry has the latest time in its
// period.
func (a *addition) addEntry(t int64) {
	if a.cached != nil && a.cached.State.indexed.has(t) {
		return
	}
	if n := len(a.entries); n == a.first || series.PeriodOf(a.entries[n-1].T) != series.PeriodOf(t) {
		a.entries = append(a.entries, index.Entry{Key: a.ref.SeriesKey(), Labels: a.series.DecodedLabels(), T: t})
		a.entryOf = append(a.entryOf, a.cached)
	} else if t > a.entries[n-1].T {
		a.entries[n-1].T = t
	}
}

// encode returns v as the value of a cell.
func (a *accepted) encode(v series.Value) []byte {
	first := len(a.values)
	a.values = series.AppendValue(a.values, v)
	return a.values[first:len(a.values):len(a.values)]
}

// checkLabels says what is wrong with a label set, if anything is.
func checkLabels(ls labels.Labels) (Reason, error) {
	if name, ok := ls.HasDuplicateLabelNames(); ok {
		return ReasonLabels, labelsError{ls, fmt.Sprintf("label %q is there twice", name)}
	}
	if !ls.Has(labels.MetricName) {
		return ReasonLabels, labelsError{ls, "no metric name"}
	}
	if !ls.IsValid(model.UTF8Validation) {
		return ReasonLabels, labelsError{ls, "label names and values must be valid UTF-8, names not empty"}
	}
	return "", nil
}

// labelsError says what is wrong with a label set. It formats itself late: most
// of a million of them are only counted.
type labelsError struct {
	ls   labels.Labels
	what string
}

func (e labelsError) Error() string {
	return fmt.Sprintf("series %s: %s", series.Abbreviate(e.ls), e.what)
}

func keyReason(err error) Reason {
	if errors.Is(err, series.ErrKeyTooLong) {
		return ReasonKeyTooLong
	}
	return ReasonLabels
}

// timeBound is the newest time that is stored, inclusive.
type timeBound struct {
	t      int64
	future time.Duration
}

func (e *Engine) maxTime() timeBound {
	future := e.cfg.MaxFuture
	if future <= 0 {
		return timeBound{series.MaxTime, 0}
	}
	return timeBound{min(e.cfg.Now().Add(future).UnixMilli(), series.MaxTime), future}
}

// allows says whether t is a time for something of s. If not, it is rejected.
func (b timeBound) allows(s *Series, t int64, rejected *Rejected) bool {
	if t >= 0 && t <= b.t {
		return true
	}
	reason := b.check(t)
	if reason != "" {
		rejected.Add(reason, 1, timeError{reason, b, s.DecodedLabels(), t})
	}
	return reason == ""
}

// check says what is wrong with the time of a sample, if anything is.
func (b timeBound) check(t int64) Reason {
	switch {
	case t < 0 || t > series.MaxTime:
		return ReasonTime
	case t > b.t:
		return ReasonFuture
	}
	return ""
}

// timeError is what check found, for a person. It formats itself late, like
// labelsError.
type timeError struct {
	reason Reason
	bound  timeBound
	ls     labels.Labels
	t      int64
}

func (e timeError) Error() string {
	if e.reason == ReasonFuture {
		return fmt.Sprintf("series %s: timestamp %d is more than %s ahead of the clock", series.Abbreviate(e.ls), e.t, e.bound.future)
	}
	return fmt.Sprintf("series %s: timestamp %d is not in [0, %d]", series.Abbreviate(e.ls), e.t, series.MaxTime)
}
