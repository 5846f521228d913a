// Package merge makes one sequence of samples of the cells of a METRIC row: raw
// cells of several families, and chunks, which may overlap.
package merge
