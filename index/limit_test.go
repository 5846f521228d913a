package index_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// bound is a limit of series, and of those of a metric. 0 is none.
type bound struct {
	series, ofMetric int
	// counted is how many series the last period that was counted has.
	counted index.NewSeries
}

func (b *bound) Limited() bool             { return b.series+b.ofMetric > 0 }
func (b *bound) Counted(s index.NewSeries) { b.counted = s }

func (b *bound) AdmitSeries(s index.NewSeries) error {
	if b.series > 0 && s.Series >= b.series || b.ofMetric > 0 && s.OfMetric >= b.ofMetric {
		return fmt.Errorf("%d series, %d of it, %d of %s", s.Series, s.OfMetric, s.OfLargest, s.Largest)
	}
	return nil
}

// TestLimits: random series come under limits that change, also after a restart and a failing write. What is refused is new in its period and in the one before, and over a limit; all else
// is found, and nothing that is refused is.
func TestLimits(t *testing.T) {
	for range 30 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testLimits(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func testLimits(t *testing.T, random *rand.Rand) {
	ctx, tab, limits := t.Context(), newTable(t), new(bound)
	open := func() *index.Index {
		return index.New(index.Config{Limits: limits, Exclusive: random.IntN(2) == 0}, tab)
	}
	x := open()
	type id struct {
		period int64
		series string
	}
	there, metrics, all := map[id]bool{}, map[id]int{}, map[int64]int{}
	for round := range 300 {
		switch random.IntN(20) {
		case 0:
			x = open()
		case 1:
			*limits = bound{series: random.IntN(40), ofMetric: random.IntN(15)}
		case 2:
			if err := x.Prewrite(ctx); err != nil {
				t.Fatal(err)
			}
		case 3:
			at := tab.putCalls + 1
			tab.onPut = func(call int) error {
				if call == at {
					return errors.New("full")
				}
				return nil
			}
		}
		var entries []index.Entry
		for range 1 + random.IntN(5) {
			// The first half of a period: what is prewritten is TestLimitsGoOn's.
			at := random.Int64N(3)*series.IndexPeriod + random.Int64N(series.IndexPeriod/2)
			entries = append(entries, entry(t, at, "__name__", fmt.Sprint("m", random.IntN(4)), "i", fmt.Sprint(random.IntN(20))))
		}
		err := x.Write(ctx, entries)
		tab.onPut = nil
		var refused *index.RefusedError
		if err != nil && !errors.As(err, &refused) {
			continue // nothing of it is known to be there, and it is not counted
		}
		isRefused := map[id]error{}
		if refused != nil {
			for _, r := range refused.Refused {
				isRefused[id{r.Period, string(r.Key)}] = r.Err
			}
		}
		was := maps.Clone(there)
		for _, e := range entries {
			of := id{series.PeriodOf(e.T), string(e.Key)}
			metric := id{of.period, e.Labels.Get(labels.MetricName)}
			err := isRefused[of]
			found, selectErr := x.Select(ctx, index.Query{Start: of.period, Limit: of.period + series.IndexPeriod, Matchers: equal(e.Labels)})
			if selectErr != nil {
				t.Fatal(selectErr)
			}
			if (len(found.Series) == 1) != (err == nil) {
				t.Fatalf("round %d: %v in %d: found %d, refused %v", round, e.Labels, of.period, len(found.Series), err)
			}
			switch before := (id{of.period - series.IndexPeriod, of.series}); {
			case err == nil && !there[of]:
				there[of] = true
				all[of.period]++
				metrics[metric]++
			case err != nil && (was[of] || was[before]):
				t.Fatalf("round %d: %v in %d goes on, and is refused: %v", round, e.Labels, of.period, err)
			}
		}
		over := func(limit, n int) bool { return limit > 0 && n >= limit }
		for of, err := range isRefused {
			ls, parseErr := new(series.Schema).ParseSeriesKey([]byte(of.series), new(labels.ScratchBuilder))
			if parseErr != nil {
				t.Fatal(parseErr)
			}
			metric := id{of.period, ls.Get(labels.MetricName)}
			if !over(limits.series, all[of.period]) && !over(limits.ofMetric, metrics[metric]) {
				t.Fatalf("round %d: %+v, %d series, %d of the metric, and refused: %v", round, limits, all[of.period], metrics[metric], err)
			}
		}
	}
}

// equal returns matchers that one series matches.
func equal(ls labels.Labels) (ms []*labels.Matcher) {
	ls.Range(func(l labels.Label) { ms = append(ms, labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value)) })
	return ms
}

// TestLimitsHold: many goroutines write new series, and no more are there than the limit says. The counts say what there is, also after a restart and after a failure.
func TestLimitsHold(t *testing.T) {
	ctx, tab, limits := context.Background(), newTable(t), &bound{series: 1000}
	tab.onPut = func(call int) error {
		if call%7 == 0 {
			return errors.New("full")
		}
		return nil
	}
	x := index.New(index.Config{Limits: limits, Exclusive: true}, tab)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 100 {
				var entries []index.Entry
				for k := range 10 {
					entries = append(entries, entry(t, 0, "__name__", "m", "g", fmt.Sprint(g), "i", fmt.Sprint(i), "k", fmt.Sprint(k)))
				}
				_ = x.Write(ctx, entries)
			}
		})
	}
	wg.Wait()
	tab.onPut = nil
	count := func(x *index.Index) int {
		c, err := x.Cardinality(ctx, index.CountQuery{})
		if err != nil {
			t.Fatal(err)
		}
		return c.Series
	}
	if n := count(x); n != 1000 {
		t.Errorf("%d series, the limit is 1000", n)
	}
	x = index.New(index.Config{Limits: limits, Exclusive: true}, tab)
	err := x.Write(ctx, []index.Entry{entry(t, 0, "__name__", "another")})
	if refused := (*index.RefusedError)(nil); !errors.As(err, &refused) || refused.Refused[0].Err.Error() != "1000 series, 0 of it, 1000 of m" {
		t.Errorf("%v", err)
	}
	if limits.counted.Series != 1000 || limits.counted.OfLargest != 1000 {
		t.Errorf("counted is %+v", limits.counted)
	}
}

