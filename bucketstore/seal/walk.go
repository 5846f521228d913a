package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// Which rows a turn walks, and why each cell is sealed in the end.
//
// The rows are those of the postings of index periods. A turn first walks rounds of its
// family. A round that began in the turn of window w walks the periods from the first window
// of the family that is not sealed up to w. If it takes longer than a turn, the next turn of
// the family goes on where it stopped, so no row waits for ever. A raw cell is in a family of
// its own window, so it is sealed in the first round that begins in its window or later.
//
// With the rest of its time a turn walks periods with late cells, which their writers have
// noted in META, and now and then all older periods, see older.go. A writer whose clock is in
// window c need not note late cells of windows x from c-1 on: the first round that the family
// of x begins in a turn of x or later walks the period of x, because the family is sealed up
// to x-4 at most. By then the clock is in c+1 or later, and all cells that arrived in c are
// old enough to be sealed. Nor need it note windows before c-1 in the same period.

const (
	// namesAtOnce is how many metric names one page has.
	namesAtOnce = 100
	// rowsAtOnce is how many rows a worker reads at once.
	rowsAtOnce = 200
)

// A position is the progress of a walk. The zero value is the start.
type position struct {
	Tenant string `json:"tenant,omitempty"`
	Period int64  `json:"period"`
	// Names is the key of INDEX with which the current page of metric names begins.
	Names []byte `json:"names,omitempty"`
	// Posting is the last posting of this page that is done.
	Posting []byte `json:"posting,omitempty"`
}

func (p position) isBegin() bool {
	return p.Tenant == "" && p.Period == 0 && p.Names == nil && p.Posting == nil
}

// A tenant is one whose series are sealed, and the schema of its keys. The name is
// empty if it is that of Config.Schema.
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
func (st span) holds(p position) bool { return p.Tenant == st.name && p.Period == st.period }

// firstPeriod returns the first index period that a round of this window walks at most: the
// one before that of the window.
func firstPeriod(window int64) int64 { return max(0, series.PeriodOf(window)-series.IndexPeriod) }

// roundSpans returns the periods that a round walks: those with windows of the family from
// the first one that is not sealed to the one in which the round began. That is one period,
// or two when the period has changed since. If it is more they are left to a full walk.
func (s *Sealer) roundSpans(family int64) (all []span) {
	window := s.lease.Rounds[family].Window
	first := max(firstPeriod(window), series.PeriodOf(s.lease.firstUnsealed(family)))
	for _, of := range s.tenants {
		for period := series.PeriodOf(window); period >= first; period -= series.IndexPeriod {
			all = append(all, span{of, period})
		}
	}
	return all
}

// periodsBefore returns the index periods with series before limit, ascending.
func (s *Sealer) periodsBefore(ctx context.Context, schema series.Schema, limit int64) (periods []int64, err error) {
	end := schema.NameRange(limit).Start
	for period := int64(0); period < limit; period += series.IndexPeriod {
		key, err := s.firstKey(ctx, series.RowRange{Start: schema.NameRange(period).Start, Limit: end})
		if err != nil || key == nil {
			return periods, err
		}
		if period, err = schema.ParseNameKey(key); err != nil {
			return nil, err
		}
		periods = append(periods, period)
	}
	return periods, nil
}

// firstKey returns the first key of INDEX in a range, or nil if there is none.
func (s *Sealer) firstKey(ctx context.Context, r series.RowRange) (key []byte, err error) {
	err = s.scanIndex(ctx, []series.RowRange{r}, 1, func(row bucketstore.Row) { key = bytes.Clone(row.Key) })
	return key, err
}

// scanIndex reads up to limit rows of INDEX.
func (s *Sealer) scanIndex(ctx context.Context, ranges []series.RowRange, limit int, fn func(bucketstore.Row)) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := s.cfg.Store.Scan(ctx, bucketstore.ScanRequest{
		Table:    bucketstore.Index,
		Rows:     ranges,
		Families: []bucketstore.FamilyRange{{Family: series.FamilyIndex}},
		Limit:    limit,
	}, func(row bucketstore.Row) error {
		fn(row)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the index: %w", err)
	}
	return nil
}

