// Package dense encodes the floats of a chunk in few bytes.
//
// A dense chunk holds the times and then the values of its samples, both as
// sequences of integers. All arithmetic is that of 64 bits, modulo 2^64.
//
//	count     uvarint, 1 to 65535
//	start     uvarint: the first time
//	sequence  the times, as distances from start
//	kind      1 byte: how values follow from integers; 128 more if there are odd values
//	odd       only with odd values: how many as a uvarint, and for each how many
//	          values lie between the one before, or the front, and it as a uvarint,
//	          and the float itself, whatever its integer says
//	start     the first integer: a varint for kinds up to 15, else 8 bytes, big-endian
//	sequence  the integers, as distances from start
//
//	kind 0..15  the integer divided by 10 to the power of the kind, both as float64
//	     16     the bits of the float; those below the sign are inverted if the sign is set
//	     17     no sequence, and no odd values: start are the bits of the first float, and what
//	            follows are the bits that an XOR chunk has for each further value; the
//	            last byte is filled up with zeros
//
// A sequence of n integers q(0), q(1) ..., of which q(0) is 0, is empty if n is 1.
// Otherwise its n-1 residuals r(1), r(2) ... are in blocks of 128, the last one of
// fewer. All integers are divided by the factor, 1 if there is none.
//
//	mode    1 byte: the order, 8 more if there is a factor
//	factor  only with a factor: uvarint
//	step    only for the orders 2, 3, 4: varint
//	blocks  but for order 3
//
//	order 0  q(i) = r(i)
//	      1  q(i) = q(i-1) + r(i)
//	      2  q(i) = q(i-1) + d(i), d(i) = d(i-1) + r(i), d(0) = step
//	      3  q(i) = i * step
//	      4  q(i) = i * step + r(i)
//
// A block is:
//
//	head      1 byte: the width, 0 to 56, or 57 for 64; 64 more if it is sparse, 128 more with outliers
//	lowest    varint
//	bitmap    only if sparse: a bit for each residual, that of number i of the block
//	          is bit i%8 of byte i/8; where it is not set the residual is 0 and left out
//	outliers  only with outliers: how many, 1 byte, and for each its number among the
//	          residuals that are not left out, 1 byte, and its distance from lowest, varint
//	packed    for each residual that is not left out its distance from lowest in
//	          width bits; bit b of them all is bit b%8 of byte b/8, the last byte is
//	          filled up with zeros. An outlier has zeros here
package dense
