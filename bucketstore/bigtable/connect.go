package bigtable

import (
	"context"
	"errors"
	"strings"

	"cloud.google.com/go/bigtable"
	"google.golang.org/api/option"
	"google.golang.org/api/option/internaloption"
	grpctransport "google.golang.org/api/transport/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// maxMessageSize is how large a gRPC message may be: 256 MiB, the greatest size
// of a row, as the client allows it towards Google's service.
const maxMessageSize = 256 << 20

// clients are the client for rows, that for tables, and the connections for row
// mutations, which this package encodes by itself. The client neither gives out
// its pool of connections nor takes one, so there are two.
type clients struct {
	data   *bigtable.Client
	admin  *bigtable.AdminClient
	writes connections
	// shared says that all use one connection.
	shared bool
}

// connections are one connection or a pool of them.
type connections interface {
	grpc.ClientConnInterface
	Close() error
}

// connect makes the clients that cfg asks for. It does not wait for a
// connection.
func connect(ctx context.Context, cfg Config) (clients, error) {
	conn := cfg.Conn
	if conn == nil && cfg.EmulatorHost != "" {
		var err error
		if conn, err = dialEmulator(cfg.EmulatorHost); err != nil {
			return clients{}, err
		}
	}
	// Sessions and direct access are alternative transports that dial and poll
	// in the background, and are of no use to batches.
	config := bigtable.ClientConfig{AppProfile: cfg.AppProfile, DisableSession: true, DisableDirectAccess: true}
	if conn == nil {
		return dialService(ctx, cfg, config)
	}
	// The default exports metrics to Google's monitoring, with credentials.
	config.MetricsProvider = bigtable.NoopMetricsProvider{}
	c, err := newClients(ctx, cfg, config, []option.ClientOption{option.WithGRPCConn(conn)})
	if err != nil {
		return clients{}, errors.Join(err, conn.Close())
	}
	c.writes, c.shared = conn, true
	return c, nil
}

// dialService makes the clients for Google's service.
func dialService(ctx context.Context, cfg Config, config bigtable.ClientConfig) (clients, error) {
	c, err := newClients(ctx, cfg, config, productionOptions(cfg))
	if err != nil {
		return clients{}, err
	}
	if c.writes, err = grpctransport.DialPool(ctx, writeOptions(cfg)...); err != nil {
		return clients{}, errors.Join(err, c.data.Close(), c.admin.Close())
	}
	return c, nil
}

// dialEmulator returns a connection to an emulator. The client dials by itself
// when it finds the environment variable, but would then refuse answers of more
// than 4 MB; it never uses that connection, nor closes it.
func dialEmulator(host string) (*grpc.ClientConn, error) {
	for _, scheme := range []string{"http://", "https://", "passthrough:///"} {
		host = strings.TrimPrefix(host, scheme)
	}
	return grpc.NewClient("passthrough:///"+host, append(transportOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

const (
	// writeBuffer is how many bytes a connection sends at once. Requests are
	// hundreds of kilobytes; gRPC's 32 KB cost several times the system calls.
	writeBuffer = 128 << 10
	// window is how many bytes of an answer may be on their way before any is read.
	// Where it is given, gRPC does not measure the connection by a ping for each
	// answer.
	window = 4 << 20
)

// transportOptions returns the options of a connection for row mutations.
func transportOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize), grpc.MaxCallSendMsgSize(maxMessageSize)),
		grpc.WithWriteBufferSize(writeBuffer),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
	}
}

// productionOptions returns the options for Google's service.
func productionOptions(cfg Config) []option.ClientOption {
	opts := []option.ClientOption{option.WithUserAgent("promtable")}
	if cfg.Connections > 0 {
		opts = append(opts, option.WithGRPCConnectionPool(cfg.Connections))
	}
	return opts
}

// writeOptions returns the options of the connections for row mutations. Those
// from the client are the ones with which it dials by itself, so that credentials
// and endpoint are found in the same way.
func writeOptions(cfg Config) []option.ClientOption {
	const poolSize = 10 // the client's
	opts := []option.ClientOption{
		internaloption.WithDefaultEndpointTemplate("bigtable.UNIVERSE_DOMAIN:443"),
		internaloption.WithDefaultMTLSEndpoint("bigtable.mtls.googleapis.com:443"),
		internaloption.WithDefaultUniverseDomain("googleapis.com"),
		internaloption.EnableNewAuthLibrary(),
		internaloption.EnableJwtWithScope(),
		option.WithScopes(bigtable.Scope),
		option.WithTelemetryDisabled(), // nobody collects it
		option.WithGRPCConnectionPool(poolSize),
	}
	for _, o := range transportOptions() {
		opts = append(opts, option.WithGRPCDialOption(o))
	}
	return append(opts, productionOptions(cfg)...)
}

// newClients makes both clients with the same options.
func newClients(ctx context.Context, cfg Config, config bigtable.ClientConfig, opts []option.ClientOption) (clients, error) {
	data, err := bigtable.NewClientWithConfig(ctx, cfg.Project, cfg.Instance, config, opts...)
	if err != nil {
		return clients{}, err
	}
	admin, err := bigtable.NewAdminClient(ctx, cfg.Project, cfg.Instance, opts...)
	if err != nil {
		return clients{}, errors.Join(err, data.Close())
	}
	return clients{data: data, admin: admin}, nil
}

// close closes what is open. A shared connection is closed by the data client,
// and to close it again would be an error.
func (c clients) close() error {
	err := c.data.Close()
	if c.shared {
		return err
	}
	return errors.Join(err, c.admin.Close(), c.writes.Close())
}
