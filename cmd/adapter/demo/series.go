package demo

import (
	"math"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

// A kind says how the values of a series move.
type kind int

const (
	requests    kind = iota // a counter; scale is how many a second
	failures                // likewise, many more after a restart
	busy                    // a counter in hundredths of seconds; scale is the share of a core
	idle                    // the rest of the core
	memory                  // bytes; scale are those after a start
	temperature             // tenths; scale is the mean
	up                      // 1, or 0 in a gap of the target
)

// A Series makes the samples of a series, one after the other. It is not safe for concurrent use, but two series are.
type Series struct {
	Labels  labels.Labels
	target  *target
	kind    kind
	scale   float64
	history History
	// at is the time of the next scrape, started that of the last start of the target.
	at, started int64
	// gap is the next of the target's gaps, or the one in which at lies: then isMarked says that the marker was made.
	gap      int
	isMarked bool
	// n is the value in the unit in which it moves, carry what has not become a whole one.
	n, carry float64
	random   uint64
}

// block is how long the rate of a series stays the same.
const block = 5 * minute

// Next appends the samples of about an hour to times, in milliseconds, and values. At the end it appends none.
func (s *Series) Next(times []int64, values []float64) ([]int64, []float64) {
	for before := len(times); len(times) == before && s.at <= s.history.End; {
		limit := min(s.at+hour, s.history.End+1)
		for s.at < limit {
			from := limit
			if s.gap < len(s.target.gaps) {
				g := s.target.gaps[s.gap]
				if s.at >= g.from {
					times, values = s.miss(g, min(g.to, limit), times, values)
					continue
				}
				from = min(from, g.from)
			}
			until := min(s.at+block, from)
			for rate := s.rate(); s.at < until; s.at += Interval {
				times, values = append(times, s.at+s.target.offset), append(values, s.next(rate))
			}
		}
	}
	return times, values
}

// miss makes the scrapes before until, which are in a gap.
func (s *Series) miss(g gap, until int64, times []int64, values []float64) ([]int64, []float64) {
	for ; s.at < until; s.at += Interval {
		switch {
		case g.all:
		case s.kind == up:
			times, values = append(times, s.at+s.target.offset), append(values, 0)
		case !s.isMarked:
			times, values = append(times, s.at+s.target.offset), append(values, math.Float64frombits(value.StaleNaN))
			s.isMarked = true
		}
	}
	if s.at < g.to {
		return times, values
	}
	s.gap++
	s.isMarked = false
	if !g.all {
		s.started, s.n, s.carry = s.at, 0, 0
	}
	return times, values
}

// rate returns what a series of this kind has in a scrape at s.at, or moves by.
func (s *Series) rate() float64 {
	age := float64(s.at-s.history.Begin) / year
	ofDay, ofYear := 2*math.Pi*float64(s.at%day)/day, 2*math.Pi*float64(s.at%year)/year
	load := s.target.load * (1 + 0.4*age) * (1 + 0.15*math.Cos(ofYear)) * (0.6 - 0.35*math.Cos(ofDay-0.7)) * s.history.ofWeek(s.at)
	if weekday := (s.at/day + 4) % 7; weekday == 0 || weekday == 6 {
		load *= 0.7
	}
	const seconds = Interval / 1000.0
	switch s.kind {
	case requests:
		return s.scale * load * seconds
	case failures:
		if s.at < s.started+10*minute {
			load *= 20
		}
		return s.scale * load * seconds
	case busy:
		return s.scale * load / (1 + 0.4*age) * seconds * 100
	case idle:
		return (1 - s.scale*load/(1+0.4*age)) * seconds * 100
	case memory:
		return s.scale + 4e6*math.Sqrt(float64(s.at-s.started)/hour)
	case temperature:
		return s.scale + 2*math.Sin(ofDay-2) - 3*math.Cos(ofYear)
	}
	return 1
}

// ofWeek returns how busy the week of t was, beside others.
func (h History) ofWeek(t int64) float64 {
	x := (uint64(t/(7*day)) + h.Seed) * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	return 0.9 + 0.2*float64(x>>40)/(1<<24)
}

// next returns the value of the next scrape.
func (s *Series) next(rate float64) float64 {
	s.random ^= s.random << 13
	s.random ^= s.random >> 7
	s.random ^= s.random << 17
	noise := float64(s.random>>40) / (1 << 24) // in [0, 1)
	switch s.kind {
	case requests, failures:
		return s.count(rate * (0.5 + noise))
	case busy:
		return s.count(rate*(0.5+noise)) / 100
	case idle:
		return s.count(rate*(0.95+0.1*noise)) / 100
	case memory:
		if noise < 0.25 || s.n == 0 { // it is often the same
			s.n = 4096 * math.Floor(rate*(0.98+0.16*noise)/4096)
		}
		return s.n
	case temperature:
		return math.Round(10*(rate+0.3*noise)) / 10
	}
	return rate
}

// count moves a counter of whole numbers.
func (s *Series) count(by float64) float64 {
	by += s.carry
	whole := float64(int64(by))
	s.carry = by - whole
	s.n += whole
	return s.n
}
