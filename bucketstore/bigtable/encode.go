package bigtable

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/promtable/promtable/bucketstore"
)

// Row mutations are written by hand as the bytes of google.bigtable.v2, because
// what the client costs is the objects that it makes of each cell. Fields with
// the default value are left out, as generated code does. A tag is a field's
// number and, in its lowest three bits, its type: 2 for bytes, 0 for a varint.
const (
	requestTable   = 1<<3 | 2 // MutateRowsRequest.table_name
	requestEntry   = 2<<3 | 2 // MutateRowsRequest.entries
	requestProfile = 3<<3 | 2 // MutateRowsRequest.app_profile_id

	entryKey      = 1<<3 | 2 // MutateRowsRequest.Entry.row_key
	entryMutation = 2<<3 | 2 // MutateRowsRequest.Entry.mutations

	mutationSetCell      = 1<<3 | 2 // Mutation.set_cell
	mutationDeleteColumn = 2<<3 | 2 // Mutation.delete_from_column
	mutationDeleteFamily = 3<<3 | 2 // Mutation.delete_from_family
	mutationDeleteRow    = 4<<3 | 2 // Mutation.delete_from_row

	// What names a cell is the same in all of them.
	setFamily    = 1<<3 | 2 // family_name
	setQualifier = 2<<3 | 2 // column_qualifier

	setTime     = 3<<3 | 0 // Mutation.SetCell.timestamp_micros
	setValue    = 4<<3 | 2 // Mutation.SetCell.value
	columnRange = 3<<3 | 2 // Mutation.DeleteFromColumn.time_range
	rangeEnd    = 2<<3 | 0 // TimestampRange.end_timestamp_micros
)

// sizeField returns the size of a field that holds n bytes.
func sizeField(n int) int { return 1 + protowire.SizeBytes(n) }

// sizeBytes returns the size of a field of n bytes that is left out if it is
// empty.
func sizeBytes(n int) int {
	if n == 0 {
		return 0
	}
	return sizeField(n)
}

// sizeNumber returns the size of a field that holds v, left out if it is 0.
func sizeNumber(v int64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(uint64(v))
}

// appendLen appends the start of a field of n bytes, which are to follow.
func appendLen(dst []byte, tag byte, n int) []byte {
	return protowire.AppendVarint(append(dst, tag), uint64(n))
}

// appendBytes appends a field, unless it is empty.
func appendBytes[T string | []byte](dst []byte, tag byte, b T) []byte {
	if len(b) == 0 {
		return dst
	}
	return append(appendLen(dst, tag, len(b)), b...)
}

// appendNumber appends a field, unless it is 0.
func appendNumber(dst []byte, tag byte, v int64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(append(dst, tag), uint64(v))
}

// sizeSetCell returns the size of the body of a SetCell at t, in milliseconds.
func sizeSetCell(family string, qualifier int, t int64, value int) int {
	return sizeBytes(len(family)) + sizeBytes(qualifier) + sizeNumber(t*1000) + sizeBytes(value)
}

// sizeMutation returns the size of a mutation in its entry, given that of its
// body.
func sizeMutation(body int) int { return sizeField(sizeField(body)) }

// appendMutation appends the start of a mutation of the given kind to an entry;
// its body is to follow.
func appendMutation(dst []byte, kind byte, body int) []byte {
	return appendLen(appendLen(dst, entryMutation, sizeField(body)), kind, body)
}

// sizeRange returns the size of the range of times before t.
func sizeRange(t int64) int { return sizeNumber(t * 1000) }

// sizeOp returns the size of the body of an operation.
func sizeOp(op *bucketstore.Op) int {
	switch op.Kind {
	case bucketstore.SetCell:
		return sizeSetCell(op.Family, len(op.Qualifier), op.Time, len(op.Value))
	case bucketstore.DeleteColumn:
		return sizeBytes(len(op.Family)) + sizeBytes(len(op.Qualifier))
	case bucketstore.DeleteColumnBefore:
		return sizeBytes(len(op.Family)) + sizeBytes(len(op.Qualifier)) + sizeField(sizeRange(op.Time))
	}
	return sizeBytes(len(op.Family)) // DeleteFamily
}

// appendOp appends an operation to an entry.
func appendOp(dst []byte, op *bucketstore.Op) []byte {
	size := sizeOp(op)
	switch op.Kind {
	case bucketstore.SetCell:
		dst = appendMutation(dst, mutationSetCell, size)
	case bucketstore.DeleteColumn, bucketstore.DeleteColumnBefore:
		dst = appendMutation(dst, mutationDeleteColumn, size)
	case bucketstore.DeleteFamily:
		return appendBytes(appendMutation(dst, mutationDeleteFamily, size), setFamily, op.Family)
	}
	dst = appendBytes(dst, setFamily, op.Family)
	dst = appendBytes(dst, setQualifier, op.Qualifier)
	switch op.Kind {
	case bucketstore.SetCell:
		dst = appendNumber(dst, setTime, op.Time*1000)
		dst = appendBytes(dst, setValue, op.Value)
	case bucketstore.DeleteColumnBefore:
		dst = appendLen(dst, columnRange, sizeRange(op.Time))
		dst = appendNumber(dst, rangeEnd, op.Time*1000)
	}
	return dst
}

// appendEntry appends the start of an entry, whose row key and mutations, of the
// given sizes, are to follow.
func appendEntry(dst []byte, key, mutations int) []byte {
	return appendLen(appendLen(dst, requestEntry, sizeField(key)+mutations), entryKey, key)
}

// appendRow appends a row of operations. Those that change nothing are left out.
func appendRow(dst []byte, m *bucketstore.Mutation) []byte {
	size := 0
	for i := range m.Ops {
		if !isNoOp(&m.Ops[i]) {
			size += sizeMutation(sizeOp(&m.Ops[i]))
		}
	}
	dst = append(appendEntry(dst, len(m.Key), size), m.Key...)
	for i := range m.Ops {
		if !isNoOp(&m.Ops[i]) {
			dst = appendOp(dst, &m.Ops[i])
		}
	}
	return dst
}

// appendDeletion appends the deletion of the row with this key.
func appendDeletion(dst, key []byte) []byte {
	dst = append(appendEntry(dst, len(key), sizeMutation(0)), key...)
	return appendMutation(dst, mutationDeleteRow, 0)
}

// appendHead appends what stands before the entries: the table, by its full
// name, and the app profile.
func appendHead(dst []byte, table, profile string) []byte {
	return appendBytes(appendBytes(dst, requestTable, table), requestProfile, profile)
}
