package pebble_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	engine "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series"
)

func setOp(family, qualifier string, t int64, value string) bucketstore.Op {
	return bucketstore.Op{Family: family, Qualifier: []byte(qualifier), Time: t, Value: []byte(value)}
}

func apply(t testing.TB, s *pebble.Store, table bucketstore.Table, key string, ops ...bucketstore.Op) {
	t.Helper()
	if err := s.Apply(t.Context(), table, []bucketstore.Mutation{{Key: []byte(key), Ops: ops}}); err != nil {
		t.Fatal(err)
	}
}

// dump returns all cells of a table as text.
func dump(t testing.TB, s *pebble.Store, table bucketstore.Table) string {
	t.Helper()
	var b strings.Builder
	err := s.Scan(t.Context(), allOf(table), func(row bucketstore.Row) error {
		for _, c := range row.Cells {
			fmt.Fprintf(&b, "%q %s:%q@%d=%q\n", row.Key, c.Family, c.Qualifier, c.Time, c.Value)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestReopen writes, deletes and drops, and checks the store after each of several reopens.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	want := ""
	for i := range 4 {
		s, err := pebble.Open(onDisk(dir))
		if err != nil {
			t.Fatal(err)
		}
		if got := dump(t, s, bucketstore.Metric); got != want {
			t.Fatalf("opening %d: the store holds\n%s\nwant\n%s", i, got, want)
		}
		apply(t, s, bucketstore.Metric, fmt.Sprint("row ", i), setOp("l", "a", 5, "x"), setOp("r0", "b", 6, "y"))
		apply(t, s, bucketstore.Metric, fmt.Sprint("row ", i), setOp("l", "a", 4, "hidden"), bucketstore.Op{Kind: bucketstore.DeleteFamily, Family: "r0"})
		days := fmt.Sprintf("row %d,%s", i, testBase)
		early, late := string(daysIn(i, 0)), string(daysIn(10*i, 1))
		apply(t, s, bucketstore.Metric, days, setOp("l", early, 5, "x"), setOp("r0", early, 6, "y"), setOp("l", late, 5, "z"), setOp("r0", late, 6, "y"))
		apply(t, s, bucketstore.Metric, days, bucketstore.Op{Kind: bucketstore.DeleteFamily, Family: "r0"})
		apply(t, s, bucketstore.Metric, "dropped", setOp("l", "a", 5, "x"))
		if err := s.Drop(t.Context(), bucketstore.Metric, series.SingleRow([]byte("dropped"))); err != nil {
			t.Fatal(err)
		}
		want += fmt.Sprintf("\"row %d\" l:\"a\"@5=\"x\"\n", i)
		want += fmt.Sprintf("%q l:%q@5=\"x\"\n%q l:%q@5=\"z\"\n", days, early, days, late)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEmptyKey: unlike Bigtable this backend accepts it.
func TestEmptyKey(t *testing.T) {
	s := openStore(t, onDisk(t.TempDir()))
	apply(t, s, bucketstore.Metric, "", setOp("l", "", 1, ""))
	apply(t, s, bucketstore.Metric, "\x00", setOp("l", "", 1, ""))
	const want = "\"\" l:\"\"@1=\"\"\n\"\\x00\" l:\"\"@1=\"\"\n"
	if got := dump(t, s, bucketstore.Metric); got != want {
		t.Errorf("the store holds\n%s\nwant\n%s", got, want)
	}
}

func TestRefusedOperations(t *testing.T) {
	s := openStore(t, onDisk(t.TempDir()))
	for _, tc := range []struct {
		name string
		op   bucketstore.Op
	}{
		{"negative time", setOp("l", "q", -1, "x")},
		{"unknown kind", bucketstore.Op{Kind: 9, Family: "l"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := s.Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{{Key: []byte("row"), Ops: []bucketstore.Op{tc.op}}}); err == nil {
				t.Error("Apply accepted it")
			}
			if got := dump(t, s, bucketstore.Metric); got != "" {
				t.Errorf("the store holds %s", got)
			}
		})
	}
}

// TestLayout compares stored bytes with the package comment.
func TestLayout(t *testing.T) {
	disk := vfs.NewMem()
	s, err := pebble.Open(onDisk("/data").WithFS(disk))
	if err != nil {
		t.Fatal(err)
	}
	apply(t, s, bucketstore.Metric, "up\x00,1", setOp("r0", "\x01\x02\x03\x04", 0x0506, "val"))
	apply(t, s, bucketstore.Metric, "up,1297080123392", setOp("l", "\xae\x0a\x0f\x00", 7, "")) // 15046 days and 0.8 s
	apply(t, s, bucketstore.Meta, "schema", setOp("m", "v", 1, ""))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"01 00003ac6 75702c31323937303830313233333932 0001 6c 00 ae0a0f00 = 0000000000000007",
		"01 ffffffff 7570 00ff 2c31 0001 7230 00 01020304 = 0000000000000506 76616c",
		"04 736368656d61 0001 6d 00 76 = 0000000000000001",
	}
	got := storedPairs(t, disk)
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], " ", "")
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("stored\n%q\nwant\n%q", got, want)
	}
}

