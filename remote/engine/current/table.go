// Package current keeps the latest sample of each series in the CURRENT table, and in
// memory until it is there.
//
//	Table       samples on their way to CURRENT           table.go
//	Read        the current samples of given series       read.go
//	Inventory   the current samples of a tenant, a pass   inventory.go
package current

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

const (
	// flushTimeout bounds one flush to CURRENT.
	flushTimeout = 30 * time.Second
	// flushRows is how many rows of a flush are written at once. What is written
	// is forgotten at once, so that a flush that ends early has not been in vain.
	flushRows = 10_000
)

// Config says where a Table writes. Store is required.
type Config struct {
	Store  bucketstore.Store
	Schema series.Schema
	// Logger may be nil.
	Logger log.Logger
	// Registerer may be nil.
	Registerer prometheus.Registerer
	// Interval is how often samples go to CURRENT. 0 is a minute.
	Interval time.Duration
	// MaxPending is of how many series the current sample is kept until it is in
	// CURRENT. 0 is 2,000,000, at some hundred bytes each with its key. Samples of
	// further series are not kept: their rows of CURRENT lag until a later sample
	// finds room.
	MaxPending int
}

const defaultMaxPending = 2_000_000

// A Table keeps the current sample of each series until it is in CURRENT, so that
// a row is written once an interval and not once a sample. Staleness markers go
// there at once. What it holds is lost with the process; the samples themselves
// are stored already. It is safe for concurrent use.
type Table struct {
	store   bucketstore.Store
	schema  series.Schema
	logger  log.Logger
	metrics metrics

	mu sync.Mutex
	// slots holds the series with a pending sample, and for a while those whose
	// sample is in CURRENT: their next one takes the same slot.
	slots map[string]*slot
	// pending is how many slots are.
	pending int
	// limit is how many may be pending, and how many not.
	limit int
	// stale are the series with a staleness marker to flush at once; wake tells
	// the background that there are some.
	stale []*slot
	wake  chan struct{}

	// flushing holds a token during a flush, so that two of them do not write a
	// series in the wrong order.
	flushing chan struct{}

	stop context.CancelFunc
	done chan struct{}
}

// sample is a sample without its series: V and since when it has been
// counted, unless Value is set, the value as it is stored.
type sample struct {
	T     int64
	V     float64
	ST    int64
	Value []byte
}

// newSample copies a sample. Floats are copied without an allocation.
func newSample(s *bucketstore.Sample) sample {
	if s.Value == nil {
		return sample{T: s.T, V: s.V}
	}
	if !cell.IsHistogram(s.Value) {
		if v, err := cell.Parse(s.Value); err == nil {
			return sample{T: s.T, V: v.Float, ST: v.Start}
		}
	}
	return sample{T: s.T, Value: bytes.Clone(s.Value)}
}

// isStale says whether s is a staleness marker.
func (s sample) isStale() bool {
	if s.Value == nil {
		return value.IsStaleNaN(s.V)
	}
	v, err := cell.Parse(s.Value)
	return err == nil && isStale(v)
}

// same says whether s and t are the same, bit for bit.
func (s sample) same(t sample) bool {
	return s.T == t.T && math.Float64bits(s.V) == math.Float64bits(t.V) && s.ST == t.ST && bytes.Equal(s.Value, t.Value)
}

// A Handle leads from a series to its slot in a Table, so that Add need not look it
// up. The zero value leads nowhere yet. It belongs to the Table, under its lock.
type Handle struct{ slot *slot }

// A slot holds the current sample of a series. There are as many slots as series.
type slot struct {
	// pending says that the sample is not in CURRENT yet.
	pending bool
	// idle says that it was not pending in the last flush of all.
	idle bool
	// gone says that the slot is in use no more.
	gone bool
	// stale says that the slot is in the list of those to flush at once.
	stale bool
	// isOther says that the sample is more than the time t and the value v, and is
	// in other.
	isOther bool
	t       int64
	v       float64
	other   *sample
	// key lies in the memory of a reference to the series.
	key string
}

// replace makes s the sample of a slot, if that is pending and both are floats
// that call for nothing else: nearly all are.
func (at *slot) replace(s *bucketstore.Sample) bool {
	if !at.pending || at.isOther || s.Value != nil || value.IsStaleNaN(s.V) {
		return false
	}
	at.t, at.v = s.T, s.V
	return true
}

