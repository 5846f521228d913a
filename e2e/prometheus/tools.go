//go:build tools

// Package prometheus pins the Prometheus that the end-to-end tests run, in a
// module of its own: its dependencies are not the adapter's.
package prometheus

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
