// Package xor encodes floats as Prometheus' chunks of encoding XOR, to the bit, and
// decodes them, many samples at once.
//
//	count   2 bytes, big-endian
//	first   time: varint, value: 8 bytes, big-endian
//	second  distance of the time from the first: uvarint, value
//	others  difference of the distance from the one before, value
//
// From the value of the second sample on these are bits, the highest of a byte
// first; the last byte is filled up with zeros.
//
//	difference  0                      0
//	            10, 14 bits            up to 2^13 and down to 1-2^13
//	            110, 17 bits           up to 2^16
//	            1110, 20 bits          up to 2^19
//	            1111, 64 bits          all others
//	value       0                      the bits of the value before
//	            10, bits               differs from it in the same significant bits as the one before
//	            11, leading: 5 bits, size: 6 bits, bits
//	                                   differs in so many significant bits, 0 is 64,
//	                                   behind so many leading zeros
package xor
