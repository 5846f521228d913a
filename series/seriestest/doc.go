// Package seriestest holds what tests of the stored format share: samples in
// shapes that occur, chunks of them in every encoding, and a reader of rows.
package seriestest
