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
// in milliseconds, in four bytes, big-endian; the value is the IEEE-754 bits of
// the float64 in eight bytes, big-endian.
//
//	table    row key                                       family  qualifier         value                cell time
//	METRIC   key                                           r0..r3  delta             8 bytes: float64     sample time
//	                                                       l       delta             8 bytes: float64     arrival time
//	CURRENT  series key                                    v       "v"               8 bytes: float64     sample time
//	INDEX    p,<label>=<value>,<period>,<series key>       i       "i"               empty                end of period
//	         v,<label>,<period>,<value>                    i       "i"               value, unescaped     end of period
//	         n,<period>,<label>                            i       "i"               label, unescaped     end of period
//	META     schema                                        m       "v"               JSON                 write time
//
// Times of cells are whole milliseconds since 1970 UTC. A value that is not
// eight bytes long is of another kind, named by its first byte; this version
// writes none and refuses to read them. The families c (sealed chunks) and e
// (exemplars) of METRIC are reserved.
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
