package bigtable_test

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	btclient "cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"github.com/go-kit/log"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
)

const day = 24 * time.Hour

func TestTablesAreCreated(t *testing.T) {
	addr := bigtabletest.Serve(t)
	cfg := bigtabletest.Config(addr)
	cfg.TablePrefix = "test_"
	cfg.Tables = bucketstore.Tables(bucketstore.Retention{90 * day, 400 * day, 800 * day})
	open(t, cfg)

	admin := adminClient(t, addr)
	for table, want := range map[string]map[string]string{
		"test_METRIC": {
			"1h": "(versions() > 1 || age() > 800d)",
			"5m": "(versions() > 1 || age() > 400d)",
			"c":  "(versions() > 1 || age() > 90d)",
			"d":  "(versions() > 1 || age() > 90d)",
			"e":  "(versions() > 1 || age() > 90d)",
			"l":  "(versions() > 1 || age() > 90d)",
			"r0": "(versions() > 1 || age() > 90d)",
			"r1": "(versions() > 1 || age() > 90d)",
			"r2": "(versions() > 1 || age() > 90d)",
			"r3": "(versions() > 1 || age() > 90d)",
		},
		"test_CURRENT": {"v": "(versions() > 1 || age() > 50d)"},
		"test_INDEX":   {"i": "(versions() > 1 || age() > 800d)"},
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

// TestTablesAreSplit: new tables are divided where their keys differ. The fake ignores it.
func TestTablesAreSplit(t *testing.T) {
	splits := make(map[string][]string)
	bigtabletest.Open(t, bigtabletest.WithServerOptions(grpc.ChainUnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if r, ok := req.(*adminpb.CreateTableRequest); ok {
				splits[r.TableId] = []string{}
				for _, s := range r.InitialSplits {
					splits[r.TableId] = append(splits[r.TableId], string(s.Key))
				}
			}
			return handler(ctx, req)
		})))
	for table, want := range map[string]struct {
		n     int
		first string
	}{"METRIC": {26, "a"}, "CURRENT": {26, "a"}, "INDEX": {26, "p,a"}, "META": {}} {
		got, ok := splits[table]
		if !ok || len(got) != want.n || want.n > 0 && got[0] != want.first || !slices.IsSorted(got) {
			t.Errorf("%s is split at %q, want %d keys from %q on", table, got, want.n, want.first)
		}
	}
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
	if want := []string{"1h", "5m", "c", "d", "e", "l", "r0", "r1", "r2", "r3"}; !slices.Equal(info.Families, want) {
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
	const ok, early, late = "ok", "deletes cells earlier", "keeps cells longer"
	for _, tc := range []struct {
		name   string
		wanted time.Duration
		found  btclient.GCPolicy
		want   string
		age    time.Duration
	}{
		{"as wanted", 90 * day, union(versions(1), age(90*day)), ok, 90 * day},
		{"as wanted, turned round", 90 * day, union(age(90*day), versions(1)), ok, 90 * day},
		{"as wanted, nested", 90 * day, union(union(age(90*day), age(100*day)), versions(1)), ok, 90 * day},
		{"as wanted, for ever", 0, versions(1), ok, 0},
		{"part of a second is rounded up", day - time.Millisecond, union(versions(1), age(day)), ok, day},
		{"shorter", 90 * day, union(versions(1), age(90*day-time.Second)), early, 90*day - time.Second},
		{"age instead of for ever", 0, union(versions(1), age(10000*day)), early, 10000 * day},
		{"shortest of a union", 90 * day, union(versions(1), age(100*day), age(day)), early, day},
		{"both ages shorter", 90 * day, both(age(80*day), age(70*day)), early, 80 * day},
		{"longer", 90 * day, union(versions(1), age(91*day)), late, 91 * day},
		{"for ever instead of age", 90 * day, versions(1), late, 0},
		{"age alone keeps versions", 90 * day, age(90 * day), late, 90 * day},
		{"two versions", 0, versions(2), late, 0},
		{"both", 90 * day, both(versions(1), age(90*day)), late, 0},
		{"no policy", 0, btclient.NoGcPolicy(), late, 0},
		{"no policy instead of age", 90 * day, btclient.NoGcPolicy(), late, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr := bigtabletest.Serve(t)
			err := adminClient(t, addr).CreateTableFromConf(t.Context(), &btclient.TableConf{
				TableID: "p_METRIC", ColumnFamilies: map[string]btclient.Family{"c": {GCPolicy: tc.found}},
			})
			if err != nil {
				t.Fatal(err)
			}
			var logged bytes.Buffer
			cfg := bigtabletest.Config(addr)
			cfg.TablePrefix = "p_"
			cfg.Logger = log.NewLogfmtLogger(&logged)
			cfg.Tables = []bucketstore.TableSpec{{Table: bucketstore.Metric, Families: []bucketstore.FamilySpec{{Name: "c", MaxAge: tc.wanted}}}}
			s := open(t, cfg)
			checkDrift(t, tc.want, logged.String())
			if got := s.Tables()[0].Families[0].MaxAge; got != tc.age {
				t.Errorf("the store says that it keeps %s, want %s", got, tc.age)
			}

			info, err := adminClient(t, addr).TableInfo(t.Context(), "p_METRIC")
			if err != nil || info.FamilyInfos[0].GCPolicy != tc.found.String() {
				t.Errorf("the policy is now %+v: %v", info, err)
			}
			checkSetPolicy(t, cfg, tc.found.String(), tc.age, tc.want == ok)
		})
	}
}

