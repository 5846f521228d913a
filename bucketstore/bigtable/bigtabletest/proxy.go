package bigtabletest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// A Proxy is a network in front of a server, that can fail.
type Proxy struct {
	// Addr is the host:port that it listens on.
	Addr   string
	target string

	mu    sync.Mutex
	links []*link
	// down refuses connections: they are taken and closed.
	down bool
}

// A link is one connection through a Proxy.
type link struct {
	client, server net.Conn
	dead           atomic.Bool
}

// NewProxy starts a proxy in front of the server at target. It ends with the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{Addr: listener.Addr().String(), target: target}
	tb.Cleanup(func() {
		listener.Close()
		p.Cut()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.connect(client)
		}
	}()
	return p
}

func (p *Proxy) connect(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		client.Close()
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		client.Close()
		return
	}
	l := &link{client: client, server: server}
	p.links = append(p.links, l)
	go l.copy(server, client)
	go l.copy(client, server)
}

// copy passes on bytes until one side closes, which closes the other. A dead link takes
// bytes and passes on none, nor that a side has closed.
func (l *link) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !l.dead.Load() {
			if n > 0 && err == nil {
				_, err = to.Write(buf[:n])
			}
			if err != nil {
				l.close()
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}

// Swallow makes the n oldest connections dead: they take bytes, and no answer comes.
func (p *Proxy) Swallow(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links[:n] {
		l.dead.Store(true)
	}
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		l.close()
	}
	p.links = nil
}

// SetDown closes all connections and refuses new ones, or takes them again.
func (p *Proxy) SetDown(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.Cut()
	}
}
