package engine

import "context"

// SetBatchBytes changes what a batch of rows should come to, so that a test
// needs no millions of samples to see several of them.
func (e *Engine) SetBatchBytes(n int) { e.reader.BatchBytes = n }

// SetRowCells changes how many cells a read should meet in a row.
func (e *Engine) SetRowCells(n int) { e.reader.RowCells = n }

// SetMinScanSeries changes how many series a scan reads at least, if several read
// a batch side by side.
func (e *Engine) SetMinScanSeries(n int) { e.reader.MinScanSeries = n }

// Prewrite writes the queued series to the next index period.
func (e *Engine) Prewrite(ctx context.Context) error { return e.prewrite(ctx) }
