package index

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

// Limits bound how many series there are. They are asked about series that an index period does not have yet. A series that the period before has goes on,
// whatever they say.
type Limits interface {
	// Limited says whether there is any limit: else nothing is counted.
	Limited() bool
	// AdmitSeries returns an error if a series must not be written.
	AdmitSeries(NewSeries) error
	// Counted says how many series a period has. Its argument has no Labels.
	Counted(NewSeries)
}

// NewSeries is a series that an index period does not have yet.
type NewSeries struct {
	Labels labels.Labels
	// Period is the beginning of the period, in milliseconds.
	Period int64
	// Series is how many series the period has, OfMetric how many with the same metric name.
	Series, OfMetric int
	// Largest is the metric of the period with the most series, and OfLargest how many these are.
	Largest   string
	OfLargest int
}

// A RefusedError has the series that Limits refuse. All others are durable.
type RefusedError struct {
	Refused []Refused
}

// Refused is a series that Limits refuse in a period.
type Refused struct {
	// Key is that of the Entry.
	Key []byte
	// Period is the beginning of the period, in milliseconds.
	Period int64
	Err    error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%d new series are refused, the first: %v", len(e.Refused), e.Refused[0].Err)
}

const (
	// maxTallies is in how many periods series are counted at the same time.
	maxTallies = 16
	// tallyAge is how long a tally is good for if other processes write, too. To count again costs a row for each series.
	tallyAge = 10 * time.Minute
	// maxStrangers is of how many refused series a tally remembers that the period before does not have them.
	maxStrangers = 100_000
)

// tallies count series for Limits. It is safe for concurrent use.
type tallies struct {
	mu sync.Mutex
	of map[int64]*tally
}

// A tally counts the series of a period.
type tally struct {
	series   int
	byMetric map[string]int
	largest  string
	at       time.Time
	// strangers were refused, and are not in the period before.
	strangers map[rowID]struct{}
}

// add counts by more, or less, series of a metric.
func (t *tally) add(metric string, by int) {
	t.series += by
	n, ok := t.byMetric[metric]
	if !ok {
		metric = strings.Clone(metric)
	}
	t.byMetric[metric] = n + by
	if n+by > t.byMetric[t.largest] {
		t.largest = metric
	}
}

// admit counts a series, unless Limits refuse it.
func (t *tally) admit(limits Limits, n need) error {
	err := limits.AdmitSeries(t.before(n))
	if err == nil {
		t.add(n.entry.Labels.Get(labels.MetricName), 1)
	}
	return err
}

// before returns what there is before a series is written.
func (t *tally) before(n need) NewSeries {
	return NewSeries{
		Labels: n.entry.Labels, Period: n.period, Series: t.series, OfMetric: t.byMetric[n.entry.Labels.Get(labels.MetricName)],
		Largest: t.largest, OfLargest: t.byMetric[t.largest],
	}
}

// tally returns that of a period, which it counts if need be. The lock of tallies is held.
func (x *Index) tally(ctx context.Context, period int64) (*tally, error) {
	if t := x.tallies.of[period]; t != nil && (x.memory.exclusive || x.memory.now().Sub(t.at) < tallyAge) {
		return t, nil
	}
	t := &tally{byMetric: make(map[string]int), at: x.memory.now(), strangers: make(map[rowID]struct{})}
	builder := labels.NewScratchBuilder(16)
	err := x.eachMark(ctx, period, 0, func(seriesKey []byte) error {
		ls, err := x.schema.ParseSeriesKey(seriesKey, &builder)
		if err == nil {
			t.add(ls.Get(labels.MetricName), 1)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("count series for their limits: %w", err)
	}
	for len(x.tallies.of) >= maxTallies {
		oldest := period
		for other := range x.tallies.of {
			if other != period {
				oldest = min(oldest, other)
			}
		}
		if oldest == period { // all others are later
			clear(x.tallies.of)
		}
		delete(x.tallies.of, oldest)
	}
	x.tallies.of[period] = t
	x.limits.Counted(t.before(need{rowID: rowID{period: period}, entry: new(Entry)}))
	return t, nil
}

// admit divides those of needs that have no mark in the table into those to be written, in the same order, and those that Limits refuse.
func (x *Index) admit(ctx context.Context, needs, absent []need) (admitted []need, refused []Refused, err error) {
	if x.limits == nil {
		return absent, nil, nil
	}
	x.tallies.mu.Lock()
	defer x.tallies.mu.Unlock()
	if !x.limits.Limited() {
		clear(x.tallies.of) // which would lack what is written from here on
		return absent, nil, nil
	}
	if _, err := x.tally(ctx, needs[0].period); err != nil { // so that there is a count soon after a start
		return nil, nil, err
	}
	errs, of := make([]error, len(absent)), make([]*tally, len(absent))
	var doubtful []need
	for i, n := range absent {
		t, err := x.tally(ctx, n.period)
		if err != nil {
			return nil, nil, err
		}
		of[i] = t
		if errs[i] = t.admit(x.limits, n); errs[i] == nil {
			continue
		}
		if _, ok := t.strangers[n.rowID]; !ok {
			doubtful = append(doubtful, n)
		}
	}
	goOn, err := x.inPeriodBefore(ctx, doubtful)
	if err != nil {
		return nil, nil, err
	}
	for i, n := range absent {
		t := of[i]
		_, ok := goOn[n.rowID]
		if errs[i] != nil && !ok {
			refused = append(refused, Refused{n.entry.Key, n.period, errs[i]})
			if len(t.strangers) >= maxStrangers {
				clear(t.strangers)
			}
			t.strangers[n.rowID] = struct{}{}
			continue
		}
		admitted = append(admitted, n)
		if errs[i] != nil {
			t.add(n.entry.Labels.Get(labels.MetricName), 1)
		}
		next := rowID{n.period + series.IndexPeriod, n.hash}
		goOn[next] = struct{}{}
		if t := x.tallies.of[next.period]; t != nil {
			delete(t.strangers, next)
		}
	}
	return admitted, refused, nil
}

// inPeriodBefore returns those of needs whose series the period before has.
func (x *Index) inPeriodBefore(ctx context.Context, needs []need) (map[rowID]struct{}, error) {
	found := make(map[rowID]struct{})
	var unknown []need
	for _, n := range needs {
		before := n
		before.period -= series.IndexPeriod
		if before.period >= 0 {
			unknown = append(unknown, before)
		}
	}
	marks, err := x.marksOf(ctx, unknown)
	for m := range marks {
		m.period += series.IndexPeriod
		found[m] = struct{}{}
	}
	return found, err
}

// notWritten takes needs that were admitted from the tallies.
func (x *Index) notWritten(needs []need) {
	x.tallies.mu.Lock()
	defer x.tallies.mu.Unlock()
	for _, n := range needs {
		if t := x.tallies.of[n.period]; t != nil {
			t.add(n.entry.Labels.Get(labels.MetricName), -1)
		}
	}
}
