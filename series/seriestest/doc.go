// Package seriestest has what the tests of the stored format share: golden files,
// samples in shapes that occur, and chunks of them in every encoding.
package seriestest
