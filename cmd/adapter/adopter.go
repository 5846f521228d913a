package main

import (
	"context"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/metricset"
)

// An adopter takes the logs in Bigtable of adapters that have died.
type adopter struct {
	*buffer.Adopter
	logger            log.Logger
	adopted, failures prometheus.Counter
}

func newAdopter(a *adapter, of *buffer.Adopter) *adopter {
	f := metricset.New(a.reg)
	return &adopter{
		Adopter: of, logger: a.logger,
		adopted:  f.Counter("adapter_buffer_adopted_logs_total", "Logs of adapters that have died whose samples this one has written to the store."),
		failures: f.Counter("adapter_buffer_adoption_failures_total", "Times when the log of an adapter that has died was not written to the store, or META was not read. It is tried again."),
	}
}

// run takes logs until ctx ends.
func (a *adopter) run(ctx context.Context) {
	ticker := time.NewTicker(logWatchInterval)
	defer ticker.Stop()
	for {
		adopted, err := a.Watch(ctx)
		for _, id := range adopted {
			a.adopted.Inc()
			level.Info(a.logger).Log("msg", "all samples in the log of an adapter that has died are in the store", "log", id)
		}
		if err != nil && ctx.Err() == nil {
			a.failures.Inc()
			level.Error(a.logger).Log("msg", "the log of an adapter that has died is not in the store yet, trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