// TestLimitsGoOn: a series that the running period has is prewritten and goes on into the next one, whatever the limits are by then; one that was refused does not. If other processes write,
// their series count after ten minutes.
func TestLimitsGoOn(t *testing.T) {
	ctx, tab, limits := t.Context(), newTable(t), new(bound)
	now := time.UnixMilli(0)
	x := index.New(index.Config{Limits: limits, Now: func() time.Time { return now }}, tab)
	end := int64(series.IndexPeriod - 1)
	write := func(x *index.Index, at int64, name string, refused bool) {
		t.Helper()
		err := x.Write(ctx, []index.Entry{entry(t, at, "__name__", name)})
		if over := (*index.RefusedError)(nil); errors.As(err, &over) != refused || !refused && err != nil {
			t.Errorf("%s at %d: %v", name, at, err)
		}
	}
	write(x, end, "a", false)
	write(x, 0, "b", false)
	limits.series = 1
	write(x, end, "c", true)
	write(x, end, "a", false)
	if err := x.Prewrite(ctx); err != nil {
		t.Fatal(err)
	}
	written := tab.putRows
	write(x, end+1, "a", false)
	if tab.putRows != written {
		t.Error("it was not prewritten")
	}
	write(x, end+1, "b", false) // over the limit, and in the period before
	write(x, end+1, "c", true)
	write(x, 2*end, "d", true)

	limits.series = 4
	other := index.New(index.Config{}, tab)
	for i := range 3 {
		write(other, end+1, fmt.Sprint("other", i), false)
	}
	write(x, end+1, "e", false)
	now = now.Add(11 * time.Minute)
	write(x, end+1, "f", true)
}
