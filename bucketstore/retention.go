package bucketstore

import (
	"time"

	"github.com/promtable/promtable/series/rollup"
)

// A Retention says how long the cells of each resolution are kept, by their times. 0 is for
// ever.
type Retention [rollup.NumResolutions]time.Duration

// KeepAll returns the Retention that keeps every resolution for age.
func KeepAll(age time.Duration) (r Retention) {
	for of := range r {
		r[of] = age
	}
	return r
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
