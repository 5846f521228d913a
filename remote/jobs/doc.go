// Package jobs is a kit for the work that runs beside requests, over the store and its index:
//
//	lease.go  the right to do a work, held by one process at a time, with the state of the work
//	walk.go   the series of index periods, one step after another, from a position on
//	pace.go   how many rows a second a work reads
//	loop.go   a work that is done again and again
//	notes.go  what is to be looked at later, as rows of META
//
// The jobs are in the directories beneath: sealing, rollups, retention and deletion. What is
// special to one of them stays there.
package jobs
