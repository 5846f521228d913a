// Package pebble is the [bucketstore.Store] on the local disk: rows in an
// embedded Pebble database, in one directory that one process holds.
//
// # Durability
//
// A write is answered after the fsync of Pebble's write-ahead log; writes that
// run at the same time share one. Nothing that was answered is lost by kill -9
// or by power loss. When the log cannot be written or synced, or stored bytes
// turn out to be damaged, the process ends with a message: after a failed fsync
// nobody knows what the disk holds, so to go on or to try again would be to lie.
//
// # Layout, format 0
//
// Format 0 is provisional: the simplest that keeps the contract. A later
// version may refuse it. Every cell is one pair of Pebble:
//
//	key    table  row key, escaped  0x00 0x01  family  0x00  qualifier
//	       1 B    0x00 is 0x00 0xff             text          to the end
//
//	value  cell time, ms     value
//	       8 B, big-endian   to the end
//
// The first byte is 1 for METRIC, 2 for CURRENT, 3 for INDEX, 4 for META. Order
// of these bytes is the order of the contract: the end mark 0x00 0x01 sorts
// before every byte that may follow in a longer row key, and the NUL after a
// family before every letter or digit of a longer family name.
//
// What stands before and including the end mark is Pebble's prefix, for Bloom
// filters. A cell is written as a merge operand and the merger keeps the one
// with the greatest time, so that no write reads before. To delete a family is
// a range tombstone. The names of the comparer and of the merger are recorded
// by Pebble and belong to the format.
//
// The directory holds two files of our own beside those of Pebble: FORMAT, which
// names the format and is checked at each start, and OWNER, which says who
// holds the directory.
package pebble
