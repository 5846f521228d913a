// Package cell encodes what a cell of one sample or one exemplar holds.
//
// # Values
//
// A value of eight bytes is a float64: its IEEE-754 bits, big-endian. Any other
// begins with a byte that says its kind, and is never eight bytes long. So a
// series has one column at a time, whatever is in it, and the last write wins.
//
//	1  float with a start timestamp   start: 8 bytes, value: 8 bytes
//	2  histogram of integers          hint: 1 byte, start: varint, schema: varint, zero threshold, sum,
//	                                  count: uvarint, zero count: uvarint,
//	                                  positive spans, negative spans, positive deltas, negative deltas, custom values
//	3  histogram of floats            the same, but counts and buckets are floats, and buckets are absolute
//
// A float is eight bytes, big-endian; varint and uvarint are those of
// encoding/binary. A list is its length as a uvarint, and its elements: a span
// is its offset as a varint and its length as a uvarint, a delta is a varint.
// Start timestamps are milliseconds, 0 is unknown. Hints and schemas have the
// numbers of package histogram of Prometheus.
//
// # Exemplars
//
// An exemplar is its value as a float, then name and value of each of its
// labels, sorted, each text with its length as a uvarint in front. The checksum
// in its qualifier is the CRC-32C of that, four bytes, big-endian: the same
// exemplar sent twice is one, and two at one time are two.
package cell
