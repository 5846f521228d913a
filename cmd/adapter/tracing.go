package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/tracing"
	sloggokit "github.com/tjhop/slog-gokit"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.yaml.in/yaml/v2"
)

// readTracing returns the configuration of traces in a file: the block tracing of Prometheus.
func readTracing(path string) (*config.TracingConfig, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Tracing *config.TracingConfig `yaml:"tracing"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if file.Tracing == nil || file.Tracing.Endpoint == "" {
		return nil, fmt.Errorf("%s has no block tracing with an endpoint", path)
	}
	file.Tracing.SetDirectory(filepath.Dir(path))
	return file.Tracing, nil
}

// startTracing sends traces as the file of --tracing.config.file says, until stop is called, which sends what is left.
func (o *options) startTracing(logger log.Logger) (stop func() error, err error) {
	if o.tracingConfig == "" {
		return func() error { return nil }, nil
	}
	cfg, err := readTracing(o.tracingConfig)
	if err != nil {
		return nil, fmt.Errorf("--tracing.config.file: %w", err)
	}
	m := tracing.NewManager(slog.New(sloggokit.NewGoKitHandler(logger, slog.LevelInfo)))
	if err := m.ApplyConfig(&config.Config{TracingConfig: *cfg}); err != nil {
		return nil, fmt.Errorf("--tracing.config.file: %w", err)
	}
	go m.Run()
	return func() error {
		m.Stop()
		return nil
	}, nil
}

// traced makes a span of each request, a part of the trace that its headers name.
func (o *options) traced(next http.Handler) http.Handler {
	if o.tracingConfig == "" {
		return next
	}
	return otelhttp.NewHandler(next, "http", otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.Method + " " + r.URL.Path }))
}
