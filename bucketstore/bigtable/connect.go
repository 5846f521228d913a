package bigtable

import (
	"context"
	"errors"
	"strings"

	"cloud.google.com/go/bigtable"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
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
}

// connect makes the clients. It does not wait for a connection.
func connect(ctx context.Context, cfg Config) (clients, error) {
	conn := cfg.Conn
	if conn == nil && cfg.EmulatorHost != "" {
		var err error
		if conn, err = dialEmulator(cfg.EmulatorHost); err != nil {
			return clients{}, err
		}
	}
	// Sessions and direct access are other transports. They dial and poll in the
	// background, and do not help batches.
	config := bigtable.ClientConfig{AppProfile: cfg.AppProfile, DisableSession: true, DisableDirectAccess: true}
	if conn == nil {
		return newClients(ctx, cfg, config, serviceOptions(cfg))
	}
	// The default exports metrics to Google's monitoring, with credentials.
	config.MetricsProvider = bigtable.NoopMetricsProvider{}
	c, err := newClients(ctx, cfg, config, []option.ClientOption{option.WithGRPCConn(conn)})
	if err != nil {
		return clients{}, errors.Join(err, conn.Close())
	}
	c.shared = true
	return c, nil
}

// dialEmulator returns a connection to an emulator. The client would dial by itself when it
// finds the environment variable, but would refuse answers of more than 4 MB. It never uses
// or closes that connection.
func dialEmulator(host string) (*grpc.ClientConn, error) {
	for _, scheme := range []string{"http://", "https://", "passthrough:///"} {
		host = strings.TrimPrefix(host, scheme)
	}
	return grpc.NewClient("passthrough:///"+host,
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize), grpc.MaxCallSendMsgSize(maxMessageSize)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// serviceOptions returns the options for Google's service.
func serviceOptions(cfg Config) []option.ClientOption {
	opts := []option.ClientOption{option.WithUserAgent("promtable")}
	if cfg.Connections > 0 {
		opts = append(opts, option.WithGRPCConnectionPool(cfg.Connections))
	}
	return opts
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

// close closes the clients. The data client closes a shared connection, and to close it
// twice would be an error.
func (c clients) close() error {
	err := c.data.Close()
	if c.shared {
		return err
	}
	return errors.Join(err, c.admin.Close())
}
