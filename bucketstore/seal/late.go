package seal

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

const (
	// noteInterval is how often notes are written: a period once at most.
	noteInterval = time.Minute
	// noteAge is how old a note must be when a walk begins that may remove it, in
	// milliseconds. A cell that was added before the note was written has, by the clock of
	// its writer, at most the time of the note. Another writer may have noted its cells
	// before, by a clock that is ahead by up to skew. The walk seals cells that are older
	// than grace. And skew is less than grace.
	noteAge = 2 * grace
)

// LateNotes notes in META the index periods to which a process writes late cells, so that a
// sealer finds them. Rounds walk the current periods in any case. No answer depends on
// notes: cells that a crash, or META, left without a note are found by a full walk.
//
// It is safe for concurrent use.
type LateNotes struct {
	store  bucketstore.Store
	schema series.Schema
	now    func() time.Time
	logger log.Logger

	mu sync.Mutex
	// periods are not noted yet.
	periods map[int64]bool
}

// NewLateNotes returns the notes of a process that writes the rows of this schema. logger
// may be nil.
func NewLateNotes(store bucketstore.Store, schema series.Schema, now func() time.Time, logger log.Logger) *LateNotes {
	if logger == nil {
		logger = log.NewNopLogger()
	}
	return &LateNotes{store: store, schema: schema, now: now, logger: logger, periods: make(map[int64]bool)}
}

// Add notes a period, in the next Write. It is for [bucketstore.Direct.OnLate].
func (l *LateNotes) Add(period int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.periods[period] = true
}

// Run calls Write every minute, and once more when ctx ends. It logs errors.
func (l *LateNotes) Run(ctx context.Context) {
	for isLast := false; !isLast; {
		isLast = bucketstore.Sleep(ctx, noteInterval) != nil
		if err := l.Write(context.WithoutCancel(ctx)); err != nil {
			level.Warn(l.logger).Log("msg", "late samples are sealed later, because their periods are not noted", "err", err)
		}
	}
}

// Write writes the notes of all periods since the last one. After an error they stay for the
// next one.
func (l *LateNotes) Write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	l.mu.Lock()
	periods := maps.Clone(l.periods)
	clear(l.periods)
	l.mu.Unlock()
	now := l.now().UnixMilli() // after all cells of these periods have their times
	for period := range periods {
		key, err := noteKey(l.schema, period)
		if err == nil {
			err = meta.Overwrite(ctx, l.store, key, strconv.AppendInt(nil, now, 10), now)
		}
		if err != nil {
			l.mu.Lock()
			maps.Copy(l.periods, periods)
			l.mu.Unlock()
			return fmt.Errorf("note late samples: %w", err)
		}
	}
	return nil
}

func noteKey(schema series.Schema, period int64) (string, error) {
	key, err := schema.AppendMetaKey(nil, series.MetaSealPeriod, string(series.AppendTime(nil, period)))
	return string(key), err
}

// A note says that late cells were written to the rows of a span.
type note struct {
	span
	cell meta.Cell
}

// readNotes returns all notes, by tenant and period.
func (s *Sealer) readNotes(ctx context.Context) (notes []note, err error) {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	for _, of := range s.tenants {
		err := meta.ScanCells(ctx, s.cfg.Store, of.schema.MetaRange(series.MetaSealPeriod), func(key []byte, c meta.Cell) error {
			_, name, err := of.schema.ParseMetaKey(key)
			period, ok := series.ParseTime([]byte(name))
			if err != nil || !ok || len(name) != series.TimeDigits || period != series.PeriodOf(period) {
				s.failed(1, "note of late samples not read", series.ErrCorrupt, "row", string(key))
				return nil
			}
			notes = append(notes, note{span{of, period}, c})
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read the notes of late samples: %w", err)
		}
	}
	return notes, nil
}

// removeNote removes a note, unless it was written again.
func (s *Sealer) removeNote(ctx context.Context, n note) error {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	key, err := noteKey(n.schema, n.period)
	if err == nil {
		_, err = meta.CompareAndDelete(ctx, s.cfg.Store, key, n.cell)
	}
	if err != nil {
		return fmt.Errorf("remove a note of late samples: %w", err)
	}
	return nil
}