// A walker walks rows in a turn.
type walker struct {
	s    *Sealer
	turn turn
	// at is the progress, in the state of the lease: all rows before it are sealed.
	at *position
	// count takes the number of rows walked.
	count func(n int)
	// oncePerBase leaves out a row that the walk has read for the index period before: a row holds a base, which has eight periods.
	oncePerBase bool
}

// walk seals all rows of a turn. The rows of current periods come first.
func (s *Sealer) walk(ctx context.Context, t turn) error {
	if err := s.walkRounds(ctx, t); err != nil {
		return err
	}
	switch err := s.walkOlder(ctx, t); {
	case err == nil:
		s.lease.Done = true
	case !errors.Is(err, errTurnOver): // the next turn goes on
		return err
	}
	return nil
}

// walkRounds ends the round in which the last turn of the family has stopped. Then, or if
// there is none, it walks a round of this turn.
func (s *Sealer) walkRounds(ctx context.Context, t turn) error {
	family := familyOf(t.window)
	r := &s.lease.Rounds[family]
	for s.lease.Sealed[family] != t.window {
		if r.Window == 0 {
			r.Window = t.window
		}
		w := &walker{s: s, turn: t, at: &r.Position, count: func(n int) {
			r.Walked += int64(n)
			s.lease.Walked += int64(n)
		}}
		if err := w.spans(ctx, s.roundSpans(family)); err != nil {
			return err
		}
		s.lease.Sealed[family], s.lease.LastWalked = r.Window, r.Walked
		*r = round{}
	}
	return nil
}

// spans walks spans, from the position on.
func (w *walker) spans(ctx context.Context, spans []span) error {
	i := slices.IndexFunc(spans, func(st span) bool { return st.holds(*w.at) })
	if w.at.isBegin() {
		i = 0
	}
	for _, st := range spans[max(0, i):] {
		if !st.holds(*w.at) {
			*w.at = position{Tenant: st.name, Period: st.period}
		}
		if err := w.span(ctx, st); err != nil {
			return fmt.Errorf("index period %d: %w", st.period, err)
		}
	}
	return nil
}

// span walks the rows of a period of a tenant, one page of metric names after another.
func (w *walker) span(ctx context.Context, st span) error {
	names := st.schema.ValueRange(labels.MetricName, "", st.period)
	var page []string
	if w.at.Names == nil {
		page = append(page, "") // INDEX has no row of the empty name
	} else {
		names.Start = w.at.Names
	}
	for {
		var last []byte
		n := 0
		err := w.s.scanIndex(ctx, []series.RowRange{names}, namesAtOnce, func(row bucketstore.Row) {
			page = append(page, string(row.Cells[0].Value))
			last = append(last[:0], row.Key...)
			n++
		})
		if err != nil {
			return err
		}
		if err := w.page(ctx, st, page); err != nil {
			return err
		}
		if n < namesAtOnce {
			return nil
		}
		page = page[:0]
		names.Start = append(last, 0)
		w.at.Names, w.at.Posting = names.Start, nil
	}
}

