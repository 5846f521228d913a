package write

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/deltatocumulativeprocessor"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/otel/metric/noop"
)

// deltaSums are the sums of the streams of deltas of all tenants. It is safe for concurrent use.
type deltaSums struct {
	cfg OTLPConfig

	mu       sync.Mutex
	byTenant map[string]*tenantSums
}

// of returns the sums of a tenant.
func (d *deltaSums) of(tenant string) (*tenantSums, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.byTenant[tenant]; s != nil {
		return s, nil
	}
	adder, err := newAdder(d.cfg)
	if err != nil {
		return nil, fmt.Errorf("add up deltas: %w", err)
	}
	if d.byTenant == nil {
		d.byTenant = make(map[string]*tenantSums)
	}
	s := &tenantSums{adder: adder}
	d.byTenant[tenant] = s
	return s, nil
}

// newAdder returns the processor that Prometheus uses, too. It replaces each delta by the sum of its stream.
func newAdder(cfg OTLPConfig) (processor.Metrics, error) {
	factory := deltatocumulativeprocessor.NewFactory()
	limits := factory.CreateDefaultConfig().(*deltatocumulativeprocessor.Config)
	limits.MaxStale, limits.MaxStreams = cfg.MaxStale, math.MaxInt
	if cfg.MaxStreams > 0 {
		limits.MaxStreams = cfg.MaxStreams
	}
	// It changes its argument in place, so nothing is left to do for what comes after it.
	next, err := consumer.NewMetrics(func(context.Context, pmetric.Metrics) error { return nil })
	if err != nil {
		return nil, err
	}
	adder, err := factory.CreateMetrics(context.Background(), processor.Settings{
		ID:                component.NewID(factory.Type()),
		TelemetrySettings: component.TelemetrySettings{MeterProvider: noop.NewMeterProvider()},
	}, limits, next)
	if err != nil {
		return nil, err
	}
	return adder, adder.Start(context.Background(), nil)
}

// close ends the goroutines of the processors. No request may be running.
func (d *deltaSums) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	for _, s := range d.byTenant {
		err = errors.Join(err, s.adder.Shutdown(context.Background()))
	}
	d.byTenant = nil
	return err
}

// tenantSums are the sums of one tenant. A delta counts once, and what it adds up to is stored before any request that
// has it is answered 2xx. For this the sums that the store did not take wait here: the sender repeats its request, but the
// processor does not count a delta again, nor take it back.
type tenantSums struct {
	adder processor.Metrics
	// running is held for reading from before deltas are added until their sums are stored or wait.
	running sync.RWMutex

	mu sync.Mutex
	// waiting are sums that the store did not take. The next request with deltas stores them first, so that there
	// are no more than requests at one time.
	waiting []pmetric.Metrics
}

// storeFunc stores metrics without deltas, as OTLPHandler.translate does.
type storeFunc func(ctx context.Context, metrics pmetric.Metrics) (rejected error, err error)

// store adds the deltas of metrics up, and stores the sums. Deltas that do not count are in rejected.
func (s *tenantSums) store(ctx context.Context, metrics pmetric.Metrics, store storeFunc) (rejected error, err error) {
	if err := s.storeWaiting(ctx, store); err != nil {
		return nil, err
	}
	dropped, rejected, err := s.add(ctx, metrics, store)
	if err != nil || dropped == 0 {
		return rejected, err
	}
	// Another request may have brought the same deltas, and still be running.
	s.running.Lock()
	defer s.running.Unlock()
	if err := s.storeWaiting(ctx, store); err != nil {
		return nil, err
	}
	return errors.Join(rejected, dropped), nil
}

// add is store, but for what other requests have left.
func (s *tenantSums) add(ctx context.Context, metrics pmetric.Metrics, store storeFunc) (dropped droppedDeltas, rejected error, err error) {
	s.running.RLock()
	defer s.running.RUnlock()
	points := metrics.DataPointCount()
	if err := s.adder.ConsumeMetrics(ctx, metrics); err != nil {
		return 0, nil, fmt.Errorf("add up deltas: %w", err)
	}
	dropped = droppedDeltas(points - metrics.DataPointCount())
	if rejected, err = store(ctx, metrics); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting = append(s.waiting, metrics)
	}
	return dropped, rejected, err
}

// storeWaiting stores the sums that the store did not take before. What can never be stored was in the answer to nobody,
// and is left out.
func (s *tenantSums) storeWaiting(ctx context.Context, store storeFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) > 0 {
		if _, err := store(ctx, s.waiting[0]); err != nil {
			return err
		}
		s.waiting = s.waiting[1:]
	}
	return nil
}

// droppedDeltas is how many data points of delta temporality did not count.
type droppedDeltas int

// Error implements error.
func (n droppedDeltas) Error() string {
	return fmt.Sprintf("%d data points of delta temporality were not added: they are not later than the last of their stream, as repeated ones, or begin before it, or their streams are more than --otlp.delta.max-streams", int(n))
}

// hasDeltas says whether any metric is of delta temporality.
func hasDeltas(metrics pmetric.Metrics) bool {
	for _, resource := range metrics.ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, m := range scope.Metrics().All() {
				if temporality(m) == pmetric.AggregationTemporalityDelta {
					return true
				}
			}
		}
	}
	return false
}

// temporality returns that of a metric, or AggregationTemporalityUnspecified if its type has none.
func temporality(m pmetric.Metric) pmetric.AggregationTemporality {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		return m.Sum().AggregationTemporality()
	case pmetric.MetricTypeHistogram:
		return m.Histogram().AggregationTemporality()
	case pmetric.MetricTypeExponentialHistogram:
		return m.ExponentialHistogram().AggregationTemporality()
	}
	return pmetric.AggregationTemporalityUnspecified
}
