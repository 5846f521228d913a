package cell

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

// ExemplarQualifierSize is the size in bytes of a qualifier in the family of
// exemplars: a delta and a checksum, so that a series can have several exemplars
// at one time and the same one sent twice is one.
const ExemplarQualifierSize = series.QualifierSize + 4

// AppendExemplarQualifier appends delta and the CRC-32C (Castagnoli) of the
// value of the cell, big-endian.
func AppendExemplarQualifier(dst []byte, delta uint32, value []byte) []byte {
	dst = series.AppendQualifier(dst, delta)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli)))
}

// AppendExemplar appends the value of an exemplar, its eight bytes as
// AppendFloat writes them, and the names and values of its labels, each with its
// length as a uvarint in front. The time is not in it.
func AppendExemplar(dst []byte, e exemplar.Exemplar) []byte {
	dst = AppendFloat(dst, e.Value)
	e.Labels.Range(func(l labels.Label) {
		dst = binary.AppendUvarint(dst, uint64(len(l.Name)))
		dst = append(dst, l.Name...)
		dst = binary.AppendUvarint(dst, uint64(len(l.Value)))
		dst = append(dst, l.Value...)
	})
	return dst
}

// ParseExemplar is the inverse of AppendExemplarQualifier and AppendExemplar
// for a cell of the bucket at base. b is scratch space; the exemplar refers to
// neither argument.
func ParseExemplar(base int64, qual, value []byte, b *labels.ScratchBuilder) (e exemplar.Exemplar, err error) {
	if len(qual) != ExemplarQualifierSize || len(value) < 8 {
		return e, fmt.Errorf("%w: exemplar with a qualifier of %d and a value of %d bytes", series.ErrCorrupt, len(qual), len(value))
	}
	if sum := crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli)); sum != binary.BigEndian.Uint32(qual[series.QualifierSize:]) {
		return e, fmt.Errorf("%w: exemplar %.32x has another checksum than its qualifier %x", series.ErrCorrupt, value, qual)
	}
	e.Ts, e.HasTs = base+int64(binary.BigEndian.Uint32(qual)), true
	if e.Value, err = ParseFloat(value[:8]); err != nil {
		return e, err
	}
	b.Reset()
	for rest := value[8:]; len(rest) > 0; {
		var name, text []byte
		var ok bool
		if name, rest, ok = cutText(rest); ok {
			text, rest, ok = cutText(rest)
		}
		if !ok {
			return e, fmt.Errorf("%w: labels of exemplar %.32x", series.ErrCorrupt, value)
		}
		b.Add(string(name), string(text))
	}
	e.Labels = b.Labels()
	return e, nil
}

// cutText takes a text with its length in front off b.
func cutText(b []byte) (text, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, false
	}
	end := n + int(size)
	return b[n:end], b[end:], true
}
