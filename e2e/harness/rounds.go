package harness

import (
	"os"
	"strconv"
	"testing"
)

// roundsVariable is the environment variable for long runs of the tests that
// repeat themselves, each time with other random data:
//
//	E2E_ROUNDS=100 go test -run Kill -timeout 2h ./e2e/durability
const roundsVariable = "E2E_ROUNDS"

// Rounds returns how often a test repeats itself that goes on at random: few times,
// unless E2E_ROUNDS has another number.
func Rounds(t testing.TB, few int) int {
	t.Helper()
	text := os.Getenv(roundsVariable)
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: give a number of rounds, 1 or more", roundsVariable, text)
	}
	return n
}
