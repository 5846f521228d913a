// Package metricset makes the metrics of a package and registers them.
package metricset

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Set makes metrics and registers each with one registry. Where a metric of this name is registered already, as by another store
// of the process, Counter, Gauge and the vectors return that one, and GaugeFunc adds to it. All else that cannot be registered panics.
type Set struct {
	reg    prometheus.Registerer
	labels prometheus.Labels
}

// New returns a Set for reg, which may be nil: then nothing is registered.
func New(reg prometheus.Registerer) Set { return Set{reg: reg} }

// With returns a Set whose metrics all have these labels.
func (s Set) With(labels prometheus.Labels) Set { return Set{s.reg, labels} }

// Counter returns a counter.
func (s Set) Counter(name, help string) prometheus.Counter {
	return register(s, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: s.labels}))
}

// CounterVec returns counters with these labels. There is none before one is asked for.
func (s Set) CounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return register(s, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: s.labels}, labels))
}

// Counters returns counters with one label, one for each of these values.
func (s Set) Counters(name, help, label string, values ...string) *prometheus.CounterVec {
	v := s.CounterVec(name, help, label)
	for _, value := range values {
		v.WithLabelValues(value)
	}
	return v
}

// Gauge returns a gauge.
func (s Set) Gauge(name, help string) prometheus.Gauge {
	return register(s, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: s.labels}))
}

// GaugeVec returns gauges with these labels. There is none before one is asked for.
func (s Set) GaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(s, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: s.labels}, labels))
}

// Gauges returns gauges with one label, one for each of these values.
func (s Set) Gauges(name, help, label string, values ...string) *prometheus.GaugeVec {
	v := s.GaugeVec(name, help, label)
	for _, value := range values {
		v.WithLabelValues(value)
	}
	return v
}

// GaugeFunc registers a gauge with the value of fn. If it is called again for the same gauge, the value is the sum.
func (s Set) GaugeFunc(name, help string, fn func() float64) {
	sum := register(s, &sumOf{desc: prometheus.NewDesc(name, help, nil, s.labels)})
	sum.mu.Lock()
	defer sum.mu.Unlock()
	sum.of = append(sum.of, fn)
}

// A sumOf is a gauge with the sum of functions.
type sumOf struct {
	desc *prometheus.Desc
	mu   sync.Mutex
	of   []func() float64
}

// Describe implements prometheus.Collector.
func (s *sumOf) Describe(ch chan<- *prometheus.Desc) { ch <- s.desc }

// Collect implements prometheus.Collector.
func (s *sumOf) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	of := slices.Clone(s.of)
	s.mu.Unlock()
	sum := 0.0
	for _, fn := range of {
		sum += fn()
	}
	ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, sum)
}

// Histogram returns a histogram that has these buckets, and is a native one as well, for scrapers that ask for it.
func (s Set) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return register(s, prometheus.NewHistogram(s.histogramOpts(name, help, buckets)))
}

// HistogramVec returns histograms with these labels, as Histogram does.
func (s Set) HistogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return register(s, prometheus.NewHistogramVec(s.histogramOpts(name, help, buckets), labels))
}

// histogramOpts bounds native histograms as Prometheus does its own: buckets grow by a tenth, and there are at most a hundred, for an hour at least.
func (s Set) histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets, ConstLabels: s.labels,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}
}

// Collect registers a collector.
func (s Set) Collect(c prometheus.Collector) {
	if s.reg != nil {
		s.reg.MustRegister(c)
	}
}

// register registers c, or returns the one that is there.
func register[C prometheus.Collector](s Set, c C) C {
	if s.reg == nil {
		return c
	}
	err := s.reg.Register(c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if first, ok := there.ExistingCollector.(C); ok {
			return first
		}
	}
	if err != nil {
		panic(err)
	}
	return c
}
