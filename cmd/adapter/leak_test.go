package main

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain wants no goroutine to outlive the tests. Where the environment names an emulator,
// each of Google's clients makes a connection that it neither uses nor closes, see
// dialEmulator of package bigtable. A connection that was used has other goroutines, too.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run"))
}
