package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
)

// TestReadGateWait: a read that finds no slot is told so well before a client
// gives up by itself.
func TestReadGateWait(t *testing.T) {
	for _, test := range []struct {
		name          string
		timeout, wait time.Duration
	}{
		{"default", 0, 30 * time.Second},
		{"an hour", time.Hour, 30 * time.Second},
		{"ten seconds", 10 * time.Second, 5 * time.Second},
	} {
		for _, target := range []string{"/read", "/federate?match[]=up", "/api/v1/explain?match[]=up"} {
			t.Run(test.name+target, func(t *testing.T) {
				body, method := []byte(nil), http.MethodGet
				if target == "/read" {
					body, method = snappy.Encode(nil, wiretest.Marshal(t, remotetest.StreamedRequest())), http.MethodPost
				}
				synctest.Test(t, func(t *testing.T) {
					leave := make(chan struct{})
					eng := &remotetest.Engine{OnCurrent: func(context.Context, int64) error {
						<-leave
						return nil
					}}
					h := remote.New(remote.Config{Engine: eng, Now: time.Now, MaxConcurrentReads: 1, ReadTimeout: test.timeout})
					first := remotetest.Begin(h, http.MethodGet, "/federate?match[]=up", nil)
					synctest.Wait()
					second := remotetest.Begin(h, method, target, bytes.NewReader(body))
					time.Sleep(test.wait - time.Millisecond)
					synctest.Wait()
					if len(second) != 0 {
						t.Error("it did not wait long enough")
					}
					time.Sleep(2 * time.Millisecond)
					synctest.Wait()
					if len(second) != 1 {
						t.Error("it waits still")
					}
					close(leave)
					<-first
					remotetest.WantBusy(t, <-second)
				})
			})
		}
	}
}

// oneConn is a listener of one connection.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	close(l.closed)
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestStuckClient: a client that takes nothing of its answer, however short, is
// cut off when the time is up.
func TestStuckClient(t *testing.T) {
	readBody := func(kind prompb.ReadRequest_ResponseType) string {
		req := remotetest.StreamedRequest()
		req.AcceptedResponseTypes = []prompb.ReadRequest_ResponseType{kind}
		return string(snappy.Encode(nil, wiretest.Marshal(t, req)))
	}
	for _, test := range []struct{ name, method, target, body string }{
		{"federate", "GET", "/federate?match[]=up", ""},
		{"federate, error", "GET", "/federate?match[]=%7B", ""},
		{"explain", "GET", "/api/v1/explain?match[]=up", ""},
		{"explain, error", "GET", "/api/v1/explain", ""},
		{"read, streamed", "POST", "/read", readBody(prompb.ReadRequest_STREAMED_XOR_CHUNKS)},
		{"read, samples", "POST", "/read", readBody(prompb.ReadRequest_SAMPLES)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eng := &remotetest.Engine{Series: remotetest.Stock(), CurrentSamples: []current.Sample{{Labels: wiretest.LabelSet("__name__", "up"), T: 1, V: 1}}}
				here, there := net.Pipe() // holds no bytes
				closed := make(chan struct{})
				srv := &http.Server{
					Handler: remote.New(remote.Config{Engine: eng, Now: time.Now, ReadTimeout: time.Minute}),
					ConnState: func(_ net.Conn, s http.ConnState) {
						if s == http.StateClosed {
							close(closed)
						}
					},
				}
				l := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
				l.conn <- there
				go srv.Serve(l)
				fmt.Fprintf(here, "%s %s HTTP/1.1\r\nHost: adapter\r\nContent-Length: %d\r\n\r\n%s", test.method, test.target, len(test.body), test.body)
				select {
				case <-closed:
				case <-time.After(time.Hour):
					t.Error("after an hour it is still there")
				}
				here.Close()
				srv.Close()
			})
		})
	}
}
