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
//	129      floats, see AppendOpen; never stored
//
// Those up to 127 are the numbers and bytes of package chunkenc of Prometheus;
// others than these are not in use. Times inside the data are milliseconds since
// 1970, not deltas.
package chunk
