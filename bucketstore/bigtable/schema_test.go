package bigtable_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	btclient "cloud.google.com/go/bigtable"
	"github.com/go-kit/log"
	"google.golang.org/api/option"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
)

const day = 24 * time.Hour

func TestTablesAreCreated(t *testing.T) {
	addr := bigtabletest.Serve(t)
	cfg := bigtabletest.Config(addr)
	cfg.TablePrefix = "test_"
	cfg.Tables = bucketstore.Tables(90 * day)
	open(t, cfg)

	admin := adminClient(t, addr)
	for table, want := range map[string]map[string]string{
		"test_METRIC": {
			"c":  "(versions() > 1 || age() > 90d)",
			"e":  "(versions() > 1 || age() > 90d)",
			"l":  "(versions() > 1 || age() > 90d)",
			"r0": "(versions() > 1 || age() > 90d)",
			"r1": "(versions() > 1 || age() > 90d)",
			"r2": "(versions() > 1 || age() > 90d)",
			"r3": "(versions() > 1 || age() > 90d)",
		},
		"test_CURRENT": {"v": "(versions() > 1 || age() > 50d)"},
		"test_INDEX":   {"i": "(versions() > 1 || age() > 90d)"},
		"test_META":    {"m": "versions() > 1"},
	} {
		info, err := admin.TableInfo(t.Context(), table)
		if err != nil {
			t.Fatal(err)
		}
		if len(info.FamilyInfos) != len(want) {
			t.Errorf("%s has the families %q", table, info.Families)
		}
		for _, f := range info.FamilyInfos {
			if f.GCPolicy != want[f.Name] {
				t.Errorf("%s %s: policy %q, want %q", table, f.Name, f.GCPolicy, want[f.Name])
			}
		}
	}

	t.Run("again", func(t *testing.T) {
		var logged bytes.Buffer
		cfg.CreateTables = false
		cfg.Logger = log.NewLogfmtLogger(&logged)
		open(t, cfg)
		if logged.Len() > 0 {
			t.Errorf("logged %s", &logged)
		}
	})
	t.Run("another prefix is another store", func(t *testing.T) {
		other := cfg
		other.TablePrefix, other.CreateTables = "", true
		apply(t, open(t, other), bucketstore.Meta, bucketstore.Mutation{Key: []byte("row"), Ops: []bucketstore.Op{setCell("m", nil, 1, nil)}})
		if rows := scan(t, open(t, cfg), wholeTable(bucketstore.Meta)); len(rows) != 0 {
			t.Errorf("found rows %q of another prefix", keys(rows))
		}
	})
}

func TestMissingFamilyIsCreated(t *testing.T) {
	addr := bigtabletest.Serve(t)
	cfg := bigtabletest.Config(addr)
	older := cfg
	older.Tables = []bucketstore.TableSpec{{Table: bucketstore.Metric, Families: []bucketstore.FamilySpec{{Name: "l"}}}}
	open(t, older)
	s := open(t, cfg)
	apply(t, s, bucketstore.Metric, bucketstore.Mutation{Key: []byte("row"), Ops: []bucketstore.Op{setCell("r3", []byte("q"), 1, nil)}})

	info, err := adminClient(t, addr).TableInfo(t.Context(), "METRIC")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(info.Families)
	if want := []string{"c", "e", "l", "r0", "r1", "r2", "r3"}; !slices.Equal(info.Families, want) {
		t.Fatalf("families %q, want %q", info.Families, want)
	}
	for _, f := range info.FamilyInfos {
		if f.GCPolicy != "versions() > 1" {
			t.Errorf("family %s has the policy %q", f.Name, f.GCPolicy)
		}
	}
}

func TestMissingTablesAreNamed(t *testing.T) {
	addr := bigtabletest.Serve(t)
	cfg := bigtabletest.Config(addr)
	older := cfg
	older.Tables = []bucketstore.TableSpec{{Table: bucketstore.Metric, Families: []bucketstore.FamilySpec{{Name: "l"}, {Name: "r0"}}}}
	open(t, older)
	cfg.CreateTables = false
	_, err := bigtable.Open(t.Context(), cfg)
	if err == nil {
		t.Fatal("Open: no error")
	}
	for _, want := range []string{"family r1 of table METRIC", "family r2 of", "family r3 of", `table CURRENT with families ["v"]`, "table INDEX", "table META"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Open: %v, want an error with %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "family r0") {
		t.Errorf("Open names a family that is there: %v", err)
	}
	if tables, err := adminClient(t, addr).Tables(t.Context()); err != nil || len(tables) != 1 {
		t.Errorf("the tables are %q: %v", tables, err)
	}
}

