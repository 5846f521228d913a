package bigtable_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
)

// TestDeadConnection: one of the connections swallows bytes. Writes and reads that meet it
// succeed through others, within their deadline.
func TestDeadConnection(t *testing.T) {
	t.Parallel() // it waits
	proxy := bigtabletest.NewProxy(t, bigtabletest.Serve(t))
	reg := prometheus.NewPedanticRegistry()
	cfg := bigtabletest.ServiceConfig(proxy.Addr)
	cfg.Registerer = reg
	cfg.CallTimeout = 6 * time.Second
	cfg.Connections = 20
	s := open(t, cfg)
	proxy.Swallow(1) // the client for rows dials before the one for tables
	retried := func(method string) bool {
		return countAttempts(t, reg)[method+" META DeadlineExceeded"] > 0
	}
	for i := 0; !retried("MutateRows") || !retried("ReadRows"); i++ {
		if i == 10_000 {
			t.Fatal("no request meets the dead connection")
		}
		apply(t, s, bucketstore.Meta, metaRows(3, 8)...)
		if rows := scan(t, s, wholeTable(bucketstore.Meta)); len(rows) != 3 {
			t.Fatalf("%d rows, want 3", len(rows))
		}
	}
}

// TestKeepAlive: a connection swallows bytes while a scan waits for an answer, long before the
// attempt would be given up. Pings find it, and the scan succeeds through another one. gRPC
// pings once in ten seconds at most, so the test takes some more.
func TestKeepAlive(t *testing.T) {
	t.Parallel() // it waits
	var stall atomic.Bool
	stalled := make(chan struct{})
	proxy := bigtabletest.NewProxy(t, bigtabletest.Serve(t,
		bigtabletest.WithServerOptions(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true})),
		bigtabletest.WithFaults(func(proto.Message) bigtabletest.Fault {
			if !stall.Swap(false) {
				return bigtabletest.Fault{}
			}
			close(stalled)
			return bigtabletest.Fault{Stall: true}
		})))
	reg := prometheus.NewPedanticRegistry()
	cfg := bigtabletest.ServiceConfig(proxy.Addr).WithKeepAlive(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: time.Second, PermitWithoutStream: true})
	cfg.Registerer, cfg.CallTimeout, cfg.Connections = reg, time.Hour, 1
	s := open(t, cfg)
	apply(t, s, bucketstore.Meta, metaRows(3, 8)...)
	stall.Store(true)
	go func() {
		<-stalled
		proxy.Swallow(1) // the client for rows dials before the one for tables
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // an attempt may wait for 20 s of it
	defer cancel()
	rows := 0
	if err := s.Scan(ctx, wholeTable(bucketstore.Meta), func(bucketstore.Row) error { rows++; return nil }); err != nil || rows != 3 {
		t.Errorf("%d rows, want 3, %v", rows, err)
	}
	checkAttempts(t, reg, map[string]uint64{"MutateRows META OK": 1, "ReadRows META Unavailable": 1, "ReadRows META OK": 1})
}

// TestLostConnections: all connections are cut, and the server cannot be reached for a
// while. Calls fail meanwhile, with the error of their context, and the same store goes on
// after it.
func TestLostConnections(t *testing.T) {
	t.Parallel() // it waits
	proxy := bigtabletest.NewProxy(t, bigtabletest.Serve(t))
	cfg := bigtabletest.ServiceConfig(proxy.Addr)
	cfg.Connections, cfg.CallTimeout = 2, 2*time.Second
	s := open(t, cfg)
	proxy.Cut()
	apply(t, s, bucketstore.Meta, metaRows(3, 8)...)
	proxy.SetDown(true)
	if err := s.Apply(t.Context(), bucketstore.Meta, metaRows(3, 8)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Apply while the server is down: %v, want a deadline", err)
	}
	proxy.SetDown(false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for s.Apply(ctx, bucketstore.Meta, metaRows(4, 8)) != nil {
		if ctx.Err() != nil {
			t.Fatal("the store does not recover")
		}
	}
	if rows := scan(t, s, wholeTable(bucketstore.Meta)); len(rows) != 4 {
		t.Errorf("%d rows, want 4", len(rows))
	}
}

// TestStalledAttempt: the server does not answer the first attempt. What the client may
// repeat succeeds, and a conditional write, which it may not, fails before its deadline.
func TestStalledAttempt(t *testing.T) {
	t.Parallel() // it waits
	var stall atomic.Bool
	s := bigtabletest.Open(t, bigtabletest.WithFaults(func(proto.Message) bigtabletest.Fault {
		return bigtabletest.Fault{Stall: stall.Swap(false)}
	}), bigtabletest.WithConfig(func(cfg *bigtable.Config) { cfg.CallTimeout = 3 * time.Second }))
	stall.Store(true)
	apply(t, s, bucketstore.Meta, metaRows(3, 8)...)
	stall.Store(true)
	if rows := scan(t, s, wholeTable(bucketstore.Meta)); len(rows) != 3 {
		t.Errorf("%d rows, want 3", len(rows))
	}
	stall.Store(true)
	_, err := s.CheckAndApply(t.Context(), bucketstore.Meta, bucketstore.Condition{Family: "m", Absent: true}, metaRows(1, 8)[0])
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no answer within 1s") {
		t.Errorf("CheckAndApply: %v, want that an attempt had no answer", err)
	}
}

