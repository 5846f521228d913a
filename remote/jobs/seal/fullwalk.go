package seal

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
)

// fullInterval is how often all older periods are walked, by the slots of one family after
// another.
const fullInterval = 7 * 24 * time.Hour

// A fullWalk is the walk of all older periods for a family. It takes the time that rounds
// leave, and goes on slot after slot.
type fullWalk struct {
	// Done is when the last one ended, in milliseconds. 0 is never.
	Done     int64         `json:"done,omitempty"`
	Position jobs.Position `json:"position,omitzero"`
}

// isFullDue says whether a family must walk all older periods: if it never has, or if it is
// its slot and the last walk of any family was long ago.
func (s *state) isFullDue(family, now int64) bool {
	first, last := s.Full[0].Done, s.Full[0].Done
	for _, f := range s.Full {
		first, last = min(first, f.Done), max(last, f.Done)
	}
	done := s.Full[family].Done
	return done == 0 || last > now || done == first && now-last >= fullInterval.Milliseconds()
}

// walkRest walks periods that rounds do not walk, with the rest of the time of a slot.
func (s *Sealer) walkRest(ctx context.Context, t slot) error {
	if err := s.walkLate(ctx, t); err != nil {
		return err
	}
	return s.walkFull(ctx, t)
}

// A lateWalk is the walk of a period that is noted, in the slots of any family. If it does
// not end in one slot the next one goes on.
type lateWalk struct {
	Position jobs.Position `json:"position,omitzero"`
	// Began is when it began, in milliseconds. 0 is no walk.
	Began int64 `json:"began,omitempty"`
}

// walkLate walks each period that is noted, see LateNotes, and removes its note if all cells
// that it stands for are sealed.
func (s *Sealer) walkLate(ctx context.Context, t slot) error {
	notes, err := s.readNotes(ctx)
	if err != nil {
		return err
	}
	late := &s.lease.State.Late
	i := slices.IndexFunc(notes, func(n note) bool { return n.holds(late.Position) })
	if i < 0 {
		i, *late = 0, lateWalk{}
	}
	for _, n := range slices.Concat(notes[i:], notes[:i]) {
		if late.Began == 0 {
			*late = lateWalk{jobs.Position{Tenant: n.name, Period: n.period}, s.cfg.Now().UnixMilli()}
		}
		w := &walker{s: s, slot: t, at: &late.Position, count: func(int) {}}
		if err := w.span(ctx, n.span); err != nil {
			return fmt.Errorf("late cells of index period %d: %w", n.period, err)
		}
		if n.Cell.Time <= late.Began-noteAge {
			if err := n.Remove(ctx, s.cfg.Store); err != nil {
				return err
			}
		}
		*late = lateWalk{}
	}
	return nil
}

// walkFull walks all older periods if that is due. It finds late cells without a note,
// and raw cells of slots that were missed long ago.
func (s *Sealer) walkFull(ctx context.Context, t slot) error {
	family := familyOf(t.window)
	if !s.lease.State.isFullDue(family, s.cfg.Now().UnixMilli()) {
		return nil
	}
	var spans []span
	for _, of := range s.tenants {
		periods, err := s.periodsBefore(ctx, of.schema, series.PeriodOf(t.window))
		if err != nil {
			return err
		}
		for _, period := range periods {
			spans = append(spans, span{of, period})
		}
	}
	full := &s.lease.State.Full[family]
	w := &walker{s: s, slot: t, at: &full.Position, count: func(int) {}, oncePerBase: true}
	if err := w.spans(ctx, spans); err != nil {
		return err
	}
	*full = fullWalk{Done: s.cfg.Now().UnixMilli()}
	return nil
}
