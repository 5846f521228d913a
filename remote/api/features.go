package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// features are the parts of PromQL that are off by default, by the names that they have in
// Prometheus' --enable-feature.
var features = map[string]func(*promql.EngineOpts, *parser.Options){
	"promql-experimental-functions":   func(_ *promql.EngineOpts, p *parser.Options) { p.EnableExperimentalFunctions = true },
	"promql-extended-range-selectors": func(*promql.EngineOpts, *parser.Options) {}, // always on, as in Prometheus since 3.16
	"promql-binop-fill-modifiers":     func(_ *promql.EngineOpts, p *parser.Options) { p.EnableBinopFillModifiers = true },
	"promql-delayed-name-removal":     func(o *promql.EngineOpts, _ *parser.Options) { o.EnableDelayedNameRemoval = true },
	"promql-per-step-stats":           func(o *promql.EngineOpts, _ *parser.Options) { o.EnablePerStepStats = true },
	"use-start-timestamps":            func(o *promql.EngineOpts, _ *parser.Options) { o.UseStartTimestamps = true },
	"promql-duration-expr":            func(*promql.EngineOpts, *parser.Options) {}, // always on, as in Prometheus since 3.15
}

// CheckFeatures returns an error that names the first feature that there is not.
func CheckFeatures(names []string) error {
	for _, name := range names {
		if features[name] == nil {
			return fmt.Errorf("no feature %q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(features)), ", "))
		}
	}
	return nil
}

// promqlOptions returns the options of PromQL that the features ask for.
func (cfg Config) promqlOptions() (promql.EngineOpts, parser.Options) {
	engine, parser := promql.EngineOpts{}, parser.Options{}
	for _, name := range cfg.Features {
		features[name](&engine, &parser)
	}
	return engine, parser
}
