package xor_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/promtable/promtable/series/golden"
	"github.com/promtable/promtable/series/xor"
)

// TestGolden pins the bytes of chunks. The input of a case is one of golden.Samples,
// and its output are the bytes of the XOR chunk: the first sample and the distance
// in hex, then the bits of each sample. They are read by a decoder of its own, made
// from the documentation.
func TestGolden(t *testing.T) {
	golden.Run(t, func(t *testing.T, input string) string {
		ts, vs := golden.Samples(t, input)
		checkXOR(t, ts, vs)
		l := &listing{t: t, rest: xor.Append(nil, ts, vs)}
		l.chunk(ts, vs)
		return l.out.String()
	})
}

// listing writes the parts of a chunk, each with what it means.
type listing struct {
	t    *testing.T
	rest []byte
	bits string // of what comes after the bytes, not yet read
	line string // of the sample that is read
	out  strings.Builder
}

func (l *listing) chunk(ts []int64, vs []float64) {
	n := int(binary.BigEndian.Uint16(l.rest))
	l.cut(2, fmt.Sprintf("count: %d", n))
	if n != len(ts) {
		l.t.Fatalf("%d samples, want %d", n, len(ts))
	}
	if n == 0 {
		return
	}
	time, size := binary.Varint(l.rest)
	l.cut(size, fmt.Sprintf("time: %d", time))
	value := binary.BigEndian.Uint64(l.rest)
	l.cut(8, fmt.Sprintf("value: %v", math.Float64frombits(value)))
	l.check(0, ts, vs, time, value)
	if n == 1 {
		return
	}
	delta, size := binary.Uvarint(l.rest)
	l.cut(size, fmt.Sprintf("distance: %+d", int64(delta)))
	for _, b := range l.rest {
		l.bits += fmt.Sprintf("%08b", b)
	}
	var trailing, sigBits int
	for i := 1; i < n; i++ {
		l.line = ""
		if i > 1 {
			delta += l.difference()
		}
		time += int64(delta)
		if l.take(1) == 1 {
			if l.take(1) == 1 {
				leading := int(l.take(5))
				if sigBits = int(l.take(6)); sigBits == 0 {
					sigBits = 64
				}
				trailing = 64 - leading - sigBits
			}
			value ^= l.take(sigBits) << trailing
		}
		fmt.Fprintf(&l.out, "%-31s %+d: %v\n", l.line, int64(delta), math.Float64frombits(value))
		l.check(i, ts, vs, time, value)
	}
	if len(l.bits) >= 8 || strings.Contains(l.bits, "1") {
		l.t.Errorf("the bits %s are left", l.bits)
	}
}

func (l *listing) check(i int, ts []int64, vs []float64, time int64, value uint64) {
	if time != ts[i] || value != math.Float64bits(vs[i]) {
		l.t.Errorf("sample %d is %d, %x, want %d, %x", i, time, value, ts[i], math.Float64bits(vs[i]))
	}
}

// cut writes the next n bytes.
func (l *listing) cut(n int, meaning string) {
	fmt.Fprintf(&l.out, "%-31s %s\n", fmt.Sprintf("% x", l.rest[:n]), meaning)
	l.rest = l.rest[n:]
}

// difference reads by how much a distance differs from the one before.
func (l *listing) difference() uint64 {
	sizes := []int{0, 14, 17, 20, 64}
	ones := 0
	for ones < 4 && l.bits[ones] == '1' {
		ones++
	}
	l.take(min(ones+1, 4))
	size := sizes[ones]
	if size == 0 {
		return 0
	}
	u := l.take(size)
	if size < 64 && u > 1<<(size-1) {
		u -= 1 << size
	}
	return u
}

// take reads n bits.
func (l *listing) take(n int) uint64 {
	u, err := strconv.ParseUint(l.bits[:n], 2, 64)
	if err != nil {
		l.t.Fatal(err)
	}
	l.line = strings.TrimLeft(l.line+" "+l.bits[:n], " ")
	l.bits = l.bits[n:]
	return u
}
