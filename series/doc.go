// Package series turns a label set and a time into the bytes that are stored:
// row keys, column qualifiers, cell values and row ranges, and back again. It
// is the whole stored format, version 1, and nothing else: pure functions over
// bytes, without I/O, clocks or state.
//
// # Rows
//
// A series is a sorted label set. It has one row in METRIC for each base, a
// period of 2^32 ms (49.7 days), and one row in CURRENT. A sample is one cell
// of a METRIC row: the column qualifier is the delta, its distance from the base
// in milliseconds, in four bytes, big-endian.
//
//	table    row key                                       family  qualifier         value                cell time
//	METRIC   key                                           r0..r3  delta             value                sample time
//	                                                       l       delta             value                arrival time
//	                                                       c       deltas, checksum  sealed chunk         time of the last sample
//	                                                       e       delta, checksum   exemplar             sample time
//	CURRENT  series key                                    v       "v"               value                sample time
//	INDEX    p,<label>=<value>,<period>,<series key>       i       "i"               empty                end of period
//	         v,<label>,<period>,<value>                    i       "i"               value, unescaped     end of period
//	         n,<period>,<label>                            i       "i"               label, unescaped     end of period
//	META     schema                                        m       "v"               JSON                 write time
//	         [tenant,]metadata,<metric family>             m       "v"               JSON                 write time
//	         [tenant,]ha,<cluster>                         m       "v"               JSON                 write time
//
// Times of cells are whole milliseconds since 1970 UTC.
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
// An exemplar is its value as a float, then name and value of each of its
// labels, sorted, each text with its length as a uvarint in front. The checksum
// in its qualifier is the CRC-32C of that, four bytes, big-endian: the same
// exemplar sent twice is one, and two at one time are two.
//
// # Sealed chunks
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
//	128      floats, see Dense chunks
//	129      floats, see AppendOpen; no writer stores it
//
// Those up to 127 are the numbers and bytes of package chunkenc of Prometheus;
// others than these are not in use. Times inside the data are milliseconds since
// 1970, not deltas.
//
// Of several samples at one time the one in l counts, then those in r0, r1, r2 and
// r3 in this order, then that of the chunk with the highest stamp, and of equal
// stamps that of the highest qualifier. A chunk begins in the window of a time
// that it holds: a read from a time on asks c for qualifiers from the start of
// its window on.
//
// # Dense chunks
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
//
// # Keys
//
// Keys are text, so that they can be read in Key Visualizer and cbt:
//
//	key        = [ tenant "," ] name { "," label "=" value } "," base { "," resource }
//	series key = [ tenant "," ] name { "," label "=" value } { "," resource }
//
// Name is the value of __name__ and may be empty. Labels are sorted by name;
// __name__ and the resource labels are left out of the list. Base and period
// are times in milliseconds, 13 decimal digits, padded with zeros, so that
// order of bytes is order of time. Resource is the value of each label that
// the [Schema] calls a resource label, sorted by label name; all of them are
// there, an absent one as the empty text. They follow the base so that one
// scan of a base meets the resources of a series together.
//
// Escapes keep a key parseable and free of NUL:
//
//	\  as \\     ,  as \,     newline  as \n     NUL  as \0     =  as \=, in label names only
//
// A text has exactly one escaped form and parsing accepts no other, so that
// one series has one key; a set without labels has none. Because a label may
// have any name, even "1297080123392", a scan over a prefix can meet keys of
// other series: each key read through a range is parsed and compared.
//
// # Long texts in the index
//
// In INDEX the texts <label>=<value>, <label> and <value> are limited to 512
// bytes each. A longer one, measured after escaping, is cut at the last escape
// boundary at or before byte 478 and followed by \# and the first 16 bytes of
// the SHA-256 of the whole escaped text, in lower-case hex. Because \# is no
// escape, a cut text equals no other. Whoever needs the text finds it in the
// series key of a posting or in the cell of a v or n row.
package series
