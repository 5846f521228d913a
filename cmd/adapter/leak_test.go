package main

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain wants no goroutine to outlive the tests. Where the environment names an emulator,
// each of Google's clients makes a connection that it neither uses nor closes, see
// dialEmulator of package bigtable. A connection that was used has other goroutines, too. Where the emulator of a short
// test has ended before that connection was made, it tries again for ever.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run"),
		goleak.IgnoreTopFunction("google.golang.org/grpc.(*addrConn).resetTransportAndUnlock"))
}
