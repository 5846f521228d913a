package pebble_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// openForEver opens a store that deletes no samples by age.
func openForEver(t *testing.T, disk vfs.FS) (*pebble.Store, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	return openStore(t, pebble.Config{
		Dir: "/data", Registerer: registry, Tables: bucketstore.Tables(bucketstore.Retention{}), Now: func() time.Time { return time.UnixMilli(firstDay * dayMillis) },
	}.WithFS(disk)), registry
}

// expireBefore expires all resolutions.
func expireBefore(s *pebble.Store, cut int64) {
	for r := range rollup.NumResolutions {
		s.ExpireBefore(r, cut)
	}
}

func putAt(t *testing.T, s *pebble.Store, name, family string, at int64) {
	t.Helper()
	key, qual := keyAt(name, at)
	apply(t, s, bucketstore.Metric, key, setOp(family, string(qual), at, "x"))
}

// TestExpireBefore: cells before the cut go, in all tables but META, and none at the cut.
func TestExpireBefore(t *testing.T) {
	const cut = (firstDay+2)*dayMillis + 1000
	disk := vfs.NewMem()
	s, registry := openForEver(t, disk)
	for day := range int64(5) {
		putAt(t, s, "up", "c", (firstDay+day)*dayMillis)
		putAt(t, s, "up", "e", (firstDay+day)*dayMillis+1)
	}
	putAt(t, s, "up", "r0", cut-1)
	putAt(t, s, "up", "r1", cut)
	// A chunk of the first day whose last sample is at the cut, and one that ends before.
	key, qual := keyAt("long", firstDay*dayMillis+5)
	apply(t, s, bucketstore.Metric, key, setOp("c", string(qual), cut, "x"))
	key, qual = keyAt("short", firstDay*dayMillis+5)
	apply(t, s, bucketstore.Metric, key, setOp("c", string(qual), cut-1, "x"))
	for _, table := range []bucketstore.Table{bucketstore.Current, bucketstore.Index, bucketstore.Meta} {
		family := map[bucketstore.Table]string{bucketstore.Current: "v", bucketstore.Index: "i", bucketstore.Meta: "m"}[table]
		apply(t, s, table, "before", setOp(family, "q", cut-1, ""))
		apply(t, s, table, "at", setOp(family, "q", cut, ""))
	}
	before := dump(t, s, bucketstore.Metric)
	expireBefore(s, firstDay*dayMillis)
	expireBefore(s, 0)
	if got := dump(t, s, bucketstore.Metric); got != before {
		t.Errorf("METRIC was\n%s\nis\n%s", before, got)
	}
	expireBefore(s, cut)
	expireBefore(s, cut-dayMillis) // It is behind.
	// The day before the cut; of the day with the long chunk all but that; of CURRENT and INDEX a
	// row each. The day of the cut is not over.
	waitForMetric(t, registry, "adapter_pebble_swept_cells_total", 2+3+2)
	waitForMetric(t, registry, "adapter_pebble_sweep_drops_total", 1)
	for table, want := range map[bucketstore.Table]int{bucketstore.Current: 1, bucketstore.Index: 1, bucketstore.Meta: 2} {
		if got := dump(t, s, table); strings.Count(got, "\n") != want || !strings.Contains(got, "at") {
			t.Errorf("%s is\n%s", table, got)
		}
	}
	want := map[int64]int{firstDay: 1, firstDay + 2: 4, firstDay + 3: 2, firstDay + 4: 2}
	if got := countDays(t, s); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("cells by day: %v, want %v", got, want)
	}
	// A day whose end is the cut goes as a whole.
	expireBefore(s, (firstDay+3)*dayMillis)
	waitForMetric(t, registry, "adapter_pebble_sweep_drops_total", 3)
}

