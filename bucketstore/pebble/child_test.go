package pebble_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/go-kit/log"
	"go.uber.org/goleak"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
)

// childVariable gives the test binary one of the roles below in the
// directory that directoryVariable names.
const (
	childVariable     = "PEBBLE_TEST_CHILD"
	directoryVariable = "PEBBLE_TEST_DIRECTORY"
)

func TestMain(m *testing.M) {
	role := os.Getenv(childVariable)
	if role == "" {
		goleak.VerifyTestMain(m) // no goroutine outlives the tests
		return
	}
	if err := runChild(role, os.Getenv(directoryVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

func runChild(role, dir string) error {
	cfg := onDisk(dir)
	cfg.MemTableBytes = 64 << 10
	cfg.Logger = log.NewLogfmtLogger(log.NewSyncWriter(os.Stderr))
	switch role {
	case "hold":
		return childHold(cfg)
	case "write":
		return childWrite(cfg)
	case "log sync fails":
		return childFail(cfg, ".log")
	case "table sync fails":
		return childFail(cfg, ".sst")
	case "no next log":
		return childNoLog(cfg)
	}
	return fmt.Errorf("unknown role %q", role)
}

// childHold holds the directory until its input ends.
func childHold(cfg pebble.Config) error {
	s, err := pebble.Open(cfg)
	if err != nil {
		return err
	}
	fmt.Println("open")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return s.Close()
}

// childWrite writes until it is killed, and prints what was acknowledged.
func childWrite(cfg pebble.Config) error {
	s, err := pebble.Open(cfg)
	if err != nil {
		return err
	}
	errs := make(chan error)
	var output sync.Mutex
	for w := range crashWriters {
		go func() {
			for i := 0; ; i++ {
				if err := s.Apply(context.Background(), bucketstore.Metric, crashBatch(os.Getpid(), w, i)); err != nil {
					errs <- err
					return
				}
				output.Lock()
				fmt.Println(w, i)
				output.Unlock()
			}
		}()
	}
	return <-errs
}

// childFail writes to a disk that fails to sync files with this ending.
func childFail(cfg pebble.Config, ending string) error {
	const before = 5
	syncs := 0
	var mu sync.Mutex
	disk := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		isSync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
		if !isSync || !strings.HasSuffix(op.Path, ending) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if syncs++; syncs > before {
			return errorfs.ErrInjected
		}
		return nil
	}))
	s, err := pebble.Open(cfg.WithFS(disk))
	if err != nil {
		return err
	}
	for i := range 100000 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := s.Apply(ctx, bucketstore.Metric, crashBatch(0, 0, i))
		cancel()
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("the failure of the disk was not noticed")
}

// childNoLog ingests tables on a disk that has no space for another log.
func childNoLog(cfg pebble.Config) error {
	var isFull atomic.Bool
	s, err := pebble.Open(cfg.WithIngest(-1).WithFS(errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		isLog := strings.HasSuffix(op.Path, ".log") && (op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite)
		if isLog && isFull.Load() {
			return syscall.ENOSPC
		}
		return nil
	}))))
	if err != nil {
		return err
	}
	isFull.Store(true)
	small := []bucketstore.Mutation{indexRows(100, 1)[99]}
	small[0].Ops = append(small[0].Ops, bucketstore.Op{Kind: bucketstore.DeleteColumn, Family: small[0].Ops[0].Family, Qualifier: []byte("other")}) // through the log
	for i := range int64(1000) {                                                                                                                    // a table that lies over what is in memory begins another log
		if err := s.Apply(context.Background(), bucketstore.Index, small); err != nil {
			return err
		}
		if err := s.Apply(context.Background(), bucketstore.Index, indexRows(100, i)); err != nil {
			return err
		}
	}
	return fmt.Errorf("no other log was begun")
}

// A child is a process that runs a role.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr bytes.Buffer
}

// startChild starts a child that ends at the end of the test, if not before.
func startChild(t *testing.T, role, dir string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0])}
	c.cmd.Env = append(os.Environ(), childVariable+"="+role, directoryVariable+"="+dir)
	c.cmd.Stderr = &c.stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(stdout)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		c.cmd.Wait()
	})
	return c
}

// waitFor reads lines up to this one.
func (c *child) waitFor(line string) {
	c.t.Helper()
	for c.lines.Scan() {
		if c.lines.Text() == line {
			return
		}
	}
	c.t.Fatalf("the child ended without %q: %s", line, c.stderr.String())
}

// kill ends the process as kill -9 does, and waits until it has.
func (c *child) kill() {
	c.t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	for c.lines.Scan() {
	}
	c.cmd.Wait() // It was killed, which is an error.
}

// wantDeath waits for the process and checks that it ended itself, with these texts.
func (c *child) wantDeath(parts ...string) {
	c.t.Helper()
	for c.lines.Scan() {
	}
	c.cmd.Wait() // Its code is checked here.
	if code := c.cmd.ProcessState.ExitCode(); code != 1 {
		c.t.Errorf("exit code %d, want 1", code)
	}
	for _, part := range append(parts, "storage failed") {
		if !strings.Contains(c.stderr.String(), part) {
			c.t.Errorf("the child did not say %q but\n%s", part, c.stderr.String())
		}
	}
}
