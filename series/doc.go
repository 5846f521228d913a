// Package series turns label sets and times into the keys of what is stored, and
// back: row keys, column qualifiers, families, row ranges and the arithmetic of
// buckets, windows and periods. It and the packages below it are the whole stored
// format, version 1, and nothing else: pure functions over bytes, without I/O,
// clocks or state.
//
//	series/cell   what a cell of one sample or exemplar holds
//	series/chunk  what a cell of a sealed chunk holds, and the chunks that readers get
//	series/dense  our encoding of the floats of a chunk
//	series/xor    Prometheus' XOR encoding of them
//	series/merge  the cells of a row as one sequence of samples
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
//	                                                       5m, 1h  delta             rollup of a day      end of the day + count
//	                                                       d       delta             count                end of the day
//	CURRENT  series key                                    v       "v"               value                sample time
//	INDEX    p,<label>=<value>,<period>,<series key>       i       "i"               empty                end of period
//	         v,<label>,<period>,<value>                    i       "i"               value, unescaped     end of period
//	         n,<period>,<label>                            i       "i"               label, unescaped     end of period
//	META     schema                                        m       "v"               JSON                 write time
//	         horizon                                       m       "v"               JSON                 write time
//	         rollup                                        m       "v"               JSON                 write time
//	         tenant,<name>                                 m       "v"               JSON                 write time
//	         late,<day>                                    m       "v"               random text          write time
//	         delete                                        m       "v"               JSON                 write time
//	         delete,<id>                                   m       "v"               JSON                 write time
//	         delete,<id>,<log>                             m       "v"               JSON                 write time
//	         [tenant,]metadata,<metric family>             m       "v"               JSON                 write time
//	         [tenant,]ha,<cluster>                         m       "v"               JSON                 write time
//	         [tenant,]seal,<period>                        m       "v"               write time, decimal  write time
//
// Times of cells are whole milliseconds since 1970 UTC.
//
// Package cell draws the values and exemplars, package chunk the sealed chunks, package
// rollup the rollups.
//
// Of several samples at one time the one in l counts, then those in r0, r1, r2 and
// r3 in this order, then that of the chunk with the highest stamp, and of equal
// stamps that of the highest qualifier. A chunk begins in the window of a time
// that it holds: a read from a time on asks c for qualifiers from the start of
// its window on.
//
// # Days
//
// A day is 24 hours of UTC, without its first millisecond and with the first one of the next
// day. A rollup holds the samples of a row in a day, and 5m and 1h have one cell for each day.
// The delta in its qualifier is that of the start of the day, or 0 if the day began before the
// base: then the row before has the other part of the day.
//
// Family d is a sum family: a cell is changed by adding to it, and its value is the sum, a
// signed number of eight bytes, big-endian. A write of samples of a day adds 1 to the count of
// the day in their row. The delta in its qualifier is that of the rollups of the day. A rollup
// is of the count in its cell time, in milliseconds after the end of the day. An absent count
// is 0.
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
// escape, a cut text equals no other. The whole text is in the series key of
// a posting, and in the cell of a v or n row.
package series
