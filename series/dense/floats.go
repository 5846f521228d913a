package dense

import (
	"math"
	"slices"
)

// maxProbes is how many values of a chunk are looked at before all are taken for
// decimals.
const maxProbes = 8

// maxDecimal and maxInteger are below which magnitude a float is tried as an
// integer times a power of ten, scaled or not. Below 2^51 the sum with roundBias
// is rounded to an integer.
const (
	maxDecimal = 1 << 51
	maxInteger = 1 << 62
	roundBias  = 1<<52 + 1<<51
)

// pow10 is ten to the power of e, which is not more than maxExponent: exact.
func pow10(e int) float64 {
	p := 1.0
	for range e {
		p *= 10
	}
	return p
}

// toDecimals puts integers into ints: most of vs are such an integer divided by ten
// to the power of exponent. The others are odd: they have the integer of their
// neighbour. It is not ok if there are too many of them.
func toDecimals(ints []int64, vs []float64) (exponent, odd int, ok bool) {
	exponent, ok = probe(vs)
	limit := (len(vs) + 7) / 8
	for ok {
		var higher int
		odd, higher = scale(ints, vs, exponent, limit)
		if higher == 0 {
			return exponent, odd, odd <= limit
		}
		exponent = higher
	}
	return 0, 0, false
}

// probe looks at some of vs. It returns the lowest exponent that makes decimals of
// them, the value with the most digits left out. It is ok if that exponent is worth
// a try on all of vs.
func probe(vs []float64) (exponent int, ok bool) {
	step := (len(vs) + maxProbes - 1) / maxProbes
	good, bad, highest := 0, 0, 0
	for i := step / 2; i < len(vs); i += step {
		switch e := exponentOf(vs[i], exponent); {
		case e >= 0:
			exponent, highest = max(exponent, min(e, highest)), max(e, highest)
			good++
		case !math.IsNaN(vs[i]):
			// With a third one the others cannot make up for it.
			if bad++; bad > maxProbes/4 {
				return 0, false
			}
		}
	}
	if good < 3 {
		exponent = highest
	}
	return exponent, good > 2*bad
}

// exponentOf returns the lowest exponent not below the given one that makes a
// decimal of v, or -1.
func exponentOf(v float64, exponent int) int {
	if math.IsNaN(v) {
		return -1
	}
	for e := exponent; e <= maxExponent; e++ {
		p := pow10(e)
		if math.Abs(v*p) >= maxDecimal {
			break
		}
		if _, ok := decimal(v, p); ok {
			return e
		}
	}
	if _, ok := integer(v); ok && exponent == 0 {
		return 0
	}
	return -1
}

// scale is toDecimals with one exponent. If a higher one suits better it stops
// and returns that.
func scale(ints []int64, vs []float64, exponent, limit int) (odd, higher int) {
	var last int64
	for i := 0; i < len(vs); i++ {
		if i = scaleRun(ints, vs, i, exponent); i == len(vs) {
			break
		}
		// A value with many more digits than the others is odd: a higher exponent
		// would make all the others longer.
		e := exponentOf(vs[i], exponent)
		if e > exponent && (e <= exponent+3 || odd == limit) {
			return 0, e
		}
		if odd++; odd > limit {
			return odd, 0
		}
		if i > 0 {
			last = ints[i-1]
		}
		ints[i] = last
	}
	fillFront(ints, vs, exponent)
	return odd, 0
}

// scaleRun converts the values from i on up to the first that is odd, and returns
// where that is.
func scaleRun(ints []int64, vs []float64, i, exponent int) int {
	vs = vs[:len(ints)]
	if exponent == 0 {
		for ; i < len(ints); i++ {
			m, ok := integer(vs[i])
			if !ok {
				break
			}
			ints[i] = m
		}
		return i
	}
	p := pow10(exponent)
	for ; i < len(ints); i++ {
		m, ok := decimal(vs[i], p)
		if !ok {
			break
		}
		ints[i] = m
	}
	return i
}

// fillFront gives odd values at the front the integer of the first that is not
// odd.
func fillFront(ints []int64, vs []float64, exponent int) {
	if ints[0] != 0 {
		return
	}
	for i := range ints {
		if e := scaleRun(ints[i:i+1], vs[i:i+1], 0, exponent); e == 1 {
			for j := range i {
				ints[j] = ints[i]
			}
			return
		}
	}
}

// integer returns v as an integer, if it is one and not -0.
func integer(v float64) (int64, bool) {
	m := int64(v)
	return m, math.Float64bits(float64(m)) == math.Float64bits(v) && math.Abs(v) < maxInteger
}

// decimal returns the integer that divided by p, a power of ten, is v to the bit,
// if there is one.
func decimal(v, p float64) (int64, bool) {
	// The conversion keeps the compiler from fusing product and sum.
	x := float64(v * p)
	m := int64(math.Float64bits(x+roundBias)) - int64(math.Float64bits(roundBias))
	return m, math.Float64bits(float64(m)/p) == math.Float64bits(v) && math.Abs(x) < maxDecimal
}

// toBits puts the ordered bits of vs into ints and returns how many are odd: NaNs,
// if they are few.
func toBits(ints []int64, vs []float64) (odd int) {
	vs = vs[:len(ints)]
	for i := range ints {
		ints[i] = orderedBits(int64(math.Float64bits(vs[i])))
		if vs[i] != vs[i] {
			odd++
		}
	}
	if odd == 0 || odd > len(vs)/8 {
		return 0
	}
	last := ints[slices.IndexFunc(vs, func(v float64) bool { return v == v })]
	for i, v := range vs {
		if v != v {
			ints[i] = last
		}
		last = ints[i]
	}
	return odd
}

// orderedBits turns the bits of a float into an integer, or back, so that a
// greater float is a greater integer: those of negative floats are inverted, but
// for the sign.
func orderedBits(b int64) int64 { return b ^ (b >> 63 & math.MaxInt64) }

// fromInts is the inverse of toDecimals and toBits, but for the odd values.
func fromInts(out []float64, ints []int64, kind byte) {
	out = out[:len(ints)]
	switch {
	case kind == kindBits:
		for i, m := range ints {
			out[i] = math.Float64frombits(uint64(orderedBits(m)))
		}
	case kind == 0:
		for i, m := range ints {
			out[i] = float64(m)
		}
	default:
		p := pow10(int(kind))
		for i, m := range ints {
			out[i] = float64(m) / p
		}
	}
}

// fillFloats is fromInts of as many of the same integer.
func fillFloats(out []float64, m int64, kind byte) {
	fromInts(out[:1], []int64{m}, kind)
	for n := 1; n < len(out); n *= 2 {
		copy(out[n:], out[:n])
	}
}
