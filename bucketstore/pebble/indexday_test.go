package pebble_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series"
)

// Two index periods, the second of which follows the first. The first has the
// number 3343.
const (
	testPeriod = "1794759458816"
	nextPeriod = "1795296329728"
)

// TestIndexDays checks the days of stored rows of INDEX.
func TestIndexDays(t *testing.T) {
	for _, tc := range []struct {
		name string
		key  string
		want uint32
	}{
		{"posting", "p,job=b," + testPeriod + ",up,job=b", 3343},
		{"posting of the next period", "p,job=b," + nextPeriod + ",up,job=b", 3344},
		{"posting of a tenant", "tenant,p,job=b," + testPeriod + ",tenant,up,job=b", 3343},
		{"posting of a tenant like a period", nextPeriod + ",p,job=b," + testPeriod + "," + nextPeriod + ",up,job=b", 3343},
		{"series without a name", "p,__name__=," + testPeriod + ",,job=b", 3343},
		{"1970", "p,job=b,0000000000000,up,job=b", 0},
		{"value", "v,job," + testPeriod + ",b", 3343},
		{"value like a period", "v,job," + testPeriod + "," + nextPeriod, 3343},
		{"posting of a value like a period", "p,job=" + nextPeriod + "," + testPeriod + ",up,job=" + nextPeriod, 3343},
		{"posting of a value with a comma and a period", `p,job=\,` + nextPeriod + "," + testPeriod + `,up,job=\,` + nextPeriod, 3343},
		{"name", "n," + testPeriod + ",job", 3343},
		{"no period", "p,job=b", noDay},
		{"a label that begins with a digit", "p,5xx=b," + testPeriod + ",up,5xx=b", noDay},
		{"not a multiple of the period", "n,1794759458817,job", noDay},
	} {
		t.Run(tc.name, func(t *testing.T) {
			disk := vfs.NewMem()
			s, err := pebble.Open(onDisk("/data").WithFS(disk))
			if err != nil {
				t.Fatal(err)
			}
			apply(t, s, bucketstore.Index, tc.key, setOp("i", "i", 1, ""))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("03%08x%x000169%x=0000000000000001", tc.want, tc.key, "\x00i")
			if got := storedPairs(t, disk); len(got) != 1 || got[0] != want {
				t.Errorf("stored\n%q\nwant\n%q", got, want)
			}
		})
	}
}

// randomIndexKey returns a key as the index has them, of few labels, values and
// periods, some of which look like each other.
func randomIndexKey(rng *rand.Rand) string {
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	tenant := pick("", "", "t,", testPeriod+",")
	label := pick("job", "jobs", "5xx", "a")
	value := pick("b", "", "b1", testPeriod, `\,`+nextPeriod)
	// The last two are none, and lie between the first two.
	period := pick(testPeriod, nextPeriod, "0000000000000", "1794759458817", testPeriod+"x")
	switch rng.IntN(4) {
	case 0:
		return tenant + "n," + period + "," + label
	case 1:
		return tenant + "v," + label + "," + period + "," + value
	default:
		return tenant + "p," + label + "=" + value + "," + period + "," + tenant + fmt.Sprintf("up%d,%s=%s", rng.IntN(9), label, value)
	}
}

// randomIndexRange returns a range as the index asks for, or any other.
func randomIndexRange(rng *rand.Rand) series.RowRange {
	key := randomIndexKey(rng)
	switch rng.IntN(6) {
	case 0:
		return series.SingleRow([]byte(key))
	case 5:
		// From one period of a list to another.
		between := strings.NewReplacer(testPeriod, nextPeriod, "1794759458817", nextPeriod)
		return series.RowRange{Start: []byte(key), Limit: []byte(between.Replace(key))}
	case 1:
		other := randomIndexKey(rng)
		return series.RowRange{Start: []byte(min(key, other)), Limit: []byte(max(key, other))}
	case 2:
		// From a row on, as the next page of a list.
		at := strings.LastIndexByte(key, ',')
		return series.RowRange{Start: []byte(key + "\x00"), Limit: []byte(key[:at] + "-")}
	default:
		return series.PrefixRange([]byte(key[:rng.IntN(len(key))+1]))
	}
}

