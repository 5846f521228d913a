package wire

import (
	"encoding/binary"
	"math"

	"github.com/promtable/promtable/remote/engine"
)

// quickBytes returns where the content of a length-delimited field begins and
// ends, if msg begins with one of this tag that is written as everybody does, and
// shorter than 16 KB. If end is 0, it is up to cutField.
func quickBytes(msg []byte, tag byte) (start, end int) {
	if len(msg) < 2 || msg[0] != tag {
		return 0, 0
	}
	start, size := 2, int(msg[1])
	if size >= 0x80 {
		if len(msg) < 3 || msg[2] >= 0x80 {
			return 0, 0
		}
		start, size = 3, size&0x7f|int(msg[2])<<7
	}
	if size > len(msg)-start {
		return 0, 0
	}
	return start, start + size
}

// quickSample decodes a sample that msg begins with, written as everybody does,
// and returns how many bytes it takes, or 0 if it is up to sample.
func (d *Decoder) quickSample(msg []byte, known sampleFields) int {
	if len(msg) < 2 || msg[0] != 2<<3|BytesType || int(msg[1]) > len(msg)-2 || msg[1] >= 0x80 {
		return 0
	}
	end := 2 + int(msg[1])
	rest := msg[2:end]
	var s engine.Sample
	if len(rest) >= 9 && rest[0] == 1<<3|Fixed64Type {
		s.V, rest = math.Float64frombits(binary.LittleEndian.Uint64(rest[1:])), rest[9:]
	}
	if len(rest) >= 2 && rest[0] == 2<<3|VarintType {
		t, n := quickTime(rest[1:])
		s.T, rest = int64(t), rest[1+max(n, 0):]
	}
	if known == wireV2 && len(rest) >= 2 && rest[0] == 3<<3|VarintType {
		st, n := quickTime(rest[1:])
		s.ST, rest = int64(st), rest[1+max(n, 0):]
	}
	if len(rest) > 0 {
		return 0
	}
	d.addSample(s)
	return end
}

// quickTime is binary.Uvarint, quicker for milliseconds from 1971 to 2109, which
// take six bytes.
func quickTime(b []byte) (t uint64, n int) {
	const more, six = 0x8080_8080_8080, 0x0080_8080_8080
	if len(b) < 6 {
		return binary.Uvarint(b)
	}
	low, high := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint16(b[4:])
	x := uint64(low) | uint64(high)<<32
	if x&more != six {
		return binary.Uvarint(b)
	}
	return x&0x7f | x>>1&(0x7f<<7) | x>>2&(0x7f<<14) | x>>3&(0x7f<<21) | x>>4&(0x7f<<28) | x>>5&(0x7f<<35), 6
}

// quickRefs takes the references off that a TimeSeries begins with, if they are
// written as everybody does, and spells them: mostly that is all that is needed
// of them.
func (d *Decoder) quickRefs(msg []byte) (rest []byte) {
	d.refs, d.packed = d.refs[:0], nil
	start, end := quickBytes(msg, 1<<3|BytesType)
	if end == 0 || !d.spell(msg[start:end]) {
		return msg
	}
	d.packed = msg[start:end]
	return msg[end:]
}
