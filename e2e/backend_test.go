package e2e

import (
	"regexp"
	"testing"

	"cloud.google.com/go/bigtable/bttest"
	"google.golang.org/grpc"
)

// A backend says what an adapter keeps its rows in.
type backend struct {
	name string
	args []string
	env  []string
}

// openBackends are the ways to make a fresh backend, one of each kind.
func openBackends() []func(testing.TB) backend {
	return []func(testing.TB) backend{embedded, inProcess, emulator}
}

// embedded keeps rows in a directory of the test.
func embedded(t testing.TB) backend {
	return backend{name: "embedded", args: []string{"--storage.path=" + t.TempDir()}}
}

// inProcess keeps rows in Google's fake, inside this process.
func inProcess(t testing.TB) backend {
	const limit = 256 << 20 // the fake alone would refuse messages over 4 MB
	server, err := bttest.NewServer("127.0.0.1:0", grpc.MaxRecvMsgSize(limit), grpc.MaxSendMsgSize(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return onBigtable("bttest", server.Addr)
}

// emulator keeps rows in the emulator, a process of its own.
func emulator(t testing.TB) backend {
	return onBigtable("emulator", startFreeEmulator(t))
}

// startFreeEmulator returns the address of a fresh emulator on a free port.
func startFreeEmulator(t testing.TB) string {
	t.Helper()
	return startEmulator(t, "-host=127.0.0.1", "-port=0")
}

// startEmulator starts an emulator with flags that name its host and port, and
// returns its address.
func startEmulator(t testing.TB, flags ...string) string {
	t.Helper()
	p := start(t, "emulator", command{path: emulatorProgram(t), args: flags})
	line := p.waitLine(t, "emulator running on")
	return regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindString(line)
}

// onBigtable keeps rows in the tables that an emulator at addr serves.
func onBigtable(name, addr string) backend {
	return backend{
		name: name,
		args: []string{"--storage.backend=bigtable", "--bigtable.project=e2e", "--bigtable.instance=e2e"},
		env:  []string{"BIGTABLE_EMULATOR_HOST=" + addr},
	}
}
