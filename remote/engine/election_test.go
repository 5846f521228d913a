package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// votes is a Store that counts what is asked of the elections, and that can
// fail.
type votes struct {
	bucketstore.Store
	reads, writes atomic.Int64
	// onRead and onWrite, if set, are called before each; an error is its answer.
	// afterWrite, if set, is called after each.
	onRead, onWrite, afterWrite func(context.Context) error
}

func hook(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return nil
	}
	return fn(ctx)
}

func (v *votes) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	if req.Table == bucketstore.Meta && bytes.HasPrefix(req.Rows[0].Start, []byte("ha,")) {
		v.reads.Add(1)
		if err := hook(ctx, v.onRead); err != nil {
			return err
		}
	}
	return v.Store.Scan(ctx, req, fn)
}

func (v *votes) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	if !bytes.HasPrefix(mut.Key, []byte("ha,")) {
		return v.Store.CheckAndApply(ctx, table, cond, mut)
	}
	v.writes.Add(1)
	if err := hook(ctx, v.onWrite); err != nil {
		return false, err
	}
	applied, err := v.Store.CheckAndApply(ctx, table, cond, mut)
	return applied, errors.Join(err, hook(ctx, v.afterWrite))
}

// A member is an adapter, one of several on one store.
type member struct {
	*fixture
	votes *votes
}

// openMembers opens adapters on store, one for each clock.
func openMembers(t testing.TB, store bucketstore.Store, clocks ...*clock) (members []member) {
	t.Helper()
	for _, c := range clocks {
		v := &votes{Store: store}
		members = append(members, member{openOn(t, v, c, withHA), v})
	}
	return members
}

