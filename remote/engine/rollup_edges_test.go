package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// TestUnknownEdges: where a cell does not tell where a window begins, the samples of that bucket and series are read, and those of the whole day where most
// are such.
func TestUnknownEdges(t *testing.T) {
	const hour = int64(3600_000)
	store := &spy{Store: remotetest.OpenPebble(t)}
	s := newRolledOn(t, seriestest.NewRand(t), store)
	dense := []int64{rollupStart + 2*rollup.Day + 12*hour} // ends of hours before which series 1 has a sample each second
	for n := range int64(24) {
		dense = append(dense, rollupStart+4*rollup.Day+(n+1)*hour)
	}
	for _, instance := range []string{"0", "1"} {
		samples, v := make(map[int64]float64), 0.0
		for at := int64(rollupStart + 7_000); at < rollupStart+rollupDays*rollup.Day; at += 15_000 {
			v += s.r.Float64()
			samples[at] = v
			for range 14 {
				if bucket := rollup.OneHour.Start(at) + hour; instance == "1" && bucket-at < 45_000 && slices.Contains(dense, bucket) {
					v += s.r.Float64()
					samples[at+1000*int64(len(samples)%15)] = v
				}
			}
		}
		s.append(t, labels.FromStrings("__name__", "x_total", "instance", instance), samples)
	}
	if err := s.maker.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	day := func(n, hours int64) int64 { return rollupStart + n*rollup.Day + hours*hour }
	for _, tt := range []struct {
		window   string
		from, to int64
		step     time.Duration
		want     []string
	}{
		{"6h15s", day(1, 0), day(4, 0), 6 * time.Hour, []string{sampleScan("1", day(2, 11), day(2, 12))}},
		{"6h15s", day(1, 1), day(4, 1), 6 * time.Hour, nil},
		{"1h15s", day(2, 1), day(6, 0), time.Hour, []string{sampleScan("1", day(2, 11), day(2, 12)), sampleScan("1", day(4, 0), day(5, 0))}},
		{"6h15s", day(4, 1), day(5, 1), 12 * time.Hour, []string{sampleScan("1", day(4, 6), day(4, 7)), sampleScan("1", day(4, 18), day(4, 19))}},
	} {
		t.Run(fmt.Sprintf("%s from %d", tt.window, (tt.from-rollupStart)/hour), func(t *testing.T) {
			expr := "rate(x_total[" + tt.window + "])"
			store.reset()
			got := s.ask(t, s.engine, expr, time.UnixMilli(tt.from), time.UnixMilli(tt.to), tt.step)
			var read []string
			for _, sc := range store.scans(bucketstore.Metric) {
				if f := sc.req.Families[0]; f.Family == series.FamilyChunk {
					raw := sc.req.Families[1]
					read = append(read, fmt.Sprintf("%s: %x to %x", strings.Join(sc.keys, " "), raw.Start, raw.Limit))
				}
			}
			if !slices.Equal(read, tt.want) {
				t.Errorf("samples read:\n%q, want\n%q", read, tt.want)
			}
			if want := s.ask(t, s.raw, expr, time.UnixMilli(tt.from), time.UnixMilli(tt.to), tt.step); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

// sampleScan is the text of a scan of the samples (after, to] of an instance.
func sampleScan(instance string, after, to int64) string {
	base, first := series.Split(after + 1)
	return fmt.Sprintf("x_total,instance=%s,%013d: %x to %x", instance, base, series.AppendQualifier(nil, first), series.AppendQualifier(nil, uint32(to+1-base)))
}
