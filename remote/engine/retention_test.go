package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/jobs/retention"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// A retentionModel is an adapter with a buffer on the embedded store, which starts again with
// other retentions, and what it should hold.
type retentionModel struct {
	t        *testing.T
	rand     *rand.Rand
	clock    *clock
	dir, log string

	store     *pebble.Store
	meta      *meta.Store
	buffer    *buffer.Buffer
	retention *retention.Retention
	engine    *engine.Engine

	// raw is how long samples are kept, and horizon the latest cut that was stored.
	raw     time.Duration
	horizon int64
	// written has all samples that were taken, by series.
	written []map[int64]float64
}

const (
	retentionSeries = 3
	dayMillis       = 24 * 60 * 60 * 1000
)

func (m *retentionModel) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// start starts with samples kept for raw.
func (m *retentionModel) start(raw time.Duration) {
	m.t.Helper()
	var err error
	m.raw = raw
	m.store, err = pebble.Open(pebble.Config{
		Dir: m.dir, Tables: bucketstore.Tables(bucketstore.Retention{}), Now: m.clock.now, CacheBytes: 4 << 20, MemTableBytes: 1 << 20, SweepInterval: time.Millisecond,
	})
	m.check(err)
	m.meta, err = meta.Open(m.t.Context(), m.store, series.Schema{}, m.clock.now)
	m.check(err)
	m.check(m.meta.Init(m.t.Context()))
	m.advance(func() {
		m.retention, err = retention.Open(m.t.Context(), retention.Config{
			Meta: m.meta, Now: m.clock.now, Config: timeline.Config{Keep: bucketstore.KeepAll(raw)}, Expire: m.store.ExpireBefore, Usage: m.store.Usage,
		})
		m.check(err)
	})
	log, err := buffer.OpenDir(m.log, m.clock.now())
	m.check(err)
	m.buffer, err = buffer.Open(m.t.Context(), log, buffer.Config{
		Store: m.store, Now: m.clock.now, Cut: m.retention.Shown(rollup.Raw, m.clock.now()), PartSamples: 3, MaxOpenBytes: 8 << 10, SegmentBytes: 16 << 10,
	})
	m.check(err)
	m.engine, err = engine.New(engine.Config{
		Store: m.buffer, Appender: m.buffer, Now: m.clock.now, Timeline: m.retention.View, MaxFuture: engine.Unbounded,
	})
	m.check(err)
}

// advance calls what raises the horizon, and compares it: it is the cut, if that is not in the
// newest 3 days with samples.
func (m *retentionModel) advance(raise func()) {
	m.t.Helper()
	newest := m.newest()
	raise()
	horizons, err := m.meta.Horizons(m.t.Context())
	m.check(err)
	got := horizons[rollup.Raw]
	want := max(m.horizon, min(m.cut(), newest-retention.MinRaw.Milliseconds()))
	if m.raw == 0 {
		want = m.horizon
	}
	// The buffer may write a newer day meanwhile.
	if got != want && (got < want || m.newest() == newest) {
		m.t.Fatalf("the horizon is %d, want %d", got, want)
	}
	m.horizon = got
}

// newest returns the end of the newest day that the store has, or the end of time.
func (m *retentionModel) newest() int64 {
	m.t.Helper()
	usage, err := m.store.Usage()
	m.check(err)
	if len(usage.Days) == 0 {
		return math.MaxInt64
	}
	return usage.Days[len(usage.Days)-1].End
}

func (m *retentionModel) stop() {
	m.t.Helper()
	m.check(errors.Join(m.engine.Close(context.Background()), m.buffer.Close()))
}

// cut is the time before which nothing is shown or taken.
func (m *retentionModel) cut() int64 {
	if m.raw == 0 {
		return m.horizon
	}
	return max(m.horizon, m.clock.ms.Load()-m.raw.Milliseconds())
}

// time returns a time of the last 30 days, often one near the cut.
func (m *retentionModel) time() int64 {
	now := m.clock.ms.Load()
	switch m.rand.IntN(3) {
	case 0:
		return max(0, m.cut()+m.rand.Int64N(5)-2)
	case 1:
		return now - m.rand.Int64N(100_000)
	}
	return now - m.rand.Int64N(30*dayMillis)
}

