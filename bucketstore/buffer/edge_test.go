package buffer_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
)

// keyOf returns the series key of a label set.
func keyOf(t testing.TB, ls ...string) []byte {
	t.Helper()
	key, err := series.Schema{}.AppendSeriesKey(nil, labels.FromStrings(ls...))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestClockSetBack: samples that are sent again after a stop or a death win even if the
// clock was set back.
func TestClockSetBack(t *testing.T) {
	for name, between := range map[string]func(*testing.T, *fixture){
		"stop": func(t *testing.T, f *fixture) {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			f.reopen(t)
		},
		"death": func(t *testing.T, f *fixture) {
			f.kill()
			f.reopen(t)
		},
		"two deaths": func(t *testing.T, f *fixture) {
			for range 2 {
				f.kill()
				f.reopen(t)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, openPebble(t), nil)
			f.append(t, f.sample(1, someTime, 1))
			f.clock.ms.Store(someTime - series.Window)
			between(t, f)
			f.append(t, f.sample(1, someTime, 2))
			f.check(t, "sent again")
			if err := f.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.check(t, "sealed")
		})
	}
}

func TestDamagedStamp(t *testing.T) {
	for _, content := range []string{"", "12x", "-1", "99999999999999"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "stamp"), []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		_, err := openLog(t.Context(), config{Config: buffer.Config{Store: openPebble(t)}, Dir: dir})
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "stamp")) {
			t.Errorf("%q: %v", content, err)
		}
	}
}

// TestInterleavedRows: rows in memory of a series with a label that sorts among the bases
// of another series are found in a range over that series.
func TestInterleavedRows(t *testing.T) {
	const next = someTime + series.Period
	base, _ := series.Split(someTime)
	between := fmt.Sprintf("%013d", base+5)
	for name, c := range map[string]struct {
		label string
		rows  int
	}{
		"like a base":              {between, 3},
		"like the front of a base": {between[:6], 3},
		"a digit":                  {"7", 2},
		"a letter":                 {"a", 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, openPebble(t), nil)
			f.clock.ms.Store(next)
			outer := keyOf(t, "__name__", "some_metric")
			inner := keyOf(t, "__name__", "some_metric", c.label, "x")
			f.append(t, bucketstore.Sample{Ref: f.Ref(outer), T: someTime}, bucketstore.Sample{Ref: f.Ref(outer), T: next}, bucketstore.Sample{Ref: f.Ref(inner), T: next})
			open := f.rowsBetween(t, outer, base, base+series.Period)
			if err := f.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			sealed := f.rowsBetween(t, outer, base, base+series.Period)
			if !slices.Equal(open, sealed) || len(open) != c.rows {
				t.Errorf("open: %q\nsealed: %q\nwant %d", open, sealed, c.rows)
			}
		})
	}
}

