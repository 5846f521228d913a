package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// Series is what a writer sends of one series. Labels are sorted by name; an
// empty value is an absent label. The same label set may come more than once.
type Series struct {
	Labels     labels.Labels
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
	kept, deduplicated, err := e.replicas.filter(ctx, tenant, batch, rejected)
	if err == nil {
		stored, err = e.appendKept(ctx, tenant, kept, rejected)
	}
	return stored.plus(deduplicated), err
}

// appendKept is Append without HA.
func (e *Engine) appendKept(ctx context.Context, tenant string, batch []Series, rejected *Rejected) (stored Stored, err error) {
	a, err := e.accept(ctx, tenant, batch, rejected)
	if err != nil || len(a.entries) == 0 {
		return stored, err
	}
	if err = e.index.Write(ctx, tenant, a.entries); err == nil {
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
	e.newest.note(a.samples)
	return stored, nil
}

// accepted is what Append stores: samples in the order in which they came, and
// the index entries that must be there before.
type accepted struct {
	samples   []bucketstore.Sample
	exemplars []acceptedExemplar
	entries   []index.Entry
	// histograms is how many of samples are histograms.
	histograms int
	// values holds the encoded values of samples.
	values []byte
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

// accept keeps what is valid in batch. The only error is that of ctx.
func (e *Engine) accept(ctx context.Context, tenant string, batch []Series, rejected *Rejected) (accepted, error) {
	n := 0
	for i := range batch {
		n += len(batch[i].Samples) + len(batch[i].Histograms)
	}
	a := accepted{
		samples: make([]bucketstore.Sample, 0, n),
		entries: make([]index.Entry, 0, len(batch)),
	}
	maxTime := e.maxTime()
	var key []byte
	step := acceptStep // at once
	for i := range batch {
		if step += 1 + batch[i].size(); step > acceptStep {
			if err := ctx.Err(); err != nil {
				return accepted{}, fmt.Errorf("check %d samples: %w", n, err)
			}
			step = 0
		}
		s := batch[i]
		s.Labels = s.Labels.WithoutEmpty()
		reason, err := checkLabels(s.Labels)
		if err == nil {
			key, err = e.cfg.Schema.AppendSeriesKey(key[:0], tenant, s.Labels)
			reason = keyReason(err)
		}
		if err != nil {
			rejected.Add(reason, s.size(), err)
			continue
		}
		a.add(s, e.cfg.Appender.Ref(key), maxTime, rejected)
	}
	return a, nil
}

// add takes what is valid of one series and lies in [0, maxTime], and the index
// entries for it.
func (a *accepted) add(s Series, ref bucketstore.Ref, maxTime timeBound, rejected *Rejected) {
	first := len(a.entries)
	for _, sample := range s.Samples {
		if !maxTime.allows(s.Labels, sample.T, rejected) {
			continue
		}
		var value []byte
		if sample.ST != 0 {
			value = a.encode(series.Value{Start: sample.ST, Float: sample.V})
		}
		a.samples = append(a.samples, bucketstore.Sample{Ref: ref, T: sample.T, V: sample.V, Value: value})
		a.need(first, s.Labels, ref, sample.T)
	}
	for i := range s.Histograms {
		h := &s.Histograms[i]
		if !maxTime.allows(s.Labels, h.T, rejected) {
			continue
		}
		value, err := a.histogram(h)
		if err != nil {
			rejected.Add(ReasonHistogram, 1, histogramError{s.Labels, h.T, err})
			continue
		}
		a.samples = append(a.samples, bucketstore.Sample{Ref: ref, T: h.T, Value: value})
		a.histograms++
		a.need(first, s.Labels, ref, h.T)
	}
	for _, x := range s.Exemplars {
		if err := checkExemplar(x); err != nil {
			rejected.Add(ReasonExemplar, 1, exemplarError{s.Labels, x, err})
			continue
		}
		if !maxTime.allows(s.Labels, x.Ts, rejected) {
			continue
		}
		a.exemplars = append(a.exemplars, acceptedExemplar{ref, x})
		a.need(first, s.Labels, ref, x.Ts)
	}
}

// need adds the index entry for something at t, unless the last one since first
// is of the same period. An entry has the newest time in its period.
func (a *accepted) need(first int, ls labels.Labels, ref bucketstore.Ref, t int64) {
	if n := len(a.entries); n == first || series.PeriodOf(a.entries[n-1].T) != series.PeriodOf(t) {
		a.entries = append(a.entries, index.Entry{Key: ref.SeriesKey(), Labels: ls, T: t})
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
	future := e.cfg.Limits.MaxFuture
	if future <= 0 {
		return timeBound{math.MaxInt64, 0}
	}
	return timeBound{e.cfg.Now().Add(future).UnixMilli(), future}
}

// allows says whether t is a time for something of ls. If not, it is rejected.
func (b timeBound) allows(ls labels.Labels, t int64, rejected *Rejected) bool {
	reason := b.check(t)
	if reason != "" {
		rejected.Add(reason, 1, timeError{reason, b, ls, t})
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