func (m *retentionModel) write() {
	m.t.Helper()
	cut, tooOld := m.cut(), 0
	batch := make([]ingest.Series, retentionSeries)
	for i := range batch {
		batch[i].Labels = labels.FromStrings("__name__", "up", "n", fmt.Sprint(i))
		for range m.rand.IntN(20) {
			s := ingest.Sample{T: m.time(), V: float64(m.rand.IntN(1000))}
			batch[i].Samples = append(batch[i].Samples, s)
			if s.T < cut {
				tooOld++
			} else {
				m.written[i][s.T] = s.V
			}
		}
	}
	var rejected ingest.Rejected
	_, err := m.engine.Append(m.t.Context(), batch, &rejected)
	m.check(err)
	if got := rejected.Samples[ingest.ReasonOld]; got != tooOld || len(rejected.Samples) > min(1, tooOld) {
		m.t.Fatalf("rejected %v, want %d before the cut", rejected.Samples, tooOld)
	}
}

func (m *retentionModel) read() {
	m.t.Helper()
	q := reader.Query{Mint: m.time(), Maxt: m.time(), Decoded: m.rand.IntN(2) == 0}
	if m.rand.IntN(2) == 0 {
		q.Mint, q.Maxt = 0, series.MaxTime
	}
	var want strings.Builder
	cut := max(q.Mint, m.cut())
	for i := range m.written {
		var times []int64
		for at := range m.written[i] {
			if at >= cut && at <= q.Maxt {
				times = append(times, at)
			}
		}
		if slices.Sort(times); len(times) == 0 {
			continue
		}
		fmt.Fprintf(&want, `{__name__="up", n="%d"}`, i)
		for _, at := range times {
			fmt.Fprintf(&want, " %d=%v", at, m.written[i][at])
		}
		want.WriteByte('\n')
	}
	set, err := m.engine.Select(m.t.Context(), q)
	m.check(err)
	var got strings.Builder
	for set.Next() {
		fmt.Fprint(&got, set.At().Labels())
		for it := set.At().Iterator(nil); it.Next(); {
			for _, s := range iterate(m.t, it.At().Chunk.Iterator(nil)) {
				fmt.Fprintf(&got, " %d=%v", s.T, s.V)
			}
		}
		got.WriteByte('\n')
	}
	m.check(set.Err())
	if got.String() != want.String() {
		m.t.Fatalf("[%d, %d] with the cut %d, horizon %d:\n%swant\n%s", q.Mint, q.Maxt, m.cut(), m.horizon, got.String(), want.String())
	}
}

// wantDeleted waits until the store has no cell of METRIC that ends before the horizon and
// whose day is over.
func (m *retentionModel) wantDeleted() {
	m.t.Helper()
	horizon := m.horizon - m.horizon%dayMillis
	eventually(m.t, "days before the horizon are deleted", func() bool {
		old := 0
		m.check(m.store.Scan(m.t.Context(), bucketstore.ScanRequest{
			Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: []bucketstore.FamilyRange{{Family: series.FamilyChunk}},
		}, func(row bucketstore.Row) error {
			for _, c := range row.Cells {
				if c.Time < horizon {
					old++
				}
			}
			return nil
		}))
		return old == 0
	})
}

// TestRetentionModel writes old and new samples, moves the clock, changes the retention, and
// compares what is read with a map.
func TestRetentionModel(t *testing.T) {
	r := seriestest.NewRand(t)
	for range storetest.Rounds(t, 6) {
		m := &retentionModel{t: t, rand: r, clock: newClock(1_300_000_000_000), dir: t.TempDir(), log: t.TempDir()}
		for range retentionSeries {
			m.written = append(m.written, make(map[int64]float64))
		}
		keep := func() time.Duration { return time.Duration([]int{0, 3, 5, 10, 20}[r.IntN(5)]) * 24 * time.Hour }
		m.start(keep())
		for range 150 {
			switch r.IntN(12) {
			case 0, 1, 2, 3:
				m.write()
			case 4:
				m.clock.ms.Add(r.Int64N(2 * dayMillis))
			case 5:
				m.clock.ms.Add(-r.Int64N(dayMillis))
			case 6:
				m.advance(func() { m.check(m.retention.Advance(t.Context())) })
			case 7:
				m.check(m.buffer.Flush(t.Context()))
			case 8:
				m.stop()
				m.start(keep())
			default:
				m.read()
			}
		}
		m.check(m.buffer.Flush(t.Context()))
		for range 2 { // The second deletes what the first has cut.
			m.advance(func() { m.check(m.retention.Advance(t.Context())) })
		}
		m.wantDeleted()
		m.read()
		m.stop()
	}
}
