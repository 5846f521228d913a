// Package current keeps the latest sample of each series in the CURRENT table, and in
// memory until it is there.
//
//	Table       samples not yet in CURRENT                table.go, flush.go, slot.go
//	Read        the current samples of given series       read.go
//	Inventory   all current samples, in a pass            inventory.go
package current

import (
	"context"
	"math"
	"sync"
	"time"
	"unsafe"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
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
	// MaxPending is how many series may have a sample that is not in CURRENT yet. 0 is
	// 2,000,000, at some hundred bytes each with its key. Samples of further series are
	// not kept: their rows of CURRENT lag until a later sample finds room.
	MaxPending int
}

const defaultMaxPending = 2_000_000

// A Table keeps the current sample of each series until it is in CURRENT. So a row is
// written once an interval and not once a sample. Staleness markers are written at
// once. A crash loses the pending rows of CURRENT, but no sample: samples are stored
// before. It is safe for concurrent use.
type Table struct {
	store   bucketstore.Store
	schema  series.Schema
	logger  log.Logger
	metrics metrics
	// keepsVersions is from Config.
	keepsVersions bool

	mu sync.Mutex
	// slots has the series with a pending sample, and for a while those whose sample
	// is in CURRENT: their next sample takes the same slot.
	slots map[string]*slot
	// pending is how many slots are pending.
	pending int
	// limit bounds the pending slots, and as many others.
	limit int
	// stale are the slots with a staleness marker to flush at once; wake tells the
	// goroutine of run that there are some.
	stale []*slot
	wake  chan struct{}

	// flushing holds a token during a flush, so that two of them do not write a
	// series in the wrong order.
	flushing chan struct{}

	stop context.CancelFunc
	done chan struct{}
}

// DefaultInterval is how often current samples are written.
const DefaultInterval = time.Minute

// New returns a Table and starts its flushes in the background.
func New(cfg Config) *Table {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultInterval
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

		keepsVersions: cfg.Store.Traits().KeepsVersions,

		wake: make(chan struct{}, 1),

		flushing: make(chan struct{}, 1),

		stop: stop,
		done: make(chan struct{}),
	}
	go t.run(ctx, cfg.Interval)
	return t
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
		case at.t > s.T || at.setPending(s):
			continue
		case !at.pending && t.pending >= t.limit:
			dropped++
			continue
		}
		t.setSample(at, newSample(s))
	}
	t.metrics.pending.Set(float64(t.pending))
	t.metrics.dropped.Add(float64(dropped))
	if len(t.stale) == stale {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default: // the goroutine of run is awake, or will be
	}
}

// setSample makes s the pending sample of a slot.
func (t *Table) setSample(at *slot, s sample) {
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
	if h != nil && h.slot != nil && !h.slot.dropped {
		return h.slot
	}
	key := ref.SeriesKey()
	at, ok := t.slots[string(key)]
	if !ok {
		if t.pending >= t.limit {
			return nil
		}
		// The key of a reference never changes. A copy would take as many bytes again for
		// each series: 95 beside 1,240 in e2e/scale, where a series has five labels.
		at = &slot{key: unsafe.String(unsafe.SliceData(key), len(key)), t: math.MinInt64}
		t.slots[at.key] = at
	}
	if h != nil {
		h.slot = at
	}
	return at
}

// dropSlot removes a slot that is not pending.
func (t *Table) dropSlot(at *slot) {
	at.dropped = true
	delete(t.slots, at.key)
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