// set makes s the sample of a slot.
func (at *slot) set(s sample) {
	at.t, at.v, at.isOther = s.T, s.V, s.Value != nil || s.ST != 0
	switch {
	case at.isOther && at.other == nil:
		at.other = new(sample)
		fallthrough
	case at.isOther:
		*at.other = s
	case at.other != nil:
		*at.other = sample{} // memory for the next one
	}
}

// sample returns the sample of a slot.
func (at *slot) sample() sample {
	if at.isOther {
		return *at.other
	}
	return sample{T: at.t, V: at.v}
}

// isStale says whether v is a staleness marker: of a histogram, its sum is.
func isStale(v cell.Value) bool {
	switch {
	case v.Histogram != nil:
		return value.IsStaleNaN(v.Histogram.Sum)
	case v.FloatHistogram != nil:
		return value.IsStaleNaN(v.FloatHistogram.Sum)
	}
	return value.IsStaleNaN(v.Float)
}

// New returns a Table and starts its flushes in the background.
func New(cfg Config) *Table {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.Interval <= 0 {
		cfg.Interval = time.Minute
	}
	if cfg.MaxPending <= 0 {
		cfg.MaxPending = defaultMaxPending
	}
	ctx, stop := context.WithCancel(context.Background())
	t := &Table{
		store:   cfg.Store,
		schema:  cfg.Schema,
		logger:  cfg.Logger,
		metrics: newMetrics(cfg.Registerer),
		slots:   make(map[string]*slot),
		limit:   cfg.MaxPending,
		wake:    make(chan struct{}, 1),

		flushing: make(chan struct{}, 1),

		stop: stop,
		done: make(chan struct{}),
	}
	go t.run(ctx, cfg.Interval)
	return t
}

// run flushes at the interval, and staleness markers at once, until ctx ends.
func (t *Table) run(ctx context.Context, interval time.Duration) {
	defer close(t.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		var some []*slot // nil is all
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-t.wake:
			some = t.takeStale()
		}
		flushing, cancel := context.WithTimeout(ctx, flushTimeout)
		if err := t.flush(flushing, some); err != nil && ctx.Err() == nil {
			level.Warn(t.logger).Log("msg", "newest samples not in CURRENT yet, trying again", "err", err)
		}
		cancel()
	}
}

// Close stops the flushes, after one more.
func (t *Table) Close(ctx context.Context) error {
	t.stop()
	<-t.done
	return t.Flush(ctx)
}

// Add takes samples that are stored; handles has for each that of its series, or
// nil. Of equal times the later one counts. It does not wait for the store.
func (t *Table) Add(samples []bucketstore.Sample, handles []*Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	dropped, stale := 0, len(t.stale)
	for i := range samples {
		s := &samples[i]
		at := t.slot(s.Ref, handles[i])
		switch {
		case at == nil:
			dropped++
			continue
		case at.t > s.T || at.replace(s):
			continue
		case !at.pending && t.pending >= t.limit:
			dropped++
			continue
		}
		t.keep(at, newSample(s))
	}
	t.metrics.pending.Set(float64(t.pending))
	t.metrics.dropped.Add(float64(dropped))
	if len(t.stale) == stale {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default: // it is awake, or will be
	}
}

// keep makes s the pending sample of a slot.
func (t *Table) keep(at *slot, s sample) {
	if !at.pending {
		t.pending++
	}
	at.set(s)
	at.pending, at.idle = true, false
	if s.isStale() && !at.stale && len(t.stale) < t.limit {
		at.stale = true
		t.stale = append(t.stale, at)
	}
}

// slot returns the slot of a series, or nil if there is no room for one. A series
// may have several handles, but it has one slot: that in slots.
func (t *Table) slot(ref bucketstore.Ref, h *Handle) *slot {
	if h != nil && h.slot != nil && !h.slot.gone {
		return h.slot
	}
	key := ref.SeriesKey()
	at, ok := t.slots[string(key)]
	if !ok {
		if t.pending >= t.limit {
			return nil
		}
		// A view and not a copy: the key of a reference never changes, and a copy would
		// take some hundred bytes more for each series.
		at = &slot{key: unsafe.String(unsafe.SliceData(key), len(key)), t: math.MinInt64}
		t.slots[at.key] = at
	}
	if h != nil {
		h.slot = at
	}
	return at
}

// drop forgets a slot that is not pending.
func (t *Table) drop(at *slot) {
	at.gone = true
	delete(t.slots, at.key)
}

