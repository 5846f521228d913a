package bucketstore

import (
	"time"

	"github.com/promtable/promtable/series"
)

// A Resolution is one of the forms in which METRIC keeps samples, each with a retention of its
// own.
type Resolution uint8

// The resolutions, from the finest on.
const (
	// Raw is the samples themselves, with their exemplars and the counts of writes.
	Raw Resolution = iota
	// FiveMinutes and OneHour are rollups.
	FiveMinutes
	OneHour
	// NumResolutions is the number of resolutions.
	NumResolutions
)

var resolutionNames = [NumResolutions]string{Raw: "raw", FiveMinutes: series.Family5m, OneHour: series.Family1h}

// String returns the name of the resolution, as META/horizon and flags have it.
func (r Resolution) String() string {
	if r >= NumResolutions {
		return "unknown"
	}
	return resolutionNames[r]
}

// ResolutionOf returns the resolution to which a family of METRIC belongs.
func ResolutionOf(family string) Resolution {
	switch family {
	case series.Family5m:
		return FiveMinutes
	case series.Family1h:
		return OneHour
	}
	return Raw
}

// A Retention says how long the cells of each resolution are kept, by their times. 0 is for
// ever.
type Retention [NumResolutions]time.Duration

// KeepAll returns the Retention that keeps every resolution for age.
func KeepAll(age time.Duration) Retention {
	return Retention{Raw: age, FiveMinutes: age, OneHour: age}
}

// Longest returns the longest of them, 0 if one is for ever.
func (r Retention) Longest() (longest time.Duration) {
	for _, age := range r {
		if age <= 0 {
			return 0
		}
		longest = max(longest, age)
	}
	return longest
}
