//go:build tools

// Package victoriametrics pins the VictoriaMetrics that e2e/bench measures, in a module
// of its own: its dependencies are not the adapter's.
package victoriametrics

import (
	_ "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics"
)
