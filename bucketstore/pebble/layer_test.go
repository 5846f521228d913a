package pebble_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

func addOp(qualifier string, t, n int64) bucketstore.Op {
	return bucketstore.Op{Kind: bucketstore.Add, Family: series.FamilyCount, Qualifier: []byte(qualifier), Time: t, Value: bucketstore.AppendSum(nil, n)}
}

// TestLayers checks the stored keys of the families of METRIC, written one by one and as tables
// that are ingested.
func TestLayers(t *testing.T) {
	ops := []bucketstore.Op{
		setOp("1h", string(daysIn(3, 1)), 1, "h"), setOp("5m", string(daysIn(3, 1)), 1, "m"), setOp("c", string(daysIn(3, 1)), 1, "c"),
		addOp(string(daysIn(3, 1)), 1, 6), setOp("e", string(daysIn(3, 1)), 1, "e"), setOp("r0", string(daysIn(2, 1)), 1, "r"), addOp(string(daysIn(3, 1)), 1, 1),
	}
	const value = "=0000000000000001"
	key := hex.EncodeToString([]byte("up,"+testBase)) + "0001"
	noBase := hex.EncodeToString([]byte("up")) + "0001"
	day, before := hex.EncodeToString(daysIn(3, 1)), hex.EncodeToString(daysIn(2, 1))
	want := []string{
		// 0x2cab is day 11,435 of the epoch, two days after that of testBase.
		"0100002cab" + key + "723000" + before + value + "72",
		"0100002cac" + key + "6300" + day + value + "63",
		"0100002cac" + key + "6500" + day + value + "65",
		"01ffffffff" + noBase + "723000" + before + value + "72",
		"0500002cac" + key + "6400" + day + value + "0000000000000007",
		"05ffffffff" + noBase + "6400" + day + value + "0000000000000007",
		"0600002cac" + key + "356d00" + day + value + "6d",
		// 0xe6 periods of 2^32 ms.
		"07000000e6" + key + "316800" + day + value + "68",
		"07ffffffff" + noBase + "316800" + day + value + "68",
	}
	for name, ingest := range map[string]int{"log": 1 << 30, "ingested": -1} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			s, err := pebble.Open(onDisk("/data").WithFS(disk).WithIngest(ingest))
			if err != nil {
				t.Fatal(err)
			}
			err = s.Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{
				{Key: []byte("up," + testBase), Ops: ops},
				{Key: []byte("up"), Ops: []bucketstore.Op{ops[0], ops[3], ops[5], ops[6]}},
			})
			if err := errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
			if got := storedPairs(t, disk); !slices.Equal(got, want) {
				t.Errorf("stored\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// putAll writes a cell to each resolution, and to the counts, at the time at.
func putAll(t *testing.T, s *pebble.Store, at int64) {
	t.Helper()
	key, qual := keyAt("up", at)
	apply(t, s, bucketstore.Metric, key, setOp("5m", string(qual), at, "x"), setOp("1h", string(qual), at, "x"), setOp("c", string(qual), at, "x"), addOp(string(qual), at, 1))
}

// TestResolutionsExpireAlone: the cut of a resolution lets its own days go, those of hourly
// rollups when their base is over, and the index goes with the last resolution.
func TestResolutionsExpireAlone(t *testing.T) {
	disk := vfs.NewMem()
	s, registry := openForEver(t, disk)
	base, _ := series.Split(firstDay * dayMillis)
	next := base + series.Period
	for day := range int64(4) {
		putAll(t, s, (firstDay+day)*dayMillis+5)
	}
	putAll(t, s, next)
	apply(t, s, bucketstore.Index, "row", setOp("i", "q", firstDay*dayMillis, ""))
	cut := int64(firstDay+2) * dayMillis
	drops, cells := 0.0, 0.0
	for _, step := range []struct {
		name string
		r    rollup.Resolution
		cut  int64
		// drops and cells are those that the cut lets go.
		drops, cells float64
		// left is how many cells each family then has, and INDEX.
		left map[string]int
	}{
		{"5m", rollup.FiveMinutes, cut, 2, 2, map[string]int{"1h": 5, "5m": 3, "c": 5, "d": 5, "i": 1}},
		{"raw, with the counts", rollup.Raw, cut, 4, 4, map[string]int{"1h": 5, "5m": 3, "c": 3, "d": 3, "i": 1}},
		{"1h, not the whole base", rollup.OneHour, cut, 0, 1, map[string]int{"1h": 5, "5m": 3, "c": 3, "d": 3}},
		{"1h", rollup.OneHour, next, 1, 4, map[string]int{"1h": 1, "5m": 3, "c": 3, "d": 3}},
	} {
		s.ExpireBefore(step.r, step.cut)
		drops, cells = drops+step.drops, cells+step.cells
		waitForMetric(t, registry, "adapter_pebble_sweep_drops_total", drops)
		waitForMetric(t, registry, "adapter_pebble_swept_cells_total", cells)
		left := make(map[string]int)
		for _, table := range []bucketstore.Table{bucketstore.Metric, bucketstore.Index} {
			err := s.Scan(t.Context(), allOf(table), func(row bucketstore.Row) error {
				for _, c := range row.Cells {
					left[strings.Clone(c.Family)]++
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if fmt.Sprint(left) != fmt.Sprint(step.left) {
			t.Errorf("after the cut of %s: %v, want %v", step.name, left, step.left)
		}
	}
}

// TestUsageOfResolutions: days are those of raw cells, and each resolution has about the bytes
// that were written.
func TestUsageOfResolutions(t *testing.T) {
	s, _ := openForEver(t, vfs.NewMem())
	const valueSize, block = 1000, 64 << 10
	rows := map[string]int{"c": 900, "5m": 600, "1h": 300}
	for family, n := range rows {
		for i := range n {
			key, qual := keyAt(fmt.Sprint("up", i), firstDay*dayMillis)
			var value []byte
			for j := range valueSize / 64 {
				value = append(value, noise(i*100+j)...)
			}
			apply(t, s, bucketstore.Metric, key, setOp(family, string(qual), 1, string(value)))
		}
	}
	key, qual := keyAt("up", (firstDay+5)*dayMillis)
	apply(t, s, bucketstore.Metric, key, addOp(string(qual), 1, 1), setOp("5m", string(qual), 1, "x"))
	if err := errors.Join(s.Flush(), s.Compact(t.Context())); err != nil {
		t.Fatal(err)
	}
	u, err := s.Usage()
	if err != nil || len(u.Days) != 1 || u.Days[0].End != (firstDay+1)*dayMillis {
		t.Fatalf("%+v, %v", u, err)
	}
	for r, family := range map[rollup.Resolution]string{rollup.Raw: "c", rollup.FiveMinutes: "5m", rollup.OneHour: "1h"} {
		got, want := int64(u.Resolutions[r]), int64(valueSize*rows[family])
		if got < want-2*block || got > want+2*block {
			t.Errorf("%s: %d bytes, want about %d", r, got, want)
		}
	}
	if got := int64(u.Days[0].Bytes); got < int64(valueSize*rows["c"]-2*block) || got > int64(valueSize*rows["c"]+2*block) {
		t.Errorf("the day has %d bytes", got)
	}
}

// TestScanReadsOnlyItsLayers: with damaged rollups the samples of their days are read, and the
// other way round.
func TestScanReadsOnlyItsLayers(t *testing.T) {
	for _, damaged := range []string{"5m", "c"} {
		t.Run(damaged, func(t *testing.T) {
			dir := t.TempDir()
			s, err := pebble.Open(onDisk(dir))
			if err != nil {
				t.Fatal(err)
			}
			var name string
			for _, family := range []string{"5m", "c"} {
				key, qual := keyAt("up", firstDay*dayMillis)
				apply(t, s, bucketstore.Metric, key, setOp(family, string(qual), 1, string(noise(1))))
				if err := s.Flush(); err != nil {
					t.Fatal(err)
				}
				if family == damaged {
					files, err := filepath.Glob(filepath.Join(dir, "*.sst"))
					if err != nil || len(files) == 0 {
						t.Fatal(files, err)
					}
					name = slices.Max(files)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			at := bytes.Index(content, noise(1)[:32])
			content[at] ^= 1
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
			s = openStore(t, onDisk(dir))
			for _, family := range []string{"5m", "c"} {
				req := bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: family}}}
				rows := 0
				err := s.Scan(t.Context(), req, func(bucketstore.Row) error { rows++; return nil })
				if family == damaged && err == nil || family != damaged && (err != nil || rows != 1) {
					t.Errorf("scan of %s: %d rows, %v", family, rows, err)
				}
			}
		})
	}
}
