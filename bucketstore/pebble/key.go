package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/promtable/promtable/bucketstore"
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

// tableByte is the first byte of all keys of a table. It is never 0, so that it
// cannot look like a part of the end mark.
func tableByte(t bucketstore.Table) byte { return byte(t) + 1 }

// appendBound appends what sorts before all cells of the row key and of the
// rows after it, and after all cells of the rows before it.
func appendBound(dst []byte, table byte, key []byte) []byte {
	dst = append(dst, table)
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

// appendRow appends what all cells of the row key, and only those, begin with.
func appendRow(dst []byte, table byte, key []byte) []byte {
	return append(appendBound(dst, table, key), rowEnd...)
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

// rangeBounds returns the stored keys that hold the rows of r.
func rangeBounds(table byte, r series.RowRange) (lower, upper []byte) {
	lower = appendBound(nil, table, r.Start)
	if len(r.Limit) == 0 {
		return lower, []byte{table + 1}
	}
	return lower, appendBound(nil, table, r.Limit)
}

// splitRow returns the size of the row in a stored key, end mark included, or
// the size of a key without one.
func splitRow(key []byte) int {
	if n := bytes.Index(key, rowEnd); n >= 0 {
		return n + len(rowEnd)
	}
	return len(key)
}

// parseRow returns the row key in row, which is a stored key up to and including
// the end mark. dst is used as space if the key must be unescaped; else the key
// is a part of row.
func parseRow(dst, row []byte) (key []byte, err error) {
	if !bytes.HasSuffix(row, rowEnd) {
		return nil, fmt.Errorf("%w: stored key %q has no end mark", series.ErrCorrupt, row)
	}
	text := row[1 : len(row)-len(rowEnd)]
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

// putCell writes a stored value to dst, which has room for exactly that.
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
