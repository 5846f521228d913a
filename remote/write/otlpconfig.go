package write

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/config"
	"go.yaml.in/yaml/v2"

	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/reload"
)

// Deltas says what becomes of data points of delta temporality.
type Deltas uint8

const (
	// RejectDeltas rejects them.
	RejectDeltas Deltas = iota
	// SumDeltas adds them up in memory, and stores the sums as cumulative samples.
	SumDeltas
	// StoreDeltas stores them as they are, with unknown type.
	StoreDeltas
)

// DeltaFeatures are the values of Deltas that are off by default, by the names that they have in Prometheus'
// --enable-feature.
var DeltaFeatures = map[string]Deltas{"otlp-deltatocumulative": SumDeltas, "otlp-native-delta-ingestion": StoreDeltas}

// OTLPConfig is how OTLP metrics become series. A zero value takes its default.
type OTLPConfig struct {
	// Settings returns the block otlp of a configuration of Prometheus, as it is now. Nil is the default of Prometheus.
	Settings func() config.OTLPConfig
	// Lookback is that of PromQL: target_info is repeated twice in it between the samples of a resource, so that no
	// query misses it.
	Lookback time.Duration // 5m
	Deltas   Deltas
	// MaxStale is how long the sum of a stream of deltas is kept after its last data point, to a minute.
	MaxStale time.Duration // 5m
	// MaxStreams is how many streams of deltas of one tenant are added up; data points of others are rejected.
	MaxStreams int // no limit
}

// WithDefaults returns cfg with a value for each field that is zero and has another default.
func (cfg OTLPConfig) WithDefaults() OTLPConfig {
	if cfg.Settings == nil {
		cfg.Settings = func() config.OTLPConfig { return config.DefaultOTLPConfig }
	}
	if cfg.Lookback == 0 {
		cfg.Lookback = 5 * time.Minute
	}
	if cfg.MaxStale == 0 {
		cfg.MaxStale = 5 * time.Minute
	}
	return cfg
}

// OpenOTLPFile reads the file of --otlp.config-file, see ParseOTLPConfig.
func OpenOTLPFile(path string, logger log.Logger, reg prometheus.Registerer) (*reload.File[config.OTLPConfig], error) {
	good := metricset.New(reg).Gauge("adapter_otlp_config_last_reload_successful",
		"1 if OTLP metrics are translated as --otlp.config-file says now, 0 if it could not be read again.")
	return reload.Open(reload.Config[config.OTLPConfig]{Path: path, Parse: ParseOTLPConfig, Logger: logger, Good: good})
}

// ParseOTLPConfig reads a configuration of Prometheus that has the block otlp and no other. Prometheus' own parser checks
// it. Without the block, it is Prometheus' default.
func ParseOTLPConfig(text []byte) (config.OTLPConfig, error) {
	var blocks map[string]any
	if err := yaml.Unmarshal(text, &blocks); err != nil {
		return config.OTLPConfig{}, err
	}
	for name := range blocks {
		if name != "otlp" {
			return config.OTLPConfig{}, fmt.Errorf("field %s: the file has only the block otlp", name)
		}
	}
	all, err := config.Load(string(text), slog.New(slog.DiscardHandler))
	if err != nil {
		return config.OTLPConfig{}, err
	}
	return all.OTLPConfig, nil
}