// storedPairs returns what Pebble itself finds in /data, in hex.
func storedPairs(t *testing.T, disk vfs.FS) (pairs []string) {
	t.Helper()
	db, err := engine.Open("/data", pebble.EngineOptions(disk))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	iter, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer iter.Close()
	for valid := iter.First(); valid; valid = iter.Next() {
		pairs = append(pairs, hex.EncodeToString(iter.Key())+"="+hex.EncodeToString(iter.Value()))
	}
	return pairs
}

// TestSweep moves the clock back after the sweep: cells that were only hidden would appear
// again.
func TestSweep(t *testing.T) {
	const rows = 10000 // More than two steps of a sweep.
	var clock atomic.Int64
	clock.Store(1e12)
	registry := prometheus.NewRegistry()
	cfg := pebble.Config{
		Dir: "/data", Tables: bucketstore.Tables(bucketstore.Retention{}), SweepInterval: time.Millisecond, Registerer: registry,
		Now: func() time.Time { return time.UnixMilli(clock.Load()) },
	}
	s := openStore(t, cfg.WithFS(vfs.NewMem()))
	muts := make([]bucketstore.Mutation, rows)
	for i := range muts {
		muts[i] = bucketstore.Mutation{Key: fmt.Appendf(nil, "row %05d", i), Ops: []bucketstore.Op{setOp("v", "v", 1e12+int64(i%2), "x")}}
	}
	if err := s.Apply(t.Context(), bucketstore.Current, muts); err != nil {
		t.Fatal(err)
	}
	apply(t, s, bucketstore.Metric, "row", setOp("r0", "q", 0, "x"))
	clock.Add(bucketstore.MaxCurrentAge.Milliseconds() + 1)
	waitForMetric(t, registry, "adapter_pebble_swept_cells_total", rows/2)
	clock.Store(1e12)
	if left := strings.Count(dump(t, s, bucketstore.Current), "\n"); left != rows/2 {
		t.Errorf("%d cells of CURRENT are left, want %d", left, rows/2)
	}
	if got := dump(t, s, bucketstore.Metric); got == "" {
		t.Error("a cell was swept that never expires")
	}
}

func waitForMetric(t *testing.T, registry *prometheus.Registry, name string, want float64) {
	t.Helper()
	waitUntil(t, func() (bool, string) {
		got := metricValue(t, registry, name)
		return got == want, fmt.Sprintf("%s is %v, want %v", name, got, want)
	})
}

