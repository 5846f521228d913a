//go:build bigtable

package bigtable_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	btclient "cloud.google.com/go/bigtable"
	"github.com/go-kit/log"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
)

// TestReal runs against an instance of Google's service, which BIGTABLE_PROJECT and
// BIGTABLE_INSTANCE name, and BIGTABLE_APP_PROFILE if it is not the default one. It creates
// tables with a prefix of its own and deletes them at the end. It needs the rights of
// roles/bigtable.admin on the instance:
//
//	go test -tags bigtable -timeout 1h -run TestReal -v ./bucketstore/bigtable
func TestReal(t *testing.T) {
	r := newReal(t)
	t.Run("one", func(t *testing.T) { storetest.Run(t, r.open) })
	t.Run("several", func(t *testing.T) { storetest.RunConcurrent(t, r.open) })
	t.Run("service", r.testService)
}

// A realInstance opens stores on one instance.
type realInstance struct {
	project, instance, profile string
	// prefix begins the names of all tables of this run.
	prefix string
	admin  *btclient.AdminClient
	opened atomic.Int64
}

func newReal(t *testing.T) *realInstance {
	r := &realInstance{
		project:  os.Getenv("BIGTABLE_PROJECT"),
		instance: os.Getenv("BIGTABLE_INSTANCE"),
		profile:  os.Getenv("BIGTABLE_APP_PROFILE"),
		prefix:   "promtable-test-" + strconv.FormatInt(time.Now().UnixMilli(), 36) + "-",
	}
	if r.project == "" || r.instance == "" {
		t.Fatal("set BIGTABLE_PROJECT and BIGTABLE_INSTANCE to an instance for tests")
	}
	admin, err := btclient.NewAdminClient(context.Background(), r.project, r.instance)
	if err != nil {
		t.Fatal(err)
	}
	r.admin = admin
	t.Cleanup(func() {
		r.deleteTables(t)
		admin.Close()
	})
	return r
}

// deleteTables deletes the tables of this run that are left.
func (r *realInstance) deleteTables(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	tables, err := r.admin.Tables(ctx)
	if err != nil {
		t.Errorf("the tables with the prefix %s may be left: %v", r.prefix, err)
	}
	for _, table := range tables {
		if !strings.HasPrefix(table, r.prefix) {
			continue
		}
		if err := r.admin.DeleteTable(ctx, table); err != nil {
			t.Errorf("table %s is left: %v", table, err)
		}
	}
}

// config returns the configuration of a store that no other test has.
func (r *realInstance) config() bigtable.Config {
	return bigtable.Config{
		Project:      r.project,
		Instance:     r.instance,
		AppProfile:   r.profile,
		TablePrefix:  fmt.Sprintf("%s%d-", r.prefix, r.opened.Add(1)),
		Connections:  2,
		UserAgent:    "promtable/test",
		Tables:       bucketstore.Tables(bucketstore.Retention{}),
		CreateTables: true,
	}
}

// open is a storetest.Open. The tables are deleted with the test, because an instance may
// have 1,000.
func (r *realInstance) open(t testing.TB, tables []bucketstore.TableSpec, _ func() time.Time) bucketstore.Store {
	t.Helper()
	cfg := r.config()
	cfg.Tables = tables
	return r.openConfig(t, cfg)
}

func (r *realInstance) openConfig(t testing.TB, cfg bigtable.Config) *bigtable.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	s, err := bigtable.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
		for _, spec := range cfg.Tables {
			// A second store on the same tables may have deleted them.
			_ = r.admin.DeleteTable(context.Background(), cfg.TablePrefix+spec.Table.String())
		}
	})
	return s
}

// testService shows what no double can: what Google's service makes of our requests.
func (r *realInstance) testService(t *testing.T) {
	cfg := r.config()
	s := r.openConfig(t, cfg)
	t.Run("the tables are as wanted", func(t *testing.T) {
		var logged bytes.Buffer
		again := cfg
		again.CreateTables, again.Logger = false, log.NewLogfmtLogger(&logged)
		other, err := bigtable.Open(t.Context(), again)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		// Neither a drift of garbage collection nor an app profile that may not be read.
		if logged.Len() > 0 {
			t.Errorf("logged %s", &logged)
		}
	})
	t.Run("METRIC is split", func(t *testing.T) {
		data, err := btclient.NewClientWithConfig(t.Context(), r.project, r.instance, btclient.ClientConfig{
			AppProfile: r.profile, MetricsProvider: btclient.NoopMetricsProvider{}, DisableSession: true, DisableDirectAccess: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer data.Close()
		keys, err := data.Open(cfg.TablePrefix + "METRIC").SampleRowKeys(t.Context())
		if err != nil || !slices.Contains(keys, "c") || !slices.Contains(keys, "n") {
			t.Errorf("split at %q, %v", keys, err)
		}
	})
	t.Run("sizes", func(t *testing.T) {
		long := bytes.Repeat([]byte("k"), 4096)
		muts := []bucketstore.Mutation{
			{Key: long, Ops: []bucketstore.Op{setCell("m", bytes.Repeat([]byte("q"), 16<<10), 1, []byte("v"))}},
			{Key: []byte("large"), Ops: []bucketstore.Op{setCell("m", []byte("q"), 1, make([]byte, 10<<20))}},
			{Key: []byte("wide")},
		}
		for i := range 100_000 {
			muts[2].Ops = append(muts[2].Ops, setCell("m", series.AppendQualifier(nil, uint32(i)), 1, []byte("v")))
		}
		apply(t, s, bucketstore.Meta, muts...)
		rows := scan(t, s, wholeTable(bucketstore.Meta))
		if len(rows) != 3 || len(rows[2].Cells) != 100_000 {
			t.Errorf("%d rows, want 3", len(rows))
		}
	})
	t.Run("a request of many keys", func(t *testing.T) {
		var ranges []series.RowRange
		for i := range 5000 {
			ranges = append(ranges, series.SingleRow(fmt.Appendf(nil, "%0200d", i)))
		}
		apply(t, s, bucketstore.Metric, bucketstore.Mutation{Key: ranges[4999].Start, Ops: []bucketstore.Op{setCell("c", []byte("q"), 1, []byte("v"))}})
		req := wholeTable(bucketstore.Metric)
		req.Rows = ranges
		if rows := scan(t, s, req); len(rows) != 1 {
			t.Errorf("%d rows, want 1", len(rows))
		}
	})
	t.Run("several batches", func(t *testing.T) {
		apply(t, s, bucketstore.Meta, metaRows(12_000, 1000)...)
		req := wholeTable(bucketstore.Meta)
		req.Rows = []series.RowRange{series.PrefixRange([]byte("row "))}
		if rows := scan(t, s, req); len(rows) != 12_000 {
			t.Errorf("%d rows, want 12,000", len(rows))
		}
	})
	t.Run("dropped by the admin API", func(t *testing.T) {
		if err := s.Drop(t.Context(), bucketstore.Meta, series.PrefixRange([]byte("row "))); err != nil {
			t.Fatal(err)
		}
		req := wholeTable(bucketstore.Meta)
		req.Rows = []series.RowRange{series.PrefixRange([]byte("row "))}
		if rows := scan(t, s, req); len(rows) != 0 {
			t.Errorf("%d rows, want none", len(rows))
		}
	})
}
