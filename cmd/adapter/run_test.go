package main

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/go-kit/log"
)

// deafListener takes an address but no connections.
type deafListener struct{ net.Listener }

var errDeaf = errors.New("deaf")

func (deafListener) Accept() (net.Conn, error) { return nil, errDeaf }

// TestServeFails: when serving fails, run stops everything it has started and
// returns, though its context has not ended.
func TestServeFails(t *testing.T) {
	o, err := parseFlags([]string{"--web.listen-address=127.0.0.1:0", "--storage.path=" + t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	o.netListen = func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return deafListener{l}, err
	}
	if err := run(t.Context(), o, log.NewNopLogger()); !errors.Is(err, errDeaf) {
		t.Errorf("run: %v", err)
	}
}

// TestInstance: adapters that listen on all addresses and store their metrics in one store
// need different instance labels.
func TestInstance(t *testing.T) {
	for _, tt := range []struct{ listen, host string }{
		{":0", ""},
		{"127.0.0.1:0", "127.0.0.1"},
	} {
		o := &options{listen: []string{tt.listen}, netListen: func(network, _ string) (net.Listener, error) {
			l, err := net.Listen(network, "127.0.0.1:0")
			if tt.host == "" {
				return everywhere{l}, err
			}
			return l, err
		}}
		s, err := listen(o, log.NewNopLogger(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		host, _, err := net.SplitHostPort(s.instance())
		if err != nil || host == "localhost" || tt.host != "" && host != tt.host {
			t.Errorf("on %s the instance is %s, %v", tt.listen, s.instance(), err)
		}
		if url := s.address("localhost"); tt.host == "" && !strings.HasPrefix(url, "localhost:") {
			t.Errorf("on %s the log says %s", tt.listen, url)
		}
	}
}

// everywhere is a listener on loopback that says that it listens on all addresses.
type everywhere struct{ net.Listener }

func (l everywhere) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv6unspecified, Port: l.Listener.Addr().(*net.TCPAddr).Port}
}
