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
	"github.com/promtable/promtable/series"
)

// DefaultRowsPerSecond is how many rows a second a sealer reads at most: ten
// million in a turn.
const DefaultRowsPerSecond = 2000

// DefaultWorkers is how many batches of rows a sealer reads and writes at the same time.
const DefaultWorkers = 4

// Config configures a Sealer.
type Config struct {
	// Store holds the rows, and INDEX and META.
	Store bucketstore.Store
	// Schema is the schema of the store.
	Schema series.Schema
	// Tenants are the tenants whose series are sealed. Nil is that of Schema.
	Tenants []string
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
	tenants []tenant
	metrics *metrics

	// working guards the fields below.
	working sync.Mutex
	lease   *lease
	workers []*worker
	// turn is the last turn, failures counts what failed in it.
	turn     turn
	failures atomic.Int64

	// Tests replace these.
	batchCells   int
	sleep        func(ctx context.Context, d time.Duration) error
	withDeadline func(ctx context.Context, t time.Time) (context.Context, context.CancelFunc)
}

// New returns a sealer, which does nothing before Run or Once. It fails for a tenant
// that no schema can have.
func New(cfg Config) (*Sealer, error) {
	var tenants []tenant
	for _, name := range cfg.Tenants {
		schema, err := cfg.Schema.ForTenant(name)
		if err != nil {
			return nil, fmt.Errorf("seal: %w", err)
		}
		tenants = append(tenants, tenant{name, schema})
	}
	if tenants == nil {
		tenants = []tenant{{schema: cfg.Schema}}
	}
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
		tenants:      tenants,
		metrics:      newMetrics(cfg.Registerer, cfg.Now),
		lease:        newLease(cfg.Store, cfg.Now, cfg.Holder),
		batchCells:   batchCells,
		sleep:        bucketstore.Sleep,
		withDeadline: wallDeadline,
	}
	for range cfg.Workers {
		s.workers = append(s.workers, &worker{Sealer: s, rows: rowSealer{maxLate: maxLate, waiting: make(map[int64]bool)}})
	}
	return s, nil
}

// Run seals turn after turn until ctx ends. It calls Once at every interval and logs
// errors.
func (s *Sealer) Run(ctx context.Context, interval time.Duration) {
	for ctx.Err() == nil {
		switch err := s.Once(ctx); {
		case err == nil || ctx.Err() != nil:
		case isIdle(err):
			level.Debug(s.cfg.Logger).Log("msg", "not sealing", "err", err)
		default:
			level.Warn(s.cfg.Logger).Log("msg", "sealing stopped, retrying", "err", err)
		}
		if s.sleep(ctx, interval) != nil {
			return
		}
	}
}

// Once waits for the turn of a raw family, half an hour at most, and seals it: all rows, or
// those that an earlier call, turn or sealer has left. The error is ErrHeld while another
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
func isIdle(err error) bool { return errors.Is(err, ErrHeld) || errors.Is(err, ErrBuffer) }

func (s *Sealer) once(ctx context.Context) error {
	now := s.cfg.Now().UnixMilli()
	if err := s.sleep(ctx, time.Duration(nextTurn(now)-now)*time.Millisecond); err != nil {
		return err
	}
	if s.cfg.Clock != nil {
		if err := s.waitForClock(ctx); err != nil {
			return err
		}
	}
	t, ok := turnAt(s.cfg.Now().UnixMilli())
	if !ok {
		return errTurnOver // the clock was set meanwhile
	}
	err := s.lease.take(ctx, t)
	if s.lease.Exists() && s.lease.Sealed != [4]int64{} {
		s.metrics.oldest.Store(s.lease.oldest())
	}
	if err != nil || s.lease.isDone(t) {
		return err
	}
	s.metrics.ratio.Set(s.lease.Ratio)
	if s.turn != t {
		s.turn = t
		s.failures.Store(0)
	}
	s.metrics.holds.Set(1)
	defer s.metrics.holds.Set(0)
	defer s.release(ctx)
	begun := s.cfg.Now()
	err = s.walk(ctx, t)
	if s.lease.ratio() == 1 {
		s.metrics.ratio.Set(1)
		s.metrics.oldest.Store(s.lease.oldest())
	}
	if err != nil {
		return fmt.Errorf("seal family %s: %w", t.family(), err)
	}
	level.Info(s.cfg.Logger).Log("msg", "sealed a family", "family", t.family(), "rows", s.lease.Walked, "took", s.cfg.Now().Sub(begun))
	return nil
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

// release ends the lease, even if ctx has ended. If that fails the lease expires.
func (s *Sealer) release(ctx context.Context) {
	if err := s.lease.Release(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, meta.ErrLost) {
		level.Warn(s.cfg.Logger).Log("msg", "the lease of the sealer was not released; it expires", "err", err)
	}
}
