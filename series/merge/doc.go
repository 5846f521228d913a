// Package merge makes one sequence of samples of the cells of a METRIC row: raw
// cells of several families, and chunks, which may overlap.
//
//	row.go     the cells of a row in, runs of samples out
//	runs.go    which of the overlapping cells and chunks has the next sample
//	whole.go   chunks that come whole, undecoded, and floats at regular times
//	decode.go  the samples of a chunk
package merge
