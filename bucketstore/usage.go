package bucketstore

import "github.com/promtable/promtable/series/rollup"

// A Usage says what a store on the local disk takes.
type Usage struct {
	// Bytes are those of all its files. Those of days that were deleted and still have their
	// files are left out.
	Bytes uint64
	// Days are the days with raw cells, in order.
	Days []DayUsage
	// Resolutions is about how many of the bytes each resolution of METRIC takes.
	Resolutions [rollup.NumResolutions]uint64
}

// A DayUsage is a day of sample times and about how many bytes its raw cells take.
type DayUsage struct {
	// End is when it is over, in milliseconds.
	End   int64
	Bytes uint64
}
