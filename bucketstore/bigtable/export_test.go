package bigtable

import "google.golang.org/grpc/keepalive"

// WithKeepAlive returns c with other pings.
func (c Config) WithKeepAlive(p keepalive.ClientParameters) Config {
	c.keepAlive = p
	return c
}
