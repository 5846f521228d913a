package seal

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

const (
	// namesAtOnce is how many metric names one page has.
	namesAtOnce = 100
	// rowsAtOnce is how many rows are read at once.
	rowsAtOnce = 200
	// overlap is the number of windows of a new index period in which the previous period
	// is walked, too: two turns of each family, in case one was missed.
	overlap = 8
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

// spans returns the periods that a turn walks: the index period of its window; while that
// is new, the previous one; and one older period. The older one changes every four turns,
// so that each family has a turn with it. So backfills of old series, and the rest of
// missed turns, are sealed in the end.
func (s *Sealer) spans(ctx context.Context, t turn) (all []span, err error) {
	current := series.PeriodOf(t.window)
	for _, of := range s.tenants {
		periods := []int64{current}
		if current > 0 && t.window-current < overlap*series.Window {
			periods = append(periods, current-series.IndexPeriod)
		}
		older, err := s.periodsBefore(ctx, of.schema, periods[len(periods)-1])
		if err != nil {
			return nil, err
		}
		if len(older) > 0 {
			periods = append(periods, older[t.window/series.Window/4%int64(len(older))])
		}
		for _, period := range periods {
			all = append(all, span{of, period})
		}
	}
	return all, nil
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

// A walker walks the rows of a turn.
type walker struct {
	s    *Sealer
	turn turn
	// at is the progress: all rows before it are sealed.
	at     position
	walked int64
}

// walk seals all rows of a turn, from the position in the lease on.
func (s *Sealer) walk(ctx context.Context, t turn) error {
	spans, err := s.spans(ctx, t)
	if err != nil {
		return err
	}
	w := &walker{s: s, turn: t, at: s.lease.Position, walked: s.lease.Walked}
	i := slices.IndexFunc(spans, func(st span) bool { return st.holds(w.at) })
	if i < 0 || w.at.isBegin() {
		i, w.at = 0, position{}
	}
	for ; i < len(spans); i++ {
		if !spans[i].holds(w.at) {
			w.at = position{Tenant: spans[i].name, Period: spans[i].period}
		}
		if err := w.span(ctx, spans[i]); err != nil {
			return fmt.Errorf("index period %d: %w", spans[i].period, err)
		}
	}
	return s.lease.renew(ctx, func(st *state) {
		st.Walked = w.walked
		st.finish()
	})
}

// save writes the position to the lease.
func (w *walker) save(ctx context.Context) error {
	return w.s.lease.renew(ctx, func(st *state) { st.Position, st.Walked = w.at, w.walked })
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
		n, err := w.batch(ctx, st, ranges)
		if err != nil || n == 0 {
			return err
		}
		if err := w.s.pause(ctx, w, n, begun); err != nil || n < rowsAtOnce {
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

// batch seals the rows of the first postings in ranges and returns their number.
func (w *walker) batch(ctx context.Context, st span, ranges []series.RowRange) (n int, err error) {
	if !w.turn.isOpen(w.s.cfg.Now().UnixMilli()) {
		return 0, errTurnOver
	}
	base, _ := series.Split(st.period)
	var keys [][]byte
	var last []byte
	err = w.s.scanIndex(ctx, ranges, rowsAtOnce, func(row bucketstore.Row) {
		n++
		last = append(last[:0], row.Key...)
		period, seriesKey, err := st.schema.ParsePosting(row.Key)
		switch {
		case err != nil:
			w.s.failed("posting not read", err)
		case period == st.period:
			keys = append(keys, st.schema.AppendRowKey(nil, seriesKey, base))
		}
	})
	if err != nil || n == 0 {
		return 0, err
	}
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	if err := w.s.sealRows(ctx, w.turn, base, keys); err != nil {
		return n, err
	}
	w.at.Posting = last
	w.walked += int64(n)
	return n, w.save(ctx)
}

// minPace is the least number of rows walked a second.
const minPace = 100

// pause spreads the rows over the turn: it waits after n rows, whose work began at begun,
// until more rows are due.
func (s *Sealer) pause(ctx context.Context, w *walker, n int, begun time.Time) error {
	now := s.cfg.Now()
	pace := s.cfg.RowsPerSecond
	if left := float64(w.turn.end()-now.UnixMilli()) / 1000; s.lease.LastWalked > 0 && left > 0 {
		// Two thirds of the time for as many rows as the last turn had.
		pace = min(pace, max(minPace, 1.5*float64(s.lease.LastWalked-w.walked)/left))
	}
	return s.sleep(ctx, time.Duration(float64(n)/pace*float64(time.Second))-now.Sub(begun))
}
