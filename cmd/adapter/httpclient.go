package main

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/api"
	configutil "github.com/prometheus/common/config"

	"github.com/promtable/promtable/remote/history"
)

// httpConfigFlag is the flag of commands that ask an adapter.
const httpConfigFlag = "http.config.file"

// asks adds the flag to a command that asks a server, such as "the adapter".
func (o *options) asks(c *kingpin.CmdClause, server string) {
	c.Flag(httpConfigFlag, "File with how "+server+" is asked: TLS and credentials, in the format of http_config of Prometheus.").StringVar(&o.httpConfig)
}

// withoutPassword returns the text of a flag that should be a URL, for messages.
func withoutPassword(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "…" // it may have a password anywhere
	}
	return u.Redacted()
}

// loadHTTPConfig returns what the file of a flag says. Without one it is Prometheus' default, and the proxy that the environment names.
func loadHTTPConfig(flag, file string) (configutil.HTTPClientConfig, error) {
	if file == "" {
		cfg := configutil.DefaultHTTPClientConfig
		cfg.ProxyFromEnvironment = true
		return cfg, nil
	}
	cfg, _, err := configutil.LoadHTTPConfigFile(file)
	if err != nil {
		return configutil.HTTPClientConfig{}, fmt.Errorf("--%s: %w", flag, err)
	}
	return *cfg, nil
}

// askedAdapter returns how a command asks an adapter, of a tenant.
func (o *options) askedAdapter(address, tenant string) (history.Server, error) {
	cfg, err := loadHTTPConfig(httpConfigFlag, o.httpConfig)
	return history.Server{URL: address, Headers: o.tenantHeader(tenant), HTTP: cfg}, err
}

// serverClient returns a client with which a command asks a server, of a tenant.
func (o *options) serverClient(tenant string) (*http.Client, error) {
	s, err := o.askedAdapter("", tenant)
	if err != nil {
		return nil, err
	}
	client, err := s.Client(0)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", httpConfigFlag, err)
	}
	return client, nil
}

// apiClient returns a client of the HTTP API of the server that a flag names, of the tenant of a command.
func (o *options) apiClient(flag, address string) (api.Client, error) {
	if u, err := url.Parse(address); err != nil || u.Host == "" {
		return nil, fmt.Errorf("--%s=%s: give a URL such as http://localhost:9201", flag, address)
	}
	client, err := o.serverClient(o.tenancy.of)
	if err != nil {
		return nil, err
	}
	return api.NewClient(api.Config{Address: address, Client: client})
}
