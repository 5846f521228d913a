// The receiver half of Prometheus' compliance suite for remote write, which the
// end-to-end tests build and run against the adapter.
module github.com/promtable/promtable/e2e/compliance

go 1.26.0

require (
	github.com/prometheus/compliance/remotewrite v0.0.0-20260223092825-818283e1171e // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
)

// The suite uses TimeSeries.CreatedTimestamp, which the version that it asks
// for has no longer.
replace github.com/prometheus/prometheus => github.com/prometheus/prometheus v0.306.0
