package engine

// SetBatchBytes changes what a batch of rows should come to, so that a test
// needs no millions of samples to see several of them.
func (e *Engine) SetBatchBytes(n int) { e.batchBytes = n }

// SetRowCells changes how many cells a read should meet in a row.
func (e *Engine) SetRowCells(n int) { e.rowCells = n }
