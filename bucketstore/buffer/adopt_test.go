package buffer_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/rowfiles"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/seriestest"
)

// A rowStore is a store that others use, too. fails says of an append to a log that it fails before, or after it has happened.
type rowStore struct {
	*storetest.Memory
	fails func() (before, after bool)
}

func (s rowStore) Traits() bucketstore.Traits { return bucketstore.Traits{Shared: true} }

func (s rowStore) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	if table != bucketstore.Log || s.fails == nil {
		return s.Memory.CheckAndApply(ctx, table, cond, mut)
	}
	before, after := s.fails()
	if before {
		return false, errStore
	}
	applied, err := s.Memory.CheckAndApply(ctx, table, cond, mut)
	if after {
		return false, errStore
	}
	return applied, err
}

// A rowMember is a member whose log is in rows.
type rowMember struct {
	*testing.T
	*buffer.Buffer
	clock *clock
	died  []error
}

// startRows starts a member on a store. Its clock is its own.
func startRows(t *testing.T, store bucketstore.Store, at int64) *rowMember {
	t.Helper()
	m := &rowMember{T: t, clock: new(clock)}
	m.clock.ms.Store(at)
	dir, err := buffer.OpenRows(rowfiles.New(store, rand.Text(), m.clock.now), m.clock.now())
	if err != nil {
		t.Fatal(err)
	}
	terms, err := termsOf(t.Context(), store, m.clock.now)
	if err == nil {
		err = dir.Bind(t.Context(), terms)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.Buffer, err = buffer.Open(t.Context(), dir, buffer.Config{
		Store: store, Now: m.clock.now, SweepInterval: time.Hour, Address: "http://" + dir.ID(), SegmentBytes: 2000, MaxLogBytes: 20_000,
		Die: func(err error) { m.died = append(m.died, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	m.clock.ms.Add(buffer.JoinTime.Milliseconds())
	t.Cleanup(m.Kill)
	return m
}

// send appends a sample of a series.
func (m *rowMember) send(n int, t int64, v float64) error {
	key := []byte(fmt.Sprint("s", n))
	return m.Append(m.Context(), []bucketstore.Sample{{Ref: m.Ref(key), T: t, V: v}})
}

// adopter returns one on a store with a clock.
func adopterOn(t *testing.T, store bucketstore.Store, c *clock) *buffer.Adopter {
	t.Helper()
	terms, err := termsOf(t.Context(), store, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return &buffer.Adopter{Terms: terms, Rows: store, Config: func(context.Context) (buffer.Config, error) {
		return buffer.Config{Store: noClose{store}, Now: c.now, SweepInterval: time.Hour}, nil
	}}
}

type noClose struct{ bucketstore.Store }

func (noClose) Close() error { return nil }

// adopt watches until the logs of a store are taken.
func adopt(t *testing.T, a *buffer.Adopter, c *clock) (adopted []string) {
	t.Helper()
	for range 10 {
		taken, err := a.Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		adopted = append(adopted, taken...)
		c.ms.Add(15_000)
	}
	return adopted
}

// storedSamples returns the samples of a series in rows.
func storedSamples(t *testing.T, store bucketstore.Store, n int) map[int64]string {
	t.Helper()
	got := make(map[int64]string)
	err := store.Scan(t.Context(), bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{{}}, Families: sampleFamilies()}, func(row bucketstore.Row) error {
		key, base, err := series.Schema{}.ParseRowKey(nil, row.Key)
		if err != nil || string(key) != fmt.Sprint("s", n) {
			return err
		}
		return readRow(got, base, row.Cells)
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestAdopt: all samples of a log are in rows when it was taken, and its process acknowledges nothing after that, whether it notices that it was suspended or not.
func TestAdopt(t *testing.T) {
	for _, notices := range []bool{false, true} {
		t.Run(fmt.Sprint("notices ", notices), func(t *testing.T) {
			store := rowStore{Memory: new(storetest.Memory)}
			m := startRows(t, store, someTime)
			const samples = 300
			for i := range samples {
				if err := m.send(i%5, someTime+int64(i), float64(i)); err != nil {
					t.Fatal(err)
				}
			}
			other := new(clock)
			other.ms.Store(m.clock.ms.Load())
			if taken := adopt(t, adopterOn(t, store, other), other); len(taken) != 1 || taken[0] != m.ID() {
				t.Fatalf("the logs %q were taken, want %q", taken, m.ID())
			}
			for n := range 5 {
				got := storedSamples(t, store, n)
				for i := n; i < samples; i += 5 {
					if got[someTime+int64(i)] != valueText(float64(i), nil) {
						t.Fatalf("series %d has %q at %d", n, got[someTime+int64(i)], i)
					}
				}
			}
			terms, err := termsOf(t.Context(), store, other.now)
			if err != nil {
				t.Fatal(err)
			}
			if logs, err := terms.Store.Logs(t.Context()); err != nil || len(logs) > 0 {
				t.Errorf("logs %v, %v", logs, err)
			}
			if notices {
				m.clock.ms.Store(other.ms.Load())
			}
			if err := m.send(0, someTime+samples, 1); err == nil {
				t.Error("a sample is acknowledged by a process whose log was taken")
			} else if len(m.died) != 1 || !errors.Is(m.died[0], rowfiles.ErrTaken) {
				t.Errorf("the process died of %v, after %v", m.died, err)
			}
			if err := m.Register(t.Context()); !errors.Is(err, buffer.ErrForeignRow) {
				t.Errorf("it registers: %v", err)
			}
		})
	}
}

// TestAdoptSilent: a process acknowledges nothing when its row is so old that its log may be taken soon.
func TestAdoptSilent(t *testing.T) {
	m := startRows(t, rowStore{Memory: new(storetest.Memory)}, someTime)
	for range 3 {
		if err := m.send(0, someTime, 1); err != nil {
			t.Fatal(err)
		}
		m.clock.ms.Add(46_000)
		if err := m.send(0, someTime, 1); err == nil || len(m.died) > 0 {
			t.Fatalf("a sample without a renewal: %v, it died of %v", err, m.died)
		}
		if err := m.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAdoptsNone: a log whose process renews its row is not taken, nor one whose row was not looked at for long.
func TestAdoptsNone(t *testing.T) {
	store := rowStore{Memory: new(storetest.Memory)}
	m := startRows(t, store, someTime)
	if err := m.send(0, someTime, 1); err != nil {
		t.Fatal(err)
	}
	a := adopterOn(t, store, m.clock)
	for i := range 60 {
		if taken, err := a.Watch(t.Context()); err != nil || len(taken) > 0 {
			t.Fatalf("the logs %q were taken, %v", taken, err)
		}
		switch {
		case i == 30:
			m.clock.ms.Add(10 * 60_000) // META was away, for all
		case i%4 == 3:
			if err := m.Register(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		m.clock.ms.Add(15_000)
	}
}

// TestRowLogAway: appends that fail, or have no answer, are refused, and no process dies of them. What is acknowledged is there when the log is taken.
func TestRowLogAway(t *testing.T) {
	rng := seriestest.NewRand(t)
	memory, failing := new(storetest.Memory), false
	store := rowStore{memory, func() (bool, bool) { return failing && rng.IntN(3) == 0, failing && rng.IntN(3) == 0 }}
	m := startRows(t, store, someTime)
	acked, refused := make(map[int]bool), 0
	const samples = 500
	for i := range samples {
		failing = rng.IntN(2) == 0
		if err := m.send(i%5, someTime+int64(i), float64(i)); err == nil {
			acked[i] = true
		} else if refused++; !errors.Is(err, errStore) {
			t.Fatal(err)
		}
	}
	if len(m.died) > 0 || refused == 0 || len(acked) == 0 {
		t.Fatalf("%d acknowledged, %d refused, it died of %v", len(acked), refused, m.died)
	}
	failing = false
	other := new(clock)
	other.ms.Store(m.clock.ms.Load())
	if taken := adopt(t, adopterOn(t, store, other), other); len(taken) != 1 {
		t.Fatalf("the logs %q were taken", taken)
	}
	for n := range 5 {
		got := storedSamples(t, store, n)
		for i := n; i < samples; i += 5 {
			if value, ok := got[someTime+int64(i)]; acked[i] && !ok || ok && value != valueText(float64(i), nil) {
				t.Fatalf("sample %d of series %d is %q, acknowledged: %t", i, n, value, acked[i])
			}
		}
	}
}
