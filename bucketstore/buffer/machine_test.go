package buffer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/storetest"
)

// A machine is a process with a log in a directory in memory, and everything that was sent
// to it.
type machine struct {
	*buffer.Buffer // nil if the process has ended
	dir            *buffer.MemDir
	rows           *storetest.Memory
	cfg            buffer.Config
	clock          *clock
	sent           map[sampleID]*writes
	// ctx ends when the store notices that the power is off.
	ctx context.Context

	mu sync.Mutex
	// ended are the errors with which processes ended.
	ended []error
}

type sampleID struct {
	series int
	t      int64
}

// writes are the values that were sent for one sample, in order.
type writes struct {
	values []string
	// acked counts the values up to the last one that was acknowledged, durable those up to
	// the last one that a loss of power must not lose.
	acked, durable int
}

func newMachine(interval time.Duration) *machine {
	m := &machine{dir: buffer.NewMemDir(), rows: new(storetest.Memory), clock: new(clock), sent: make(map[sampleID]*writes)}
	m.clock.ms.Store(someTime)
	m.cfg = buffer.Config{
		Now: m.clock.now, FsyncInterval: interval, NoteInterval: time.Hour, SweepInterval: time.Hour, SegmentBytes: 200, MaxLogBytes: 800, PartSamples: 4,
		Die: func(err error) {
			if m.dir.IsOff() {
				return
			}
			m.dir.PowerOff() // the process does nothing more
			m.mu.Lock()
			defer m.mu.Unlock()
			m.ended = append(m.ended, err)
		},
	}
	return m
}

// powered is a store that fails with the directory of the log. stop ends who waits for it.
type powered struct {
	*storetest.Memory
	dir  *buffer.MemDir
	stop func()
}

func (s *powered) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if s.dir.IsOff() {
		s.stop()
		return buffer.ErrPowerOff
	}
	return s.Memory.Apply(ctx, table, muts)
}

// start starts a process, as the adapter does.
func (m *machine) start(ctx context.Context) (err error) {
	var stop func()
	m.ctx, stop = context.WithCancel(ctx)
	store := &powered{m.rows, m.dir, stop}
	if m.cfg.FsyncInterval == 0 {
		m.clock.ms.Add(-3_600_000) // what is written next is newer nevertheless
	} else {
		m.clock.ms.Add(60_000)
	}
	dir, err := buffer.OpenMemDir(m.dir, m.clock.now())
	if err != nil {
		return err
	}
	terms, err := termsOf(ctx, store, m.clock.now)
	if err == nil {
		err = dir.Bind(ctx, terms)
	}
	if err != nil {
		return errors.Join(err, dir.Close())
	}
	m.cfg.Store = store
	m.Buffer, err = buffer.Open(m.ctx, dir, m.cfg)
	return err
}

// write sends a request with a new value of each of these samples.
func (m *machine) write(ctx context.Context, ids ...sampleID) error {
	var samples []bucketstore.Sample
	for _, id := range ids {
		w := m.sent[id]
		if w == nil {
			w = new(writes)
			m.sent[id] = w
		}
		v := float64(len(w.values)) + float64(id.series)*1.1
		w.values = append(w.values, valueText(v, nil))
		samples = append(samples, bucketstore.Sample{Ref: m.Ref(key(id.series)), T: id.t, V: v})
	}
	m.clock.ms.Add(1000)
	if err := m.Append(ctx, samples); err != nil {
		return err
	}
	if err := m.Register(ctx); err != nil && !m.dir.IsOff() { // META is never older than the log
		return err
	}
	for _, id := range ids {
		w := m.sent[id]
		w.acked = len(w.values)
		if m.cfg.FsyncInterval == 0 {
			w.durable = w.acked
		}
	}
	return nil
}

// settle notes that what was acknowledged is durable, if the process lives.
func (m *machine) settle() {
	if m.dir.IsOff() {
		return
	}
	for _, w := range m.sent {
		w.durable = w.acked
	}
}

// check compares what is in rows with what was sent. powerLost says that what was not
// synced may be missing.
func (m *machine) check(t testing.TB, rows bucketstore.Store, powerLost bool) {
	t.Helper()
	found := readAll(t, rows)
	for id, w := range m.sent {
		from := w.acked
		if powerLost {
			from = w.durable
		}
		value, ok := found[string(key(id.series))][id.t]
		delete(found[string(key(id.series))], id.t)
		if !ok && from == 0 {
			continue
		}
		isOne := false
		for _, v := range w.values[max(0, from-1):] {
			isOne = isOne || v == value
		}
		if !isOne {
			t.Errorf("series %d at %d is %q, of %q the first %d were confirmed", id.series, id.t-someTime, value, w.values, from)
		}
	}
	for series, samples := range found {
		for at, value := range samples {
			t.Errorf("%s at %d is %s, and was never sent", series, at-someTime, value)
		}
	}
}

// kill ends the process, if it lives.
func (m *machine) kill() {
	if m.Buffer != nil {
		m.Kill()
		m.Buffer = nil
	}
}

// stop ends the process cleanly, unless it has ended.
func (m *machine) stop() error {
	if m.dir.IsOff() { // it would wait for the store
		m.kill()
		return nil
	}
	err := m.Close()
	m.Buffer = nil
	if err == nil {
		m.settle()
	}
	return err
}

// after returns the machine that goes on with a directory.
func (m *machine) after(dir *buffer.MemDir) *machine {
	next := newMachine(m.cfg.FsyncInterval)
	next.dir, next.rows = dir, m.rows.Clone()
	next.clock.ms.Store(m.clock.ms.Load())
	for id, w := range m.sent {
		copied := *w
		next.sent[id] = &copied
	}
	return next
}

// checkNext starts the next process, without faults, and checks that it has all samples, goes
// on, and ends cleanly.
func (m *machine) checkNext(t testing.TB, powerLost bool) {
	t.Helper()
	if err := m.start(t.Context()); err != nil {
		t.Errorf("the next start: %v", err)
		return
	}
	m.check(t, m.Buffer, powerLost)
	for _, w := range m.sent { // what is there stays, whatever it is
		if powerLost {
			w.acked = w.durable
		}
	}
	last := sampleID{2, someTime} // overwritten, it shows whether stamps go on
	for id := range m.sent {
		if id.series == last.series {
			last.t = max(last.t, id.t)
		}
	}
	if err := m.write(t.Context(), sampleID{1, someTime + 1000}, last, sampleID{3, someTime}); err != nil {
		t.Errorf("the next write: %v", err)
	}
	m.check(t, m.Buffer, false)
	if err := m.Close(); err != nil {
		t.Errorf("the next stop: %v", err)
	}
	m.check(t, m.rows, false)
	if len(m.ended) > 0 {
		t.Errorf("the next process ended: %v", m.ended)
	}
	names, _ := m.dir.Names() // it never fails
	for _, name := range names {
		if strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".new") || name == "synced" {
			t.Errorf("%s is left", name)
		}
	}
}
