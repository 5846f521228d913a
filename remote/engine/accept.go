package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// WriteLimits bound what senders write.
type WriteLimits interface {
	// Admit counts a batch. Its error refuses all of it, and the sender should send it again.
	Admit(batch []ingest.Series) error
	// Relabelling returns what changes labels, or nil. It returns another one when that changes.
	Relabelling() *ingest.Relabelling
	// CheckLabels returns an error if a series is never to be stored. Series that are cached are not checked again.
	CheckLabels(ls labels.Labels) error
	index.Limits
}

// noLimits are the WriteLimits that allow all.
type noLimits struct{}

func (noLimits) Admit([]ingest.Series) error       { return nil }
func (noLimits) Relabelling() *ingest.Relabelling  { return nil }
func (noLimits) CheckLabels(labels.Labels) error   { return nil }
func (noLimits) Limited() bool                     { return false }
func (noLimits) AdmitSeries(index.NewSeries) error { return nil }
func (noLimits) Counted(index.NewSeries)           {}

// acceptStep is after how many series and samples accept looks whether its context
// has ended.
const acceptStep = 10_000

// maxStall is how long samples may take to be stored before rules are asked again. The walk of rules waits for longer
// between the time when it closes a day and the last rollups of that.
const maxStall = 5 * time.Minute

// accept puts what is valid in batch into a. An error is that of ctx, or of the clock.
func (e *Engine) accept(ctx context.Context, a *accepted, batch []ingest.Series, rejected *ingest.Rejected) error {
	n := 0
	for i := range batch {
		n += len(batch[i].Samples) + len(batch[i].Histograms)
	}
	bound, err := e.cfg.boundOfRules(ctx, e.cfg.Now(), batch)
	if err != nil {
		return err
	}
	if err := e.checkClock(batch, n, bound); err != nil {
		return err
	}
	a.bound = bound
	a.samples, a.handles = slices.Grow(a.samples, n), slices.Grow(a.handles, n)
	step := acceptStep // at once
	for i := range batch {
		if step += 1 + batch[i].Size(); step > acceptStep {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("check %d samples: %w", n, err)
			}
			step = 0
		}
		if batch[i].Cached != nil {
			c := batch[i].Cached.(*cachedSeries)
			a.addSeries(&batch[i], c.ref, c, bound, rejected)
		} else {
			e.acceptNew(a, batch[i], bound, rejected)
		}
	}
	return nil
}

// acceptNew accepts what is valid of a series that is not cached.
func (e *Engine) acceptNew(a *accepted, s ingest.Series, bound timeBound, rejected *ingest.Rejected) {
	s.Labels = s.Labels.WithoutEmpty()
	rules := e.relabelling()
	reason, err := checkLabels(s.Labels)
	if err == nil && rules != nil {
		var keep bool
		if s.Labels, keep = rules.Apply(s.Labels, s.Size()); !keep {
			return
		}
		reason, err = checkLabels(s.Labels)
	}
	if err == nil {
		reason, err = ingest.ReasonLimit, e.cfg.WriteLimits.CheckLabels(s.Labels)
	}
	if err == nil {
		a.key, err = e.cfg.Schema.AppendSeriesKey(a.key[:0], s.Labels)
		reason = keyReason(err)
	}
	if err != nil {
		rejected.Add(reason, s.Size(), err)
		return
	}
	ref := e.cfg.Appender.Ref(a.key)
	cached := e.newCached(s.WireText, ref, rules)
	if a.addSeries(&s, ref, cached, bound, rejected) && cached != nil {
		a.fresh = append(a.fresh, cached)
	}
}

