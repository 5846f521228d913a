package bucketstore

// A Usage says what a store on the local disk takes.
type Usage struct {
	// Bytes are those of all its files. Those of days that were deleted and still have their
	// files are left out.
	Bytes uint64
	// Days are the days of METRIC with cells, in order.
	Days []DayUsage
}

// A DayUsage is a day of sample times and about how many bytes it takes.
type DayUsage struct {
	// End is when it is over, in milliseconds.
	End   int64
	Bytes uint64
}
