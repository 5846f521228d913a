package limits

import (
	"fmt"
	"sync"
	"time"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// seriesUse is what a tenant has used of its limits of series.
type seriesUse struct {
	// added has tokens for new series. Its rate is by the second.
	added *bucket

	mu sync.Mutex
	// period is the running index period when it was counted last. It had so many series, and so many of the largest metric.
	period       int64
	all, largest int
}

// Limited implements index.Limits.
func (t *Tenant) Limited() bool {
	l := t.limits()
	return l.Series > 0 || l.MetricSeries > 0 || l.NewSeries > 0
}

// AdmitSeries implements index.Limits.
func (t *Tenant) AdmitSeries(s index.NewSeries) error {
	l, now := t.limits(), t.file.now()
	if err := t.checkSeries(l, now, s); err != nil {
		return err
	}
	s.Series++
	s.OfMetric++
	t.Counted(s)
	return nil
}

// checkSeries returns the error of AdmitSeries.
func (t *Tenant) checkSeries(l *Limits, now time.Time, s index.NewSeries) error {
	if l.Series > 0 && s.Series >= l.Series && !t.exceeds(l, allSeries) {
		what := fmt.Sprintf("there are %d series since %s, the limit %s is %d; of the metric %.80q there are most: %d",
			s.Series, day(s.Period), allSeries, l.Series, s.Largest, s.OfLargest)
		return labelError{t, s.Labels, what}
	}
	if l.MetricSeries > 0 && s.OfMetric >= l.MetricSeries && !t.exceeds(l, metricSeries) {
		return labelError{t, s.Labels, fmt.Sprintf("the metric has %d series since %s, the limit %s is %d", s.OfMetric, day(s.Period), metricSeries, l.MetricSeries)}
	}
	if wait := t.series.added.at(now, float64(l.NewSeries)/60, l.NewSeries, 1); wait > 0 && !t.exceeds(l, newSeries) {
		return labelError{t, s.Labels, fmt.Sprintf("more than %d new series in a minute, the limit %s; of the metric %.80q there are most: %d", l.NewSeries, newSeries, s.Largest, s.OfLargest)}
	}
	return nil
}

// day returns the day of a time in milliseconds.
func day(t int64) string { return time.UnixMilli(t).UTC().Format(time.DateOnly) }

// Counted implements index.Limits.
func (t *Tenant) Counted(s index.NewSeries) {
	if series.PeriodOf(t.file.now().UnixMilli()) != s.Period {
		return
	}
	u := &t.series
	u.mu.Lock()
	defer u.mu.Unlock()
	u.period, u.all, u.largest = s.Period, s.Series, max(s.OfLargest, s.OfMetric)
}

// used returns how many series the period of now has, and how many its largest metric.
func (u *seriesUse) used(now time.Time) (all, largest int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if series.PeriodOf(now.UnixMilli()) != u.period {
		return 0, 0
	}
	return u.all, u.largest
}
