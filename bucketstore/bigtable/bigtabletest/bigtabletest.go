// Package bigtabletest runs Google's in-memory fake of Bigtable inside a test, with the
// limits of production in front of it, and faults where a test wants them:
//
//	limits.go  sizes that Bigtable refuses
//	faults.go  latency, errors of requests and rows, stalls, broken streams
//	proxy.go   connections that die
//
// The fake races with itself where reads meet out-of-order writes or deletes of
// columns in the same row: tests that run both at once, under the race detector,
// need the emulator binary.
package bigtabletest

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/bttest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
)

// maxMessageSize is what the store may send in a message, in bytes. The default
// of a server is 4 MB.
const maxMessageSize = 256 << 20

// An Option changes the fake or the store over it.
type Option func(*options)

type options struct {
	server []grpc.ServerOption
	config []func(*bigtable.Config)
	limits Limits
	faults []func(proto.Message) Fault
}

// WithLimits sets other limits than those of production, so that a test of them is cheap.
func WithLimits(change func(*Limits)) Option {
	return func(o *options) { change(&o.limits) }
}

// WithServerOptions gives options to the gRPC server of the fake, for example
// interceptors.
func WithServerOptions(opts ...grpc.ServerOption) Option {
	return func(o *options) { o.server = append(o.server, opts...) }
}

// WithConfig lets a test change how the store is opened.
func WithConfig(change func(*bigtable.Config)) Option {
	return func(o *options) { o.config = append(o.config, change) }
}

// Serve starts a fake without tables and returns its host:port. It ends with the
// test.
func Serve(tb testing.TB, opts ...Option) (addr string) {
	tb.Helper()
	return serve(tb, collect(opts))
}

// Open starts a fake, creates the tables of the stored format, all kept for
// ever, and returns a store over them. Both end with the test.
func Open(tb testing.TB, opts ...Option) *bigtable.Store {
	tb.Helper()
	o := collect(opts)
	cfg := Config(serve(tb, o))
	for _, change := range o.config {
		change(&cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store, err := bigtable.Open(ctx, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			tb.Errorf("close the store: %v", err)
		}
	})
	return store
}

// Config returns the configuration with which Open opens a store on the fake at
// addr.
func Config(addr string) bigtable.Config {
	return bigtable.Config{
		Project:      "project",
		Instance:     "instance",
		EmulatorHost: addr,
		Tables:       bucketstore.Tables(bucketstore.Retention{}),
		CreateTables: true,
	}
}

// ServiceConfig returns the configuration with which the store takes the fake at addr for
// Google's service: with the client's pool, its priming and exact filters, but without
// encryption and credentials.
func ServiceConfig(addr string) bigtable.Config {
	cfg := Config("")
	cfg.ClientOptions = []option.ClientOption{
		option.WithEndpoint("passthrough:///" + addr),
		option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
	return cfg
}

func collect(opts []Option) *options {
	o := &options{
		server: []grpc.ServerOption{grpc.MaxRecvMsgSize(maxMessageSize), grpc.MaxSendMsgSize(maxMessageSize)},
		limits: ProductionLimits(),
	}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

func serve(tb testing.TB, o *options) (addr string) {
	tb.Helper()
	server, err := bttest.NewServer("127.0.0.1:0", append(o.server, o.interceptors()...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.Close)
	return server.Addr
}
