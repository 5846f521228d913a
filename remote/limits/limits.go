// Package limits bounds what each tenant writes and asks, as a file says that is read again when it changes.
//
//	limits.go   the file
//	tenant.go   what a tenant has used of its limits
//	series.go   how many series it has
//	query.go    what its queries ask for
//	relabel.go  how labels change before series are stored
//	bucket.go   rates
//	metrics.go  metrics
//
// The names of the fields are those of Mimir, where they mean the same.
package limits

import (
	"fmt"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v2"

	"github.com/promtable/promtable/series"
)

// The names of limits in the file, in metrics and in errors.
const (
	ingestionRate = "ingestion_rate"
	requestRate   = "request_rate"
	labelNames    = "max_label_names_per_series"
	nameLength    = "max_label_name_length"
	valueLength   = "max_label_value_length"
	allSeries     = "max_global_series_per_user"
	metricSeries  = "max_global_series_per_metric"
	newSeries     = "max_new_series_per_minute"
	queryLength   = "max_total_query_length"
	fetchedSeries = "max_fetched_series_per_query"
	heldBytes     = "max_held_bytes_per_query"
	concurrency   = "max_concurrent_queries"
	queryAge      = "max_query_age"
	answerBytes   = "max_answer_bytes_per_query"
)

// names are all limits.
func names() []string {
	return []string{ingestionRate, requestRate, labelNames, nameLength, valueLength, allSeries, metricSeries, newSeries, queryLength, fetchedSeries, heldBytes, concurrency, queryAge, answerBytes}
}

// Limits are those of a tenant. 0 is no limit.
type Limits struct {
	// IngestionRate is in samples a second, RequestRate in writes a second. What was not used of the last moments may be used at once, up to the burst:
	// by default what a second allows.
	IngestionRate  float64 `yaml:"ingestion_rate"`
	IngestionBurst int     `yaml:"ingestion_burst_size"`
	RequestRate    float64 `yaml:"request_rate"`
	RequestBurst   int     `yaml:"request_burst_size"`
	// LabelNames counts labels of a series, the name of the metric included. NameLength and ValueLength are bytes of each.
	LabelNames  int `yaml:"max_label_names_per_series"`
	NameLength  int `yaml:"max_label_name_length"`
	ValueLength int `yaml:"max_label_value_length"`
	// Series is how many series an index period has, MetricSeries how many of one metric, NewSeries how many may be added in a minute.
	Series       int `yaml:"max_global_series_per_user"`
	MetricSeries int `yaml:"max_global_series_per_metric"`
	NewSeries    int `yaml:"max_new_series_per_minute"`
	// QueryLength is the time from the start of a query to its end. FetchedSeries and HeldBytes are those of all its selectors, Concurrency how
	// many queries run or wait.
	QueryLength   model.Duration `yaml:"max_total_query_length"`
	FetchedSeries int64          `yaml:"max_fetched_series_per_query"`
	HeldBytes     int64          `yaml:"max_held_bytes_per_query"`
	Concurrency   int            `yaml:"max_concurrent_queries"`
	// QueryAge is how long ago the start of a query may be, AnswerBytes how large an answer of PromQL, of lists of series and the like.
	QueryAge    model.Duration `yaml:"max_query_age"`
	AnswerBytes int64          `yaml:"max_answer_bytes_per_query"`
	// Relabel are the rules by which labels of series change before they are stored, and by which series are dropped.
	Relabel []*relabel.Config `yaml:"metric_relabel_configs"`
	// relabelling applies them. It is nil if there are none.
	relabelling *relabelling
	// Track has the limits that are only counted.
	Track []string `yaml:"track"`
}

// check names what is wrong.
func (l *Limits) check() error {
	for _, of := range []struct {
		name  string
		value float64
	}{
		{ingestionRate, l.IngestionRate}, {"ingestion_burst_size", float64(l.IngestionBurst)},
		{requestRate, l.RequestRate}, {"request_burst_size", float64(l.RequestBurst)},
		{labelNames, float64(l.LabelNames)}, {nameLength, float64(l.NameLength)}, {valueLength, float64(l.ValueLength)},
		{allSeries, float64(l.Series)}, {metricSeries, float64(l.MetricSeries)}, {newSeries, float64(l.NewSeries)},
		{fetchedSeries, float64(l.FetchedSeries)}, {heldBytes, float64(l.HeldBytes)}, {concurrency, float64(l.Concurrency)}, {answerBytes, float64(l.AnswerBytes)},
	} {
		if !(of.value >= 0 && of.value <= maxValue) {
			return fmt.Errorf("%s: %g is not from 0, which is no limit, to %g", of.name, of.value, float64(maxValue))
		}
	}
	for i, rule := range l.Relabel {
		if rule == nil {
			return fmt.Errorf("metric_relabel_configs: rule %d is empty", i+1)
		}
		if err := rule.Validate(model.UTF8Validation); err != nil {
			return fmt.Errorf("metric_relabel_configs: rule %d: %w", i+1, err)
		}
	}
	if l.relabelling = nil; len(l.Relabel) > 0 {
		l.relabelling = &relabelling{rules: l.Relabel}
	}
	for _, name := range l.Track {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("track: there is no limit %q: there are %q", name, names())
		}
	}
	return nil
}

// maxValue bounds each number of a file.
const maxValue = 1 << 40

// A table is what a file says.
type table struct {
	defaults  Limits
	overrides map[string]*Limits
}

// of returns the limits of a tenant, which is empty in a store without tenants.
func (t *table) of(tenant string) *Limits {
	if l := t.overrides[tenant]; l != nil {
		return l
	}
	return &t.defaults
}

// An override is the text of the limits of a tenant.
type override struct{ decode func(any) error }

// UnmarshalYAML implements yaml.Unmarshaler.
func (o *override) UnmarshalYAML(decode func(any) error) error {
	o.decode = decode
	return decode(new(Limits)) // for its fields
}

// parse reads the text of a file. What a tenant does not name it has as the defaults say.
func parse(text []byte, tenancy bool) (*table, error) {
	var file struct {
		Defaults  Limits              `yaml:"defaults"`
		Overrides map[string]override `yaml:"overrides"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, err
	}
	if err := file.Defaults.check(); err != nil {
		return nil, fmt.Errorf("defaults: %w", err)
	}
	t := &table{file.Defaults, make(map[string]*Limits)}
	for tenant, o := range file.Overrides {
		if !tenancy {
			return nil, fmt.Errorf("overrides: %s: the store has no tenants: write defaults", tenant)
		}
		if err := series.CheckTenant(tenant); err != nil {
			return nil, fmt.Errorf("overrides: %w", err)
		}
		l := file.Defaults
		if o.decode != nil {
			if err := o.decode(&l); err != nil {
				return nil, fmt.Errorf("overrides: %s: %w", tenant, err)
			}
		}
		if err := l.check(); err != nil {
			return nil, fmt.Errorf("overrides: %s: %w", tenant, err)
		}
		t.overrides[tenant] = &l
	}
	return t, nil
}