// takeStale returns the series whose staleness markers wait, and forgets them.
func (t *Table) takeStale() []*slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	stale := t.stale
	t.stale = nil
	for _, at := range stale {
		at.stale = false
	}
	return append([]*slot{}, stale...) // not nil, which would be all
}

// Flush writes all pending samples to CURRENT. What could not be written stays
// pending.
func (t *Table) Flush(ctx context.Context) error { return t.flush(ctx, nil) }

// flush writes the pending samples of these series, no two the same, or all if
// some is nil. What could not be written stays pending.
func (t *Table) flush(ctx context.Context, some []*slot) error {
	select {
	case t.flushing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for a flush under way: %w", ctx.Err())
	}
	defer func() { <-t.flushing }()
	if some == nil {
		some = t.pendingSlots()
	}
	var taken []takenSample
	for part := range slices.Chunk(some, flushRows) {
		taken = t.take(taken[:0], part)
		if err := t.write(ctx, taken); err != nil {
			return err
		}
	}
	return nil
}

// takenSample is a sample on its way to CURRENT.
type takenSample struct {
	at *slot
	sample
}

// write writes samples to CURRENT and forgets them.
func (t *Table) write(ctx context.Context, taken []takenSample) error {
	if len(taken) == 0 {
		return nil
	}
	if err := t.store.Apply(ctx, bucketstore.Current, currentRows(taken)); err != nil {
		t.metrics.flushes.WithLabelValues(resultFailed).Inc()
		return fmt.Errorf("write %d rows of CURRENT: %w", len(taken), err)
	}
	t.metrics.flushes.WithLabelValues(resultOK).Inc()
	t.metrics.rows.Add(float64(len(taken)))
	t.forget(taken)
	return nil
}

// currentRows returns the rows of samples. A store neither changes nor keeps them,
// so that they refer to the keys of the slots, and share what is the same.
func currentRows(taken []takenSample) []bucketstore.Mutation {
	muts, ops := make([]bucketstore.Mutation, len(taken)), make([]bucketstore.Op, len(taken))
	values := make([]byte, 0, 8*len(taken))
	qualifier := []byte(series.QualifierCurrent)
	for i := range taken {
		s, value := &taken[i], taken[i].Value
		if value == nil {
			first := len(values)
			values = cell.Append(values, cell.Value{Start: s.ST, Float: s.V})
			value = values[first:]
		}
		ops[i] = bucketstore.Op{
			Kind:      bucketstore.SetCell,
			Family:    series.FamilyCurrent,
			Qualifier: qualifier,
			Time:      s.T,
			Value:     value,
		}
		key := s.at.key
		muts[i] = bucketstore.Mutation{Key: unsafe.Slice(unsafe.StringData(key), len(key)), Ops: ops[i : i+1]}
	}
	return muts
}

// pendingSlots returns the series that have a pending sample, for a flush of all.
// It forgets those that had none the last time either.
func (t *Table) pendingSlots() []*slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	pending := make([]*slot, 0, t.pending)
	for _, at := range t.slots {
		switch {
		case at.pending:
			pending = append(pending, at)
		case at.idle:
			t.drop(at)
		default:
			at.idle = true
		}
	}
	return pending
}

// take appends copies of the pending samples of these series to taken. They stay
// pending, visible to readers, until they are written.
func (t *Table) take(taken []takenSample, some []*slot) []takenSample {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range some {
		if at.pending {
			taken = append(taken, takenSample{at, at.sample()})
		}
	}
	return taken
}

// forget notes that samples are written, unless something newer came meanwhile.
func (t *Table) forget(written []takenSample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range written {
		at := written[i].at
		if !at.pending || !at.sample().same(written[i].sample) {
			continue
		}
		at.pending = false
		if t.pending--; len(t.slots)-t.pending > t.limit {
			t.drop(at)
		}
	}
	t.metrics.pending.Set(float64(t.pending))
}

// get returns the pending sample of a series.
func (t *Table) get(key string) (sample, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.slots[key]; ok && at.pending {
		return at.sample(), true
	}
	return sample{}, false
}

// all returns the pending samples of all series, in no order.
func (t *Table) all() []pendingSample {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := make([]pendingSample, 0, t.pending)
	for key, at := range t.slots {
		if at.pending {
			found = append(found, pendingSample{key, at.sample()})
		}
	}
	return found
}
