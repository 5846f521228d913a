// Package pebble is the [bucketstore.Store] on the local disk: rows in an
// embedded Pebble database, in one directory that one process holds.
//
// # Durability
//
// A write is answered after the fsync of Pebble's write-ahead log; writes that
// run at the same time share one. Nothing that was answered is lost by kill -9
// or by power loss. When the log cannot be written or synced, or stored bytes
// turn out to be damaged, the process ends with a message: after a failed fsync
// the content of the disk is unknown, and another try could report a success that is none.
//
// # Layout, format 2
//
// A directory of an older format is refused: format 0 knew no days, format 1 none
// in INDEX. Every cell is one pair of Pebble:
//
//	key    table  day               row key, escaped  0x00 0x01  family  0x00  qualifier
//	       1 B    4 B, big-endian   0x00 is 0x00 0xff             text          to the end
//	       METRIC and INDEX
//
//	value  cell time, ms     value
//	       8 B, big-endian   to the end
//
// The first byte is 1 for METRIC, 2 for CURRENT, 3 for INDEX, 4 for META. Order
// of these bytes is the order of the contract, in METRIC and INDEX within a day:
// the end mark 0x00 0x01 sorts before every byte that may follow in a longer row
// key, and the NUL after a family before every letter or digit of a longer family
// name.
//
// # Days
//
// Samples arrive in order of time, for all series at once, and so do the index
// periods in which series are found. So METRIC and INDEX lie by time first, but
// coarsely: what is new comes behind all that is there, and a day that is over is
// never compacted again, only dropped when all of it has expired. In METRIC the
// day is
//
//	(base + delta) / 86,400,000
//
// in whole days since 1970, of the base in the row key and the delta, which is
// the first four bytes of the qualifier, NULs taking the place of missing ones. In
// INDEX it is as long as an index period, and is that of the period in the row key:
//
//	period / 2^29
//
// The base is the 13 digits of a multiple of 2^32, the period of 2^29, behind the
// first unescaped comma that has a digit behind it, at the end of the key or before
// a comma. Any other row lies whole in day 0xffffffff. Nothing else goes into the
// day, so that every operation on a column finds it, and the days of a row in their
// order hold the cells of a family in theirs.
//
// A scan merges the days that its rows and deltas can lie in. It knows from
// memory which days there are: the set is read at the start, by one seek for
// each day, and every write adds to it before it becomes visible.
//
// # Engine
//
// What stands before and including the end mark is Pebble's prefix. There are no
// Bloom filters: scans ask none, and conditions are few. A cell is written as a
// merge operand and the merger keeps the one with the greatest time, so that no
// write reads before. To delete a family is a range tombstone, where there are
// days one for each. The names of the comparer and of the merger are recorded by
// Pebble and belong to the format.
//
// The directory holds two files of our own beside those of Pebble: FORMAT, which
// names the format and is checked at each start, and OWNER, which says who
// holds the directory. In the directory ingest large batches become tables before
// Pebble takes them over.
package pebble
