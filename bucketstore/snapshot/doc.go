// Package snapshot copies an embedded store and the log of its buffer, while both are in use, and copies such copies.
//
//	snapshot.go  taking one; reading what it has
//	copy.go      to another place, and back to a data directory
//
// A snapshot is a data directory: an adapter can be started on it. Beside the files of the store it has
//
//	buffer/    the log, as it was a moment before the store: all that was acknowledged before the request is in one of both
//	SNAPSHOT   when it was taken, and the names, sizes and sums of all other files, as JSON. It is written last
//
// What the log has is not removed from it before both are copied. So a start on them is one after a loss of power: it replays the log.
//
// Tables and full segments of the log do not change once they are written. A snapshot on the same file system as the store has
// hard links to them: it takes no room until the store removes its own.
package snapshot
