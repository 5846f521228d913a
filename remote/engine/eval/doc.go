// Package eval evaluates PromQL while it reads series: what it holds of a query is its
// result, and of each core the samples of one series and the columns of a batch.
//
// It stands in front of upstream's engine, behind the same interface. Of each expression
// it evaluates itself the parts that read series, which look like this:
//
//	part     = aggregation over elements | elements
//	elements = selector | function of a range selector | elements and a number
//
// In place of a part upstream's engine sees a selector, whose series have the results of
// the part as samples, one at each step. So joins, sorting, histogram_quantile and all
// the rest are upstream's. If a part is the whole expression, its results are the answer. A part that meets what it does not know gives up: then upstream's
// engine evaluates it, from the beginning, see query.Exec.
//
// Results are upstream's to the bit: the same additions in the same order.
//
//	engine.go     the engine: queries, and their parts
//	plan.go       which parts an expression has
//	part.go       one part, evaluated
//	batch.go      its series in batches, several at the same time
//	cores.go      how many goroutines of queries compute
//	read.go       the samples of a series, and windows of them
//	window.go     functions over windows of samples
//	mixed.go      windows of a series with native histograms
//	rollups.go    windows of buckets, histogrampoints.go those of native histograms
//	element.go    operators between elements and a number
//	group.go      groups of series
//	aggregate.go  sum, avg, count, group, min, max, stddev, stdvar, quantile
//	histogram.go  sums and averages of native histograms
//	topk.go       topk and bottomk, countvalues.go count_values
//	limit.go      the first series of a result
//	memory.go     how much memory queries hold
//	stats.go      how many samples are read
//	explain.go    what streams of an expression, and why the rest does not
//	report.go     what was streamed, of a query that has run
//	column.go     the values of a series at the steps; as a series of upstream's
package eval
