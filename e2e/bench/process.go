package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	patience = 20 * time.Minute // bounds waits for a start and for a stop, also of millions of series
	pause    = 50 * time.Millisecond
)

// A process is a running program.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *tail
	done chan struct{} // closed when it has ended
}

// startProcess starts a program that ends, at the latest, with ctx or with this
// process.
func startProcess(ctx context.Context, name string, env []string, path string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.CommandContext(ctx, path, args...), log: &tail{}, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = dieTogether()
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// ready waits until a GET of url answers 200.
func (p *process) ready(ctx context.Context, url string) error {
	client := newClient(1)
	defer client.CloseIdleConnections()
	return p.await(ctx, "is ready", func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := do(client, req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

// await calls f until it returns nil.
func (p *process) await(ctx context.Context, what string, f func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting until %s %s: %w\n%s", p.name, what, err, p.log)
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended before it %s: %v\n%s", p.name, what, p.cmd.ProcessState, p.log)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// stop asks the program to end, and wants it to do so cleanly.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		p.kill()
		return fmt.Errorf("%s did not stop within %v", p.name, patience)
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("%s ended with %v\n%s", p.name, p.cmd.ProcessState, p.log)
	}
	return nil
}

// kill ends the program if it still runs.
func (p *process) kill() {
	if err := p.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		<-p.done
	}
}

// A tail keeps the last lines that were written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (l *tail) Write(p []byte) (int, error) {
	const most = 8 << 10
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if len(l.text) > 2*most {
		l.text = append(l.text[:0], l.text[len(l.text)-most:]...)
	}
	return len(p), nil
}

// String returns the last 20 lines.
func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(string(bytes.TrimSpace(l.text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// freeAddress returns a loopback address that no process listens at.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
