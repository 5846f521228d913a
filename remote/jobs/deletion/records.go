package deletion

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

const (
	// ahead is how far the stamp of a record is ahead of the clock where other processes
	// write, in milliseconds. It is more than clocks may differ, see package seal, and the
	// time until others know the record.
	ahead = int64(15 * time.Minute / time.Millisecond)
	// maxStale is how old what a process knows of META may be for writes to raw families.
	maxStale = 2 * time.Minute
	// propagation is how long a record is known before the executor begins, where other processes
	// write: maxStale, a minute for a write, six for what a sealer has read, and one more.
	propagation = 10 * time.Minute
)

// Config says what Records know. Meta and Now are required.
type Config struct {
	// Meta is that of the store.
	Meta *meta.Store
	// Schema is the schema of the store. Deletions of all its tenants are known.
	Schema series.Schema
	// Now is the clock.
	Now func() time.Time
	// Changed, if set, is called when reads may find fewer samples than before, or more: a
	// deletion that fails is taken back.
	Changed func()
	// Logger may be nil.
	Logger log.Logger
	// Registerer takes the metrics adapter_deletion_*. It may be nil.
	Registerer prometheus.Registerer
}

// Buffer is what Records ask of a *buffer.Buffer.
type Buffer interface {
	ID() string
	LastStamp() int64
	Barrier(ctx context.Context, b buffer.Barrier) (stamp int64, err error)
	Pass(ctx context.Context) error
}

// Records are the deletions that a process knows. They are safe for concurrent use, but for
// SetBuffer.
type Records struct {
	cfg     Config
	metrics *metrics
	// buffer is nil without one.
	buffer Buffer
	known  atomic.Pointer[known]
	// polled is when META was last read, lateUntil the time before which samples go to
	// FamilyLate because it was not, latest the latest time of a cell there.
	polled            atomic.Pointer[time.Time]
	lateUntil, latest atomic.Int64
	writes            inFlight

	// changing guards the fields below, and is held during every change of known.
	changing sync.Mutex
	// divided are the stamps at which the buffer is divided, by the ID of the record.
	divided map[string]int64
	// seen is when a record was seen first.
	seen map[string]time.Time
}

// known is what is known at one time. It does not change.
type known struct {
	all []*record
	// pending are those of our tenants that are not done.
	pending []*record
	// rawFrom and lateFrom are those of series.Arrival.
	rawFrom, lateFrom int64
}

// Open reads META.
func Open(ctx context.Context, cfg Config) (*Records, error) {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	r := &Records{cfg: cfg, divided: make(map[string]int64), seen: make(map[string]time.Time)}
	r.metrics = newMetrics(cfg.Registerer, r)
	if err := r.Poll(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// Barriers are where a replay divides the requests in the log.
func (r *Records) Barriers() (all []buffer.Barrier) {
	for _, rec := range r.known.Load().all {
		if rec.Done == 0 {
			all = append(all, buffer.Barrier{Stamp: rec.Stamp, Covers: rec.covers})
		}
	}
	return all
}

// SetBuffer says that samples go to b, which was opened with Barriers. It must be called
// before any other method but Barriers, and before the first write.
func (r *Records) SetBuffer(ctx context.Context, b Buffer) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	r.buffer = b
	for _, rec := range r.known.Load().all {
		// Else an earlier process has written past the stamp, and did not know the record.
		if b.LastStamp() <= rec.Stamp || rec.Log == b.ID() || rec.Logs[b.ID()].Stamp >= rec.Stamp {
			r.divided[rec.ID] = rec.Stamp
		}
	}
	return r.load(ctx)
}

// Arrival returns where raw samples go: those that may be deleted to FamilyLate, with a time
// after all records.
func (r *Records) Arrival(a series.Arrival) series.Arrival {
	k := r.known.Load()
	if r.cfg.Meta.Traits().Shared && r.cfg.Now().Sub(*r.polled.Load()) > maxStale {
		a.RawFrom = series.MaxTime + 1
		raise(&r.lateUntil, afterWindows(a.Now))
	}
	a.RawFrom = max(a.RawFrom, k.rawFrom, r.lateUntil.Load())
	a.LateFrom = max(a.LateFrom, k.lateFrom)
	raise(&r.latest, max(a.Now, a.LateFrom))
	return a
}

// raise sets n to to, if that is more.
func raise(n *atomic.Int64, to int64) {
	for {
		have := n.Load()
		if to <= have || n.CompareAndSwap(have, to) {
			return
		}
	}
}

// Begin notes that a write begins. The caller calls end when it has ended.
func (r *Records) Begin() (end func()) { return r.writes.begin() }

// An inFlight counts what runs. The zero value is ready.
type inFlight struct {
	mu      sync.Mutex
	running *sync.WaitGroup
}

func (f *inFlight) begin() (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == nil {
		f.running = new(sync.WaitGroup)
	}
	f.running.Add(1)
	return f.running.Done
}

// wait waits for all that has started before.
func (f *inFlight) wait(ctx context.Context) error {
	f.mu.Lock()
	running := f.running
	f.running = nil
	f.mu.Unlock()
	if running == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for writes that run: %w", ctx.Err())
	}
}

