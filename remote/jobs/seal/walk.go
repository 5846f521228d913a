package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
)

// Which rows a slot walks, and why each cell is sealed in the end.
//
// The rows are those of the postings of index periods. A slot first walks rounds of its
// family. A round that began in the slot of window w walks the periods from the first window
// of the family that is not sealed up to w. If it takes longer than a slot, the next slot of
// the family goes on where it stopped, so no row waits for ever. A raw cell is in a family of
// its own window, so it is sealed in the first round that begins in its window or later.
//
// With the rest of its time a slot walks periods with late cells, which their writers have
// noted in META, and now and then all older periods, see older.go. A writer whose clock is in
// window c need not note late cells of windows x from c-1 on: the first round that the family
// of x begins in a slot of x or later walks the period of x, because the family is sealed up
// to x-4 at most. By then the clock is in c+1 or later, and all cells that arrived in c are
// old enough to be sealed. Nor need it note windows before c-1 in the same period.

// rowsAtOnce is how many rows a worker reads at once.
const rowsAtOnce = 200

// A tenant is one whose series are sealed, and the schema of its keys. The name is
// empty in a store without tenants.
type tenant struct {
	name   string
	schema series.Schema
}

// A span is an index period of a tenant.
type span struct {
	tenant
	period int64
}

// holds says whether a walk that has come to p is in st.
func (st span) holds(p jobs.Position) bool { return p.Tenant == st.name && p.Period == st.period }

// firstPeriod returns the first index period that a round of this window walks at most: the
// one before that of the window.
func firstPeriod(window int64) int64 { return max(0, series.PeriodOf(window)-series.IndexPeriod) }

// roundSpans returns the periods that a round walks: those with windows of the family from
// the first one that is not sealed to the one in which the round began. That is one period,
// or two when the period has changed since. If it is more they are left to a full walk.
func (s *Sealer) roundSpans(family int64) (all []span) {
	window := s.lease.State.Rounds[family].Window
	first := max(firstPeriod(window), series.PeriodOf(s.lease.State.firstUnsealed(family)))
	for _, of := range s.tenants {
		for period := series.PeriodOf(window); period >= first; period -= series.IndexPeriod {
			all = append(all, span{of, period})
		}
	}
	return all
}

// periodsBefore returns the index periods with series before limit, ascending.
func (s *Sealer) periodsBefore(ctx context.Context, schema series.Schema, limit int64) (periods []int64, err error) {
	for next := int64(0); ; next += series.IndexPeriod {
		period, ok, err := jobs.NextPeriod(ctx, s.cfg.Store, schema, next, limit)
		if err != nil || !ok {
			return periods, err
		}
		periods, next = append(periods, period), period
	}
}

// A walker walks rows in a slot.
type walker struct {
	s    *Sealer
	slot slot
	// at is the progress, in the state of the lease: all rows before it are sealed.
	at *jobs.Position
	// count takes the number of rows walked.
	count func(n int)
	// oncePerBase leaves out a row that the walk has read for the index period before: a row holds a base, which has eight periods.
	oncePerBase bool
}

// walk seals all rows of a slot. The rows of current periods come first.
func (s *Sealer) walk(ctx context.Context, t slot) error {
	if err := s.walkRounds(ctx, t); err != nil {
		return err
	}
	switch err := s.walkRest(ctx, t); {
	case err == nil:
		s.lease.State.Done = true
	case !errors.Is(err, errSlotEnded): // the next slot goes on
		return err
	}
	return nil
}

// walkRounds ends the round in which the last slot of the family has stopped. Then, or if
// there is none, it walks a round of this slot.
func (s *Sealer) walkRounds(ctx context.Context, t slot) error {
	family := familyOf(t.window)
	r := &s.lease.State.Rounds[family]
	for s.lease.State.Sealed[family] != t.window {
		if r.Window == 0 {
			r.Window = t.window
		}
		w := &walker{s: s, slot: t, at: &r.Position, count: func(n int) {
			r.Walked += int64(n)
			s.lease.State.Walked += int64(n)
		}}
		if err := w.spans(ctx, s.roundSpans(family)); err != nil {
			return err
		}
		s.lease.State.Sealed[family], s.lease.State.LastWalked = r.Window, r.Walked
		*r = round{}
	}
	return nil
}