// checkSetPolicy checks what an Admin says of the only family of cfg, and that SetPolicy makes
// it as wanted.
func checkSetPolicy(t *testing.T, cfg bigtable.Config, found string, age time.Duration, asWanted bool) {
	t.Helper()
	admin, err := bigtable.OpenAdmin(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for i := range 2 {
		all, err := admin.Policies(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		p := all[0]
		own := p.FoundAge == 0 && p.Found == "versions() > 1" || p.FoundAge > 0 && strings.HasPrefix(p.Found, "(versions() > 1 || age() > ") && strings.Count(p.Found, "(") == 3
		if p.TableName != "p_METRIC" || p.Family != "c" || p.Missing || p.Found != found || p.FoundAge != age || p.AsWanted != asWanted || p.Foreign == own {
			t.Errorf("%d: %+v; want %q, %s", i, p, found, age)
		}
		if err := admin.SetPolicy(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		found, age, asWanted = p.Wanted, p.WantedAge, true
	}
}

// TestPoliciesOfMissingFamilies: a missing table has missing families. An Admin makes none, and
// SetPolicy fails.
func TestPoliciesOfMissingFamilies(t *testing.T) {
	addr := bigtabletest.Serve(t)
	cfg := bigtabletest.Config(addr)
	older := cfg
	older.Tables = []bucketstore.TableSpec{{Table: bucketstore.Metric, Families: []bucketstore.FamilySpec{{Name: "l"}}}}
	open(t, older)
	admin, err := bigtable.OpenAdmin(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	all, err := admin.Policies(t.Context())
	if err != nil || len(all) != 13 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, p := range all {
		if p.AsWanted == p.Missing || p.AsWanted != (p.Family == "l") {
			t.Errorf("%+v", p)
		}
	}
	if err := admin.SetPolicy(t.Context(), all[0]); err == nil || !strings.Contains(err.Error(), "family 1h of table METRIC") {
		t.Errorf("SetPolicy: %v", err)
	}
}

// checkDrift checks what Open logged about a policy.
func checkDrift(t *testing.T, want, logged string) {
	t.Helper()
	if want == "ok" {
		if logged != "" {
			t.Fatalf("logged %q, want nothing", logged)
		}
		return
	}
	for _, part := range []string{"level=warn", want, "table=p_METRIC family=c", "adapter schema apply"} {
		if !strings.Contains(logged, part) {
			t.Errorf("logged %q, want it to name %q", logged, part)
		}
	}
	if early := strings.Contains(want, "earlier"); early != strings.Contains(logged, "older are deleted") {
		t.Errorf("logged %q: what it means", logged)
	}
}

// TestMetaMayNotForget: META holds the schema and the identity of the store.
func TestMetaMayNotForget(t *testing.T) {
	addr := bigtabletest.Serve(t)
	err := adminClient(t, addr).CreateTableFromConf(t.Context(), &btclient.TableConf{
		TableID: "META", ColumnFamilies: map[string]btclient.Family{"m": {GCPolicy: btclient.MaxAgePolicy(1000 * day)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := bigtable.Open(t.Context(), bigtabletest.Config(addr))
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "adapter schema apply corrects it") {
		t.Errorf("Open: %v, want a command", err)
	}
}

// TestSumFamilyMustBeOne: what a family adds up is fixed when it is created.
func TestSumFamilyMustBeOne(t *testing.T) {
	number := btclient.Int64Type{Encoding: btclient.BigEndianBytesEncoding{}}
	for _, tc := range []struct {
		name  string
		found btclient.Type
		want  bool
	}{
		{"sum", btclient.AggregateType{Input: number, Aggregator: btclient.SumAggregator{}}, true},
		{"no aggregate", nil, false},
		{"maximum", btclient.AggregateType{Input: number, Aggregator: btclient.MaxAggregator{}}, false},
		{"sum of another encoding", btclient.AggregateType{Input: btclient.Int64Type{Encoding: btclient.Int64OrderedCodeBytesEncoding{}}, Aggregator: btclient.SumAggregator{}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr := bigtabletest.Serve(t)
			admin := adminClient(t, addr)
			err := admin.CreateTableFromConf(t.Context(), &btclient.TableConf{
				TableID: "METRIC", ColumnFamilies: map[string]btclient.Family{"d": {GCPolicy: btclient.MaxVersionsPolicy(1), ValueType: tc.found}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if tc.want {
				open(t, bigtabletest.Config(addr))
				return
			}
			s, err := bigtable.Open(t.Context(), bigtabletest.Config(addr))
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "cbt -project=project -instance=instance deletefamily METRIC d") {
				t.Fatalf("Open: %v, want a command", err)
			}
			if err := admin.DeleteColumnFamily(t.Context(), "METRIC", "d"); err != nil {
				t.Fatal(err)
			}
			open(t, bigtabletest.Config(addr))
		})
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

// TestTablesOfANewStore: tables and families that Open creates have the wanted ages.
func TestTablesOfANewStore(t *testing.T) {
	addr := bigtabletest.Serve(t)
	err := adminClient(t, addr).CreateTableFromConf(t.Context(), &btclient.TableConf{
		TableID: "METRIC", ColumnFamilies: map[string]btclient.Family{"c": {GCPolicy: btclient.MaxAgePolicy(5 * day)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := bigtabletest.Config(addr)
	cfg.Tables = bucketstore.Tables(bucketstore.KeepAll(97 * day))
	want := bucketstore.Tables(bucketstore.KeepAll(97 * day))
	want[bucketstore.Metric].Families[2].MaxAge = 5 * day
	for range 2 { // The second finds what the first has made.
		if got := open(t, cfg).Tables(); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
}
