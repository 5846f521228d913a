package dense_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/promtable/promtable/series/golden"
	"github.com/promtable/promtable/series/seriestest"
)

// TestGolden pins the bytes of chunks. The input of a case is one of golden.Samples,
// and its output are the bytes of the dense chunk, part by part. The parts are read
// by a decoder of its own, made from the documentation.
func TestGolden(t *testing.T) { golden.Run(t, denseListing) }

// denseListing encodes the samples of a case and takes the chunk apart.
func denseListing(t *testing.T, input string) string {
	ts, vs := golden.Samples(t, input)
	l := &listing{t: t, rest: checkDense(t, ts, vs)}
	l.chunk(ts, vs)
	return strings.TrimRight(l.out.String(), "\n")
}

// listing writes the parts of a chunk, each with what it means.
type listing struct {
	t    *testing.T
	rest []byte
	out  strings.Builder
}

func (l *listing) chunk(ts []int64, vs []float64) {
	n := int(l.uvarint("count"))
	start := int64(l.uvarint("start of times"))
	for i, q := range l.sequence(n) {
		if got := start + q; got != ts[i] {
			l.t.Errorf("time %d is %d, want %d", i, got, ts[i])
		}
	}
	if got := l.values(n); !seriestest.SameBits(got, vs) {
		l.t.Errorf("values are %v, want %v", got, vs)
	}
	if len(l.rest) > 0 {
		l.t.Errorf("%x is left", l.rest)
	}
}

func (l *listing) values(n int) []float64 {
	kind := l.take(1, "kind of values")[0]
	odd := map[int]float64{}
	if kind >= 128 {
		kind -= 128
		at := -1
		for range l.uvarint("odd values") {
			at += 1 + int(l.uvarint("  after so many others"))
			odd[at] = math.Float64frombits(binary.BigEndian.Uint64(l.take(8, "  float")))
		}
	}
	vs := make([]float64, n)
	if kind == 17 {
		vs[0] = math.Float64frombits(binary.BigEndian.Uint64(l.take(8, "start of values")))
		return l.xor(vs)
	}
	var start int64
	if kind == 16 {
		start = int64(binary.BigEndian.Uint64(l.take(8, "start of values")))
	} else {
		start = l.varint("start of values")
	}
	for i, q := range l.sequence(n) {
		m := start + q
		switch v, isOdd := odd[i]; {
		case isOdd:
			vs[i] = v
		case kind < 16:
			vs[i] = float64(m) / math.Pow10(int(kind))
		case m < 0:
			vs[i] = math.Float64frombits(^uint64(m) | 1<<63)
		default:
			vs[i] = math.Float64frombits(uint64(m))
		}
	}
	return vs
}

// xor reads the values but for the first.
func (l *listing) xor(vs []float64) []float64 {
	var text strings.Builder
	for _, c := range l.rest {
		fmt.Fprintf(&text, "%08b", c)
	}
	all := text.String()
	take := func(n int) uint64 {
		u, err := strconv.ParseUint(all[:n], 2, 64)
		if err != nil {
			l.t.Fatal(err)
		}
		all = all[n:]
		return u
	}
	var size, trailing int
	for i := 1; i < len(vs); i++ {
		v := math.Float64bits(vs[i-1])
		if take(1) == 1 {
			if take(1) == 1 {
				leading := int(take(5))
				if size = int(take(6)); size == 0 {
					size = 64
				}
				trailing = 64 - leading - size
			}
			v ^= take(size) << trailing
		}
		vs[i] = math.Float64frombits(v)
	}
	l.take((text.Len()-len(all)+7)/8, "bits of the others")
	return vs
}

func (l *listing) sequence(n int) []int64 {
	q := make([]int64, n)
	if n == 1 {
		return q
	}
	mode := l.take(1, "mode")[0]
	factor, step := int64(1), int64(0)
	if mode >= 8 {
		mode -= 8
		factor = int64(l.uvarint("factor"))
	}
	if mode >= 2 {
		step = l.varint("step")
	}
	var r []int64
	for left := n - 1; mode != 3 && left > 0; left -= 128 {
		r = append(r, l.block(min(left, 128))...)
	}
	delta := step
	for i := 1; i < n; i++ {
		switch mode {
		case 0:
			q[i] = r[i-1]
		case 1:
			q[i] = q[i-1] + r[i-1]
		case 2:
			delta += r[i-1]
			q[i] = q[i-1] + delta
		case 3:
			q[i] = int64(i) * step
		case 4:
			q[i] = int64(i)*step + r[i-1]
		}
	}
	for i := range q {
		q[i] *= factor
	}
	return q
}

func (l *listing) block(n int) []int64 {
	head := l.take(1, fmt.Sprintf("head of a block of %d", n))[0]
	width := int(head % 64)
	if width == 57 {
		width = 64
	}
	lowest := l.varint("lowest")
	there := n
	var bitmap []byte
	if head&64 != 0 {
		bitmap = l.take((n+7)/8, "bitmap")
		there = 0
		for _, c := range bitmap {
			there += bits.OnesCount8(c)
		}
	}
	outliers := map[int]int64{}
	if head&128 != 0 {
		for range l.take(1, "outliers")[0] {
			i := int(l.take(1, "  number")[0])
			outliers[i] = l.varint("  distance from lowest")
		}
	}
	packed := l.unpack(there, width)
	for i, v := range outliers {
		packed[i] = v
	}
	for i := range packed {
		packed[i] += lowest
	}
	if bitmap == nil {
		return packed
	}
	r := make([]int64, n)
	for i := range r {
		if bitmap[i/8]>>(i%8)&1 == 1 {
			r[i], packed = packed[0], packed[1:]
		}
	}
	return r
}

func (l *listing) unpack(n, width int) []int64 {
	size := (n*width + 7) / 8
	if size == 0 {
		return make([]int64, n)
	}
	data := l.take(size, fmt.Sprintf("%d of %d bits", n, width))
	values := make([]int64, n)
	for b := range n * width {
		values[b/width] |= int64(data[b/8]>>(b%8)&1) << (b % width)
	}
	return values
}

// take writes the next n bytes, 16 in a line.
func (l *listing) take(n int, meaning string) []byte {
	if n > len(l.rest) {
		l.t.Fatalf("%s: %d bytes, there are %d", meaning, n, len(l.rest))
	}
	b := l.rest[:n]
	l.rest = l.rest[n:]
	for line := range slices.Chunk(b, 16) {
		l.line(line, meaning)
		meaning = ""
	}
	return b
}

func (l *listing) line(b []byte, meaning string) {
	fmt.Fprintln(&l.out, strings.TrimRight(fmt.Sprintf("%-48s %s", fmt.Sprintf("% x", b), meaning), " "))
}

func (l *listing) uvarint(meaning string) uint64 {
	v, n := binary.Uvarint(l.rest)
	return number(l, v, n, meaning)
}

func (l *listing) varint(meaning string) int64 {
	v, n := binary.Varint(l.rest)
	return number(l, v, n, meaning)
}

func number[T int64 | uint64](l *listing, v T, size int, meaning string) T {
	if size <= 0 {
		l.t.Fatalf("%s: no number", meaning)
	}
	l.line(l.rest[:size], fmt.Sprintf("%s: %d", meaning, v))
	l.rest = l.rest[size:]
	return v
}
