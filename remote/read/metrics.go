package read

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

// metrics counts what readers get.
type metrics struct {
	queries *prometheus.CounterVec
	series  *prometheus.CounterVec
	bytes   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	byResponse := func(name, help string) *prometheus.CounterVec {
		return metricset.New(reg).Counters(name, help, "response", responseSamples, responseStreamed)
	}
	return &metrics{
		queries: byResponse("adapter_read_queries_total", "Queries of remote reads planned, by the kind of the answer."),
		series:  byResponse("adapter_read_series_total", "Series written into answers, by the kind of the answer."),
		bytes:   byResponse("adapter_read_bytes_total", "Bytes of answers: compressed if in one block, of frames if streamed."),
	}
}
