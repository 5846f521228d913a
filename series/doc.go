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
//	                                                       e       delta, checksum   exemplar             sample time
//	CURRENT  series key                                    v       "v"               value                sample time
//	INDEX    p,<label>=<value>,<period>,<series key>       i       "i"               empty                end of period
//	         v,<label>,<period>,<value>                    i       "i"               value, unescaped     end of period
//	         n,<period>,<label>                            i       "i"               label, unescaped     end of period
//	META     schema                                        m       "v"               JSON                 write time
//	         [tenant,]metadata,<metric family>             m       "v"               JSON                 write time
//	         [tenant,]ha,<cluster>                         m       "v"               JSON                 write time
//
// Times of cells are whole milliseconds since 1970 UTC. The family c (sealed
// chunks) of METRIC is reserved.
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
