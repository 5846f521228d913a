package reader

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/rollup"
)

// A StoredQuery asks for cells of METRIC, as another store can keep them.
type StoredQuery struct {
	// Selectors choose series: those that any of them matches.
	Selectors [][]*labels.Matcher
	// Start and Limit are the times, half-open, in milliseconds.
	Start, Limit int64
	// Rollups asks for the rollups of the days that have some of these times, and not for samples and exemplars.
	Rollups bool
}

// Stored is what is stored of a series: chunks in order of time, which do not overlap, and exemplars behind them; or rollups.
type Stored struct {
	Labels labels.Labels
	Cells  []StoredCell
}

// A StoredCell is a cell, and the base of its row.
type StoredCell struct {
	Base int64
	bucketstore.Cell
}

// Stored calls fn with each series that has cells in the range of q, in order of labels. What a window of a row has is sealed anew, whatever form it
// is stored in: two stores that have the same samples give the same chunks, but for stamps, and for what histograms say of counter resets. A stamp
// is the latest of what the window is made of. That of a raw sample is the time of its arrival, or its own where that is not kept.
func (r *Reader) Stored(ctx context.Context, q StoredQuery, fn func(Stored) error) error {
	of := Query{Mint: q.Start, Maxt: q.Limit - 1}
	if q.Rollups {
		of = Query{Mint: rollup.DayOf(max(q.Start, 1)) + 1, Maxt: rollup.DayOf(max(q.Limit-1, 1)) + rollup.Day, Kept: true, hasCut: true}
	}
	of = r.withCut(ctx, of)
	all, err := r.findAny(ctx, of, q.Selectors)
	if err != nil {
		return err
	}
	s := storedScan{r: r, rollups: q.Rollups, shown: r.view(ctx).Shown}
	s.start, s.limit = of.span()
	if s.rules, err = r.view(ctx).ShownRules(ctx, r.cfg.Schema.Tenant(), s.start); err != nil {
		return err
	}
	batches := r.newBatchReader(of)
	for len(all) > 0 {
		n := batches.cut(all)
		size, err := s.run(ctx, all[:n], fn)
		if err != nil {
			return err
		}
		all = all[n:]
		batches.size = min(4*n, maxBatch, max(1, batches.target*n/(size+n*seriesOverhead)))
	}
	return nil
}

// findAny returns the series that any of the selectors matches, in order of labels.
func (r *Reader) findAny(ctx context.Context, q Query, selectors [][]*labels.Matcher) (all []index.Series, err error) {
	found := make(map[string]index.Series)
	for _, q.Matchers = range selectors {
		result, err := r.Find(ctx, q)
		if err != nil {
			return nil, err
		}
		if len(selectors) == 1 {
			return result.Series, nil
		}
		for _, s := range result.Series {
			s.Bases = append(slices.Clone(found[s.Key].Bases), s.Bases...)
			slices.Sort(s.Bases)
			s.Bases = slices.Compact(s.Bases)
			found[s.Key] = s
		}
	}
	for _, s := range found {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b index.Series) int { return labels.Compare(a.Labels, b.Labels) })
	return all, nil
}

// A storedScan reads one batch of series after the other.
type storedScan struct {
	r            *Reader
	rollups      bool
	start, limit int64
	shown        [rollup.NumResolutions]int64
	rules        timeline.Rules

	// found is what was found of the series of the batch, and slots are their positions by key.
	found     []foundCells
	slots     map[string]int
	key       []byte
	samples   merge.Row
	encoder   bucketstore.ChunkEncoder
	windows   [][]bucketstore.Cell
	foundSize int
}

// foundCells are the cells of a series, and the times before which those of a resolution are not shown.
type foundCells struct {
	shown            [rollup.NumResolutions]int64
	cells, exemplars []StoredCell
}

// run reads a batch, and calls fn with the series that have cells. It returns how many bytes these are.
func (s *storedScan) run(ctx context.Context, of []index.Series, fn func(Stored) error) (size int, err error) {
	s.found, s.slots, s.foundSize = make([]foundCells, len(of)), make(map[string]int, len(of)), 0
	for i := range of {
		s.slots[of[i].Key] = i
		s.found[i].shown = s.shown
		if s.start < s.rules.Latest() {
			for r, from := range s.rules.Of(of[i].Labels) {
				s.found[i].shown[r] = max(s.shown[r], from)
			}
		}
	}
	for _, base := range basesOf(of) {
		if err := s.scan(ctx, of, base); err != nil {
			return 0, fmt.Errorf("read rows: %w", err)
		}
	}
	for i, f := range s.found {
		if cells := append(f.cells, f.exemplars...); len(cells) > 0 {
			if err := fn(Stored{of[i].Labels, cells}); err != nil {
				return 0, err
			}
		}
	}
	return s.foundSize, nil
}