// addSeries takes what is valid of one series and lies in bound, and the index
// entries for it, and says whether that is anything. cached may be nil; if s came
// with it, the labels of s are not used.
func (a *accepted) addSeries(s *ingest.Series, ref bucketstore.Ref, cached *cachedSeries, bound timeBound, rejected *ingest.Rejected) bool {
	samples, exemplars := len(a.samples), len(a.exemplars)
	bound = bound.of(s)
	to := addition{accepted: a, series: s, ref: ref, first: len(a.entries)}
	if cached != nil {
		to.cached, to.handle = cached, &cached.current
	}
	for i := range s.Samples {
		sample := &s.Samples[i]
		if !bound.allows(s, sample.T, rejected) {
			continue
		}
		var value []byte
		if sample.ST != 0 {
			value = a.encode(cell.Value{Start: sample.ST, Float: sample.V})
		}
		to.takeSample(sample.T, sample.V, value)
	}
	for i := range s.Histograms {
		to.takeHistogram(&s.Histograms[i], bound, rejected)
	}
	for _, x := range s.Exemplars {
		to.takeExemplar(x, bound, rejected)
	}
	return len(a.samples) > samples || len(a.exemplars) > exemplars
}

// addition is what is accepted of one series.
type addition struct {
	*accepted
	series *ingest.Series
	ref    bucketstore.Ref
	// cached and handle are nil if the series is not cached.
	cached *cachedSeries
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
func (a *addition) takeHistogram(h *ingest.Histogram, bound timeBound, rejected *ingest.Rejected) {
	if !bound.allows(a.series, h.T, rejected) {
		return
	}
	value, err := a.histogram(h)
	if err != nil {
		rejected.Add(ingest.ReasonHistogram, 1, histogramError{a.series.DecodedLabels(), h.T, err})
		return
	}
	a.histograms++
	a.takeSample(h.T, 0, value)
}

// takeExemplar takes an exemplar, if it is valid.
func (a *addition) takeExemplar(x exemplar.Exemplar, bound timeBound, rejected *ingest.Rejected) {
	if err := checkExemplar(x); err != nil {
		rejected.Add(ingest.ReasonExemplar, 1, exemplarError{a.series.DecodedLabels(), x, err})
		return
	}
	if bound.allows(a.series, x.Ts, rejected) {
		a.exemplars = append(a.exemplars, acceptedExemplar{a.ref, x})
		a.addEntry(x.Ts)
	}
}

// addEntry adds the index entry for a sample or exemplar at t, unless the index has
// it. If the last entry is of the same period, it moves that entry to the later of
// both times.
func (a *addition) addEntry(t int64) {
	if a.cached != nil && a.cached.indexed.has(t) {
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
func (a *accepted) encode(v cell.Value) []byte {
	first := len(a.values)
	a.values = cell.Append(a.values, v)
	return a.values[first:len(a.values):len(a.values)]
}

// checkLabels says what is wrong with a label set, if anything is.
func checkLabels(ls labels.Labels) (ingest.Reason, error) {
	if name, ok := ls.HasDuplicateLabelNames(); ok {
		return ingest.ReasonLabels, labelsError{ls, fmt.Sprintf("label %q is there twice", name)}
	}
	if !ls.Has(labels.MetricName) {
		return ingest.ReasonLabels, labelsError{ls, "no metric name"}
	}
	if !ls.IsValid(model.UTF8Validation) {
		return ingest.ReasonLabels, labelsError{ls, "label names and values must be valid UTF-8, names not empty"}
	}
	return "", nil
}

// labelsError says what is wrong with a label set. It makes its text only
// when Error is called: most of a million of them are only counted.
type labelsError struct {
	ls   labels.Labels
	what string
}

func (e labelsError) Error() string {
	return fmt.Sprintf("series %s: %s", series.Abbreviate(e.ls), e.what)
}

func keyReason(err error) ingest.Reason {
	if errors.Is(err, series.ErrKeyTooLong) {
		return ingest.ReasonKeyTooLong
	}
	return ingest.ReasonLabels
}

// timeBound is the times that are stored, from the cut to t, both inclusive.
type timeBound struct {
	cut, t int64
	future time.Duration
	// rules cut more of some series, if set. rule is the one that has set cut.
	rules timeline.Rules
	rule  string
}

// boundOfRules is timeBound with what rules cut of a batch.
func (cfg *Config) boundOfRules(ctx context.Context, now time.Time, batch []ingest.Series) (b timeBound, err error) {
	v := cfg.Timeline(now)
	b = cfg.timeBound(v)
	rules, err := v.Rules(ctx, cfg.Schema.Tenant(), func() int64 {
		oldest := int64(math.MaxInt64)
		for i := range batch {
			oldest = min(oldest, batch[i].Oldest())
		}
		return oldest
	})
	if err == nil && rules.LatestRefused() > b.cut {
		b.rules = rules
	}
	return b, err
}

// checkStall returns an error if rules have closed the day of something in batch while it was stored, since started: it may be in no
// rollup, and is removed.
func (e *Engine) checkStall(ctx context.Context, started time.Time, bound timeBound, batch []ingest.Series) error {
	now := e.cfg.Now()
	if bucketstore.Elapsed(started, now) < maxStall {
		return nil
	}
	after, err := e.cfg.boundOfRules(ctx, now, batch)
	if err != nil || after.rules == nil {
		return err
	}
	for i := range batch {
		s := &batch[i]
		if s.Oldest() >= after.rules.LatestRefused() {
			continue
		}
		closed, rule := after.rules.Refused(s.DecodedLabels())
		if from := bound.of(s).cut; s.HasIn(from, closed) {
			return fmt.Errorf("series %s: samples before %d were closed while they were stored, see --retention.rules, %s", series.Abbreviate(s.DecodedLabels()), closed, rule)
		}
	}
	return nil
}

// of returns the bound of s. Rules are asked if s has something so old: of most requests nothing is.
func (b timeBound) of(s *ingest.Series) timeBound {
	if b.rules == nil || s.Oldest() >= b.rules.LatestRefused() {
		return b
	}
	if cut, rule := b.rules.Refused(s.DecodedLabels()); cut > b.cut {
		b.cut, b.rule = cut, rule
	}
	return b
}

// timeBound returns the bound of all series.
func (cfg *Config) timeBound(v *timeline.View) timeBound {
	b := timeBound{t: series.MaxTime, future: cfg.MaxFuture, cut: v.Writable}
	if cfg.MaxFuture != Unbounded {
		b.t = min(v.Now.Add(cfg.MaxFuture).UnixMilli(), series.MaxTime)
	}
	return b
}

// allows says whether t is a time for something of s. If not, it is rejected.
func (b *timeBound) allows(s *ingest.Series, t int64, rejected *ingest.Rejected) bool {
	if t >= b.cut && t <= b.t {
		return true
	}
	reason := b.check(t)
	if reason != "" {
		rejected.Add(reason, 1, timeError{reason, *b, s.DecodedLabels(), t})
	}
	return reason == ""
}

// check says what is wrong with the time of a sample, if anything is.
func (b timeBound) check(t int64) ingest.Reason {
	switch {
	case t < 0 || t > series.MaxTime:
		return ingest.ReasonTime
	case t > b.t:
		return ingest.ReasonFuture
	case t < b.cut:
		return ingest.ReasonOld
	}
	return ""
}

// timeError is an error of check. Like labelsError, it makes its text only when Error
// is called.
type timeError struct {
	reason ingest.Reason
	bound  timeBound
	ls     labels.Labels
	t      int64
}

func (e timeError) Error() string {
	switch e.reason {
	case ingest.ReasonFuture:
		return fmt.Sprintf("series %s: timestamp %d is more than %s ahead of the clock", series.Abbreviate(e.ls), e.t, e.bound.future)
	case ingest.ReasonOld:
		if e.bound.rule != "" {
			return fmt.Sprintf("series %s: timestamp %d is too old: samples are kept from %d on, see --retention.rules, %s", series.Abbreviate(e.ls), e.t, e.bound.cut, e.bound.rule)
		}
		return fmt.Sprintf("series %s: timestamp %d is too old: samples are kept from %d on, see --retention.resolution-raw and --retention.size", series.Abbreviate(e.ls), e.t, e.bound.cut)
	}
	return fmt.Sprintf("series %s: timestamp %d is not in [0, %d]", series.Abbreviate(e.ls), e.t, series.MaxTime)
}