// page walks the rows of the series with these metric names.
func (w *walker) page(ctx context.Context, st span, names []string) error {
	var ranges []series.RowRange
	for _, name := range names {
		ranges = append(ranges, series.PrefixRange(st.schema.AppendPostingPrefix(nil, labels.MetricName, name, st.period)))
	}
	slices.SortFunc(ranges, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
	for {
		if ranges = behind(ranges, w.at.Posting); len(ranges) == 0 {
			return nil
		}
		begun := w.s.cfg.Now()
		n, rows, err := w.step(ctx, st, ranges)
		if err != nil || n == 0 {
			return err
		}
		if err := w.pause(ctx, rows, begun); err != nil || n < w.s.rowsInStep() {
			return err
		}
	}
}

// behind returns the part of ranges after key.
func behind(ranges []series.RowRange, key []byte) []series.RowRange {
	if key == nil {
		return ranges
	}
	start := append(bytes.Clone(key), 0)
	for len(ranges) > 0 && bytes.Compare(ranges[0].Limit, start) <= 0 {
		ranges = ranges[1:]
	}
	if len(ranges) > 0 && bytes.Compare(ranges[0].Start, start) < 0 {
		ranges = slices.Clone(ranges)
		ranges[0].Start = start
	}
	return ranges
}

// rowsInStep is how many rows the workers read at once.
func (s *Sealer) rowsInStep() int { return rowsAtOnce * len(s.workers) }

// step seals the rows of the first postings in ranges. It returns how many postings these are, and how many rows it has read.
func (w *walker) step(ctx context.Context, st span, ranges []series.RowRange) (n, rows int, err error) {
	if !w.turn.isOpen(w.s.cfg.Now().UnixMilli()) {
		return 0, 0, errTurnOver
	}
	base, _ := series.Split(st.period)
	held, err := w.s.cfg.Held(ctx, st.schema)
	if err != nil {
		return 0, 0, fmt.Errorf("find the rows that must not be sealed: %w", err)
	}
	var found []posting
	var last []byte
	err = w.s.scanIndex(ctx, ranges, w.s.rowsInStep(), func(row bucketstore.Row) {
		n++
		last = append(last[:0], row.Key...)
		period, seriesKey, err := st.schema.ParsePosting(row.Key)
		switch {
		case err != nil:
			w.s.failed(1, "posting not read", err)
		case period == st.period && !held(seriesKey, base):
			key := bytes.Clone(row.Key)
			found = append(found, posting{key, key[len(key)-len(seriesKey):]})
		}
	})
	if err == nil && w.oncePerBase && st.period > base {
		found, err = w.s.withoutPeriodBefore(ctx, st, found)
	}
	if err != nil || n == 0 {
		return 0, 0, err
	}
	keys := make([][]byte, 0, len(found))
	for _, p := range found {
		keys = append(keys, st.schema.AppendRowKey(nil, p.series, base))
	}
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	if err := w.s.sealParts(ctx, w.turn, base, keys); err != nil {
		return n, len(keys), err
	}
	w.at.Posting = last
	w.count(n)
	return n, len(keys), w.s.lease.Keep(ctx)
}

// A posting is a key of INDEX, and the series key in it.
type posting struct{ key, series []byte }

// withoutPeriodBefore returns those of postings whose series has none in the index period before. The postings are ascending.
func (s *Sealer) withoutPeriodBefore(ctx context.Context, st span, postings []posting) ([]posting, error) {
	before := st.period - series.IndexPeriod
	wanted := make(map[string]bool, len(postings))
	var ranges []series.RowRange
	for i, p := range postings {
		key := series.AppendPostingIn(nil, p.key, p.series, before)
		wanted[string(key)] = true
		if i == 0 || !p.hasLabelOf(postings[i-1]) {
			ranges = append(ranges, series.RowRange{Start: key})
		}
		ranges[len(ranges)-1].Limit = append(bytes.Clone(key), 0)
	}
	if len(ranges) == 0 {
		return nil, nil
	}
	seen := make(map[string]bool)
	err := s.scanIndex(ctx, ranges, 0, func(row bucketstore.Row) {
		if wanted[string(row.Key)] {
			seen[string(row.Key)] = true
		}
	})
	return slices.DeleteFunc(postings, func(p posting) bool {
		return seen[string(series.AppendPostingIn(nil, p.key, p.series, before))]
	}), err
}

// hasLabelOf says whether two postings are of the same label and period.
func (p posting) hasLabelOf(other posting) bool {
	return bytes.Equal(p.key[:len(p.key)-len(p.series)], other.key[:len(other.key)-len(other.series)])
}

// sealParts seals rows of the bucket at base. Each worker has a range of the keys, which are
// ascending.
func (s *Sealer) sealParts(ctx context.Context, t turn, base int64, keys [][]byte) error {
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

// pause spreads the rows over the turn: it waits after n rows, whose work began at begun,
// until more rows are due.
func (w *walker) pause(ctx context.Context, n int, begun time.Time) error {
	now, lease := w.s.cfg.Now(), w.s.lease
	pace := w.s.cfg.RowsPerSecond
	left := float64(w.turn.end()-now.UnixMilli()) / 1000
	if rest := lease.LastWalked - lease.Walked; rest > 0 && left > 0 {
		// Two thirds of the time for as many rows as the last round had.
		pace = min(pace, max(minPace, 1.5*float64(rest)/left))
	}
	return w.s.sleep(ctx, time.Duration(float64(n)/pace*float64(time.Second))-now.Sub(begun))
}
