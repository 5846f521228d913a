package fleet

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

type metrics struct {
	members           prometheus.Gauge
	asked, partial    *prometheus.CounterVec
	seconds           prometheus.Histogram
	forgotten, learnt prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metricset.New(reg)
	return metrics{
		members:   m.Gauge("adapter_fleet_members", "Other adapters that are asked for their open chunks, as META lists them."),
		asked:     m.Counters("adapter_fleet_requests_total", "Requests to other adapters, by result.", "result", "ok", "failed"),
		partial:   m.Counters("adapter_fleet_partial_answers_total", "Members that an answer lacks, by whether the answer says so or was refused.", "result", "noted", "refused"),
		seconds:   m.Histogram("adapter_fleet_request_duration_seconds", "How long requests to other adapters take.", prometheus.ExponentialBuckets(0.0005, 4, 8)),
		forgotten: m.Counter("adapter_fleet_index_forgotten_total", "How often the index in memory was dropped, because a member has come, gone or said too much."),
		learnt:    m.Counter("adapter_fleet_index_learned_series_total", "Series that other adapters have indexed, as they have told."),
	}
}
