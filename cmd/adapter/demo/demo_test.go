package demo_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/cmd/adapter/demo"
)

const (
	hour = 3_600_000
	day  = 24 * hour
)

// history is two months that end in the middle of a window and of a scrape.
var history = demo.History{Seed: 1, Begin: 1_700_000_000_123, End: 1_700_000_000_123 + 60*day}

// all returns the samples of a series.
func all(s *demo.Series) (times []int64, values []float64) {
	for {
		n := len(times)
		if times, values = s.Next(times, values); len(times) == n {
			return times, values
		}
	}
}

func bits(values []float64) (found []uint64) {
	for _, v := range values {
		found = append(found, math.Float64bits(v))
	}
	return found
}

// TestEqual: equal histories have equal samples, others have others.
func TestEqual(t *testing.T) {
	other := history
	other.Seed++
	for i, s := range history.Series() {
		times, values := all(s)
		again, sameValues := all(history.Series()[i])
		if !slices.Equal(times, again) || !slices.Equal(bits(values), bits(sameValues)) {
			t.Errorf("%s has other samples a second time", s.Labels)
		}
		if others, otherValues := all(other.Series()[i]); slices.Equal(times, others) && slices.Equal(bits(values), bits(otherValues)) {
			t.Errorf("%s has the same samples with another seed", s.Labels)
		}
		if times, values := s.Next(nil, nil); len(times)+len(values) > 0 {
			t.Errorf("%s has samples after its end", s.Labels)
		}
	}
}

// TestSeries looks at the form of all series, and wants what makes them real.
func TestSeries(t *testing.T) {
	found := make(map[string]bool)
	silent := make(map[int64]int) // series without a sample in a quarter of an hour, but for markers
	resets, markers, zeros, most := 0, 0, 0, int64(0)
	series := history.Series()
	for _, s := range series {
		if found[s.Labels.String()] {
			t.Errorf("%s is twice", s.Labels)
		}
		found[s.Labels.String()] = true
		times, values := all(s)
		name := s.Labels.Get("__name__")
		isCounter := name == "http_requests_total" || name == "node_cpu_seconds_total"
		if first, last := times[0], times[len(times)-1]; first < history.Begin-demo.Interval || first > history.Begin+demo.Interval || last > history.End+demo.Interval || last < history.End-demo.Interval {
			t.Errorf("%s is from %d to %d", s.Labels, first, last)
		}
		if most = max(most, int64(len(times))); len(times) < 60*day/demo.Interval*97/100 {
			t.Errorf("%s has %d samples", s.Labels, len(times))
		}
		heard := make(map[int64]bool)
		for i, v := range values {
			switch {
			case value.IsStaleNaN(v):
				markers++
				if i+1 < len(times) && times[i+1]-times[i] < demo.Interval {
					t.Errorf("%s goes on %d ms after a marker", s.Labels, times[i+1]-times[i])
				}
				continue
			case math.IsNaN(v) || v < 0:
				t.Fatalf("%s is %v", s.Labels, v)
			case name == "up" && v == 0:
				zeros++
			}
			heard[times[i]/(hour/4)] = true
			if i == 0 {
				continue
			}
			if gap := times[i] - times[i-1]; gap < demo.Interval || gap%demo.Interval != 0 {
				t.Fatalf("%s has a sample %d ms after another", s.Labels, gap)
			}
			if isCounter && v < values[i-1] {
				t.Fatalf("%s falls from %v to %v without a marker", s.Labels, values[i-1], v)
			}
			if isCounter && value.IsStaleNaN(values[i-1]) && v < values[i-2] {
				resets++
			}
		}
		for at := history.Begin/(hour/4) + 1; at < history.End/(hour/4); at++ {
			if !heard[at] {
				silent[at]++
			}
		}
	}
	if len(series) < 20 || len(series) > 30 || resets < 30 || markers < 40 || most > 60*day/demo.Interval+1 {
		t.Errorf("%d series, %d resets, %d markers, up to %d samples", len(series), resets, markers, most)
	}
	if want := 60 * day / 50 / demo.Interval; zeros < want {
		t.Errorf("up is 0 in %d scrapes, want %d for an outage", zeros, want)
	}
	empty := 0
	for _, n := range silent {
		if n == len(series) {
			empty++
		}
	}
	if empty < 1 || empty > 3 {
		t.Errorf("no series has samples in %d quarters of an hour, want those of 40 minutes", empty)
	}
}

// TestLoad: requests follow the day and the week, and grow with the years.
func TestLoad(t *testing.T) {
	years := history
	years.End = history.Begin + 3*365*day
	for _, s := range years.Series() {
		if s.Labels.Get("__name__") != "http_requests_total" || s.Labels.Get("code") != "200" {
			continue
		}
		times, values := all(s)
		var byHour, byDay [24]float64
		var byYear [4]float64
		for i := 1; i < len(times); i++ {
			if moved := values[i] - values[i-1]; moved > 0 { // and no marker
				byHour[times[i]/hour%24] += moved
				byDay[(times[i]/day+4)%7] += moved
				byYear[(times[i]-history.Begin)/(365*day)] += moved
			}
		}
		if byHour[14] < 2*byHour[3] || byDay[0] > 0.8*byDay[3] || byYear[1] < 1.2*byYear[0] || byYear[2] < 1.1*byYear[1] {
			t.Errorf("%s: by hour %.0f, by day of the week %.0f, by year %.0f", s.Labels, byHour, byDay[:7], byYear[:3])
		}
		return
	}
}

// TestMetadata wants a type and a text for each metric, and nothing else.
func TestMetadata(t *testing.T) {
	said, names := demo.Metadata(), make(map[string]bool)
	for _, s := range history.Series() {
		name := s.Labels.Get("__name__")
		names[name] = true
		if m := said[name]; m.Help == "" || (m.Type == "counter") != strings.HasSuffix(name, "_total") {
			t.Errorf("of %s it says %+v", name, m)
		}
	}
	if len(said) != len(names) {
		t.Errorf("metadata of %d metrics, and there are %d", len(said), len(names))
	}
}

func BenchmarkNext(b *testing.B) {
	series := history.Series()
	var times []int64
	var values []float64
	n := 0
	for b.Loop() {
		times, values = series[n%len(series)].Next(times[:0], values[:0])
		if n++; len(times) == 0 {
			series = history.Series()
		}
	}
}
