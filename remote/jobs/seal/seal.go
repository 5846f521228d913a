package seal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
)

// DefaultRowsPerSecond is how many rows a second a sealer reads at most: ten
// million in a slot.
const DefaultRowsPerSecond = 2000

// DefaultWorkers is how many batches of rows a sealer reads and writes at the same time.
const DefaultWorkers = 4

// Config configures a Sealer.
type Config struct {
	// Store holds the rows, and INDEX and META.
	Store bucketstore.Store
	// Tenants are those whose series are sealed.
	Tenants jobs.Tenants
	// Now is the clock that decides which family may be sealed. Clock ensures that it
	// differs from those of all writers by at most 10 minutes.
	Now func() time.Time
	// Holder names the process, for operators.
	Holder string
	// RowsPerSecond bounds how many rows are read. 0 is DefaultRowsPerSecond.
	RowsPerSecond float64
	// Workers is how many batches of 200 rows are read and written at the same time. 0 is
	// DefaultWorkers.
	Workers int
	// Held, if set, returns a function that says which rows must not be sealed now: those of a
	// series, by its key, from a base on. It is called before each step. A row that it leaves
	// out is sealed by a later round.
	Held func(ctx context.Context, schema series.Schema) (func(seriesKey []byte, base int64) bool, error)
	// Clock says whether our clock is in doubt; nothing is sealed while it is. The caller
	// runs it. Nil is a clock that is never in doubt.
	Clock *Clock
	// Logger may be nil.
	Logger log.Logger
	// Registerer takes the metrics adapter_seal_*. It may be nil.
	Registerer prometheus.Registerer
}

// A Sealer seals rows. Its methods may be called concurrently; only one runs at a time.
type Sealer struct {
	cfg     Config
	metrics *metrics

	// working guards the fields below.
	working sync.Mutex
	// tenants are those of this slot.
	tenants []tenant
	lease   *jobs.Lease[state]
	pace    *jobs.Pace
	workers []*worker
	// slot is the last slot, failures counts what failed in it.
	slot     slot
	failures atomic.Int64

	// Tests replace these.
	batchCells   int
	sleep        jobs.Sleep
	withDeadline func(ctx context.Context, t time.Time) (context.Context, context.CancelFunc)
}

// New returns a sealer, which does nothing before Run or Once.
func New(cfg Config) *Sealer {
	if cfg.RowsPerSecond <= 0 {
		cfg.RowsPerSecond = DefaultRowsPerSecond
	}
	if cfg.Workers <= 0 {
		cfg.Workers = DefaultWorkers
	}
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.Held == nil {
		cfg.Held = func(context.Context, series.Schema) (func([]byte, int64) bool, error) {
			return func([]byte, int64) bool { return false }, nil
		}
	}
	s := &Sealer{
		cfg:          cfg,
		metrics:      newMetrics(cfg.Registerer, cfg.Now),
		lease:        jobs.NewLease(cfg.Store, series.MetaSeal, cfg.Now, cfg.Holder, func(s *state) *meta.Holding { return &s.Holding }),
		batchCells:   batchCells,
		sleep:        bucketstore.Sleep,
		withDeadline: wallDeadline,
	}
	s.pace = jobs.NewPace(cfg.RowsPerSecond, cfg.Now, func(ctx context.Context, d time.Duration) error { return s.sleep(ctx, d) })
	for range cfg.Workers {
		s.workers = append(s.workers, &worker{Sealer: s, rows: rowSealer{maxLate: maxLate, waiting: make(map[int64]bool)}})
	}
	return s
}

// Run seals slot after slot until ctx ends. It calls Once at every interval and logs
// errors.
func (s *Sealer) Run(ctx context.Context, interval time.Duration) {
	jobs.Loop{Interval: interval, Sleep: s.sleep, Work: s.Once, Failed: func(err error) {
		if isIdle(err) {
			level.Debug(s.cfg.Logger).Log("msg", "not sealing", "err", err)
			return
		}
		level.Warn(s.cfg.Logger).Log("msg", "sealing stopped, retrying", "err", err)
	}}.Run(ctx)
}

// Once waits for the slot of a raw family, half an hour at most, and seals it: all rows, or
// those that an earlier call, slot or sealer has left. The error is jobs.ErrHeld while another
// sealer works, ErrClock while our clock is in doubt, and ErrBuffer while there is a
// buffer. After an error sealed rows stay sealed, and the next call continues from there.
func (s *Sealer) Once(ctx context.Context) error {
	s.working.Lock()
	defer s.working.Unlock()
	err := s.once(ctx)
	if err != nil && !isIdle(err) && ctx.Err() == nil {
		s.metrics.failures.Inc()
	}
	return err
}

// isIdle says whether an error only means that this sealer has nothing to do.
func isIdle(err error) bool { return errors.Is(err, jobs.ErrHeld) || errors.Is(err, ErrBuffer) }

func (s *Sealer) once(ctx context.Context) error {
	now := s.cfg.Now().UnixMilli()
	if err := s.sleep(ctx, time.Duration(nextSlot(now)-now)*time.Millisecond); err != nil {
		return err
	}
	if s.cfg.Clock != nil {
		if err := s.waitForClock(ctx); err != nil {
			return err
		}
	}
	t, ok := slotAt(s.cfg.Now().UnixMilli())
	if !ok {
		return errSlotEnded // the clock was set meanwhile
	}
	err := s.lease.Run(ctx, func(found *state) bool {
		if found.isDone(t) {
			return false
		}
		found.begin(t)
		return true
	}, func(ctx context.Context) error { return s.sealSlot(ctx, t) })
	if st := &s.lease.State; st.Sealed != [4]int64{} {
		s.metrics.oldest.Store(st.oldest())
	}
	return err
}

// sealSlot seals what a slot can, under the lease.
func (s *Sealer) sealSlot(ctx context.Context, t slot) error {
	st := &s.lease.State
	s.metrics.oldest.Store(st.oldest())
	s.metrics.ratio.Set(st.Ratio)
	if s.slot != t {
		s.slot = t
		s.failures.Store(0)
	}
	s.metrics.holds.Set(1)
	defer s.metrics.holds.Set(0)
	started := s.cfg.Now()
	s.setPace(t)
	err := s.readTenants(ctx)
	if err == nil {
		err = s.walk(ctx, t)
	}
	if st.ratio() == 1 {
		s.metrics.ratio.Set(1)
	}
	if err != nil {
		return fmt.Errorf("seal family %s: %w", t.family(), err)
	}
	level.Info(s.cfg.Logger).Log("msg", "sealed the raw cells of a column family", "family", t.family(), "rows", st.Walked, "took", s.cfg.Now().Sub(started))
	return nil
}

// readTenants reads which tenants there are. One that is made later writes nothing that this slot seals, but late cells, which it notes.
func (s *Sealer) readTenants(ctx context.Context) error {
	schemas, err := s.cfg.Tenants(ctx)
	s.tenants = nil
	for _, schema := range schemas {
		s.tenants = append(s.tenants, tenant{schema.Tenant(), schema})
	}
	return err
}

// waitForClock waits until clocks were compared, and returns the error of our clock.
func (s *Sealer) waitForClock(ctx context.Context) error {
	for s.cfg.Clock.isPending() {
		if err := s.sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return s.cfg.Clock.Err()
}
