package bigtable_test

import (
	"context"
	"errors"
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
	want := `
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
# HELP adapter_bigtable_rows_total Rows read from Bigtable.
# TYPE adapter_bigtable_rows_total counter
adapter_bigtable_rows_total{table="META"} 4
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}

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
