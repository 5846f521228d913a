package main

import (
	"math"
	"math/rand/v2"
)

// shareRate is the counter, per second, that shares are fractions of.
const shareRate = 6

// counts says whether values only grow but for a restart.
func (sh *shape) counts() bool {
	switch sh.kind {
	case integerCounter, centiCounter, floatCounter, share:
		return true
	}
	return false
}

// first returns a position to begin at.
func (sh *shape) first(r *rand.Rand) float64 {
	days := r.Float64() * 20 * 86400
	switch sh.kind {
	case constant:
		return sh.scale
	case integerCounter:
		return math.Round(sh.scale * days)
	case centiCounter:
		return math.Round(100 * sh.scale * days)
	case floatCounter:
		return sh.scale * days
	case share:
		return math.Round(shareRate * days)
	case pageGauge:
		return math.Round(sh.scale / 4096 * (0.5 + r.Float64()))
	case decimalGauge:
		return math.Round(100 * sh.scale * (0.5 + r.Float64()))
	}
	return math.Round(sh.scale * (0.5 + r.Float64()))
}

// next returns the position that follows n after so many seconds.
func (sh *shape) next(n, seconds float64, r *rand.Rand) float64 {
	switch sh.kind {
	case constant:
		return n
	case integerCounter:
		return n + events(sh.scale*seconds, r)
	case centiCounter:
		return n + events(100*sh.scale*seconds, r)
	case floatCounter:
		return n + sh.scale*seconds*(0.9+0.2*r.Float64())
	case share:
		return n + events(shareRate*seconds, r)
	case pageGauge:
		return walk(n, sh.scale/4096, r)
	case decimalGauge:
		return walk(n, 100*sh.scale, r)
	case floatGauge:
		return sh.scale * (0.5 + r.ExpFloat64())
	}
	return walk(n, sh.scale, r)
}

// value turns a position into what is exposed.
func (sh *shape) value(n float64) float64 {
	switch sh.kind {
	case centiCounter, decimalGauge:
		return n / 100
	case share:
		return math.Floor(n * sh.scale)
	case pageGauge:
		return n * 4096
	}
	return n
}

// events returns how often something happened that happens mean times on
// average, about as a Poisson process does.
func events(mean float64, r *rand.Rand) float64 {
	if mean < 1 {
		if r.Float64() < mean {
			return 1
		}
		return 0
	}
	return max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64()))
}

// walk takes a step of about a hundredth of centre, drawn back towards it, and
// every third time none.
func walk(n, centre float64, r *rand.Rand) float64 {
	if r.IntN(3) == 0 {
		return n
	}
	step := r.NormFloat64()*max(centre/100, 1) + (centre-n)/50
	return max(0, math.Round(n+step))
}
