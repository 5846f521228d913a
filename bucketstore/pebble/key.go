package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/promtable/promtable/series"
)

// Bytes of stored keys, see the package comment.
const (
	escape     = 0x00 // begins an escaped NUL and the end mark
	escapedNUL = 0xff
	endMark    = 0x01
	afterEnd   = 0x02 // sorts after every column of a row
	familyEnd  = 0x00
	timeSize   = 8
)

var rowEnd = []byte{escape, endMark}

// The first bytes of stored keys, one for each layer; those of rollups are in the table of package rollup. None is 0, so that it cannot look like
// the start of an end mark.
const (
	rawByte byte = iota + 1
	currentByte
	indexByte
	metaByte
	countByte
)

// hasDays says whether a layer has days.
func hasDays(first byte) bool { return calendars[first] != nil }

// headSize is the size of the head of the keys of a layer: all before the row.
func headSize(first byte) int {
	if hasDays(first) {
		return 1 + daySize
	}
	return 1
}

// appendHead appends the head of the keys of a layer, for this day if it has days.
func appendHead(dst []byte, first byte, day uint32) []byte {
	dst = append(dst, first)
	if hasDays(first) {
		dst = binary.BigEndian.AppendUint32(dst, day)
	}
	return dst
}

// putDay replaces the day in a stored key of a layer that has days.
func putDay(key []byte, day uint32) { binary.BigEndian.PutUint32(key[1:], day) }

// appendHeadLimit appends what sorts after all keys with this head.
func appendHeadLimit(dst []byte, first byte, day uint32) []byte {
	if !hasDays(first) || day == noDay {
		return append(dst, first+1)
	}
	return appendHead(dst, first, day+1)
}

// appendBound appends what, after a head, sorts before all cells of the row key and of
// later rows, and after all cells of earlier rows.
func appendBound(dst, key []byte) []byte {
	for {
		n := bytes.IndexByte(key, escape)
		if n < 0 {
			return append(dst, key...)
		}
		dst = append(dst, key[:n]...)
		dst = append(dst, escape, escapedNUL)
		key = key[n+1:]
	}
}

// appendRow appends the row of stored keys, which only the cells of the row key have after
// the head.
func appendRow(dst, key []byte) []byte {
	return append(appendBound(dst, key), rowEnd...)
}

// appendAfterRow appends what sorts after all cells with this row, end mark included, and
// before the next row.
func appendAfterRow(dst, row []byte) []byte {
	dst = append(dst, row...)
	dst[len(dst)-1] = afterEnd
	return dst
}

// appendColumn appends what follows the row in the key of a cell.
func appendColumn(dst []byte, family string, qualifier []byte) []byte {
	dst = append(dst, family...)
	dst = append(dst, familyEnd)
	return append(dst, qualifier...)
}

// appendColumnLimit appends what sorts after all columns of a family and before
// those of the next.
func appendColumnLimit(dst []byte, family string) []byte {
	dst = append(dst, family...)
	return append(dst, familyEnd+1)
}

// appendLower appends the lower bound of the stored keys of the rows of r in a layer, in this
// day if it has days.
func appendLower(dst []byte, first byte, day uint32, r series.RowRange) []byte {
	return appendBound(appendHead(dst, first, day), r.Start)
}

// appendUpper appends their upper bound.
func appendUpper(dst []byte, first byte, day uint32, r series.RowRange) []byte {
	if len(r.Limit) == 0 {
		return appendHeadLimit(dst, first, day)
	}
	return appendBound(appendHead(dst, first, day), r.Limit)
}

// splitRow returns the size of the head and the row in a stored key, end mark
// included, or the size of a key without an end mark.
func splitRow(key []byte) int {
	if len(key) == 0 {
		return 0
	}
	head := headSize(key[0]) // A day may look like an end mark.
	if len(key) < head {
		return len(key)
	}
	if n := bytes.Index(key[head:], rowEnd); n >= 0 {
		return head + n + len(rowEnd)
	}
	return len(key)
}

// parseRow returns the row key of row, which is the part of a stored key after the head,
// end mark included. dst is space for unescaping; if nothing is escaped the result is a
// part of row.
func parseRow(dst, row []byte) (key []byte, err error) {
	if !bytes.HasSuffix(row, rowEnd) {
		return nil, fmt.Errorf("%w: stored key %q has no end mark", series.ErrCorrupt, row)
	}
	text := row[:len(row)-len(rowEnd)]
	for {
		n := bytes.IndexByte(text, escape)
		switch {
		case n < 0 && len(dst) == 0:
			return text, nil
		case n < 0:
			return append(dst, text...), nil
		case n+1 == len(text) || text[n+1] != escapedNUL:
			return nil, fmt.Errorf("%w: stored key %q has a bad escape", series.ErrCorrupt, row)
		}
		dst = append(dst, text[:n+1]...)
		text = text[n+2:]
	}
}

// isSum says whether a stored key is that of a cell of a sum family.
func isSum(key []byte) bool { return len(key) > 0 && key[0] == countByte }

// putCell writes a stored value to dst, which has exactly its size.
func putCell(dst []byte, t int64, value []byte) {
	binary.BigEndian.PutUint64(dst, uint64(t))
	copy(dst[timeSize:], value)
}

// parseCell is the inverse of putCell. value is a part of stored.
func parseCell(stored []byte) (t int64, value []byte, err error) {
	if len(stored) < timeSize {
		return 0, nil, fmt.Errorf("%w: stored value %x has no time", series.ErrCorrupt, stored)
	}
	return int64(binary.BigEndian.Uint64(stored)), stored[timeSize:], nil
}
