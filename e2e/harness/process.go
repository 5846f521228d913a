package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// Patience bounds every wait. It is generous: the machine may be busy with
	// other packages' tests, and nothing here asserts how long things take.
	Patience = 3 * time.Minute
	// The pause between two polls grows from the first of these to the second.
	pollFirst, pollLast = 10 * time.Millisecond, 500 * time.Millisecond
)

// A Process is a running program and what it printed.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  *processLog
	done chan struct{} // closed when the program has ended
}

// A Command says what to run.
type Command struct {
	Path string
	Args []string
	Env  []string // added to the environment of this process
}

// start runs a program until the test ends.
func start(t testing.TB, name string, c Command) *Process {
	t.Helper()
	p, err := Start(name, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cleanup(t) })
	return p
}

// Start runs a program. On Linux it ends with this process at the latest.
func Start(name string, c Command) (*Process, error) {
	p := &Process{name: name, cmd: exec.Command(c.Path, c.Args...), log: newProcessLog(), done: make(chan struct{})}
	p.cmd.Env, p.cmd.SysProcAttr = append(os.Environ(), c.Env...), dieTogether()
	output, writer := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = writer, writer
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	copied := make(chan struct{})
	go func() {
		p.log.copyFrom(output)
		close(copied)
	}()
	go func() {
		p.cmd.Wait()
		writer.Close()
		<-copied
		close(p.done)
	}()
	return p, nil
}

// cleanup ends the program, hard, and shows its log if the test failed.
func (p *Process) cleanup(t testing.TB) {
	p.End()
	if t.Failed() {
		t.Logf("last lines of %s:\n%s", p, p.Tail())
	}
}

// End ends the program as kill -9 does, if it still runs.
func (p *Process) End() {
	p.cmd.Process.Kill()
	<-p.done
}

// State is that of a program that has ended.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Tail returns the last 30 lines that the program has printed.
func (p *Process) Tail() string { return p.log.tail(30) }

// PID returns the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Suspend stops all threads of the process by SIGSTOP, until Continue.
func (p *Process) Suspend(t testing.TB) {
	t.Helper()
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	Eventually(t, p.name+" is stopped", func() error { return isStopped(p.PID()) })
}

// Continue lets a process go on that is stopped.
func (p *Process) Continue(t testing.TB) {
	t.Helper()
	if err := syscall.Kill(p.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// String returns the name of the program and its flags.
func (p *Process) String() string { return p.name + " " + quoteArgs(p.cmd.Args[1:]) }

// ended says whether the program has ended.
func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// WaitLine returns the first line that contains all parts, waiting for it.
func (p *Process) WaitLine(t testing.TB, parts ...string) string {
	t.Helper()
	deadline := time.After(Patience)
	for read, hasEnded := 0, false; ; {
		lines, grown := p.log.since(read)
		for _, line := range lines {
			if ContainsAll(line, parts) {
				return line
			}
		}
		if hasEnded {
			t.Fatalf("%s has not printed %q, and ended: %s\n%s", p.name, parts, p.cmd.ProcessState, p.Tail())
		}
		read += len(lines)
		select {
		case <-grown:
		case <-p.done:
			hasEnded = true
		case <-deadline:
			t.Fatalf("%s has not printed %q within %v\n%s", p.name, parts, Patience, p.Tail())
		}
	}
}

// Await calls f until it returns nil. Its error says what it has waited for: as long as w says, until ctx has ended, or until the program
// has ended.
func (p *Process) Await(ctx context.Context, w Wait, what string, f func() error) error {
	return poll(ctx, w, p.name+" "+what, func() error {
		over := p.ended()
		err := f()
		if err != nil && over {
			err = final(fmt.Errorf("it ended: %s\n%s", p.cmd.ProcessState, p.Tail()))
		}
		return err
	})
}

// Stop asks the program to end, and wants it to do so cleanly within limit.
func (p *Process) Stop(limit time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
	case <-time.After(limit):
		return fmt.Errorf("%s still runs after %v", p.name, limit)
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("%s ended with %v\n%s", p.name, p.cmd.ProcessState, p.Tail())
	}
	return nil
}

// wait returns the exit code once the program has ended by itself.
func (p *Process) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(Patience):
		t.Fatalf("%s still runs after %v\n%s", p.name, Patience, p.Tail())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Wait waits until the program has ended by itself, and wants that to be without an error.
func (p *Process) Wait(t testing.TB) {
	t.Helper()
	if code := p.wait(t); code != 0 {
		t.Fatalf("%s ended with code %d:\n%s", p.name, code, p.Tail())
	}
}

// WaitUndone is Wait of a program that is to say with code 1 that it is not done.
func (p *Process) WaitUndone(t testing.TB) {
	t.Helper()
	if code := p.wait(t); code != 1 {
		t.Fatalf("%s ended with code %d:\n%s", p.name, code, p.Tail())
	}
}

// Kill ends the program as kill -9 does.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	<-p.done
}