// waitUntil polls until done. After a minute the test fails with the text.
func waitUntil(t *testing.T, poll func() (done bool, text string)) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		done, text := poll()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(text)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// metricValue returns the value of a counter or gauge, 0 if there is none.
func metricValue(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			m := family.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return 0
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	cfg := onDisk(t.TempDir())
	cfg.Registerer = registry
	s, err := pebble.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		apply(t, s, bucketstore.Metric, "row", setOp("l", "q", int64(i), "x"))
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		m := family.GetMetric()[0]
		switch family.GetName() {
		case "adapter_pebble_commit_duration_seconds":
			if n := m.GetHistogram().GetSampleCount(); n != 3 {
				t.Errorf("%d commits, want 3", n)
			}
		case "adapter_pebble_disk_bytes", "adapter_pebble_memtable_bytes":
			if m.GetGauge().GetValue() <= 0 {
				t.Errorf("%s is %v", family.GetName(), m.GetGauge().GetValue())
			}
		}
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	if len(families) != 14 {
		t.Errorf("%d families of metrics, want 14", len(families))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openStore(t, cfg) // It registers them again.
}

// TestMergerOrder merges operands in both directions.
func TestMergerOrder(t *testing.T) {
	operand := func(at byte, value string) []byte { return append([]byte{0, 0, 0, 0, 0, 0, 0, at}, value...) }
	number := func(n int64) string { return string(bucketstore.AppendSum(nil, n)) }
	sumKey := []byte("\x05\x00\x00\x00\x00row\x00\x01d\x00")
	merger := pebble.EngineOptions(vfs.NewMem()).Merger
	for _, tc := range []struct {
		name string
		// operands in order of writing
		operands [][]byte
		want     string
	}{
		{"one", [][]byte{operand(1, "a")}, "a"},
		{"newer is greater", [][]byte{operand(1, "a"), operand(2, "b")}, "b"},
		{"older is greater", [][]byte{operand(2, "a"), operand(1, "b")}, "a"},
		{"equal", [][]byte{operand(1, "a"), operand(1, "b"), operand(1, "")}, ""},
		{"greatest twice", [][]byte{operand(1, "a"), operand(3, "b"), operand(3, "c"), operand(2, "d")}, "c"},
		{"sum: one", [][]byte{operand(1, number(5))}, number(5)},
		{"sum: equal", [][]byte{operand(1, number(5)), operand(1, number(-7)), operand(1, number(1))}, number(-1)},
		{"sum: greatest", [][]byte{operand(1, number(5)), operand(3, number(7)), operand(2, number(9)), operand(3, number(1))}, number(8)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			last := len(tc.operands) - 1
			var key []byte
			if strings.HasPrefix(tc.name, "sum") {
				key = sumKey
			}
			up, err := merger.Merge(key, tc.operands[0])
			if err != nil {
				t.Fatal(err)
			}
			down, err := merger.Merge(key, tc.operands[last])
			if err != nil {
				t.Fatal(err)
			}
			for i := range last {
				if err := up.MergeNewer(tc.operands[i+1]); err != nil {
					t.Fatal(err)
				}
				if err := down.MergeOlder(tc.operands[last-1-i]); err != nil {
					t.Fatal(err)
				}
			}
			wantMerged(t, up, tc.want)
			wantMerged(t, down, tc.want)
		})
	}
	if _, err := merger.Merge(nil, []byte("short")); err == nil {
		t.Error("a value without a time was merged")
	}
	if m, err := merger.Merge(sumKey, operand(1, "short")); err != nil || m.MergeNewer(operand(1, number(1))) == nil {
		t.Errorf("a number of 5 bytes was added to: %v", err)
	}
}

func wantMerged(t *testing.T, m interface {
	Finish(bool) ([]byte, io.Closer, error)
}, want string) {
	t.Helper()
	got, closer, err := m.Finish(true)
	if err != nil {
		t.Fatal(err)
	}
	if string(got[8:]) != want {
		t.Errorf("merged to %q, want %q", got[8:], want)
	}
	if err := closer.Close(); err != nil {
		t.Error(err)
	}
}

// TestHungDisk: a write that waits for the disk ends with its context, and a
// scan does not wait at all.
func TestHungDisk(t *testing.T) {
	var armed atomic.Bool
	release := make(chan struct{})
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		isSync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData
		if isSync && armed.Load() && strings.HasSuffix(op.Path, ".log") {
			<-release
		}
		return nil
	}))
	s := openStore(t, onDisk("/data").WithFS(disk))
	armed.Store(true)
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := s.Apply(ctx, bucketstore.Metric, []bucketstore.Mutation{{Key: []byte("row"), Ops: []bucketstore.Op{setOp("l", "q", 1, "x")}}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Apply returned %v, want context.DeadlineExceeded", err)
	}
	dump(t, s, bucketstore.Metric)
}