// rowsBetween returns the keys of the rows between two rows of a series, both inclusive.
func (f *fixture) rowsBetween(t testing.TB, key []byte, first, last int64) (keys []string) {
	t.Helper()
	err := f.Scan(t.Context(), bucketstore.ScanRequest{
		Table: bucketstore.Metric,
		Rows: []series.RowRange{{
			Start: series.Schema{}.AppendRowKey(nil, key, first),
			Limit: append(series.Schema{}.AppendRowKey(nil, key, last), 0),
		}},
		Families: []bucketstore.FamilyRange{{Family: series.FamilyChunk}},
	}, func(row bucketstore.Row) error {
		keys = append(keys, string(row.Key))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestLimit: a limit counts rows of the store and rows in memory alike.
func TestLimit(t *testing.T) {
	f := open(t, openPebble(t), nil)
	for n := range 10 {
		if f.append(t, f.sample(n, someTime, 1)); n == 4 {
			if err := f.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.append(t, f.sample(2, someTime+1, 1))
	for limit := range 12 {
		seen := 0
		err := f.Scan(t.Context(), bucketstore.ScanRequest{
			Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: "c"}}, Limit: limit,
		}, func(bucketstore.Row) error {
			seen++
			return nil
		})
		want := min(limit, 10)
		if limit == 0 {
			want = 10
		}
		if err != nil || seen != want {
			t.Errorf("limit %d: %d rows, want %d, %v", limit, seen, want, err)
		}
	}
}

// TestCurrent: after a death CURRENT has the current sample of each series, even if its
// segments were removed.
func TestCurrent(t *testing.T) {
	f := open(t, openPebble(t), func(c *config) { c.PartSamples, c.SegmentBytes, c.MaxLogBytes = 2, 1000, 2000 })
	for _, n := range []int64{0, 2, 1} {
		f.append(t, f.sample(1, someTime+n, float64(n+1)))
	}
	f.append(t, bucketstore.Sample{Ref: f.Ref(key(2)), T: someTime, Value: histogramValue(7)})
	for i := range int64(300) {
		f.append(t, f.sample(3, someTime+i*1000, float64(i)*1.1))
	}
	for range 3 { // what sealing frees
		f.Sweep()
		f.append(t, f.sample(3, someTime+400_000, 1))
	}
	eventually(t, "the log is cut", func() bool {
		f.Sweep()
		_, err := os.Stat(filepath.Join(f.cfg.Dir, buffer.SegmentName(1)))
		return err != nil
	})
	f.kill()
	f.reopen(t)
	want := map[string]string{
		string(key(1)): valueText(3, nil),
		string(key(2)): valueText(0, histogramValue(7)),
		string(key(3)): valueText(1, nil),
	}
	err := f.Scan(t.Context(), bucketstore.ScanRequest{
		Table: bucketstore.Current, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: series.FamilyCurrent}},
	}, func(row bucketstore.Row) error {
		if got := valueText(0, row.Cells[0].Value); got != want[string(row.Key)] {
			t.Errorf("%s: %s, want %s", row.Key, got, want[string(row.Key)])
		}
		delete(want, string(row.Key))
		return nil
	})
	if err != nil || len(want) > 0 {
		t.Errorf("not there: %v, %v", want, err)
	}
}

// TestUnfinishedSegment: the last segment may be all zeros, if the power failed when it was
// made.
func TestUnfinishedSegment(t *testing.T) {
	for _, size := range []int{0, 5, 16, 4096} {
		f := open(t, openPebble(t), nil)
		f.append(t, f.sample(1, someTime, 1))
		f.kill()
		writeSegment(t, f.cfg.Dir, 2, make([]byte, size))
		f.reopen(t)
		f.check(t, fmt.Sprint(size, " bytes"))
	}
}

// TestLongLog: one sweep makes the log as short as it should be, whatever its size.
func TestLongLog(t *testing.T) {
	f := open(t, openPebble(t), func(c *config) { c.SegmentBytes, c.MaxLogBytes = 200, 400 })
	for n := range 200 {
		f.append(t, f.sample(n, someTime, 1))
	}
	if n := len(segmentsOf(t, f.cfg.Dir)); n < 10 {
		t.Fatalf("%d segments", n)
	}
	f.Sweep()
	eventually(t, "the log is short", func() bool { return len(segmentsOf(t, f.cfg.Dir)) <= 2 })
}

// TestPressure: under pressure of memory only a part is sealed.
func TestPressure(t *testing.T) {
	f := open(t, openPebble(t), func(c *config) { c.MaxOpenBytes = 64 << 10 })
	f.store.fail.Store(true)
	for n := 0; f.Sealing() == 0; n++ {
		f.append(t, f.sample(n, someTime, 1))
		f.Sweep()
		if n == 100_000 {
			t.Fatal("nothing is sealed")
		}
	}
	if n, all := f.Sealing(), f.SeriesCount(); n > all/4 {
		t.Errorf("%d of %d series are sealed", n, all)
	}
	f.store.fail.Store(false)
	f.check(t, "at last")
}

// TestEndedContext: a caller whose context ends gets an error, and the buffer goes on.
func TestEndedContext(t *testing.T) {
	f := open(t, openPebble(t), nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range int64(20) { // either may come first
		samples := []bucketstore.Sample{f.sample(1, someTime+i, 1)}
		_ = f.Append(ended, samples)
		f.append(t, samples...)
	}
	f.check(t, "after all")
}

// TestKeysInLog: the keys, which each segment repeats, are a small part of the log, however
// small its segments should be.
func TestKeysInLog(t *testing.T) {
	const count, scrapes = 500, 60
	write := func(segmentBytes int) (size int64) {
		f := open(t, openPebble(t), func(c *config) { c.SegmentBytes, c.MaxLogBytes = segmentBytes, 4<<20 })
		samples := make([]bucketstore.Sample, count)
		for n := range samples {
			samples[n] = f.sample(n, someTime, 0)
		}
		for i := range int64(scrapes) {
			for n := range samples {
				samples[n].T, samples[n].V = someTime+i*15_000, float64(i)*1.1
			}
			f.append(t, samples...)
		}
		for _, path := range segmentsOf(t, f.cfg.Dir) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		f.kill()
		f.reopen(t)
		f.check(t, "replayed")
		return size
	}
	if one, many := write(4<<20), write(1000); many <= one || many > one*4/3 {
		t.Errorf("%d bytes in small segments, %d in one", many, one)
	}
}

// TestLateSamplesOfOneRequest: of late samples of one time in one request the last one
// counts after every replay, even if they are far apart.
func TestLateSamplesOfOneRequest(t *testing.T) {
	for n := range storetest.Rounds(t, 8) {
		f := open(t, openPebble(t), nil)
		f.append(t, f.sample(1, someTime, 1), f.sample(1, someTime-series.Window, 1))
		const late = someTime - 20*series.Window
		samples := []bucketstore.Sample{f.sample(1, late, float64(n))}
		for i := range 5000 {
			samples = append(samples, f.sample(2+i, someTime, 1))
		}
		f.append(t, append(samples, f.sample(1, late, float64(n)+0.5))...)
		f.check(t, "at once")
		for crashes := range 3 {
			f.kill()
			f.reopen(t)
			f.check(t, fmt.Sprint("after ", crashes+1, " deaths"))
		}
	}
}

// TestStampsAheadOfTheClock: series without samples leave the memory by the clock, even if
// stamps are years ahead of it.
func TestStampsAheadOfTheClock(t *testing.T) {
	const ahead = someTime + 100*series.Period
	f := open(t, openPebble(t), nil)
	f.clock.ms.Store(ahead)
	f.append(t, f.sample(1, ahead, 1), f.sample(4, ahead, 1))
	f.clock.ms.Store(someTime) // it was set back
	f.Sweep()
	f.append(t, f.sample(1, ahead+1, 2), f.sample(2, someTime, 3))
	f.clock.ms.Add(series.Window)
	f.append(t, f.sample(3, someTime+series.Window, 1))
	f.clock.ms.Add(2*series.Window - 1)
	f.Sweep()
	f.append(t, f.sample(3, f.clock.ms.Load(), 1))
	eventually(t, "only the series with samples is in memory", func() bool {
		f.Sweep()
		return f.SeriesCount() == 1
	})
	f.check(t, "all is there")
}

// TestLastStamp: a buffer knows the time of the last request before its start, whether that is
// in the log or the log was removed.
func TestLastStamp(t *testing.T) {
	f := open(t, openPebble(t), nil)
	want := func(when string, stamp int64) {
		t.Helper()
		if got := f.LastStamp(); got != stamp {
			t.Errorf("%s: the last stamp is %d, want %d", when, got, stamp)
		}
	}
	want("a new log", 0)
	f.append(t, f.sample(1, someTime, 1))
	f.clock.ms.Add(-time.Hour.Milliseconds())
	f.append(t, f.sample(1, someTime+1, 1)) // its stamp is 1 more
	f.kill()
	f.reopen(t)
	want("after a death", someTime+1)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f.reopen(t)
	want("after a stop", someTime+1)
}

// TestQuietByTheClock: a past window is flushed when its series is quiet by the clock, even
// if its stamp is not old yet.
func TestQuietByTheClock(t *testing.T) {
	f := open(t, openPebble(t), nil)
	f.clock.ms.Store(someTime + 100*series.Period)
	f.append(t, f.sample(1, someTime, 1))
	f.clock.ms.Store(someTime + 10*series.Window)
	f.append(t, f.sample(2, someTime, 1))
	for stored := range int64(2) { // the first series is quiet since the first sweep that saw it
		f.clock.ms.Add(2 * time.Minute.Milliseconds())
		f.append(t, f.sample(3, f.clock.ms.Load(), 1))
		f.Sweep()
		eventually(t, "quiet series are stored", func() bool { return f.store.applied.Load() == stored+1 && f.Sealing() == 0 })
	}
	f.check(t, "flushed")
}

// TestIdleSeriesAreCapped: the number of series without samples in memory is bounded.
func TestIdleSeriesAreCapped(t *testing.T) {
	f := open(t, openPebble(t), func(c *config) { c.MaxIdle = 10 })
	for n := range 100 {
		f.append(t, f.sample(n, someTime, 1))
	}
	if err := f.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.append(t, f.sample(200, someTime, 1))
	f.Sweep()
	if n := f.SeriesCount(); n != 11 {
		t.Errorf("%d series are in memory", n)
	}
	f.check(t, "all is there")
}
