package storetest

import (
	"iter"
	"os"
	"strconv"
	"testing"

	"github.com/promtable/promtable/series/seriestest"
)

// PercentVariable is the environment variable with how many of the rounds of random tests,
// of this suite and of the packages that use Rounds, are done, in percent. The race
// detector gets fewer, a long run more:
//
//	STORETEST_PERCENT=1000 go test -timeout 2h ./bucketstore/... ./remote/engine
const PercentVariable = "STORETEST_PERCENT"

// Rounds returns how many rounds a test does that usually does so many: at least 1.
func Rounds(t testing.TB, usual int) int {
	t.Helper()
	return max(1, (usual*percent(t)+99)/100)
}

// Seeds returns the seeds of the rounds of a random test that usually does so many: seriestest.Seed, and the numbers after it.
func Seeds(t testing.TB, usual int) iter.Seq[uint64] {
	t.Helper()
	first, rounds := seriestest.Seed(t), uint64(Rounds(t, usual))
	return func(yield func(uint64) bool) {
		for n := range rounds {
			if !yield(first + n) {
				return
			}
		}
	}
}

// Stride returns the distance of two cases in a list of which a test usually takes one in so many: 1 is all of them. A test begins at
// random in the first of them, so that runs add up.
func Stride(t testing.TB, usual int) int {
	t.Helper()
	return max(1, 100*usual/percent(t))
}

func percent(t testing.TB) int {
	t.Helper()
	text := os.Getenv(PercentVariable)
	if text == "" {
		return 100
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: give a number, 1 or more", PercentVariable, text)
	}
	return n
}
