// Package chunk encodes the cells of sealed chunks, and builds the chunks that
// readers get.
//
// A cell of the family c holds samples of one window, 2^23 ms of a bucket, in few
// bytes: at least one and at most 65,535, each later than the one before. A window
// may have several such cells, and they may overlap.
//
//	qualifier  delta of the first sample: 4 bytes, delta of the last: 4 bytes, CRC-32C of the value: 4 bytes
//	value      encoding: 1 byte, stamp: 6 bytes, data
//
// All numbers are big-endian, and the checksum is that of Castagnoli. The stamp
// is a time in milliseconds, in [0, 9999999999999]. The encoding says what the
// data are:
//
//	1, 2, 3  floats (XOR), histograms of integers, histograms of floats
//	4, 5, 6  the same with start timestamps (XOR2 and two more)
//	128      floats, see package dense
//	129      floats, see Open chunks; never stored
//
// Those up to 127 are the numbers and bytes of package chunkenc of Prometheus;
// others than these are not in use. Times inside the data are milliseconds since
// 1970, not deltas.
//
// # Open chunks
//
// An open chunk holds samples in the order in which they came. A sample is appended
// in a few bytes and without a look at those before.
//
//	start    8 bytes, big-endian: the time from which the first sample counts
//	samples  change: varint, value
//
// The change is by how much the distance of a time from the one before is other than
// that of the time before. In front of the first sample are the start and a distance
// of 0. A value is a float or, in a chunk that does not leave its writer, another
// value as package cell has it:
//
//	float  head: 1 byte, the bytes of the float that differ, little-endian
//	other  0xff, size: uvarint, value
//
// A float differs by its bits from the float before, or from 0. The lowest three bits
// of the head are how many equal bytes lie below those that differ, the others how
// many differ.
package chunk