func TestGarbageCollectionDrift(t *testing.T) {
	age := func(d time.Duration) btclient.GCPolicy { return btclient.MaxAgePolicy(d) }
	versions := btclient.MaxVersionsPolicy
	union, both := btclient.UnionPolicy, btclient.IntersectionPolicy
	const ok, warn, fail = "ok", "warn", "fail"
	for _, tc := range []struct {
		name   string
		wanted time.Duration
		found  btclient.GCPolicy
		want   string
	}{
		{"as wanted", 90 * day, union(versions(1), age(90*day)), ok},
		{"as wanted, turned round", 90 * day, union(age(90*day), versions(1)), ok},
		{"as wanted, nested", 90 * day, union(union(age(90*day), age(100*day)), versions(1)), ok},
		{"as wanted, for ever", 0, versions(1), ok},
		{"part of a second is rounded up", day - time.Millisecond, union(versions(1), age(day)), ok},
		{"shorter", 90 * day, union(versions(1), age(90*day-time.Second)), fail},
		{"age instead of for ever", 0, union(versions(1), age(10000*day)), fail},
		{"shortest of a union", 90 * day, union(versions(1), age(100*day), age(day)), fail},
		{"both ages shorter", 90 * day, both(age(80*day), age(70*day)), fail},
		{"longer", 90 * day, union(versions(1), age(91*day)), warn},
		{"for ever instead of age", 90 * day, versions(1), warn},
		{"age alone keeps versions", 90 * day, age(90 * day), warn},
		{"two versions", 0, versions(2), warn},
		{"both", 90 * day, both(versions(1), age(90*day)), warn},
		{"no policy", 0, btclient.NoGcPolicy(), warn},
		{"no policy instead of age", 90 * day, btclient.NoGcPolicy(), warn},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr := bigtabletest.Serve(t)
			err := adminClient(t, addr).CreateTableFromConf(t.Context(), &btclient.TableConf{
				TableID: "p_META", ColumnFamilies: map[string]btclient.Family{"m": {GCPolicy: tc.found}},
			})
			if err != nil {
				t.Fatal(err)
			}
			var logged bytes.Buffer
			cfg := bigtabletest.Config(addr)
			cfg.TablePrefix = "p_"
			cfg.Logger = log.NewLogfmtLogger(&logged)
			cfg.Tables = []bucketstore.TableSpec{{Table: bucketstore.Meta, Families: []bucketstore.FamilySpec{{Name: "m", MaxAge: tc.wanted}}}}
			s, err := bigtable.Open(t.Context(), cfg)
			if err == nil {
				defer s.Close()
			}
			checkDrift(t, tc.want, err, logged.String())

			info, err := adminClient(t, addr).TableInfo(t.Context(), "p_META")
			if err != nil || info.FamilyInfos[0].GCPolicy != tc.found.String() {
				t.Errorf("the policy is now %+v: %v", info, err)
			}
		})
	}
}

// checkDrift checks what Open said of a policy.
func checkDrift(t *testing.T, want string, err error, logged string) {
	t.Helper()
	said := ""
	switch want {
	case "ok":
		if err != nil || logged != "" {
			t.Fatalf("Open: %v, logged %q, want neither", err, logged)
		}
		return
	case "warn":
		if err != nil {
			t.Fatalf("Open: %v, want a warning only", err)
		}
		said = logged
		if !strings.Contains(said, "level=warn") {
			t.Errorf("logged %q, want a warning", said)
		}
	case "fail":
		if err == nil {
			t.Fatalf("Open: no error, logged %q", logged)
		}
		said = err.Error()
	}
	for _, part := range []string{"p_META", "m", "cbt -project=project -instance=instance setgcpolicy p_META m", "maxversions=1"} {
		if !strings.Contains(said, part) {
			t.Errorf("said %q, want it to name %q", said, part)
		}
	}
}

func TestOpensAtOnce(t *testing.T) {
	addr := bigtabletest.Serve(t)
	const adapters = 8
	errs := make([]error, adapters)
	var wg sync.WaitGroup
	for i := range adapters {
		wg.Go(func() {
			s, err := bigtable.Open(t.Context(), bigtabletest.Config(addr))
			if err == nil {
				err = s.Close()
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("adapter %d: %v", i, err)
		}
	}
}

// adminClient returns a client for the tables of the fake at addr.
func adminClient(t *testing.T, addr string) *btclient.AdminClient {
	t.Helper()
	admin, err := btclient.NewAdminClient(context.Background(), "project", "instance", option.WithGRPCConn(dial(t, addr)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close() })
	return admin
}