// TestIndexModel compares INDEX with a sorted list, while rows are written, ingested and
// dropped, and the store is reopened.
func TestIndexModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	disk := vfs.NewMem()
	open := func() *pebble.Store {
		cfg := onDisk("/data").WithFS(disk)
		if rng.IntN(2) == 0 {
			cfg = cfg.WithIngest(-1)
		}
		s, err := pebble.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	model := map[string]bool{}
	for range 400 {
		switch rng.IntN(8) {
		case 0:
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open()
		case 1:
			r := randomIndexRange(rng)
			if err := s.Drop(t.Context(), bucketstore.Index, r); err != nil {
				t.Fatal(err)
			}
			for key := range model {
				if r.Contains([]byte(key)) {
					delete(model, key)
				}
			}
		case 2, 3, 4:
			putRows(t, s, rng, model)
		default:
			wantRange(t, s, randomIndexRange(rng), model)
		}
	}
	wantRange(t, s, series.RowRange{}, model)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// putRows writes some rows at once, in order of keys or not.
func putRows(t *testing.T, s *pebble.Store, rng *rand.Rand, model map[string]bool) {
	t.Helper()
	batch := map[string]bool{}
	for range rng.IntN(20) + 1 {
		batch[randomIndexKey(rng)] = true
	}
	var muts []bucketstore.Mutation
	for key := range batch {
		muts = append(muts, bucketstore.Mutation{Key: []byte(key), Ops: []bucketstore.Op{setOp("i", "i", 1, key)}})
		model[key] = true
	}
	if rng.IntN(2) == 0 {
		slices.SortFunc(muts, func(a, b bucketstore.Mutation) int { return strings.Compare(string(a.Key), string(b.Key)) })
	}
	if err := s.Apply(t.Context(), bucketstore.Index, muts); err != nil {
		t.Fatal(err)
	}
}

// wantRange wants the rows of a range to be those of the model, in order.
func wantRange(t *testing.T, s *pebble.Store, r series.RowRange, model map[string]bool) {
	t.Helper()
	var want, got []string
	for key := range model {
		if r.Contains([]byte(key)) {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	req := allOf(bucketstore.Index)
	req.Rows = []series.RowRange{r}
	err := s.Scan(t.Context(), req, func(row bucketstore.Row) error {
		if len(row.Cells) != 1 || string(row.Cells[0].Value) != string(row.Key) {
			t.Errorf("row %q has %v", row.Key, row.Cells)
		}
		got = append(got, string(row.Key))
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("range %s: %v\n%s\nwant\n%s", r, err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDropIndexPeriods lets the rows of an index period expire: they are dropped together,
// and those of the next period stay.
func TestDropIndexPeriods(t *testing.T) {
	const start, end = 3343 * series.IndexPeriod, 3344 * series.IndexPeriod
	disk, clock, registry := vfs.NewMem(), new(atomic.Int64), prometheus.NewRegistry()
	clock.Store(start)
	tables := bucketstore.Tables(bucketstore.KeepAll(keptDays * 24 * time.Hour))
	s := openStore(t, pebble.Config{
		Dir: "/data", SweepInterval: time.Millisecond, Registerer: registry, Tables: tables[:],
		Now: func() time.Time { return time.UnixMilli(clock.Load()) },
	}.WithFS(disk))
	for i := range 10 {
		// The time of a cell of INDEX is the end of its period.
		apply(t, s, bucketstore.Index, fmt.Sprintf("p,job=b,%s,up%d,job=b", testPeriod, i), setOp("i", "i", end, ""))
		apply(t, s, bucketstore.Index, fmt.Sprintf("p,job=b,%s,up%d,job=b", nextPeriod, i), setOp("i", "i", end+series.IndexPeriod, ""))
	}
	clock.Store(end + keptDays*dayMillis + 1)
	waitForMetric(t, registry, "adapter_pebble_sweep_drops_total", 1)
	waitForMetric(t, registry, "adapter_pebble_swept_cells_total", 10)
	clock.Store(start) // What is only hidden would come back.
	if got := dump(t, s, bucketstore.Index); strings.Contains(got, testPeriod) || strings.Count(got, nextPeriod) != 10 {
		t.Errorf("INDEX is\n%s", got)
	}
}
