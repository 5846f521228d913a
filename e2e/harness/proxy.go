package harness

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Proxy is between adapters and a server: each byte arrives later by its delay, in each direction, and it can be cut. It does not bound how many bytes are
// under way.
type Proxy struct {
	// Addr is where it listens, on loopback.
	Addr     string
	listener net.Listener
	to       string
	delay    time.Duration
	isCut    atomic.Bool

	mu   sync.Mutex
	open map[net.Conn]bool
	done sync.WaitGroup
}

// NewProxy starts a proxy to an address. The caller closes it.
func NewProxy(to string, delay time.Duration) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Addr: l.Addr().String(), listener: l, to: to, delay: delay, open: make(map[net.Conn]bool)}
	p.done.Go(p.accept)
	return p, nil
}

// StartProxy is NewProxy, and ends with the test.
func StartProxy(t testing.TB, to string, delay time.Duration) *Proxy {
	t.Helper()
	p, err := NewProxy(to, delay)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Close ends all connections.
func (p *Proxy) Close() {
	p.listener.Close()
	p.Cut()
	p.done.Wait()
}

// Cut ends all connections, and all new ones until Mend.
func (p *Proxy) Cut() {
	p.isCut.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.Close()
	}
}

// Mend lets connections through again.
func (p *Proxy) Mend() { p.isCut.Store(false) }

func (p *Proxy) accept() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(from) })
	}
}

func (p *Proxy) serve(from net.Conn) {
	to, err := net.Dial("tcp", p.to)
	if err != nil {
		from.Close()
		return
	}
	p.mu.Lock()
	p.open[from], p.open[to] = true, true
	p.mu.Unlock()
	end := func() {
		from.Close()
		to.Close()
		p.mu.Lock()
		delete(p.open, from)
		delete(p.open, to)
		p.mu.Unlock()
	}
	defer end()
	if p.isCut.Load() {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pass(to, from); end() })
	both.Go(func() { p.pass(from, to); end() })
	both.Wait()
}

// pass writes what it reads, later by the delay.
func (p *Proxy) pass(to io.Writer, from io.Reader) {
	type piece struct {
		data []byte
		at   time.Time
	}
	pieces := make(chan piece, 1<<12)
	var writing sync.WaitGroup
	writing.Go(func() {
		for next := range pieces {
			time.Sleep(time.Until(next.at))
			if _, err := to.Write(next.data); err != nil {
				break
			}
		}
		for range pieces { // so that no reader waits for it
		}
	})
	for {
		data := make([]byte, 64<<10)
		n, err := from.Read(data)
		if n > 0 {
			pieces <- piece{data[:n], time.Now().Add(p.delay)}
		}
		if err != nil {
			break
		}
	}
	close(pieces)
	writing.Wait()
}

// Behind returns a backend whose server is asked through a proxy.
func (b Backend) Behind(t testing.TB, delay time.Duration) (Backend, *Proxy) {
	t.Helper()
	p := StartProxy(t, b.server, delay)
	return onBigtable(b.Name+" behind a proxy", p.Addr), p
}
