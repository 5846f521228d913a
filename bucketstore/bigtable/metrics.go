package bigtable

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
)

// The counted operations.
const (
	opMutate = "mutate"
	opCheck  = "check"
	opRead   = "read"
	opDrop   = "drop"
)

// metrics count requests, and the rows that they cost.
type metrics struct {
	requests  *prometheus.CounterVec
	mutations *prometheus.CounterVec
	rows      *prometheus.CounterVec
	bytes     *prometheus.CounterVec

	// What the interceptors see: each attempt of a request.
	attempts *prometheus.HistogramVec
	retries  *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
}

// newMetrics returns metrics, all of them 0, for the given tables.
func newMetrics(tables []bucketstore.TableSpec) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_bigtable_requests_total",
			Help: "Requests to Bigtable, without the client's retries. One with a failed row is a failure.",
		}, []string{"table", "op", "result"}),
		mutations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_bigtable_mutations_total",
			Help: "Row mutations sent to Bigtable, without the client's retries: one for each row of a batch.",
		}, []string{"table", "result"}),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_bigtable_rows_total",
			Help: "Rows read from Bigtable.",
		}, []string{"table"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_bigtable_bytes_total",
			Help: "Bytes of keys, columns and values that were sent to Bigtable and read from it, without the client's retries.",
		}, []string{"table", "op"}),
		attempts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "adapter_bigtable_attempt_duration_seconds",
			Help:    "How long each attempt of a request for rows waited for Bigtable, by gRPC code. DeadlineExceeded had no answer in its time.",
			Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, 1, 5, 20},
		}, []string{"method", "table", "code"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "adapter_bigtable_retries_total",
			Help: "Attempts of a request for rows after its first one.",
		}, []string{"method", "table"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "adapter_bigtable_attempts_in_flight",
			Help: "Attempts of requests for rows that have not ended.",
		}, []string{"method"}),
	}
	for _, spec := range tables {
		m.initialize(spec.Table.String())
	}
	return m
}

// initialize creates the series of a table with the value 0.
func (m *metrics) initialize(table string) {
	for _, result := range []string{"success", "failure"} {
		for _, op := range []string{opMutate, opCheck, opRead, opDrop} {
			m.requests.WithLabelValues(table, op, result)
		}
		m.mutations.WithLabelValues(table, result)
	}
	m.rows.WithLabelValues(table)
	for _, op := range []string{opMutate, opCheck, opRead} {
		m.bytes.WithLabelValues(table, op)
	}
	for _, method := range []string{methodRead, "MutateRows", "CheckAndMutateRow"} {
		m.retries.WithLabelValues(method, table)
		m.inFlight.WithLabelValues(method)
	}
}

// register registers the metrics in reg, which may be nil. The stores with one registry have
// the same metrics. It must be called before a request for rows.
func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	return errors.Join(share(reg, &m.requests), share(reg, &m.mutations), share(reg, &m.rows), share(reg, &m.bytes),
		share(reg, &m.attempts), share(reg, &m.retries), share(reg, &m.inFlight))
}

// share registers *c, or replaces it with the one that another store has registered.
func share[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
	err := reg.Register(*c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if other, ok := there.ExistingCollector.(C); ok {
			*c = other
			return nil
		}
	}
	return err
}

// addRequest counts a request.
func (m *metrics) addRequest(table bucketstore.Table, op string, ok bool) {
	m.requests.WithLabelValues(table.String(), op, result(ok)).Inc()
}

// addMutations counts a request of row mutations of which some failed.
func (m *metrics) addMutations(table bucketstore.Table, op string, rows, failed, size int) {
	m.bytes.WithLabelValues(table.String(), op).Add(float64(size))
	m.addRequest(table, op, failed == 0)
	m.mutations.WithLabelValues(table.String(), result(true)).Add(float64(rows - failed))
	m.mutations.WithLabelValues(table.String(), result(false)).Add(float64(failed))
}

// addRead counts a request that returned rows.
func (m *metrics) addRead(table bucketstore.Table, rows, size int, ok bool) {
	m.bytes.WithLabelValues(table.String(), opRead).Add(float64(size))
	m.addRequest(table, opRead, ok)
	m.rows.WithLabelValues(table.String()).Add(float64(rows))
}

func result(ok bool) string {
	if ok {
		return "success"
	}
	return "failure"
}