// scan reads the rows of a base.
func (s *storedScan) scan(ctx context.Context, of []index.Series, base int64) error {
	p := part{start: max(s.start, base), limit: min(s.limit, base+series.Period)}
	if p.start >= p.limit {
		return nil
	}
	var rows []series.RowRange
	for i := range of {
		if slices.Contains(of[i].Bases, base) {
			rows = append(rows, series.SingleRow(s.r.cfg.Schema.AppendRowKey(nil, []byte(of[i].Key), base)))
		}
	}
	slices.SortFunc(rows, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
	var families []bucketstore.FamilyRange
	if s.rollups {
		families = p.rollups(base)
	} else {
		start, limit := p.qualifiers()
		families = slices.Insert(p.families(), 1, bucketstore.FamilyRange{Family: series.FamilyExemplar, Start: start, Limit: limit})
	}
	return s.r.cfg.Store.Scan(ctx, bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: rows, Families: families}, func(row bucketstore.Row) (err error) {
		if s.key, _, err = s.r.cfg.Schema.ParseRowKey(s.key[:0], row.Key); err != nil {
			return err
		}
		if i := slices.IndexFunc(row.Cells, func(c bucketstore.Cell) bool { return len(c.Qualifier) < series.QualifierSize }); i >= 0 {
			return fmt.Errorf("row %q: %w: family %s: qualifier %x", row.Key, series.ErrCorrupt, row.Cells[i].Family, row.Cells[i].Qualifier)
		}
		found := &s.found[s.slots[string(s.key)]]
		if s.rollups {
			err = s.takeRollups(found, base, row.Cells)
		} else {
			err = s.takeSamples(found, base, row.Cells)
		}
		if err != nil {
			err = fmt.Errorf("row %q: %w", row.Key, err)
		}
		return err
	})
}

// rollups returns the cells of the days that have times of p, in the row of a base.
func (p part) rollups(base int64) []bucketstore.FamilyRange {
	families := bucketstore.RollupFamilies()
	first, last := rollup.DayOf(max(p.start, 1)), rollup.DayOf(max(p.limit-1, 1))
	for i := range families {
		families[i].Start = series.AppendQualifier(nil, rollup.Qualifier(first, base))
		families[i].Limit = series.AppendQualifier(nil, rollup.Qualifier(last, base)+1)
	}
	return families
}

// takeRollups takes the rollups of a row that are shown. A day without samples has an empty one.
func (s *storedScan) takeRollups(found *foundCells, base int64, cells []bucketstore.Cell) error {
	for _, c := range cells {
		if day := rollup.DayOfCell(base, c.Qualifier); len(c.Value) > 0 && day >= found.shown[rollup.ResolutionOf(c.Family)] {
			s.take(&found.cells, base, c)
		}
	}
	return nil
}

// takeSamples takes the samples and exemplars of a row.
func (s *storedScan) takeSamples(found *foundCells, base int64, cells []bucketstore.Cell) error {
	start := max(s.start, base, found.shown[rollup.Raw])
	limit := min(s.limit, base+series.Period)
	clear(s.windows)
	s.windows = s.windows[:0]
	firstWindow := series.WindowOf(max(s.start, base))
	for _, c := range cells {
		t := base + int64(binary.BigEndian.Uint32(c.Qualifier))
		if c.Family == series.FamilyExemplar {
			if t >= start && t < limit {
				s.take(&found.exemplars, base, c)
			}
			continue
		}
		n := int((series.WindowOf(t) - firstWindow) / series.Window)
		for len(s.windows) <= n {
			s.windows = append(s.windows, nil)
		}
		s.windows[n] = append(s.windows[n], c)
	}
	for n, of := range s.windows {
		at := firstWindow + int64(n)*series.Window
		if len(of) == 0 || at+series.Window <= start {
			continue
		}
		sealed, err := s.seal(base, max(start, at), min(limit, at+series.Window), of)
		if err != nil {
			return fmt.Errorf("window from %d on: %w", at, err)
		}
		for _, c := range sealed {
			s.foundSize += len(c.Value)
			found.cells = append(found.cells, StoredCell{base, c})
		}
	}
	return nil
}

// seal returns what the cells of a window have in [start, limit) as chunks.
func (s *storedScan) seal(base, start, limit int64, cells []bucketstore.Cell) ([]bucketstore.Cell, error) {
	s.samples.Reset(base, start, limit, merge.Options{})
	var stamp int64
	for _, c := range cells {
		if c.Family != series.FamilyChunk {
			if err := s.samples.AddRaw(c.Family, c.Qualifier, c.Value); err != nil {
				return nil, err
			}
			stamp = max(stamp, c.Time)
			continue
		}
		sealed, err := chunk.Parse(c.Qualifier, c.Value)
		if err != nil {
			return nil, err
		}
		s.samples.AddChunk(sealed)
		stamp = max(stamp, sealed.Stamp)
	}
	return s.encoder.Encode(&s.samples, min(stamp, series.MaxTime))
}

// take copies a cell.
func (s *storedScan) take(to *[]StoredCell, base int64, c bucketstore.Cell) {
	c.Qualifier, c.Value = bytes.Clone(c.Qualifier), bytes.Clone(c.Value)
	s.foundSize += len(c.Value)
	*to = append(*to, StoredCell{base, c})
}