// Terminate asks the program to end, and wants it to do so cleanly.
func (p *Process) Terminate(t testing.TB) {
	t.Helper()
	p.end(t, syscall.SIGTERM)
}

// Interrupt is Terminate as Ctrl-C asks.
func (p *Process) Interrupt(t testing.TB) {
	t.Helper()
	p.end(t, syscall.SIGINT)
}

// InterruptUndone is Interrupt of a program that is to say with code 1 that it is not done.
func (p *Process) InterruptUndone(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGINT)
	p.WaitUndone(t)
}

func (p *Process) end(t testing.TB, s syscall.Signal) {
	t.Helper()
	p.signal(t, s)
	if code := p.wait(t); code != 0 {
		t.Fatalf("%s ended with code %d after %v:\n%s", p.name, code, s, p.Tail())
	}
}

// Printed returns all lines that the program has printed.
func (p *Process) Printed() string { return p.log.text() }

func (p *Process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("send %v to %s: %v", s, p.name, err)
	}
}

// PeakMemory returns the most memory that the process has held, in bytes, as
// Linux counts it. There is no other system on which it works.
func (p *Process) PeakMemory(t testing.TB) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+([0-9]+) kB`).FindSubmatch(status)
	if m == nil {
		t.Fatalf("no VmHWM in\n%s", status)
	}
	kilobytes, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// A processLog holds the lines that a program printed.
type processLog struct {
	mu    sync.Mutex
	lines []string
	grown chan struct{} // closed when there is another line
}

func newProcessLog() *processLog { return &processLog{grown: make(chan struct{})} }

func (l *processLog) copyFrom(r io.Reader) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		l.mu.Lock()
		l.lines = append(l.lines, scanner.Text())
		close(l.grown)
		l.grown = make(chan struct{})
		l.mu.Unlock()
	}
	io.Copy(io.Discard, r) // a line over the limit must not block the program
}

// since returns the lines from the n-th on, and a channel that is closed when there is another.
func (l *processLog) since(n int) (lines []string, grown <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[n:], l.grown
}

// text returns all lines.
func (l *processLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

func (l *processLog) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[max(0, len(l.lines)-n):], "\n")
}

// ContainsAll says whether s contains all parts.
func ContainsAll(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// A finalError ends Eventually at once.
type finalError struct{ error }

// final marks an error that does not go away by waiting.
func final(err error) error { return finalError{err} }

// Eventually calls f until it returns nil, and fails the test when it does not
// within Patience or returns a final error.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	if err := poll(context.Background(), Wait{Patience, pollLast}, what, f); err != nil {
		t.Fatal(err)
	}
}

// A Wait bounds how long something is waited for. The pauses between two looks at it grow to Pause.
type Wait struct{ Limit, Pause time.Duration }

// poll calls f until it returns nil or a final error, or the wait or ctx has ended.
func poll(ctx context.Context, w Wait, what string, f func() error) error {
	deadline := time.Now().Add(w.Limit)
	for pause := pollFirst; ; pause = min(pause*5/4, w.Pause) {
		err := f()
		if err == nil {
			return nil
		}
		if errors.As(err, new(finalError)) || ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
		time.Sleep(pause)
	}
}