// pending returns the deletions of our tenants that are not done.
func (r *Records) pending() []*record { return r.known.Load().pending }

// Of returns the deletions as the engine of a tenant, with this schema, applies them.
func (r *Records) Of(schema series.Schema) OfTenant { return OfTenant{r, schema.Tenant()} }

// OfTenant are Records of which Delete is about one tenant.
type OfTenant struct {
	*Records
	tenant string
}

// Delete is that of Records for the series of the tenant.
func (t OfTenant) Delete(ctx context.Context, matchers []*labels.Matcher, start, limit int64) error {
	return t.delete(ctx, t.tenant, matchers, start, limit)
}

// Delete deletes the samples in [start, limit), in milliseconds, of the series of the schema's tenant that match,
// which were written before. When it has returned without an error the deletion is durable,
// and reads of this process do not find the samples. After an error it may be so or not.
func (r *Records) Delete(ctx context.Context, matchers []*labels.Matcher, start, limit int64) error {
	return r.delete(ctx, r.cfg.Schema.Tenant(), matchers, start, limit)
}

func (r *Records) delete(ctx context.Context, tenant string, matchers []*labels.Matcher, start, limit int64) error {
	stored, err := storedMatchers(matchers)
	start, limit = max(start, 0), min(limit, series.MaxTime+1)
	if err != nil || start >= limit {
		return err
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	if err := r.load(ctx); err != nil { // its stamp is after those of others, and so after what they write
		return err
	}
	now := r.cfg.Now().UnixMilli()
	d := meta.Deletion{ID: rand.Text(), Tenant: tenant, Matchers: stored, Start: start, Limit: limit, At: now, Log: r.logID()}
	rec, err := newRecord(d, r.cfg.Schema)
	if err != nil {
		return err
	}
	if rec.Stamp, err = r.divide(ctx, rec, r.leastStamp(now)); err != nil {
		return err
	}
	r.publish(append(slices.Clone(r.known.Load().all), rec))
	if err = r.writes.wait(ctx); err == nil {
		d.Stamp = rec.Stamp
		_, err = r.cfg.Meta.PutDeletion(ctx, &d)
	}
	// What was read has its cell. After an error META says whether it is there.
	return errors.Join(err, r.load(context.WithoutCancel(ctx)))
}

// logID returns the ID of the log of the buffer, or nothing.
func (r *Records) logID() string {
	if r.buffer == nil {
		return ""
	}
	return r.buffer.ID()
}

// leastStamp returns the least stamp of a record that is made now.
func (r *Records) leastStamp(now int64) int64 {
	if r.cfg.Meta.Traits().Shared {
		now += ahead
	}
	return now
}

// divide sees to it that what was written before, and only that, has a stamp up to the one that it
// returns, which is least or later. changing is held.
func (r *Records) divide(ctx context.Context, rec *record, least int64) (stamp int64, err error) {
	if r.buffer == nil {
		return max(least, r.latest.Load(), r.known.Load().lateFrom), nil
	}
	if stamp, err = r.buffer.Barrier(ctx, buffer.Barrier{Stamp: least, Covers: rec.covers}); err == nil {
		r.divided[rec.ID] = stamp
	}
	return stamp, err
}

// Poll reads META: other processes may have changed it.
func (r *Records) Poll(ctx context.Context) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	return r.load(ctx)
}

// load is Poll, with changing held.
func (r *Records) load(ctx context.Context) error {
	started := r.cfg.Now()
	all, err := r.cfg.Meta.Deletions(ctx)
	if err != nil {
		return err
	}
	var records []*record
	for _, d := range all {
		rec, err := newRecord(d, r.cfg.Schema)
		if err != nil {
			return err
		}
		records = append(records, rec)
	}
	r.publish(records)
	for _, rec := range records {
		raised, err := r.observe(ctx, rec)
		if err != nil {
			return err
		}
		if raised {
			return r.load(ctx)
		}
	}
	r.polled.Store(&started)
	return nil
}

// observe divides the buffer at a record of another process. If the buffer is past it, it raises
// the stamp of the record.
func (r *Records) observe(ctx context.Context, rec *record) (raised bool, err error) {
	if r.buffer == nil || rec.foreign || rec.Done > 0 || r.divided[rec.ID] >= rec.Stamp {
		return false, nil
	}
	stamp, err := r.divide(ctx, rec, rec.Stamp)
	if err == nil && stamp == rec.Stamp {
		err = r.cfg.Meta.NoteDeletion(ctx, &rec.Deletion, r.logID(), false) // for the next process on the log
	}
	if err != nil || stamp == rec.Stamp {
		return false, err
	}
	later := rec.Deletion
	later.Log = r.logID()
	if later.Stamp, err = r.divide(ctx, rec, r.leastStamp(r.cfg.Now().UnixMilli())); err == nil {
		raised, err = r.cfg.Meta.PutDeletion(ctx, &later)
	}
	if err == nil && !raised {
		err = fmt.Errorf("deletion %s changed meanwhile", rec.ID)
	}
	if err != nil {
		delete(r.divided, rec.ID)
	}
	return raised, err
}

