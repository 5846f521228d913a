package dense

import (
	"encoding/binary"
	"math/bits"

	"github.com/promtable/promtable/series/cursor"
)

// How the integers of a sequence follow from its residuals, the low bits of its
// mode. They are part of the stored format.
const (
	orderPlain  = 0 // the residual itself
	orderDelta  = 1 // the one before and the residual
	orderSlope  = 2 // the one before, the difference of the two before, and the residual
	orderLine   = 3 // the number of the integer times the step; there are no residuals
	orderAround = 4 // the same and the residual

	// modeFactor is set in the mode if a factor of all integers follows it.
	modeFactor = 8
)

const (
	// minFactored is from how many integers on it is worth to look for a factor.
	minFactored = 8

	// orderProbes is how many integers are enough to choose the order by.
	orderProbes = 48
)

// appendInts appends integers that are distances from the first of them, which
// is 0 and left out. It overwrites them. Sums and products wrap around, so any
// integers will do. isTime says that they may lie around a line.
func appendInts(dst []byte, q []int64, isTime bool) []byte {
	if len(q) == 1 {
		return dst
	}
	if isLine(q) {
		return appendLine(dst, q[1])
	}
	factor := uint64(1)
	if len(q) >= minFactored && !isTime {
		factor = takeFactor(q)
	}
	order, step := chooseOrder(q, isTime)
	mode := order
	if factor > 1 {
		mode |= modeFactor
	}
	dst = append(dst, mode)
	if factor > 1 {
		dst = binary.AppendUvarint(dst, factor)
	}
	if order == orderSlope || order == orderAround {
		dst = binary.AppendVarint(dst, step)
	}
	toResiduals(q, order, step)
	for r := q[1:]; len(r) > 0; r = r[min(blockLen, len(r)):] {
		dst = appendBlock(dst, r[:min(blockLen, len(r))])
	}
	return dst
}

// appendLine appends integers that are multiples of step.
func appendLine(dst []byte, step int64) []byte {
	return binary.AppendVarint(append(dst, orderLine), step)
}

func isLine(q []int64) bool {
	var want int64
	for _, v := range q {
		if v != want {
			return false
		}
		want += q[1]
	}
	return true
}

// takeFactor divides all of q by their greatest common divisor and returns it.
func takeFactor(q []int64) uint64 {
	var or int64
	for _, v := range q {
		or |= v
	}
	twos := bits.TrailingZeros64(uint64(or)) & 63
	var odd uint64
	for i := 1; i < len(q) && odd != 1; i++ {
		if v := q[i] >> twos; v != 0 {
			odd = commonOdd(odd, magnitude(v))
		}
	}
	if twos == 0 && odd == 1 {
		return 1
	}
	// A division without remainder is a product with the inverse.
	inverse := int64(inverseOf(odd))
	for i, v := range q {
		q[i] = v >> twos * inverse
	}
	return odd << twos
}

// commonOdd returns the greatest common odd divisor of a, which is odd or 0, and
// b, which is not 0.
func commonOdd(a, b uint64) uint64 {
	b >>= bits.TrailingZeros64(b)
	for a != 0 {
		if a, b = b%a, a; a != 0 {
			a >>= bits.TrailingZeros64(a)
		}
	}
	return b
}

// inverseOf returns the inverse of an odd number modulo 2^64.
func inverseOf(odd uint64) uint64 {
	x := odd*3 ^ 2
	for range 4 {
		x *= 2 - odd*x
	}
	return x
}

func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

// bitLen is the length of v without its sign.
func bitLen(v int64) int { return bits.Len64(uint64(v ^ v>>63)) }

// chooseOrder returns how the integers q make the smallest residuals, by the sum
// of their bits, and the step for it. Outliers count little in that sum, and a
// higher order, which doubles noise, must save half a bit each.
func chooseOrder(q []int64, isTime bool) (order byte, step int64) {
	bend := typicalBend(q)
	plain, delta, slope, probes := orderBits(q, bend)
	half := probes / 2
	order, best := byte(orderPlain), plain
	if delta+half < best {
		order, best = orderDelta, delta
	}
	if slope+half < best {
		// The first residual is as the others are.
		order, best, step = orderSlope, slope, q[1]-bend
	}
	if isTime {
		if bits, around := aroundBits(q); bits < best {
			return orderAround, around
		}
	}
	return order, step
}

// orderBits sums the lengths of some of the residuals of q for the first three
// orders, as distances from one of them that is typical.
func orderBits(q []int64, bend int64) (plain, delta, slope, probes int) {
	middle, step := middleOf(q), typicalStep(q)
	stride := max(1, len(q)/orderProbes)
	for i := 2; i < len(q); i += stride {
		d := q[i] - q[i-1]
		plain += bitLen(q[i] - middle)
		delta += bitLen(d - step)
		slope += bitLen(d - (q[i-1] - q[i-2]) - bend)
		probes++
	}
	return plain, delta, slope, probes
}