// TestOverload: a server without room says when to come back. A write fails at once and
// tells its caller, a read waits.
func TestOverload(t *testing.T) {
	var overloaded atomic.Int64 // how long, in nanoseconds; once
	s := bigtabletest.Open(t, bigtabletest.WithFaults(func(proto.Message) bigtabletest.Fault {
		if after := time.Duration(overloaded.Swap(0)); after > 0 {
			return bigtabletest.Fault{Err: bigtabletest.Overloaded(after)}
		}
		return bigtabletest.Fault{}
	}))
	check := func(t *testing.T, err error) {
		t.Helper()
		var overload *bucketstore.OverloadError
		if !errors.As(err, &overload) || overload.RetryAfter != time.Hour || status.Code(err) != codes.ResourceExhausted {
			t.Errorf("got %v, want an OverloadError of an hour", err)
		}
	}
	apply(t, s, bucketstore.Meta, metaRows(3, 8)...)
	t.Run("Apply", func(t *testing.T) {
		overloaded.Store(int64(time.Hour))
		check(t, s.Apply(t.Context(), bucketstore.Meta, metaRows(3, 8)))
	})
	t.Run("one batch of several", func(t *testing.T) {
		overloaded.Store(int64(time.Hour))
		err := s.Apply(t.Context(), bucketstore.Meta, metaRows(12_000, 8))
		check(t, err)
		if n := len(failedRows(t, err)); n != 5000 && n != 2000 {
			t.Errorf("%d rows failed, want those of one batch", n)
		}
	})
	t.Run("CheckAndApply", func(t *testing.T) {
		overloaded.Store(int64(time.Hour))
		_, err := s.CheckAndApply(t.Context(), bucketstore.Meta, bucketstore.Condition{Family: "m", Absent: true}, metaRows(1, 8)[0])
		check(t, err)
	})
	t.Run("Scan that would wait beyond its deadline", func(t *testing.T) {
		overloaded.Store(int64(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		check(t, s.Scan(ctx, wholeTable(bucketstore.Meta), func(bucketstore.Row) error { return nil }))
	})
	t.Run("Scan that waits", func(t *testing.T) {
		overloaded.Store(int64(time.Millisecond))
		if rows := scan(t, s, wholeTable(bucketstore.Meta)); len(rows) < 3 {
			t.Errorf("%d rows, want 3", len(rows))
		}
	})
	t.Run("Patient", func(t *testing.T) {
		overloaded.Store(int64(time.Millisecond))
		if err := bucketstore.Retrying(s).Apply(t.Context(), bucketstore.Meta, metaRows(3, 8)); err != nil {
			t.Errorf("Apply: %v", err)
		}
		overloaded.Store(int64(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		check(t, bucketstore.Retrying(s).Apply(ctx, bucketstore.Meta, metaRows(3, 8)))
	})
}

// TestConnect: the client primes each of its connections, and tells Bigtable the version of
// the program.
func TestConnect(t *testing.T) {
	var mu sync.Mutex
	primed := 0
	agents := make(map[string]bool)
	addr := bigtabletest.Serve(t, bigtabletest.WithServerOptions(grpc.ChainUnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			md, _ := metadata.FromIncomingContext(ctx)
			for _, agent := range md.Get("user-agent") {
				agents[strings.Fields(agent)[0]] = true
			}
			if _, ok := req.(*bigtablepb.PingAndWarmRequest); ok {
				primed++
			}
			return handler(ctx, req)
		})))
	cfg := bigtabletest.ServiceConfig(addr)
	cfg.Connections, cfg.UserAgent = 3, "promtable/1.2.3"
	open(t, cfg)
	mu.Lock()
	defer mu.Unlock()
	if primed != 3 || len(agents) != 1 || !agents["promtable/1.2.3"] {
		t.Errorf("%d connections were primed, want 3; user agents %v", primed, agents)
	}
}

// TestDirectAccess: a program that is built without it says so, whether a flag or the
// environment asks for it.
func TestDirectAccess(t *testing.T) {
	addr := bigtabletest.Serve(t)
	ask := map[string]func(*bigtable.Config){
		"by the configuration": func(cfg *bigtable.Config) { cfg.DirectAccess = true },
		"by the environment":   func(*bigtable.Config) { t.Setenv("CBT_ENABLE_DIRECTPATH", "true") },
	}
	for name, change := range ask {
		cfg := bigtabletest.Config(addr)
		change(&cfg)
		s, err := bigtable.Open(t.Context(), cfg)
		if err == nil {
			s.Close()
		}
		if refused := err != nil && strings.Contains(err.Error(), "disable_grpc_modules"); refused == bigtable.DirectAccessBuilt || !refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