// publish makes records what is known, with changing held.
func (r *Records) publish(records []*record) {
	k, before := &known{all: records}, r.known.Load()
	now := r.cfg.Now()
	seen := make(map[string]time.Time)
	for _, rec := range records {
		if !rec.foreign {
			k.rawFrom, k.lateFrom = max(k.rawFrom, rec.lateUntil()), max(k.lateFrom, rec.Stamp+1)
			if rec.Done == 0 {
				k.pending = append(k.pending, rec)
			}
		}
		seen[rec.ID] = now
		if at, ok := r.seen[rec.ID]; ok {
			seen[rec.ID] = at
		}
	}
	r.seen = seen
	maps.DeleteFunc(r.divided, func(id string, _ int64) bool { _, ok := seen[id]; return !ok })
	r.known.Store(k)
	if before != nil && !slices.EqualFunc(before.pending, k.pending, func(a, b *record) bool { return a.ID == b.ID && a.Stamp == b.Stamp }) {
		r.cfg.Changed()
	}
}

// Covered returns a function that says whether a deletion that is not done may be about samples
// of a row: of the series with this key of a schema, from base on. It reads META first.
func (r *Records) Covered(ctx context.Context, schema series.Schema) (func(seriesKey []byte, base int64) bool, error) {
	if err := r.Poll(ctx); err != nil {
		return nil, err
	}
	var pending []*record
	for _, rec := range r.known.Load().all {
		if rec.Done > 0 {
			continue
		}
		ours, err := newRecord(rec.Deletion, schema)
		if err != nil {
			return nil, err
		}
		pending = append(pending, ours)
	}
	return func(key []byte, base int64) bool {
		return len(recordsOf(pending, key, base, base+series.Period)) > 0
	}, nil
}

// Pending returns a function that returns an error if a deletion that is not done covers samples of a series in [start, limit), in
// milliseconds: chunks of history in there are hidden, and removed with the rest. It reads META first.
func (r *Records) Pending(ctx context.Context) (func(seriesKey []byte, start, limit int64) error, error) {
	if err := r.Poll(ctx); err != nil {
		return nil, err
	}
	return func(key []byte, start, limit int64) error {
		found := recordsOf(r.pending(), key, start, limit)
		if len(found) == 0 {
			return nil
		}
		return fmt.Errorf("%s, of %s, removes samples of %s from %d to %d, and what is written there now",
			found[0].ID, time.UnixMilli(found[0].At).UTC().Format(time.RFC3339), key, found[0].Start, found[0].Limit)
	}, nil
}

// pass empties the buffer of what is from before the deletions that are not done, and notes
// that in META.
func (r *Records) pass(ctx context.Context) error {
	if r.buffer == nil {
		return nil
	}
	var due []*record
	for _, rec := range r.known.Load().all {
		if rec.Done == 0 && !rec.hasPassed(r.logID()) {
			due = append(due, rec)
		}
	}
	if len(due) == 0 {
		return nil
	}
	if err := r.buffer.Pass(ctx); err != nil {
		return err
	}
	for _, rec := range due {
		if err := r.cfg.Meta.NoteDeletion(ctx, &rec.Deletion, r.logID(), true); err != nil {
			return err
		}
	}
	return r.Poll(ctx)
}

// errWaiting says that a deletion waits for other processes.
var errWaiting = errors.New("deletion waits")

// IsWaiting says whether an error means only that a deletion waits for other processes.
func IsWaiting(err error) bool { return errors.Is(err, errWaiting) }

// ready returns errWaiting as long as something from before a record may still be written.
func (r *Records) ready(ctx context.Context, rec *record) error {
	logs, err := r.cfg.Meta.Logs(ctx)
	if err != nil {
		return err
	}
	for _, l := range logs {
		if !rec.hasPassed(l.ID) {
			return fmt.Errorf("%w for %s, which may hold samples from before it", errWaiting, l)
		}
	}
	if !r.cfg.Meta.Traits().Shared {
		return nil
	}
	r.changing.Lock()
	left := propagation - r.cfg.Now().Sub(r.seen[rec.ID])
	r.changing.Unlock()
	if left > 0 {
		return fmt.Errorf("%w for %s more, until all writes of other adapters from before it have ended", errWaiting, left.Round(time.Second))
	}
	return nil
}
