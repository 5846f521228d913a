package harness

import (
	"regexp"
	"slices"
	"testing"

	"cloud.google.com/go/bigtable/bttest"
	"google.golang.org/grpc"
)

// A Backend says what an adapter keeps its rows in.
type Backend struct {
	Name string
	Args []string // flags of the adapter
	Env  []string // added to the environment of the adapter
	// server is the address of the server that keeps the rows. It is empty for the embedded store.
	server string
}

// Backends returns the functions that make an empty backend, one of each kind.
func Backends() []func(testing.TB) Backend {
	return []func(testing.TB) Backend{Embedded, InProcess, Emulator}
}

// Embedded keeps rows in a directory of the test.
func Embedded(t testing.TB) Backend {
	return Backend{Name: "embedded", Args: []string{"--storage.path=" + t.TempDir()}}
}

// InProcess keeps rows in Google's fake, inside this process.
func InProcess(t testing.TB) Backend {
	const limit = 256 << 20 // the fake alone would refuse messages over 4 MB
	server, err := bttest.NewServer("127.0.0.1:0", grpc.MaxRecvMsgSize(limit), grpc.MaxSendMsgSize(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return onBigtable("bttest", server.Addr)
}

// Emulator keeps rows in the emulator, a process of its own.
func Emulator(t testing.TB) Backend {
	return onBigtable("emulator", StartEmulator(t))
}

// StartEmulator starts an emulator on a free port and returns its address.
func StartEmulator(t testing.TB) string {
	t.Helper()
	return StartEmulatorWithFlags(t, "-host=127.0.0.1", "-port=0")
}

// StartEmulatorWithFlags starts an emulator with flags that name its host and
// port, and returns its address.
func StartEmulatorWithFlags(t testing.TB, flags ...string) string {
	t.Helper()
	p := start(t, "emulator", Command{Path: emulatorProgram(t), Args: flags})
	line := p.WaitLine(t, "emulator running on")
	return regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindString(line)
}

// onBigtable keeps rows in the tables that an emulator at addr serves.
func onBigtable(name, addr string) Backend {
	return Backend{
		Name: name,
		Args: []string{"--storage.backend=bigtable", "--bigtable.project=e2e", "--bigtable.instance=e2e"},
		Env:  []string{"BIGTABLE_EMULATOR_HOST=" + addr}, server: addr,
	}
}

// ChunkWindow is how many milliseconds of samples one chunk may cover.
const ChunkWindow = int64(1) << 23

// WithBuffer puts a buffer in front of b, with its log in dir.
func WithBuffer(b Backend, dir string) Backend {
	b.Args = append(slices.Clip(b.Args), "--buffer.enabled", "--buffer.path="+dir)
	return b
}
