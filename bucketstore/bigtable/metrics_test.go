package bigtable_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/series"
)

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := bigtabletest.Open(t,
		bigtabletest.WithMutateRowsHook(func(key string) error {
			if key == "row 000002" {
				return errors.New("row is bad")
			}
			return nil
		}),
		bigtabletest.WithConfig(func(cfg *bigtable.Config) {
			cfg.Registerer = reg
			cfg.Tables = cfg.Tables[bucketstore.Meta:]
		}))

	use(t, s)
	// The bytes of four rows of a key of 10, a family, a qualifier and 8 bytes of value,
	// and of two rows that are deleted, with the estimated overhead of each.
	want := `
# HELP adapter_bigtable_attempts_in_flight Attempts of requests for rows that have not ended.
# TYPE adapter_bigtable_attempts_in_flight gauge
adapter_bigtable_attempts_in_flight{method="CheckAndMutateRow"} 0
adapter_bigtable_attempts_in_flight{method="MutateRows"} 0
adapter_bigtable_attempts_in_flight{method="ReadRows"} 0
# HELP adapter_bigtable_bytes_total Bytes of keys, columns and values that were sent to Bigtable and read from it, without the client's retries.
# TYPE adapter_bigtable_bytes_total counter
adapter_bigtable_bytes_total{op="check",table="META"} 69
adapter_bigtable_bytes_total{op="mutate",table="META"} 298
adapter_bigtable_bytes_total{op="read",table="META"} 74
# HELP adapter_bigtable_mutations_total Row mutations sent to Bigtable, without the client's retries: one for each row of a batch.
# TYPE adapter_bigtable_mutations_total counter
adapter_bigtable_mutations_total{result="failure",table="META"} 1
adapter_bigtable_mutations_total{result="success",table="META"} 5
# HELP adapter_bigtable_requests_total Requests to Bigtable, without the client's retries. One with a failed row is a failure.
# TYPE adapter_bigtable_requests_total counter
adapter_bigtable_requests_total{op="check",result="failure",table="META"} 0
adapter_bigtable_requests_total{op="check",result="success",table="META"} 1
adapter_bigtable_requests_total{op="drop",result="failure",table="META"} 0
adapter_bigtable_requests_total{op="drop",result="success",table="META"} 1
adapter_bigtable_requests_total{op="mutate",result="failure",table="META"} 1
adapter_bigtable_requests_total{op="mutate",result="success",table="META"} 1
adapter_bigtable_requests_total{op="read",result="failure",table="META"} 0
adapter_bigtable_requests_total{op="read",result="success",table="META"} 2
# HELP adapter_bigtable_retries_total Attempts of a request for rows after its first one.
# TYPE adapter_bigtable_retries_total counter
adapter_bigtable_retries_total{method="CheckAndMutateRow",table="META"} 0
adapter_bigtable_retries_total{method="MutateRows",table="META"} 0
adapter_bigtable_retries_total{method="ReadRows",table="META"} 0
# HELP adapter_bigtable_rows_total Rows read from Bigtable.
# TYPE adapter_bigtable_rows_total counter
adapter_bigtable_rows_total{table="META"} 4
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want),
		"adapter_bigtable_attempts_in_flight", "adapter_bigtable_bytes_total", "adapter_bigtable_mutations_total",
		"adapter_bigtable_requests_total", "adapter_bigtable_retries_total", "adapter_bigtable_rows_total"); err != nil {
		t.Error(err)
	}
	checkAttempts(t, reg, map[string]uint64{"MutateRows META OK": 2, "CheckAndMutateRow META OK": 1, "ReadRows META OK": 2})

	// Every request fails from here on.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"Apply": s.Apply(ctx, bucketstore.Meta, metaRows(3, 8)),
		"Scan":  s.Scan(ctx, wholeTable(bucketstore.Meta), func(bucketstore.Row) error { return nil }),
		"Drop":  s.Drop(ctx, bucketstore.Meta, series.RowRange{}),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := s.CheckAndApply(ctx, bucketstore.Meta, bucketstore.Condition{Family: "m", Absent: true}, metaRows(1, 8)[0]); err == nil {
		t.Error("CheckAndApply: no error")
	}
	want = `
