package bigtable

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/metricset"
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

// newMetrics returns metrics for the given tables, all of them 0, or those that another store has registered in reg, which may be nil.
func newMetrics(reg prometheus.Registerer, tables []bucketstore.TableSpec) *metrics {
	f := metricset.New(reg)
	m := &metrics{
		requests: f.CounterVec("adapter_bigtable_requests_total",
			"Requests to Bigtable, without the client's retries. One with a failed row is a failure.", "table", "op", "result"),
		mutations: f.CounterVec("adapter_bigtable_mutations_total",
			"Row mutations sent to Bigtable, without the client's retries: one for each row of a batch.", "table", "result"),
		rows: f.CounterVec("adapter_bigtable_rows_total", "Rows read from Bigtable.", "table"),
		bytes: f.CounterVec("adapter_bigtable_bytes_total",
			"Bytes of keys, columns and values that were sent to Bigtable and read from it, without the client's retries.", "table", "op"),
		attempts: f.HistogramVec("adapter_bigtable_attempt_duration_seconds",
			"How long each attempt of a request for rows waited for Bigtable, by gRPC code. DeadlineExceeded had no answer in its time.",
			[]float64{.002, .005, .01, .025, .05, .1, .25, 1, 5, 20}, "method", "table", "code"),
		retries:  f.CounterVec("adapter_bigtable_retries_total", "Attempts of a request for rows after its first one.", "method", "table"),
		inFlight: f.GaugeVec("adapter_bigtable_attempts_in_flight", "Attempts of requests for rows that have not ended.", "method"),
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
