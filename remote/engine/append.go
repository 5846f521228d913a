package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// Series is what a writer sends of one series. Labels are sorted by name; an
// empty value is an absent label. The same label set may come more than once.
type Series struct {
	Labels  labels.Labels
	Samples []Sample
}

// Sample is a float64 at a time in milliseconds.
type Sample struct {
	T int64
	V float64
}

// Append stores the samples of batch and returns how many of them it has
// stored, confirmed. What can never be stored is added to rejected, which must
// not be nil; everything else is stored. An error means that the store did not
// confirm some of the rest: the writer may, and should, send it all again.
func (e *Engine) Append(ctx context.Context, tenant string, batch []Series, rejected *Rejected) (stored int, err error) {
	a := e.accept(tenant, batch, rejected)
	if len(a.samples) == 0 {
		return 0, nil
	}
	if err = e.index.Write(ctx, tenant, a.entries); err == nil {
		err = e.cfg.Appender.Append(ctx, a.samples)
	}
	stored = confirmed(len(a.samples), err)
	e.metrics.appended.WithLabelValues(resultOK).Add(float64(stored))
	e.metrics.appended.WithLabelValues(resultFailed).Add(float64(len(a.samples) - stored))
	if err != nil {
		return stored, err
	}
	e.newest.note(ctx, a.samples)
	return stored, nil
}

// confirmed returns how many of n samples are durable after err.
func confirmed(n int, err error) int {
	var failed *bucketstore.SamplesError
	switch {
	case err == nil:
		return n
	case errors.As(err, &failed):
		return n - len(failed.Failed)
	}
	return 0
}

// accepted is what is valid of a batch.
type accepted struct {
	samples []bucketstore.Sample
	entries []index.Entry
}

// accept keeps the valid samples of batch.
func (e *Engine) accept(tenant string, batch []Series, rejected *Rejected) accepted {
	n := 0
	for i := range batch {
		n += len(batch[i].Samples)
	}
	a := accepted{
		samples: make([]bucketstore.Sample, 0, n),
		entries: make([]index.Entry, 0, len(batch)),
	}
	maxTime := e.maxTime()
	var key []byte
	for i := range batch {
		s := Series{Labels: batch[i].Labels.WithoutEmpty(), Samples: batch[i].Samples}
		reason, err := checkLabels(s.Labels)
		if err == nil {
			key, err = e.cfg.Schema.AppendSeriesKey(key[:0], tenant, s.Labels)
			reason = keyReason(err)
		}
		if err != nil {
			rejected.Add(reason, len(s.Samples), err)
			continue
		}
		a.add(s, e.cfg.Appender.Ref(key), maxTime, rejected)
	}
	return a
}

// add takes the samples of one series that lie in [0, maxTime], and the index
// entries that they need: one for each period, with the newest time in it.
func (a *accepted) add(s Series, ref bucketstore.Ref, maxTime timeBound, rejected *Rejected) {
	first := len(a.entries)
	for _, sample := range s.Samples {
		if reason, err := maxTime.check(s.Labels, sample.T); err != nil {
			rejected.Add(reason, 1, err)
			continue
		}
		a.samples = append(a.samples, bucketstore.Sample{Ref: ref, T: sample.T, V: sample.V})
		last := len(a.entries) - 1
		if last >= first && series.PeriodOf(a.entries[last].T) == series.PeriodOf(sample.T) {
			a.entries[last].T = max(a.entries[last].T, sample.T)
			continue
		}
		a.entries = append(a.entries, index.Entry{Key: ref.SeriesKey(), Labels: s.Labels, T: sample.T})
	}
}

// checkLabels says what is wrong with a label set, if anything is.
func checkLabels(ls labels.Labels) (Reason, error) {
	if name, ok := ls.HasDuplicateLabelNames(); ok {
		return ReasonLabels, fmt.Errorf("series %s: label %q is there twice", series.Abbreviate(ls), name)
	}
	if !ls.Has(labels.MetricName) {
		return ReasonLabels, fmt.Errorf("series %s: no metric name", series.Abbreviate(ls))
	}
	if !ls.IsValid(model.UTF8Validation) {
		return ReasonLabels, fmt.Errorf("series %s: label names and values must be valid UTF-8, names not empty", series.Abbreviate(ls))
	}
	return "", nil
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

// check says what is wrong with the time of a sample, if anything is.
func (b timeBound) check(ls labels.Labels, t int64) (Reason, error) {
	switch {
	case t < 0 || t > series.MaxTime:
		return ReasonTime, fmt.Errorf("series %s: timestamp %d is not in [0, %d]", series.Abbreviate(ls), t, series.MaxTime)
	case t > b.t:
		return ReasonFuture, fmt.Errorf("series %s: timestamp %d is more than %s ahead of the clock", series.Abbreviate(ls), t, b.future)
	}
	return "", nil
}
