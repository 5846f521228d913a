package seal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
)

// noteAge is how old a note must be when a walk begins that may remove it, in
// milliseconds. A cell that was added before the note was written has, by the clock of
// its writer, at most the time of the note. Another writer may have noted its cells
// before, by a clock that is ahead by up to skew. The walk seals cells that are older
// than grace. And skew is less than grace.
const noteAge = 2 * grace

// LateNotes notes in META the index periods to which a process writes late cells, so that a
// sealer finds them. Rounds walk the current periods in any case. No answer depends on
// notes: cells that a crash, or META, left without a note are found by a full walk.
//
// It is safe for concurrent use. Its Add is for [bucketstore.Direct.OnLate].
type LateNotes struct {
	store  bucketstore.Store
	schema series.Schema
	now    func() time.Time
	logger log.Logger

	mu sync.Mutex
	// notes are those of each tenant, by its name.
	notes map[string]*jobs.Notes
}

// NewLateNotes returns the notes of a process that writes the rows of this schema, which may be of all tenants. logger
// may be nil.
func NewLateNotes(store bucketstore.Store, schema series.Schema, now func() time.Time, logger log.Logger) *LateNotes {
	if logger == nil {
		logger = log.NewNopLogger()
	}
	return &LateNotes{store: store, schema: schema, now: now, logger: logger, notes: make(map[string]*jobs.Notes)}
}

// Add notes an index period of the tenant of a series in the next Write.
func (l *LateNotes) Add(seriesKey []byte, period int64) {
	schema := l.schema
	if schema.Tenancy() && schema.Tenant() == "" {
		name, err := series.TenantOf(seriesKey)
		if err == nil {
			schema, err = schema.ForTenant(name)
		}
		if err != nil { // no engine makes such keys
			level.Error(l.logger).Log("msg", "a late sample has no tenant in its series, so nothing notes that it is to be sealed", "err", err)
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.notes[schema.Tenant()]
	if of == nil {
		of = &jobs.Notes{
			Store: l.store, Now: l.now, Key: func(period int64) (string, error) { return noteKey(schema, period) },
			Value: func(now int64) []byte { return strconv.AppendInt(nil, now, 10) },
		}
		l.notes[schema.Tenant()] = of
	}
	of.Add(period)
}

// Write writes the notes of all periods since the last one. After an error they stay for the next.
func (l *LateNotes) Write(ctx context.Context) (err error) {
	l.mu.Lock()
	all := slices.Collect(maps.Values(l.notes))
	l.mu.Unlock()
	for _, of := range all {
		err = errors.Join(err, of.Write(ctx))
	}
	return err
}

// Run calls Write every minute, and once more when ctx ends. It logs errors.
func (l *LateNotes) Run(ctx context.Context) {
	for isLast := false; !isLast; {
		isLast = bucketstore.Sleep(ctx, jobs.NoteInterval) != nil
		if err := l.Write(context.WithoutCancel(ctx)); err != nil {
			level.Warn(l.logger).Log("msg", "cannot note in META which index periods got late samples, trying again; they are sealed later", "err", err)
		}
	}
}

func noteKey(schema series.Schema, period int64) (string, error) {
	key, err := schema.AppendMetaKey(nil, series.MetaSealPeriod, string(series.AppendTime(nil, period)))
	return string(key), err
}

// A note says that late cells were written to the rows of a span.
type note struct {
	span
	jobs.Note
}

// readNotes returns all notes, by tenant and period.
func (s *Sealer) readNotes(ctx context.Context) (notes []note, err error) {
	const unreadable = -1
	for _, of := range s.tenants {
		found, err := jobs.ReadNotes(ctx, s.cfg.Store, of.schema.MetaRange(series.MetaSealPeriod), func(key []byte) (int64, error) {
			_, name, err := of.schema.ParseMetaKey(key)
			period, ok := series.ParseTime([]byte(name))
			if err != nil || !ok || len(name) != series.TimeDigits || period != series.PeriodOf(period) {
				s.failed(1, "note of late samples not read", series.ErrCorrupt, "row", string(key))
				return unreadable, nil
			}
			return period, nil
		})
		if err != nil {
			return nil, fmt.Errorf("late samples: %w", err)
		}
		for _, n := range found {
			if n.T != unreadable {
				notes = append(notes, note{span{of, n.T}, n})
			}
		}
	}
	return notes, nil
}
