package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/rollup"
)

// Exemplars returns the exemplars in [start, end], in milliseconds, of the series
// that any of the selectors matches, sorted by series and then by time. There may be
// as many as the limit on samples allows, or as WithExemplarLimit keeps.
func (r *Reader) Exemplars(ctx context.Context, start, end int64, selectors [][]*labels.Matcher) ([]exemplar.QueryResult, error) {
	q := r.withCut(ctx, Query{Mint: start, Maxt: end})
	all, err := r.findAny(ctx, q, selectors)
	if err != nil {
		return nil, err
	}
	found := make(map[string]index.Series, len(all))
	for _, s := range all {
		found[s.Key] = s
	}
	results, err := r.readExemplars(ctx, found, q)
	if results == nil {
		results = []exemplar.QueryResult{} // which is not null in JSON
	}
	slices.SortFunc(results, func(a, b exemplar.QueryResult) int { return labels.Compare(a.SeriesLabels, b.SeriesLabels) })
	return results, err
}

// readExemplars reads the exemplars of these series, by key, in the range of q.
func (r *Reader) readExemplars(ctx context.Context, found map[string]index.Series, q Query) ([]exemplar.QueryResult, error) {
	start, limit := q.span()
	var rows []series.RowRange
	for key, s := range found {
		for _, base := range s.Bases {
			rows = append(rows, series.SingleRow(r.cfg.Schema.AppendRowKey(nil, []byte(key), base)))
		}
	}
	if len(rows) == 0 || start >= limit {
		return nil, nil
	}
	slices.SortFunc(rows, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
	cuts, err := r.view(ctx).ShownRules(ctx, r.cfg.Schema.Tenant(), start)
	if err != nil {
		return nil, err
	}
	read := exemplarScan{r: r, found: found, cuts: cuts, start: start, limit: limit, parts: newExemplarParts(ctx, start, limit), at: make(map[string]int)}
	family := bucketstore.FamilyRange{Family: series.FamilyExemplar}
	if asked := (part{start: start, limit: limit}); asked.inOneBucket() {
		family.Start, family.Limit = asked.qualifiers()
	}
	for part := range slices.Chunk(rows, exemplarRows) {
		err := r.cfg.Store.Scan(ctx, bucketstore.ScanRequest{
			Table:    bucketstore.Metric,
			Rows:     part,
			Families: []bucketstore.FamilyRange{family},
		}, read.add)
		if err != nil && !errors.Is(err, ErrLimit) {
			err = fmt.Errorf("read exemplars: %w", err)
		}
		if err != nil {
			return nil, err
		}
	}
	read.takeParts()
	for i := range read.results {
		slices.SortStableFunc(read.results[i].Exemplars, exemplar.Compare)
	}
	return read.results, nil
}

// exemplarRows is how many rows one scan for exemplars asks for: a bound on the
// bytes of its keys.
const exemplarRows = 128

// exemplarScan gathers the exemplars of rows.
type exemplarScan struct {
	r            *Reader
	found        map[string]index.Series
	cuts         timeline.Rules
	start, limit int64
	// parts is what a limit keeps, or nil.
	parts *exemplarParts

	results []exemplar.QueryResult
	at      map[string]int
	n       int
	key     []byte
	builder labels.ScratchBuilder
}

// add takes the exemplars of a row that lie in the range.
func (s *exemplarScan) add(row bucketstore.Row) error {
	var base int64
	var err error
	if s.key, base, err = s.r.cfg.Schema.ParseRowKey(s.key[:0], row.Key); err != nil {
		return err
	}
	found, ok := s.found[string(s.key)]
	if !ok {
		return nil
	}
	start := s.start
	if start < s.cuts.Latest() {
		start = max(start, s.cuts.Of(found.Labels)[rollup.Raw])
	}
	for _, c := range row.Cells {
		x, err := cell.ParseExemplar(base, c.Qualifier, c.Value, &s.builder)
		if err != nil {
			return fmt.Errorf("row %q: %w", row.Key, err)
		}
		if x.Ts < start || x.Ts >= s.limit {
			continue
		}
		if s.parts != nil {
			s.parts.add(&found, x)
			continue
		}
		if s.n++; s.n > s.r.cfg.Limits.MaxSamples {
			return limitError("more than %d exemplars", s.r.cfg.Limits.MaxSamples)
		}
		s.take(&found, x)
	}
	return nil
}

// take adds an exemplar of a series to the results.
func (s *exemplarScan) take(of *index.Series, x exemplar.Exemplar) {
	i, ok := s.at[of.Key]
	if !ok {
		i = len(s.results)
		s.at[of.Key] = i
		s.results = append(s.results, exemplar.QueryResult{SeriesLabels: of.Labels})
	}
	s.results[i].Exemplars = append(s.results[i].Exemplars, x)
}

// takeParts adds what a limit kept to the results.
func (s *exemplarScan) takeParts() {
	if s.parts == nil {
		return
	}
	for i := range s.parts.best {
		if b := &s.parts.best[i]; b.series != nil {
			s.take(b.series, b.Exemplar)
		}
	}
}
