package bigtable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/bigtable"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/promtable/promtable/bucketstore"
)

// maxMessageSize is the largest gRPC message: 256 MiB, Bigtable's limit for a row. The
// client allows the same with Google's service.
const maxMessageSize = 256 << 20

// clients are the data client and the admin client.
type clients struct {
	data  *bigtable.Client
	admin *bigtable.AdminClient
	// shared says that both use one connection.
	shared bool
	// stop ends the background work of the clients.
	stop context.CancelFunc
}

// unreachable marks an error of a request to address, or to the emulator, if it is for want
// of an answer.
func (c Config) unreachable(ctx context.Context, address string, err error) error {
	err = callError(ctx, err)
	if !errors.Is(err, context.DeadlineExceeded) && status.Code(err) != codes.Unavailable {
		return err
	}
	if c.EmulatorHost != "" {
		address = c.EmulatorHost
	}
	return fmt.Errorf("Bigtable %w at %s: %w", bucketstore.ErrUnreachable, address, err)
}

// reach makes the clients within ReachTimeout.
func reach(ctx context.Context, cfg Config, m *metrics) (clients, error) {
	// The background work of a client ends with its context, and so do its requests for the
	// first answers of its connections.
	reaching, cancel := context.WithTimeout(ctx, cfg.ReachTimeout)
	defer cancel()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	leave := context.AfterFunc(reaching, stop)
	c, err := connect(background, cfg, m)
	if err == nil && !leave() {
		err = errors.Join(context.Cause(reaching), c.close())
	}
	if err != nil {
		stop()
		return clients{}, fmt.Errorf("connect: %w", cfg.unreachable(reaching, serviceAddress, err))
	}
	c.stop = stop
	return c, nil
}

// The addresses of Google's service, for messages.
const (
	serviceAddress      = "bigtable.googleapis.com:443"
	serviceAdminAddress = "bigtableadmin.googleapis.com:443"
)

// connect makes the clients. It waits until each connection to Google's service has
// answered: the client primes them.
func connect(ctx context.Context, cfg Config, m *metrics) (clients, error) {
	// Sessions are another transport, which polls in the background and does not help
	// batches.
	config := bigtable.ClientConfig{AppProfile: cfg.AppProfile, DisableSession: true, DisableDirectAccess: !cfg.DirectAccess}
	if !cfg.ClientMetrics {
		config.MetricsProvider = bigtable.NoopMetricsProvider{}
	}
	calls := []grpc.DialOption{grpc.WithChainUnaryInterceptor(m.unary), grpc.WithChainStreamInterceptor(m.stream)}
	if cfg.EmulatorHost == "" {
		return newClients(ctx, cfg, config, serviceOptions(cfg), dataOptions(cfg, calls))
	}
	conn, err := dialEmulator(cfg, calls)
	if err != nil {
		return clients{}, err
	}
	config.MetricsProvider = bigtable.NoopMetricsProvider{}
	c, err := newClients(ctx, cfg, config, []option.ClientOption{option.WithGRPCConn(conn)}, nil)
	if err != nil {
		return clients{}, errors.Join(err, conn.Close())
	}
	c.shared = true
	return c, nil
}

// dialEmulator returns a connection to an emulator. The client would dial by itself when it
// finds the environment variable, but would refuse answers of more than 4 MB. It never uses
// or closes that connection.
func dialEmulator(cfg Config, opts []grpc.DialOption) (*grpc.ClientConn, error) {
	host := cfg.EmulatorHost
	for _, scheme := range []string{"http://", "https://", "passthrough:///"} {
		host = strings.TrimPrefix(host, scheme)
	}
	return grpc.NewClient("passthrough:///"+host, append(opts,
		grpc.WithUserAgent(cfg.UserAgent),
		grpc.WithConnectParams(reconnect),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize), grpc.MaxCallSendMsgSize(maxMessageSize)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

// reconnect has a lost connection tried again within five seconds, so that the store is back
// soon after an outage. The default of gRPC grows to two minutes.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// defaultKeepAlive finds dead connections to Google's service, also those without a request. The
// times are those of Google's client for Java: a server closes a connection with too many
// pings, and the emulator takes one in five minutes. Timeout also bounds how long sent bytes
// wait for TCP's acknowledgement.
var defaultKeepAlive = keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}

// serviceOptions returns the options of both clients for Google's service.
func serviceOptions(cfg Config) []option.ClientOption {
	return append([]option.ClientOption{
		option.WithUserAgent(cfg.UserAgent),
		option.WithGRPCDialOption(grpc.WithKeepaliveParams(cfg.keepAlive)),
		option.WithGRPCDialOption(grpc.WithConnectParams(reconnect)),
	}, cfg.ClientOptions...)
}

// dataOptions returns the options of the data client alone.
func dataOptions(cfg Config, calls []grpc.DialOption) (opts []option.ClientOption) {
	for _, opt := range calls {
		opts = append(opts, option.WithGRPCDialOption(opt))
	}
	if cfg.Connections > 0 {
		opts = append(opts, option.WithGRPCConnectionPool(cfg.Connections))
	}
	return opts
}

// newClients makes both clients.
func newClients(ctx context.Context, cfg Config, config bigtable.ClientConfig, opts, dataOpts []option.ClientOption) (clients, error) {
	data, err := bigtable.NewClientWithConfig(ctx, cfg.Project, cfg.Instance, config, slices.Concat(opts, dataOpts)...)
	if err != nil {
		return clients{}, err
	}
	admin, err := bigtable.NewAdminClient(ctx, cfg.Project, cfg.Instance, opts...)
	if err != nil {
		return clients{}, errors.Join(err, data.Close())
	}
	return clients{data: data, admin: admin}, nil
}

// close closes the clients. The data client closes a shared connection, and to close it
// twice would be an error.
func (c clients) close() error {
	if c.stop != nil {
		defer c.stop()
	}
	err := c.data.Close()
	if c.shared {
		return err
	}
	return errors.Join(err, c.admin.Close())
}