// spans walks spans, from the position on.
func (w *walker) spans(ctx context.Context, spans []span) error {
	i := slices.IndexFunc(spans, func(st span) bool { return st.holds(*w.at) })
	if w.at.IsStart() {
		i = 0
	}
	for _, st := range spans[max(0, i):] {
		if !st.holds(*w.at) {
			*w.at = jobs.Position{Tenant: st.name, Period: st.period}
		}
		if err := w.span(ctx, st); err != nil {
			return fmt.Errorf("index period %d: %w", st.period, err)
		}
	}
	return nil
}

// span walks the rows of a period of a tenant.
func (w *walker) span(ctx context.Context, st span) error {
	w.at.Tenant, w.at.Period = st.name, st.period
	walk := jobs.Walk{
		Store: w.s.cfg.Store, Schema: st.schema, At: w.at, StepSize: rowsAtOnce * len(w.s.workers),
		Unreadable: func(_ []byte, err error) { w.s.failed(1, "posting not read", err) },
		Do:         func(ctx context.Context, postings []jobs.Posting) (int, error) { return w.seal(ctx, st, postings) },
		Keep:       w.s.lease.Keep,
		Pace:       w.s.pace,
	}
	return walk.Run(ctx)
}

// seal seals the rows of postings, and returns how many it has read.
func (w *walker) seal(ctx context.Context, st span, postings []jobs.Posting) (rows int, err error) {
	if !w.slot.isOpen(w.s.cfg.Now().UnixMilli()) {
		return 0, errSlotEnded
	}
	n := len(postings)
	base, _ := series.Split(st.period)
	held, err := w.s.cfg.Held(ctx, st.schema)
	if err != nil {
		return 0, fmt.Errorf("find the rows that must not be sealed: %w", err)
	}
	postings = slices.DeleteFunc(postings, func(p jobs.Posting) bool { return held(p.Series, base) })
	if w.oncePerBase && st.period > base {
		if postings, err = w.s.withoutPeriodBefore(ctx, st, postings); err != nil {
			return 0, err
		}
	}
	keys := make([][]byte, 0, len(postings))
	for _, r := range jobs.RowsOf(st.schema, base, postings) {
		keys = append(keys, r.Start)
	}
	if err := w.s.sealParts(ctx, w.slot, base, keys); err != nil {
		return 0, err
	}
	w.count(n)
	w.s.setPace(w.slot)
	return len(keys), nil
}

// withoutPeriodBefore returns those of postings whose series has none in the index period before. The postings are ascending.
func (s *Sealer) withoutPeriodBefore(ctx context.Context, st span, postings []jobs.Posting) ([]jobs.Posting, error) {
	before := st.period - series.IndexPeriod
	wanted := make(map[string]bool, len(postings))
	var ranges []series.RowRange
	for i, p := range postings {
		key := series.AppendPostingIn(nil, p.Key, p.Series, before)
		wanted[string(key)] = true
		if i == 0 || !haveOneLabel(p, postings[i-1]) {
			ranges = append(ranges, series.RowRange{Start: key})
		}
		ranges[len(ranges)-1].Limit = append(bytes.Clone(key), 0)
	}
	if len(ranges) == 0 {
		return nil, nil
	}
	seen, err := jobs.HasPostings(ctx, s.cfg.Store, ranges, wanted)
	return slices.DeleteFunc(postings, func(p jobs.Posting) bool {
		return seen[string(series.AppendPostingIn(nil, p.Key, p.Series, before))]
	}), err
}

// haveOneLabel says whether two postings are of the same label and period.
func haveOneLabel(a, b jobs.Posting) bool {
	return bytes.Equal(a.Key[:len(a.Key)-len(a.Series)], b.Key[:len(b.Key)-len(b.Series)])
}

// sealParts seals rows of the bucket at base. Each worker has a range of the keys, which are
// ascending.
func (s *Sealer) sealParts(ctx context.Context, t slot, base int64, keys [][]byte) error {
	var working errgroup.Group
	i := 0
	for part := range slices.Chunk(keys, rowsAtOnce) {
		w := s.workers[i]
		working.Go(func() error { return w.sealRows(ctx, t, base, part) })
		i++
	}
	return working.Wait()
}

// minPace is the least number of rows walked a second.
const minPace = 100

// setPace spreads the rows over the slot.
func (s *Sealer) setPace(t slot) {
	pace := s.cfg.RowsPerSecond
	left := float64(t.end()-s.cfg.Now().UnixMilli()) / 1000
	if rest := s.lease.State.LastWalked - s.lease.State.Walked; rest > 0 && left > 0 {
		// Two thirds of the time for as many rows as the last round had.
		pace = min(pace, max(minPace, 1.5*float64(rest)/left))
	}
	s.pace.Set(pace)
}
