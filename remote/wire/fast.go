package wire

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/promtable/promtable/remote/ingest"
)

// The functions here decode the encodings that senders use nearly always. What
// they do not decode is left to cutField, which takes every encoding.

// fastBytes returns where the content of a length-delimited field begins and ends. msg
// must begin with a field of this tag in its shortest encoding, of less than 16 KB.
// Otherwise end is 0.
func fastBytes(msg []byte, tag byte) (start, end int) {
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

// Tags of the fields of a sample, and of the sample in its series.
const (
	tagSample      = byte(2<<3 | protowire.BytesType)
	tagValue       = byte(1<<3 | protowire.Fixed64Type)
	tagTime        = byte(2<<3 | protowire.VarintType)
	tagSampleStart = byte(3<<3 | protowire.VarintType)
)

// fastSample decodes a sample that msg begins with, if its fields come in order
// and once. It returns how many bytes the sample takes, or 0.
func (d *decoder) fastSample(msg []byte, fields sampleFields) int {
	if len(msg) < 2 || msg[0] != tagSample || int(msg[1]) > len(msg)-2 || msg[1] >= 0x80 {
		return 0
	}
	end := 2 + int(msg[1])
	rest := msg[2:end]
	var s ingest.Sample
	if len(rest) >= 9 && rest[0] == tagValue {
		s.V, rest = math.Float64frombits(binary.LittleEndian.Uint64(rest[1:])), rest[9:]
	}
	if len(rest) >= 2 && rest[0] == tagTime {
		t, n := fastVarint(rest[1:])
		s.T, rest = int64(t), rest[1+max(n, 0):]
	}
	if fields == sampleFieldsV2 && len(rest) >= 2 && rest[0] == tagSampleStart {
		st, n := fastVarint(rest[1:])
		s.ST, rest = int64(st), rest[1+max(n, 0):]
	}
	if len(rest) > 0 {
		return 0
	}
	d.addSample(s)
	return end
}

// fastVarint is binary.Uvarint, faster for six bytes: milliseconds from 1971 to
// 2109.
func fastVarint(b []byte) (v uint64, n int) {
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

// fastCached takes the labels off that a TimeSeries of 1.0 begins with, if they
// are those of the series that is likely to come next. Otherwise cached is nil.
func (d *V1) fastCached(msg []byte) (cached ingest.Cached, text, rest []byte) {
	next, want := d.predict(formV1)
	// If no label follows the text, it is all that cutLabels would cut.
	if want == "" || len(msg) <= len(want) || msg[len(want)] == tagLabelV1 || string(msg[:len(want)]) != want {
		return nil, nil, nil
	}
	d.last = next
	return next.State, msg[:len(want)], msg[len(want):]
}

// fastLabels takes the labels off that a TimeSeries of 1.0 begins with: nearly
// always all of them.
func fastLabels(msg []byte) (text, rest []byte) {
	rest = msg
	for _, end := fastBytes(rest, tagLabelV1); end > 0; _, end = fastBytes(rest, tagLabelV1) {
		rest = rest[end:]
	}
	return msg[:len(msg)-len(rest)], rest
}

// fastRefs takes the packed label references off that a TimeSeries of 2.0 begins
// with, and makes the wire text of them. The references of a cached series are
// not needed again.
func (d *V2) fastRefs(msg []byte) (rest []byte) {
	d.refs, d.packed = d.refs[:0], nil
	start, end := fastBytes(msg, tagRefsV2)
	if end == 0 || !d.fastText(msg[start:end]) {
		return msg
	}
	d.packed = msg[start:end]
	return msg[end:]
}

// fastText makes the wire text of packed references. It returns false if they
// are no labels of this request, or very many. A symbol without a number has 0
// in the text: then the cache finds nothing.
func (d *V2) fastText(packed []byte) bool {
	if len(packed) > maxTextRefs {
		return false
	}
	text, numbers := d.beginText(len(packed)), d.numbers
	for i := 0; i < len(packed); {
		ref := uint64(packed[i])
		if i++; ref >= 0x80 {
			if i < len(packed) && packed[i] < 0x80 {
				ref = ref&0x7f | uint64(packed[i])<<7
				i++
			} else {
				var size int
				if ref, size = binary.Uvarint(packed[i-1:]); size <= 0 {
					return false
				}
				i += size - 1
			}
		}
		if ref >= uint64(len(numbers)) {
			return false
		}
		text = binary.LittleEndian.AppendUint32(text, numbers[ref])
	}
	d.text = text
	return true
}
