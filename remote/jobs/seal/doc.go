// Package seal slots the raw cells of METRIC into chunks, for stores whose
// samples are written by bucketstore.Direct. A raw cell costs tens of bytes for a
// sample, a chunk one or two. Reads find the same samples before, while and
// after.
//
//	why that is so           fence.go
//	the lease, the progress  lease.go
//	which rows, in order     walk.go
//	older rows, now and then older.go, late.go
//	reading rows, batches    batch.go
//	what becomes of a row    row.go
//	clocks that disagree     clock.go, comparison.go
package seal
