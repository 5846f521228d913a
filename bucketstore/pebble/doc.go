// Package pebble is the [bucketstore.Store] on the local disk: rows in an
// embedded Pebble database, in one directory that one process holds.
//
// # Durability
//
// A write returns after the fsync of Pebble's write-ahead log; concurrent writes share one.
// No acknowledged write is lost by kill -9 or by power loss. If the log cannot be written
// or synced, the process ends with a message. After a failed fsync the content of the disk
// is unknown, so that a retry could report a false success.
//
// # Damage
//
// A damaged table fails the reads and compactions that need the damaged part, with an error
// that names the file; everything else goes on. A damaged manifest or log stops the start, before
// Pebble writes or deletes anything. What cannot be told from an unfinished write after a crash is
// left out: damage in the last write of a log, the loss of its end, and zeros where the last few were.
//
// CheckTables reads every block of every table, of a store that no process uses.
//
// # Layout, format 3
//
// Every cell is one key-value pair of Pebble:
//
//	key    layer  day               row key, escaped  0x00 0x01  family  0x00  qualifier
//	       1 B    4 B, big-endian   0x00 is 0x00 0xff             text          to the end
//	              METRIC and INDEX
//
//	value  cell time, ms     value
//	       8 B, big-endian   to the end
//
// A layer is a table, or a resolution of METRIC:
//
//	1  METRIC, but for the families below    5  METRIC, family d
//	2  CURRENT                               6  METRIC, family 5m
//	3  INDEX                                 7  METRIC, family 1h
//	4  META
//
// These bytes sort as the contract wants it, in METRIC and INDEX within a layer and day. The end mark 0x00 0x01 sorts
// before every byte that may follow in a longer row key. The NUL after a family sorts
// before every letter or digit of a longer family name.
//
// A directory of another format is refused by its number.
//
// # Days
//
// Samples arrive in order of time, for all series at once, and so do the index periods of
// series. So keys of METRIC and INDEX begin with the time, but coarsely. New data sorts
// after all old data of its layer; a past day is never compacted again, only dropped when all of
// it has expired. Rollups are made when their day is over: in layers of their own they leave the
// samples of the day alone. In METRIC the day is
//
//	(base + delta) / 86,400,000
//
// in whole days since 1970. The base is in the row key; the delta is the first four bytes
// of the qualifier, padded with NULs. Hourly rollups are few, so their days are bases, and in
// INDEX a day is as long as an index period. Both come from the time in the row key:
//
//	base / 2^32
//	period / 2^29
//
// The base is the 13 digits of a multiple of 2^32, the period of 2^29, after the first
// unescaped comma that a digit follows, at the end of the key or before a comma. Any other
// row lies in day 0xffffffff. The day depends on nothing else, so every operation on a
// column finds it. The days of a row, in their order, hold the cells of a family in theirs.
//
// A scan merges the days of its rows and deltas, in the layers of its families. The set of days
// of each layer is in memory: it is read at the start, by one seek for each day, and every write
// adds its days before it becomes visible.
//
// # Engine
//
// The key up to and including the end mark is Pebble's prefix. There are no Bloom filters:
// scans do not use them, and conditions are few. A cell is written as a merge operand, and
// the merger keeps the cell with the greatest time, so that no write needs a read. In layer 5 it
// adds the values of cells of equal times, which are numbers of eight bytes, big-endian. To
// delete a family is a range tombstone, one for each day. Pebble records the names of the
// comparer and of the merger; they belong to the format.
//
// The directory holds files of our own beside those of Pebble: FORMAT, which is checked at
// each start, OWNER, which names the process that holds the directory, and SCHEMA, a copy of
// META/schema. RESERVE takes space for a start on a full disk. In the directory ingest, large batches are written as tables that Pebble then ingests.
package pebble