// row returns the election of a cluster as it is stored.
func (m member) row(t testing.TB, cluster string) (value string) {
	t.Helper()
	err := m.votes.Store.Scan(t.Context(), bucketstore.ScanRequest{
		Table:    bucketstore.Meta,
		Rows:     []series.RowRange{series.SingleRow([]byte("ha," + cluster))},
		Families: []bucketstore.FamilyRange{{Family: "m"}},
	}, func(row bucketstore.Row) error {
		value = string(row.Cells[0].Value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// put stores value as the election of a cluster.
func (m member) put(t testing.TB, cluster, value string) {
	t.Helper()
	err := m.votes.Store.Apply(t.Context(), bucketstore.Meta, []bucketstore.Mutation{{
		Key: []byte("ha," + cluster),
		Ops: []bucketstore.Op{{Kind: bucketstore.SetCell, Family: "m", Qualifier: []byte("v"), Time: m.clock.ms.Load(), Value: []byte(value)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// One replica sends to each of two adapters. Then the elected one falls silent,
// and later comes back.
func TestFailover(t *testing.T) {
	const step = 1000
	for _, backend := range backends() {
		t.Run(backend.name, func(t *testing.T) {
			c := newClock(someTime)
			members := openMembers(t, backend.open(t, c), c, c)
			a, b := members[0], members[1]
			for range 100 {
				c.ms.Add(step)
				now := c.ms.Load()
				if !a.sends(t, from("a", now)) || b.sends(t, from("b", now+1)) {
					t.Fatalf("at %d: not a, or both are stored", now-someTime)
				}
			}
			last, silent := c.ms.Load(), int64(0)
			for stored := false; !stored; silent = c.ms.Load() - last {
				c.ms.Add(step)
				stored = b.sends(t, from("b", c.ms.Load()+1))
				if silent > 10*failover {
					t.Fatal("no fail-over")
				}
			}
			if silent <= failover*2/3 || silent > failover+step {
				t.Errorf("fail-over after %d ms, want within (%d, %d]", silent, failover*2/3, failover+step)
			}
			for range 50 {
				c.ms.Add(step)
				now := c.ms.Load()
				if a.sends(t, from("a", now)) || !b.sends(t, from("b", now+1)) {
					t.Fatalf("at %d: a has come back and is stored, or b is not", now-someTime)
				}
			}
			for i, m := range members {
				m.wantElected(t, "cluster c replica b")
				if n := m.counter(t, "adapter_ha_elections_total"); n != 1 {
					t.Errorf("adapter %d has elected %g times, want once", i, n)
				}
			}
		})
	}
}

// wantElected fails unless the metrics say that these are elected.
func (m member) wantElected(t testing.TB, want ...string) {
	t.Helper()
	if got := m.gauges(t, "adapter_ha_elected_replica"); !slices.Equal(got, want) {
		t.Errorf("elected %q, want %q", got, want)
	}
}

// An adapter does not show an election that may have changed.
func TestElectedIsForgotten(t *testing.T) {
	c := newClock(someTime)
	m := openMembers(t, openEmbedded(t, c), c)[0]
	m.wantElected(t)
	m.wantSends(t, "the first", from("a", someTime), true)
	c.ms.Add(failover)
	m.wantElected(t, "cluster c replica a")
	c.ms.Add(1)
	m.wantElected(t)
	m.wantSends(t, "the next", from("b", someTime+1), true)
	m.wantElected(t, "cluster c replica b")
}

// The heartbeat costs six writes a minute with a fail-over of 30 s and no more,
// whatever is sent.
func TestHeartbeat(t *testing.T) {
	c := newClock(someTime)
	m := openMembers(t, openEmbedded(t, c), c)[0]
	row := func(heartbeat int64) string {
		return fmt.Sprintf(`{"replica":"a","elected":%d,"heartbeat":%d}`, someTime, heartbeat)
	}
	for second := range int64(120) {
		c.ms.Store(someTime + second*1000)
		batch := []ingest.Series{from("a", someTime)}
		for i := range 20 {
			batch = append(batch, from("a", someTime+int64(i)), from("b", someTime))
		}
		m.append(t, batch...)
		if got, want := m.row(t, "c"), row(someTime+second/10*10_000); got != want {
			t.Fatalf("second %d: row %s, want %s", second, got, want)
		}
	}
	if n := m.votes.writes.Load(); n != 120/10 {
		t.Errorf("%d writes in two minutes, want %d", n, 120/10)
	}
	if n := m.votes.reads.Load(); n > 120/5 {
		t.Errorf("%d reads in two minutes, want at most one in 5 s", n)
	}
	// One that leaves out reads, but does not write.
	reads, writes := m.votes.reads.Load(), m.votes.writes.Load()
	for second := range int64(20) {
		c.ms.Store(someTime + (120+second)*1000)
		m.append(t, from("b", someTime))
	}
	if n := m.votes.writes.Load() - writes; n != 0 {
		t.Errorf("%d writes for a replica that is not elected", n)
	}
	if n := m.votes.reads.Load() - reads; n < 1 || n > 4 {
		t.Errorf("%d reads in 20 s for a replica that is not elected, want some, at most 4", n)
	}
}

// Nothing is acknowledged while an election cannot be read.
func TestElectionFailures(t *testing.T) {
	fail := func(context.Context) error { return errStore }
	for _, tt := range []struct {
		name string
		set  func(*member)
		want error
	}{
		{"read", func(m *member) { m.votes.onRead = fail }, errStore},
		{"write", func(m *member) { m.votes.onWrite = fail }, errStore},
		{"write that has happened", func(m *member) { m.votes.afterWrite = fail }, errStore},
		{"corrupt row", func(m *member) { m.put(t, "c", "{"); m.unchecked = true }, series.ErrCorrupt},
	} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, first of the cluster %t", tt.name, first), func(t *testing.T) {
				c := newClock(someTime)
				m := openMembers(t, openEmbedded(t, c), c)[0]
				if !first {
					m.wantSends(t, "before", from("a", someTime), true)
					c.ms.Add(failover / 2)
				}
				tt.set(&m)
				var rejected ingest.Rejected
				batch := []ingest.Series{from("a", someTime+1), from("b", someTime+2), one(labels.FromStrings("__name__", "other"), someTime+3)}
				stored, err := m.Append(t.Context(), batch, &rejected)
				if !errors.Is(err, tt.want) || stored.Total() != 0 || rejected.Err() != nil {
					t.Errorf("%+v acknowledged, rejected %v, error %v, want %v", stored, rejected.Err(), err, tt.want)
				}
				q := everything()
				q.Mint = someTime + 1
				wantSeries(t, "after the failure", m.collect(t, q))
				if n := m.counter(t, "adapter_ha_failures_total"); n != 1 {
					t.Errorf("%g failures counted", n)
				}
				m.votes.onRead, m.votes.onWrite, m.votes.afterWrite = nil, nil, nil
				if tt.want == errStore {
					m.wantSends(t, "repeated", from("a", someTime+1), true)
					m.wantSends(t, "the other", from("b", someTime+2), false)
				}
			})
		}
	}
}

// Many requests of three replicas come to two adapters at once. Only one replica
// is stored.
func TestElectionRace(t *testing.T) {
	for _, backend := range backends() {
		t.Run(backend.name, func(t *testing.T) {
			c := newClock(someTime)
			members := openMembers(t, backend.open(t, c), c, c)
			begin := make(chan struct{})
			var running sync.WaitGroup
			for i := range 30 {
				m, s := members[i%2], from(string(rune('a'+i%3)), someTime+int64(i))
				running.Go(func() {
					<-begin
					var rejected ingest.Rejected
					if _, err := m.Append(t.Context(), []ingest.Series{s}, &rejected); err != nil {
						t.Error(err)
					}
				})
			}
			close(begin)
			running.Wait()
			found := members[0].collect(t, everything())
			if len(found) != 1 || len(found[0].Samples) != 10 {
				t.Fatalf("stored %s", text(found))
			}
			for _, s := range found[0].Samples {
				if s.V != found[0].Samples[0].V {
					t.Errorf("stored %s", text(found))
				}
			}
			if n := members[0].counter(t, "adapter_ha_elections_total") + members[1].counter(t, "adapter_ha_elections_total"); n != 1 {
				t.Errorf("%g elections", n)
			}
			for i, m := range members {
				if reads, writes := m.votes.reads.Load(), m.votes.writes.Load(); reads > 2 || writes > 1 {
					t.Errorf("adapter %d has read %d times and written %d times for 15 requests", i, reads, writes)
				}
			}
		})
	}
}

// A request waits for the one that asks META, until its own context ends. When
// the one that asks gives up, the next asks.
func TestElectionContext(t *testing.T) {
	c := newClock(someTime)
	m := openMembers(t, openEmbedded(t, c), c)[0]
	asking := make(chan struct{})
	m.votes.onRead = func(ctx context.Context) error {
		if m.votes.reads.Load() > 1 {
			return nil
		}
		close(asking)
		<-ctx.Done()
		return ctx.Err()
	}
	appending := func(ctx context.Context, t0 int64) error {
		var rejected ingest.Rejected
		_, err := m.Append(ctx, []ingest.Series{from("a", t0)}, &rejected)
		return err
	}
	asks, giveUp := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- appending(asks, someTime) }()
	<-asking
	waits, stop := context.WithCancel(t.Context())
	stop()
	if err := appending(waits, someTime+1); !errors.Is(err, context.Canceled) {
		t.Errorf("the one that waits: %v", err)
	}
	go func() { second <- appending(t.Context(), someTime+2) }()
	giveUp()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that asks: %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("the next one: %v", err)
	}
	if n := m.votes.reads.Load(); n != 2 {
		t.Errorf("%d reads, want 2", n)
	}
}

// Two adapters whose clocks differ. Replica a sends to the first and b to the
// second; a falls silent.
func TestClockSkew(t *testing.T) {
	const step = 1000
	for _, skew := range []int64{-19_000, -10_000, -1, 1, 10_000, 19_000} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			first, second := newClock(someTime), newClock(someTime+skew)
			members := openMembers(t, openEmbedded(t, first), first, second)
			a, b := members[0], members[1]
			now := int64(someTime)
			tick := func() {
				now += step
				first.ms.Add(step)
				second.ms.Add(step)
			}
			for range 65 {
				tick()
				if !a.sends(t, from("a", now)) || b.sends(t, from("b", now+1)) {
					t.Fatalf("at %d: not a, or both are stored", now-someTime)
				}
			}
			// Now a sends to both: the heartbeats are those of two clocks.
			for range 65 {
				tick()
				if !a.sends(t, from("a", now)) || !b.sends(t, from("a", now+1)) || b.sends(t, from("b", now+2)) {
					t.Fatalf("at %d: not a, or both are stored", now-someTime)
				}
			}
			last, bound := now, failover+max(skew, -skew)+step
			for !b.sends(t, from("b", now+1)) {
				if tick(); now-last > bound {
					t.Fatalf("no fail-over within %d ms", bound)
				}
			}
		})
	}
}

// A clock that is hours off must not keep a replica elected that is gone, and
// what is written after it must be seen.
func TestClockFarOff(t *testing.T) {
	for _, skew := range []int64{3_600_000, -3_600_000} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			off, right := newClock(someTime+skew), newClock(someTime)
			members := openMembers(t, openEmbedded(t, right), off, right)
			members[0].wantSends(t, "by the wrong clock", from("a", someTime), true)
			members[1].wantSends(t, "by the right clock", from("b", someTime+1), true)
			for range 10 {
				right.ms.Add(failover / 3)
				members[1].wantSends(t, "and on", from("b", right.ms.Load()), true)
				members[1].wantSends(t, "the other", from("a", right.ms.Load()+1), false)
			}
			if n := members[1].counter(t, "adapter_ha_elections_total"); n != 1 {
				t.Errorf("%g elections", n)
			}
		})
	}
}

// An adapter that must forget a cluster reads its row again.
func TestManyClusters(t *testing.T) {
	c := newClock(someTime)
	v := &votes{Store: openEmbedded(t, c)}
	m := member{openOn(t, v, c, withHA, func(cfg *engine.Config) { cfg.HA.MaxClusters = 3 }), v}
	for i := range int64(20) {
		cluster := fmt.Sprint(i % 5)
		m.wantSends(t, cluster, fromCluster(cluster, "a", someTime+i), true)
		m.wantSends(t, cluster, fromCluster(cluster, "b", someTime+100+i), false)
		if got, want := len(m.gauges(t, "adapter_ha_elected_replica")), min(int(i)+1, 3); got != want {
			t.Errorf("%d clusters in the metrics, want %d", got, want)
		}
	}
	if n := m.votes.writes.Load(); n != 5 {
		t.Errorf("%d writes for 5 clusters", n)
	}
}