// typicalStep is typicalOf the differences of q.
func typicalStep(q []int64) int64 {
	var few [5]int64
	for i := range few {
		at := 1 + (len(q)-2)*i/(len(few)-1)
		few[i] = q[at] - q[at-1]
	}
	return typicalOf(few[:])
}

// typicalBend is typicalOf the differences of differences of q, which has three.
func typicalBend(q []int64) int64 {
	var few [5]int64
	for i := range few {
		at := 2 + (len(q)-3)*i/(len(few)-1)
		few[i] = q[at] - q[at-1] - (q[at-1] - q[at-2])
	}
	return typicalOf(few[:])
}

// aroundBits sums the lengths of the distances of q from the line with the step
// that it returns, of as many as orderBits does.
func aroundBits(q []int64) (bits int, step int64) {
	n := int64(len(q) - 1)
	step = (q[n] + n/2) / n
	stride := max(1, len(q)/orderProbes)
	for i := 2; i < len(q); i += stride {
		bits += bitLen(q[i] - int64(i)*step)
	}
	return bits, step
}

// middleOf returns the median of five of r, spread evenly.
func middleOf(r []int64) int64 {
	last := len(r) - 1
	a, b, c, d, e := r[0], r[last/4], r[last/2], r[last-last/4], r[last]
	a, b = min(a, b), max(a, b)
	d, e = min(d, e), max(d, e)
	// Neither the least nor the greatest of the four is the median.
	b, d = min(b, e), max(a, d)
	return max(min(b, d), min(max(b, d), c))
}

// typicalOf is middleOf, but 0 if one of the five is 0: what repeats is then worth
// more than what is in the middle.
func typicalOf(r []int64) int64 {
	last := len(r) - 1
	if r[0] == 0 || r[last/4] == 0 || r[last/2] == 0 || r[last-last/4] == 0 || r[last] == 0 {
		return 0
	}
	return middleOf(r)
}

// toResiduals overwrites all but the first of q with its residuals.
func toResiduals(q []int64, order byte, step int64) {
	switch order {
	case orderDelta, orderSlope:
		var last, lastDelta int64
		if order == orderSlope {
			lastDelta = step
		}
		for i, v := range q[1:] {
			d := v - last
			q[i+1] = d - lastDelta
			last = v
			if order == orderSlope {
				lastDelta = d
			}
		}
	case orderAround:
		for i := range q {
			q[i] -= int64(i) * step
		}
	}
}

// decoder reads the parts of a dense chunk. After something that is not there
// all that follows is zero.
type decoder struct {
	cursor.Cursor

	// The sequence that is open.
	mode   byte
	left   int   // how many integers are to come
	ready  bool  // whether the first has come
	first  int64 // what is added to each
	factor int64 // what each is multiplied with
	step   int64
	last   int64 // the last one, before the factor, or the point on the line
	delta  int64 // the last difference
	buf    [blockLen]int64
}

// open begins a sequence of n integers that appendInts has written, to each of
// which first is added.
func (d *decoder) open(n int, first int64) {
	d.left, d.first = n, first
	d.mode, d.ready, d.factor, d.step, d.last, d.delta = orderPlain, false, 1, 0, 0, 0
	if n == 1 {
		return
	}
	d.mode = d.Byte()
	if d.mode&modeFactor != 0 {
		d.factor = int64(d.Uvarint())
		d.mode &^= modeFactor
	}
	if d.mode > orderAround {
		d.Fail()
	}
	if d.mode >= orderSlope {
		d.step = d.Varint()
	}
	d.delta = d.step
	blocks := (n - 1 + blockLen - 1) / blockLen
	if d.mode != orderLine && len(d.Rest) < blocks*minBlockSize {
		d.Fail()
	}
}

// next returns integers of the open sequence, as many as suit, until the next
// call. There are none at its end, or if something is not there.
func (d *decoder) next() []int64 {
	if d.left == 0 || d.Failed {
		return nil
	}
	if !d.ready {
		d.ready = true
		d.left--
		d.buf[0] = d.first
		return d.buf[:1]
	}
	block := d.buf[:min(blockLen, d.left)]
	if d.mode != orderLine && !d.readBlock(block) {
		return nil
	}
	d.left -= len(block)
	d.fromResiduals(block)
	return block
}

// slope is by how much each integer of the open sequence, which is a line, is more
// than the one before.
func (d *decoder) slope() int64 { return d.step * d.factor }

func (d *decoder) fromResiduals(block []int64) {
	first, factor, step, last := d.first, d.factor, d.step, d.last
	switch d.mode {
	case orderPlain:
		for i, r := range block {
			block[i] = first + r*factor
		}
	case orderDelta:
		for i, r := range block {
			last += r
			block[i] = first + last*factor
		}
	case orderSlope:
		delta := d.delta
		for i, r := range block {
			delta += r
			last += delta
			block[i] = first + last*factor
		}
		d.delta = delta
	case orderLine:
		for i := range block {
			last += step
			block[i] = first + last*factor
		}
	case orderAround:
		for i, r := range block {
			last += step
			block[i] = first + (last+r)*factor
		}
	}
	d.last = last
}
