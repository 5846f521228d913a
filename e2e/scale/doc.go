// Package scale tests that memory follows the series and not the samples: many series
// in one adapter, and many samples in one answer.
package scale