# HELP adapter_bigtable_mutations_total Row mutations sent to Bigtable, without the client's retries: one for each row of a batch.
# TYPE adapter_bigtable_mutations_total counter
adapter_bigtable_mutations_total{result="failure",table="META"} 5
adapter_bigtable_mutations_total{result="success",table="META"} 5
# HELP adapter_bigtable_requests_total Requests to Bigtable, without the client's retries. One with a failed row is a failure.
# TYPE adapter_bigtable_requests_total counter
adapter_bigtable_requests_total{op="check",result="failure",table="META"} 1
adapter_bigtable_requests_total{op="check",result="success",table="META"} 1
adapter_bigtable_requests_total{op="drop",result="failure",table="META"} 1
adapter_bigtable_requests_total{op="drop",result="success",table="META"} 1
adapter_bigtable_requests_total{op="mutate",result="failure",table="META"} 2
adapter_bigtable_requests_total{op="mutate",result="success",table="META"} 1
adapter_bigtable_requests_total{op="read",result="failure",table="META"} 1
adapter_bigtable_requests_total{op="read",result="success",table="META"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "adapter_bigtable_mutations_total", "adapter_bigtable_requests_total"); err != nil {
		t.Error(err)
	}
}

// TestMetricsOfTwoStores: two stores with one registry, as with an app profile for sealing, are
// counted together.
func TestMetricsOfTwoStores(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	addr := bigtabletest.Serve(t)
	cfg := bigtabletest.Config(addr)
	cfg.Registerer = reg
	for range 2 {
		apply(t, open(t, cfg), bucketstore.Meta, metaRows(3, 8)...)
	}
	checkAttempts(t, reg, map[string]uint64{"MutateRows META OK": 2})
}

// checkAttempts checks how many attempts the histogram has, by method, table and code.
func checkAttempts(t *testing.T, reg prometheus.Gatherer, want map[string]uint64) {
	t.Helper()
	if got := countAttempts(t, reg); !maps.Equal(got, want) {
		t.Errorf("attempts %v, want %v", got, want)
	}
}

func countAttempts(t *testing.T, reg prometheus.Gatherer) map[string]uint64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]uint64)
	for _, family := range families {
		if family.GetName() != "adapter_bigtable_attempt_duration_seconds" {
			continue
		}
		for _, m := range family.Metric {
			labels := make(map[string]string)
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			got[labels["method"]+" "+labels["table"]+" "+labels["code"]] = m.GetHistogram().GetSampleCount()
		}
	}
	return got
}

// use sends one request of each kind, or more.
func use(t *testing.T, s *bigtable.Store) {
	t.Helper()
	if got := failedRows(t, s.Apply(t.Context(), bucketstore.Meta, metaRows(4, 8))); len(got) != 1 {
		t.Fatalf("rows %v failed, want one", got)
	}
	if applied, err := s.CheckAndApply(t.Context(), bucketstore.Meta, bucketstore.Condition{Family: "m", Absent: true}, metaRows(1, 9)[0]); err != nil || !applied {
		t.Fatalf("CheckAndApply = %v, %v", applied, err)
	}
	if rows := scan(t, s, wholeTable(bucketstore.Meta)); len(rows) != 3 {
		t.Fatalf("%d rows, want 3", len(rows))
	}
	// A prefix is one request about the table, any other range a read and a
	// write of rows.
	if err := s.Drop(t.Context(), bucketstore.Meta, series.PrefixRange([]byte("row 000003"))); err != nil {
		t.Fatal(err)
	}
	if err := s.Drop(t.Context(), bucketstore.Meta, rowRange("row 000001", "row 000003")); err != nil {
		t.Fatal(err)
	}
}