// countDays counts the cells of METRIC by the day of their sample times.
func countDays(t *testing.T, s *pebble.Store) map[int64]int {
	t.Helper()
	days := make(map[int64]int)
	err := s.Scan(t.Context(), allChunks(), func(row bucketstore.Row) error {
		_, base, err := series.Schema{}.ParseRowKey(nil, row.Key)
		if err != nil {
			return err
		}
		for _, c := range row.Cells {
			delta, err := series.ParseQualifier(c.Qualifier)
			if err != nil {
				return err
			}
			days[(base+int64(delta))/dayMillis]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return days
}

// TestDroppedBytes: dropped days give their space back at once, also of files that they share
// with days that stay.
func TestDroppedBytes(t *testing.T) {
	t.Run("files of their own", func(t *testing.T) { testDroppedBytes(t, false) })
	t.Run("one file", func(t *testing.T) { testDroppedBytes(t, true) })
}

func testDroppedBytes(t *testing.T, compacted bool) {
	s, registry := openForEver(t, vfs.NewMem())
	for day := range int64(4) {
		for n := range int64(200) {
			key, qual := keyAt("up", (firstDay+day)*dayMillis+n)
			apply(t, s, bucketstore.Metric, key, bucketstore.Op{Family: "c", Qualifier: qual, Time: (firstDay + day) * dayMillis, Value: noise(int(day*200 + n))})
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if compacted {
		if err := s.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	before := s.EngineMetrics().Total().TablesSize
	u, err := s.Usage()
	if err != nil || len(u.Days) != 4 || u.Days[3].End != (firstDay+4)*dayMillis || u.Days[0].Bytes == 0 || u.Bytes < uint64(before) {
		t.Errorf("%+v, %v", u, err)
	}
	expireBefore(s, (firstDay+3)*dayMillis)
	waitForMetric(t, registry, "adapter_pebble_sweep_drops_total", 3)
	// The estimate counts whole blocks, of which these days have few.
	if got := metricValue(t, registry, "adapter_pebble_sweep_dropped_bytes_total"); got < float64(before)/2 || got > float64(before) && !compacted {
		t.Errorf("%v bytes dropped of %d", got, before)
	}
	waitUntil(t, func() (bool, string) {
		size := s.EngineMetrics().Total().TablesSize
		return size <= before/2, fmt.Sprintf("the tables have %d bytes, they had %d", size, before)
	})
	if after, err := s.Usage(); err != nil || len(after.Days) != 1 || after.Bytes >= u.Bytes {
		t.Errorf("%+v after %+v: %v", after, u, err)
	}
}

// TestPowerLossBeforeDrop cuts the power between the write of a horizon, the deletions that
// follow it, and what comes after. No cell is gone unless a later horizon is there, and none
// after it.
func TestPowerLossBeforeDrop(t *testing.T) {
	const days = 8
	for _, unsynced := range []int{0, 50} {
		t.Run(fmt.Sprintf("%d percent of what was not synced stays", unsynced), func(t *testing.T) {
			random := seriestest.NewRand(t)
			for range storetest.Rounds(t, 12) {
				disk := newCrashDisk(vfs.NewCrashableMem())
				s, registry := openForEver(t, disk)
				for day := range int64(days) {
					putAt(t, s, "up", "c", (firstDay+day)*dayMillis+5)
				}
				if random.IntN(2) == 0 {
					if err := s.Flush(); err != nil {
						t.Fatal(err)
					}
				}
				crash, dropped := random.IntN(days), 0
				var after crashDisk
				for n := range days {
					horizon := int64(firstDay+n) * dayMillis
					apply(t, s, bucketstore.Meta, "horizon", setOp("m", "v", horizon, fmt.Sprint(horizon)))
					expireBefore(s, horizon)
					if random.IntN(2) == 0 {
						waitForMetric(t, registry, "adapter_pebble_sweep_drops_total", float64(n))
						dropped = n
					}
					if n == crash {
						after = disk.clone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: random})
						break
					}
				}
				s, _ = openForEver(t, after)
				var horizon int64
				if _, err := fmt.Sscan(metaValue(t, s), &horizon); err != nil || horizon != int64(firstDay+crash)*dayMillis {
					t.Fatalf("the horizon is %d: %v, after %d drops", horizon, err, dropped)
				}
				left := countDays(t, s)
				for day := int64(firstDay); day < firstDay+days; day++ {
					if left[day] == 0 && day*dayMillis+5 >= horizon {
						t.Fatalf("day %d is gone, the horizon is in day %d", day, horizon/dayMillis)
					}
				}
			}
		})
	}
}

// metaValue returns the value of the only row of META.
func metaValue(t *testing.T, s *pebble.Store) (value string) {
	t.Helper()
	err := s.Scan(t.Context(), allOf(bucketstore.Meta), func(row bucketstore.Row) error {
		value = string(row.Cells[0].Value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}
